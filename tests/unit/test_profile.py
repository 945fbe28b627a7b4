# SPDX-License-Identifier: Apache-2.0
"""The algebra of profiles: merge, filter, group, subtract, top; what is never added up."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.profile_cases import LIBCUDA, A, B, C, profiles, sample

from igsdk import UsageError
from igsdk.ledger import Event, Ledger, ProcessInfo, Stack
from igsdk.ledger.columns import HEAP, PROCESSES
from igsdk.profile import Metadata, ProcessRow, Profile
from igsdk.profile import stacks as stacks_module
from igsdk.profile.names import HOSTS, VALUES
from igsdk.profile.stacks import Stacks, unique


@given(profiles, profiles, profiles)
@settings(max_examples=80, deadline=None)
def test_merge_does_not_care_about_brackets(a: Profile, b: Profile, c: Profile):
    left = Profile.merge(Profile.merge(a, b), c)
    right = Profile.merge(a, Profile.merge(b, c))
    assert left._content() == right._content() == Profile.merge(a, b, c)._content()
    assert left.metadata == right.metadata


@given(profiles, profiles)
@settings(max_examples=80, deadline=None)
def test_merge_adds_and_keeps_every_byte(a: Profile, b: Profile):
    both = Profile.merge(a, b)
    assert both._content() == Profile.merge(b, a)._content()
    for value in VALUES:
        assert both.total(value) == a.total(value) + b.total(value)
        sums = {host: a.total(value, host) + b.total(value, host) for host in HOSTS}
        assert both.totals(value) == sums


@given(profiles, profiles)
@settings(max_examples=80, deadline=None)
def test_subtract_undoes_merge(a: Profile, b: Profile):
    assert Profile.merge(a, b).subtract(b)._content() == a._content()
    assert len(a.subtract(a)) == 0
    assert a.subtract(b).total("alloc_space") == a.total("alloc_space") - b.total("alloc_space")


@given(profiles)
@settings(max_examples=60, deadline=None)
def test_filters_split_a_profile_without_loss(profile: Profile):
    parts = [profile.filter(host=host) for host in (*HOSTS, "")]
    assert Profile.merge(*parts)._content() == profile._content()


@given(profiles, st.lists(st.sampled_from(["kind", "process", "pid", "function"]), unique=True))
@settings(max_examples=60, deadline=None)
def test_group_keeps_the_sums_and_the_host_classes_apart(profile: Profile, by: list[str]):
    grouped = profile.group(by)
    assert all(grouped.totals(value) == profile.totals(value) for value in VALUES)
    assert len(grouped) <= len(profile)


def test_a_filter_takes_globs_and_names():
    profile = Profile.from_samples(
        [
            sample(LIBCUDA, A, C, process="python train.py", pid=1, inuse_space=1),
            sample(LIBCUDA, B, C, process="python serve.py", pid=2, inuse_space=2),
            sample(B, C, process="vllm", pid=3, inuse_space=4, kind="pool"),
        ]
    )
    assert profile.filter(process="python*").total() == 3
    assert profile.filter(function="wor?").total() == 6
    assert profile.filter(function="wor?", kind="device").total() == 2
    assert profile.filter(pid=3).total() == 4
    assert profile.filter(device="1").total() == 0
    with pytest.raises(UsageError, match="colour"):
        profile.filter(colour="red")


def test_a_filter_takes_processes_and_failures_along():
    rows = (ProcessRow("python a.py", 1, 0), ProcessRow("vllm", 2, 0))
    stack = [{"function": "alloc"}]
    failures = (
        {"process": "vllm", "pid": 2, "kind": "pool", "stack": stack},
        {"process": "python a.py", "pid": 1, "kind": "device", "stack": []},
    )
    profile = Profile.from_samples([], Metadata(processes=rows, failures=failures))
    assert [row.pid for row in profile.filter(process="v*").metadata.processes] == [2]
    assert [f["pid"] for f in profile.filter(process="v*").metadata.failures] == [2]
    assert [f["pid"] for f in profile.filter(function="al*").metadata.failures] == [2]
    assert [f["pid"] for f in profile.filter(kind="device").metadata.failures] == [1]


def test_recursion_counts_once_in_the_total():
    profile = Profile.from_samples([sample(A, B, A, B, C, inuse_space=10)])
    rows = {row.name: (row.self, row.total) for row in profile.top()}
    assert rows == {"alloc": (10, 10), "work": (0, 10), "<module>": (0, 10)}


def test_top_by_function_line_and_stack():
    other_line = replace(A, line=9)
    profile = Profile.from_samples(
        [sample(A, C, inuse_space=10), sample(other_line, C, inuse_space=30)]
    )
    assert [(r.name, r.self, r.total) for r in profile.top(1, by="function")] == [("alloc", 40, 40)]
    lines = [(r.line, r.self, r.total) for r in profile.top(3, by="line")]
    assert lines == [(3, 0, 40), (9, 30, 30), (1, 10, 10)]
    assert [r.frames for r in profile.top(9, by="stack")] == [(other_line, C), (A, C)]
    with pytest.raises(UsageError, match="moon"):
        profile.top(by="moon")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="inuse_spaces"):
        profile.top(value="inuse_spaces")


def test_same_name_in_two_files_is_two_holders():
    twin = replace(A, file="b.py")
    profile = Profile.from_samples([sample(A, inuse_space=1), sample(twin, inuse_space=2)])
    assert [(row.file, row.self) for row in profile.top()] == [("b.py", 2), ("a.py", 1)]


@given(profiles, st.sampled_from(["function", "line", "stack"]), st.sampled_from(VALUES))
@settings(max_examples=60, deadline=None)
def test_selfs_add_up_to_the_total_and_no_total_exceeds_it(profile: Profile, by: Any, value: str):
    rows = profile.top(10**6, value, by)
    whole = profile.total(value)
    assert sum(row.self for row in rows) == whole
    assert all(row.self <= row.total <= whole for row in rows)


def test_registered_and_imported_are_shown_and_never_summed():
    profile = Profile.from_samples(
        [
            sample(A, inuse_space=1),
            sample(A, kind="pinned", host="pinned", inuse_space=10),
            sample(A, kind="managed", host="managed", inuse_space=100),
            sample(A, kind="registered", host="registered", inuse_space=1000),
            sample(A, kind="imported", host="imported", inuse_space=10000),
        ]
    )
    assert profile.total() == 111
    assert profile.top()[0].total == 111
    assert profile.total(host="registered") == 1000
    assert profile.top(host="imported")[0].total == 10000
    assert len(profile.group([])) == 5
    assert profile.totals() == dict(zip(HOSTS, (1, 10, 1000, 10000, 100), strict=True))


def test_peak_is_the_same_profile_shown_by_its_peak():
    profile = Profile.from_samples([sample(A, inuse_space=1, peak_space=7)])
    assert (profile.total(), profile.peak().total()) == (1, 7)
    assert profile.peak().top()[0].self == 7


def test_two_peaks_are_no_moment():
    one = Profile.from_samples([], Metadata(peak="exact", peak_ns=5))
    none = Profile.from_samples([])
    assert Profile.merge(one, none).metadata.peak == "exact"
    assert Profile.merge(one, one).metadata.peak == "summed"
    assert Profile.merge(one, one).metadata.peak_ns == 0


def test_profiles_of_no_profiles_are_empty():
    empty = Profile.merge()
    assert (len(empty), empty.total(), empty.top()) == (0, 0, [])
    assert repr(empty) == "<Profile inuse_space 0 B, 0 rows, 0 stacks>"


def test_a_hash_that_deceives_is_found_out(monkeypatch: pytest.MonkeyPatch):
    table = Stacks.of([[1, 2], [3, 4], [1, 2], [5]])
    honest = unique(table).inverse.tolist()
    same = np.zeros(4, dtype=np.uint64)
    monkeypatch.setattr(stacks_module, "_hashes", lambda stacks: same)
    deceived = unique(table).inverse.tolist()
    for numbers in (honest, deceived):
        assert numbers[0] == numbers[2]
        assert len(set(numbers)) == 3


def test_merging_runs_no_line_per_row():
    def profile(rows: int) -> Profile:
        return Profile.from_samples(
            sample(A, B, pid=i, inuse_space=1, start_ns=5) for i in range(rows)
        )

    def lines(rows: int) -> int:
        one, two = profile(rows), profile(rows)
        count = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal count
            if "igsdk/" not in frame.f_code.co_filename:
                return None
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            merged = Profile.merge(one, two)
            merged.subtract(one).top()
        finally:
            sys.settrace(before)
        assert merged.total() == 2 * rows
        return count

    few, many = lines(100), lines(5000)
    assert few > 50
    assert many <= few * 1.2


# From the ledger.

STACK = Stack.of([LIBCUDA, A, C], how="frame pointers")
TRAINER = ProcessInfo(11, 4321, 7, 10**9, comm="python", cmdline="python train.py --lr 1", peak=900)


def batch(schema: Any, *rows: dict[str, int]) -> dict[str, np.ndarray]:
    base = {"boot": 7, "epoch": 1, "process": 11, "kind": 1}
    return {
        name: np.array([{**base, **row}.get(name, 0) for row in rows], dtype=kind)
        for name, kind in schema.types.items()
    }


def booked(size: int, calls: int = 1, **more: int) -> dict[str, int]:
    return {"alloc_bytes": size, "alloc_calls": calls, **more}


def test_a_ledger_becomes_a_profile():
    ledger = Ledger()
    ledger.update_process_info([TRAINER], boot=7)
    ledger.update_stacks([STACK])
    ledger.update_heap(
        batch(
            HEAP,
            booked(600, 2, stack=STACK.id, peak_bytes=500, peak_calls=2, context=1),
            booked(100, stack=STACK.id, context=2, fail_bytes=70, fail_calls=1),
            booked(30, stack=12345),
            booked(20, overflow=1),
            booked(50, kind=6, host=1, device=-1, stack=STACK.id),
            booked(90, kind=4, host=2, stack=STACK.id),
        )
    )
    ledger.update_processes(batch(PROCESSES, booked(760, 6, in_use=760, peak=800)))
    profile = Profile.from_ledger(ledger, Metadata(peak="exact", target="local:"))
    by_leaf = {
        (s["stack"][0].name, s["kind"], s["device"], s["host"]): s["inuse_space"]
        for s in profile.samples()
    }
    assert by_leaf == {
        ("cuMemAlloc_v2", "device", "0", "own"): 700,
        ("[stack not received]", "device", "0", "own"): 30,
        ("[accounts full]", "device", "0", "own"): 20,
        ("[not attributed]", "device", "0", "own"): 10,
        ("cuMemAlloc_v2", "vmm", "host", "pinned"): 50,
        ("cuMemAlloc_v2", "registered", "host", "registered"): 90,
    }
    assert profile.total(host="own") == 760
    assert profile.total("peak_space") == 500
    assert profile.total("failed_objects") == 1
    assert {s["process"] for s in profile.samples()} == {"python train.py"}
    assert {(s["pid"], s["start_ns"]) for s in profile.samples()} == {(4321, 10**9)}
    row = profile.metadata.processes[0]
    assert (row.command, row.ns_pid, row.state, row.peak) == (
        "python train.py --lr 1",
        7,
        "live",
        900,
    )
    assert row.classes["own"] == {
        "in_use": 760, "allocated": 760, "freed": 0, "failed_bytes": 70, "failed_calls": 1,
    }  # fmt: skip
    assert profile.metadata.stacks == ("frame pointers",)
    assert profile.metadata.boots == (7,)


def test_what_an_ended_process_held_is_its_in_use():
    ledger = Ledger()
    ledger.update_process_info([replace(TRAINER, ended_ns=5)], boot=7)
    held = booked(300, 3, free_bytes=100, free_calls=1, implicit_bytes=200, implicit_calls=2)
    ledger.update_heap(batch(HEAP, {**held, "ended": 2}))
    profile = Profile.from_ledger(ledger)
    row = profile.metadata.processes[0]
    assert profile.total() == 200
    assert (row.state, row.own("in_use"), row.own("freed")) == ("ended", 200, 100)


def test_processes_that_nobody_named_say_so():
    ledger = Ledger()
    ledger.update_heap(batch(HEAP, booked(1), booked(2, process=0)))
    names = {s["process"] for s in Profile.from_ledger(ledger).samples()}
    assert names == {"[process unknown]", "[process table full]"}


def test_failures_travel_and_are_bounded():
    ledger = Ledger()
    events = [
        Event("failure", t, TRAINER, 1, "cuMemAlloc_v2", "device", 0, 0, 9, 2, "OOM", 5, 6, STACK)
        for t in range(150)
    ]
    ledger.update_failures(events)
    ledger.update_failures(events[-10:])
    failures = Profile.from_ledger(ledger).metadata.failures
    assert [f["time_ns"] for f in failures] == list(range(130, 150))
    assert failures[0]["stack"][1]["function"] == "alloc"


def test_a_sum_too_large_for_a_file_is_cut_off_and_not_negative():
    ledger = Ledger()
    ledger.update_heap(batch(HEAP, booked(2**64 - 1)))
    assert Profile.from_ledger(ledger).total("alloc_space") == 2**63 - 1


@pytest.mark.parametrize(
    ("cmdline", "comm", "name"),
    [
        ("/usr/bin/python3.11 -u /srv/train.py --lr 1", "pt_main_thread", "python3.11 train.py"),
        (
            "python -m vllm.entrypoints.api_server",
            "python",
            "python -m vllm.entrypoints.api_server",
        ),
        ("python -c print()", "python", "python -c"),
        ("python -W ignore -Xdev -X perf train.py", "python", "python train.py"),
        ("python", "python", "python"),
        ("/opt/bin/server --port 1", "server", "server"),
        (None, "server", "server"),
        ("", "", "?"),
    ],
)
def test_short_names(cmdline: str | None, comm: str, name: str):
    assert ProcessInfo(1, 1, comm=comm, cmdline=cmdline).name == name
