# SPDX-License-Identifier: Apache-2.0
"""The report and the lines of events: what people read, and what scripts read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.profile_cases import LIBCUDA, A, B, C, profiles, sample

from igsdk import _abi
from igsdk._events import event_record
from igsdk._results import result_name
from igsdk._units import format_bytes, format_duration, plural
from igsdk.ledger import AttachedLibrary, Event, Frame, ProcessInfo, Site, Stack, marker
from igsdk.profile import Metadata, ProcessRow, Profile
from igsdk.views import event_json, event_line, report_record, report_text
from igsdk.views.events import event_json_line
from igsdk.views.losses import MEANINGS
from igsdk.views.text import cut_end, cut_place, shorten, table

GIB = 1 << 30
TRAINER = ProcessInfo(11, 4321, comm="python", cmdline="python train.py --lr 1")
OOM = Event(
    type="failure", time_ns=5 * 10**9, process=TRAINER, tid=4321, api="cuMemAlloc_v2",
    kind="device", device=0, address=0, bytes=80 * GIB, result=2,
    result_name="CUDA_ERROR_OUT_OF_MEMORY", latency_ns=1500, in_use=7 * GIB,
    stack=Stack.of([LIBCUDA, A, C]),
)  # fmt: skip


def row(**more: Any) -> ProcessRow:
    figures = {"in_use": 7 * GIB, "allocated": 9 * GIB, "freed": 2 * GIB, "failed_calls": 2}
    values: dict[str, Any] = {"peak": 8 * GIB, "classes": {"own": figures}, **more}
    return ProcessRow("python train.py", 4321, 5, "python train.py --lr 1", **values)


def full_profile(**more: Any) -> Profile:
    rows = [
        sample(LIBCUDA, A, C, inuse_space=5 * GIB, inuse_objects=3, process="p", pid=4321),
        sample(LIBCUDA, B, C, inuse_space=2 * GIB, inuse_objects=1, process="p", pid=4321),
        sample(A, C, kind="registered", device="host", host="registered", inuse_space=GIB),
    ]
    facts: dict[str, Any] = {"processes": (row(),), "peak": "exact", **more}
    return Profile.from_samples(rows, Metadata(**facts))


def line_with(text: str, word: str) -> str:
    (line,) = [line for line in text.splitlines() if word in line]
    return " ".join(line.split())


def test_the_first_lines_say_what_was_traced_and_whether_it_is_exact():
    text = report_text(
        full_profile(
            command="python train.py", target="local:", duration_ns=12 * 10**9,
            driver="simulated", time_ns=1_700_000_000 * 10**9,
        ),
        width=200,
    )  # fmt: skip
    first, second = text.splitlines()[:2]
    assert first == (
        "Traced: python train.py, 1 process, on local:, for 12.0 s, "
        "from 2023-11-14 22:13:20 UTC, SIMULATED driver."
    )
    assert second == "Exact: bytes are exact; the peak is exact."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"losses": {"events": 3}, "peak": "inexact"}, "bytes are exact; the peak may have been"),
        ({"losses": {"live_full": 3}}, "figures are too high: at most"),
        ({"losses": {"usage_full": 3}}, "figures are too low: at least"),
        ({"losses": {"live_full": 3, "usage_full": 3}}, "not complete"),
        ({"losses": {"something_new": 3}}, "not complete"),
        ({"processes": (row(before_us=True),)}, "peak are only of what was seen"),
        ({"processes": (row(late_ns=5),)}, "peak are only of what was seen"),
    ],
)
def test_what_is_not_exact_is_not_called_exact(more: dict[str, Any], words: str):
    assert words in report_text(full_profile(**more), width=200).splitlines()[1]
    assert "peak is exact" not in report_text(full_profile(**more))


def test_a_full_table_of_live_allocations_explains_the_frees_that_match_nothing():
    losses = {"live_full": 9, "unknown_free": 8}
    text = " ".join(report_text(full_profile(losses=losses), width=200).split())
    assert "unknown_free: 8 frees" in text
    assert "found no room in the table (live_full), or were made before" in text
    assert text.count("`--live-entries N`") == 2
    alone = report_text(full_profile(losses={"unknown_free": 8}), width=200)
    assert "those allocations were made before the probes were there" in alone


def test_what_ran_before_us_is_said_once():
    early = row(before_us=True, unknown_frees=3)
    text = " ".join(
        report_text(full_profile(processes=(early,), losses={"unknown_free": 3})).split()
    )
    assert "what it allocated earlier is missing, as 3 frees of it showed" in text
    assert "unknown_free" not in text
    assert "unknown_free: 4" in report_text(
        full_profile(processes=(early,), losses={"unknown_free": 4})
    )


def test_where_nothing_was_traced_nothing_is_called_exact():
    why = "None of the chosen processes called the CUDA driver during this run."
    metadata = Metadata(command="./a", peak="exact", notes=(why,))
    text = report_text(Profile.from_samples([], metadata))
    assert text.splitlines()[:2] == ["Traced: ./a.", f"Nothing was traced: {why}"]
    assert text.count(why) == 1
    assert "Exact" not in text
    assert "0 process" not in text


def test_the_process_table():
    text = report_text(full_profile())
    assert line_with(text, "freed") == "pid state in use peak allocated freed failed command"
    assert line_with(text, "4321 ") == (
        "4321 live 7.00 GiB 8.00 GiB 9.00 GiB 2.00 GiB 2 python train.py"
    )
    ended = report_text(full_profile(processes=(row(state="ended"),)))
    assert "held at exit" in ended
    mixed = report_text(full_profile(processes=(row(state="ended"), row())))
    assert "in use or held" in mixed


def test_names_of_processes_are_not_squeezed_out():
    rows = (row(state="ended"), replace(row(), process="python a_long_name.py"))
    for width in (80, 100, 200):
        text = report_text(full_profile(processes=rows), width=width)
        table_of = text[text.index("Processes (") :].split("\n\n")[0]
        assert table_of.splitlines()[2].endswith("  python train.py")
        assert table_of.splitlines()[3].endswith("  python a_long_name.py")


def test_where_memory_lies_is_said_where_kind_and_device_do_not():
    assert "lies" not in report_text(full_profile())
    moving = sample(A, kind="managed", host="managed", inuse_space=5)
    assert "on either, it moves" in report_text(Profile.from_samples([moving]))


def test_a_figure_stands_right_in_the_last_column_too():
    assert table(["<a", "failed"], [["x", "10"], ["y", "7"]], 80) == [
        "  a  failed",
        "  x      10",
        "  y       7",
    ]


def test_what_was_refused_is_not_called_held():
    profile = Profile.from_samples([sample(A, C, failed_space=GIB, failed_objects=2)])
    profile.default_value = "failed_space"
    text = report_text(profile)
    assert "Largest holders" not in text
    assert "Asked for and refused: functions, memory of devices 1.00 GiB" in text
    assert "1. 1.00 GiB, 100.0 %, in 2 calls" in text
    assert "Asked for and refused: stacks (root first, leaf last)" in text
    nothing = Profile(full_profile()._table, default_value="failed_space")
    assert "Largest holders: none, this profile has no memory refused" in report_text(nothing)


def test_frames_without_symbols_never_look_alike():
    path = "/srv/" + "long/" * 30 + "libx.so.1"
    one, two = (Frame(f"libx.so.1+{n:#x}", None, 0, n, path) for n in (0xB849, 0xB850))
    text = report_text(
        Profile.from_samples([sample(one, inuse_space=5), sample(two, inuse_space=4)]), width=80
    )
    for name in ("libx.so.1+0xb849  /srv/", "libx.so.1+0xb850  /srv/"):
        assert text.count(name) == 2
    assert "libx.so.1\n" not in text


def test_stacks_that_read_alike_are_one():
    def call(address: int) -> Frame:
        return Frame("call", None, 0, address, "/srv/app")

    rows = [sample(call(n), C, inuse_space=n, inuse_objects=1, process="p", pid=9) for n in (5, 7)]
    text = report_text(Profile.from_samples(rows))
    assert "  1. 12 B, 100.0 %, in 2 blocks: p (9)" in text
    assert "  2. " not in text
    assert len(report_record(Profile.from_samples(rows))["stacks"]) == 2


def test_self_is_what_a_function_asked_the_driver_for():
    text = report_text(full_profile())
    assert line_with(text, "71.4 %  alloc  a.py:1") == "5.00 GiB 71.4 % alloc a.py:1"
    functions = text[text.index("functions, ") :]
    assert line_with(functions, "71.4 %  alloc") == "5.00 GiB 5.00 GiB 71.4 % alloc a.py"
    assert line_with(functions, "100.0 %  <module>") == "0 B 7.00 GiB 100.0 % <module> a.py"
    assert "%  cuMemAlloc_v2" not in text


def test_a_stack_stands_root_first_with_total_and_self():
    lines = report_text(full_profile()).splitlines()
    at = lines.index("  1. 5.00 GiB, 71.4 %, in 3 blocks: p (4321)")
    assert [" ".join(line.split()) for line in lines[at + 1 : at + 5]] == [
        "total self",
        "7.00 GiB 0 B <module> a.py:3",
        "5.00 GiB 5.00 GiB alloc a.py:1",
        "cuMemAlloc_v2 /usr/lib/libcuda.so.1",
    ]


def test_a_deep_stack_keeps_both_ends():
    deep = [Frame(f"f{number}") for number in range(50)]
    text = report_text(Profile.from_samples([sample(*deep, inuse_space=9)]))
    stack = text[text.index("(root first") :]
    assert "… 30 frames …" in stack
    assert "f49" in stack
    assert "f0" in stack
    assert "f30" not in stack


def test_registered_memory_stands_apart_and_in_no_sum():
    text = report_text(full_profile())
    apart = text[text.index("Not allocated by these processes") :]
    assert line_with(apart.split("\n\n")[0], "registered").startswith("registered host 1.00 GiB")
    assert "functions, in use, memory of devices 7.00 GiB" in text
    assert "stacks, registered memory, in use" in text


def test_out_of_memory_says_what_was_asked_held_and_by_whom():
    other = replace(OOM, result=1, result_name="CUDA_ERROR_INVALID_VALUE", bytes=0, time_ns=1)
    failures = tuple(event_record(e) for e in (other, OOM, replace(OOM, time_ns=6)))
    text = report_text(full_profile(failures=failures), width=200)
    assert "Failed allocations: 3 calls" in text
    lines = text[text.index("Failed allocations") :].splitlines()
    assert lines[1].strip() == (
        "CUDA_ERROR_OUT_OF_MEMORY (2) 2 times: python train.py (pid 4321) asked for 80.00 GiB of "
        "device memory on device 0 by cuMemAlloc_v2, when it had 7.00 GiB in use itself"
    )
    assert lines[2].split() == ["at", "alloc", "a.py:1"]
    assert lines[3].split() == ["by", "<module>", "a.py:3"]
    assert "CUDA_ERROR_INVALID_VALUE (1): " in text


def failure_section(*stacks: list[Frame]) -> list[str]:
    failures = tuple(event_record(replace(OOM, stack=Stack.of(stack))) for stack in stacks)
    text = report_text(full_profile(failures=failures))
    section = text[text.index("Failed allocations") : text.index("\n\nLosses")]
    return [line.strip() for line in section.splitlines()]


def test_who_used_a_library_is_seen_where_its_allocation_fails():
    """Of a library with many layers the innermost lines are all its own."""
    inner = [replace(A, function=f"layer{n}") for n in range(6)]
    outer = [replace(B, function=f"user{n}") for n in range(4)]
    names = [line.split()[1] for line in failure_section([LIBCUDA, *inner, *outer])[3:]]
    assert names == ["layer0", "layer1", "layer2", "3", "user0", "user1", "user2", "user3"]
    assert "… 3 frames …" in failure_section([LIBCUDA, *inner, *outer])
    assert len(failure_section([LIBCUDA, *inner[:4], *outer])) == 3 + 8


def test_a_second_try_of_an_allocator_is_the_same_failure():
    tries = [[LIBCUDA, Frame("alloc_block", "a.cpp", line), A, C] for line in (7, 9)]
    assert failure_section(*tries)[1].startswith("CUDA_ERROR_OUT_OF_MEMORY (2) 2 times: ")
    other = failure_section(tries[0], [LIBCUDA, B, C])
    assert sum("CUDA_ERROR_OUT_OF_MEMORY (2): " in line for line in other) == 2


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("env A=1 B_2=/x:/y python train.py", "python train.py"),
        ("/usr/bin/env A=1 python a=b", "python a=b"),
        ("env -i A=1 python", "env -i A=1 python"),
        ("env A=1", "env A=1"),
        ("environment A=1 x", "environment A=1 x"),
    ],
)
def test_settings_before_a_command_are_left_away(command: str, shown: str):
    profile = full_profile(command=command)
    assert report_text(profile).startswith(f"Traced: {shown}, ")
    assert report_record(profile)["metadata"]["command"] == command


def test_the_end_of_a_place_is_kept():
    label = "function_of_some_length  /srv/packages/module/driver.py:324"
    assert cut_place(label, 45) == "function_of_some_length  …odule/driver.py:324"
    assert cut_place(label, 55) == "function_of_some_length  /srv/pack…module/driver.py:324"
    assert cut_place(label, 35) == "function_of_some_length  …er.py:324"
    assert cut_place(label, 99) == label


def test_failures_come_through_a_file(tmp_path: Any):
    profile = full_profile(failures=(event_record(OOM),))
    profile.write(tmp_path / "x.pb.gz")
    assert report_text(Profile.read(tmp_path / "x.pb.gz")) == report_text(profile)


def test_every_loss_of_the_kernel_has_words():
    assert set(_abi.LOSSES) <= set(MEANINGS)
    for cause in MEANINGS:
        text = " ".join(report_text(full_profile(losses={cause: 7}), width=200).split())
        assert f"{cause}: " in text
        assert MEANINGS[cause].remedy in text
        assert "{" not in text


def test_no_losses_are_said_and_harmless_things_are_none():
    assert "Losses: none" in report_text(full_profile(losses={"nested": 4}))
    assert "Notes\n  nested: 4 driver calls" in report_text(full_profile(losses={"nested": 4}))
    late = row(late_ns=2_000_000, before_us=True, nvml_bytes=3 * GIB)
    text = report_text(full_profile(processes=(late,)), width=200)
    assert "the device itself says 3.00 GiB" in text
    assert "2 ms after python train.py" in text
    assert text.count("igsdk record -- CMD") == 1


def test_what_was_attached():
    sites = (Site("a", 1, "jump"), Site("b", 2, "entry"), Site("c", 3, "jump"))
    library = AttachedLibrary("/l/libcuda.so.1", sites, ("cuNew",), late_ns=5_000_000)
    text = report_text(full_profile(attached=(library,)), width=200)
    assert (
        "/l/libcuda.so.1: 3 of 4 functions watched, 2 on the cheap site behind the entry, "
        "1 on the entry itself, 5 ms after it was mapped; it lacks cuNew"
    ) in text
    quick = replace(library, sites=sites[::2], missing=(), late_ns=0)
    text = report_text(full_profile(attached=(quick,)), width=200)
    assert "/l/libcuda.so.1: 2 of 2 functions watched\n" in text


def test_a_failure_names_its_device_as_the_tables_do():
    uuid = "GPU-0a1b2c3d-1111-2222-3333-444455556666"
    failure = {**event_record(OOM), "device_name": uuid}
    text = report_text(full_profile(failures=(failure,)), width=200)
    assert "of device memory on device GPU-0a1b2c3d by cuMemAlloc_v2" in text


def test_with_nothing_in_use_the_peak_is_shown():
    text = report_text(Profile.from_samples([sample(A, C, peak_space=GIB, alloc_space=2 * GIB)]))
    assert "functions, in use at the peak" in text
    both = Profile.from_samples([sample(A, C, peak_space=GIB, inuse_space=5)])
    assert "functions, in use, " in report_text(both)
    assert "functions, in use at the peak, " in report_text(both.peak())


def test_an_empty_profile_and_another_tools_have_a_report():
    assert "Losses: none" in report_text(Profile.merge())
    lacks = tuple(name for name in Profile.values if not name.startswith("alloc"))
    rows = [{"stack": (A,), "alloc_space": 5, "alloc_objects": 2}]
    text = report_text(Profile.from_samples(rows, Metadata(foreign=True, lacks=lacks)), width=200)
    assert text.splitlines()[0] == (
        "Written by another tool: its exactness is not known. Shown: alloc_space "
        "(allocated over time), since the file has no inuse_space."
    )
    assert "All memory\n  in use  blocks  at peak  allocated  failed\n" in text
    assert text.split("\n\n")[1].splitlines()[2].split() == ["5", "B"]
    assert "0 B" not in text.split("Largest holders")[0]
    for word in ("0 process", "Exact:", "Losses"):
        assert word not in text
    assert "  1. 5 B, 100.0 %, in 2 blocks\n" in text


def test_counts_are_not_bytes():
    text = report_text(
        Profile.from_samples(
            [{"stack": (A,), "alloc_objects": 2048}],
            Metadata(foreign=True, lacks=tuple(n for n in Profile.values if n != "alloc_objects")),
        )
    )
    assert "KiB" not in text
    assert "2,048" in text


@given(profiles, st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_every_line_fits_and_nothing_controls_the_terminal(profile: Profile, width: int):
    evil = sample(Frame("\x1b[31m" + "x" * 300, "/very/" * 60), inuse_space=5, process="e\nvil\t")
    both = Profile.merge(profile, Profile.from_samples([evil]))
    text = report_text(both, width=width)
    room = max(80, min(200, width))
    assert all(len(line) <= room for line in text.splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)


@given(profiles)
@settings(max_examples=30, deadline=None)
def test_the_record_is_json_with_exact_bytes(profile: Profile):
    record = json.loads(json.dumps(report_record(profile)))
    assert record["totals"]["inuse_space"] == profile.totals("inuse_space")
    sums = sum(kind["inuse_space"] for kind in record["kinds"] if kind["host"] == "own")
    assert sums == profile.total("inuse_space", "own")


def test_an_event_is_one_line():
    line = event_line(OOM)
    assert line.startswith("5.000000  failure  80.00 GiB  device  cuMemAlloc_v2  ")
    assert "CUDA_ERROR_OUT_OF_MEMORY  pid 4321  python train.py  in use 7.00 GiB" in line
    evil = replace(OOM, process=replace(TRAINER, cmdline=None, comm="a\nb\x1b[2J"))
    assert "\n" not in event_line(evil)
    assert "\x1b" not in event_line(evil)
    assert event_line(OOM, wall_ns=0).split()[0].endswith(":05.000000")
    freed = replace(OOM, type="free", address=0x7F00, result=0, stack=None)
    assert "0x7f00" in str(freed)
    assert str(OOM).endswith("  at alloc (a.py:1)")
    native = replace(OOM, stack=Stack.of([LIBCUDA, Frame("f", "x.cpp", 3, mapping="/lib/x.so")]))
    assert str(native).endswith("  at f")
    assert str(replace(OOM, type="free", result=0)).endswith("  allocated at alloc (a.py:1)")


def test_an_event_is_a_json_object_with_stable_keys():
    record = json.loads(event_json_line(OOM))
    assert record == json.loads(json.dumps(event_json(OOM)))
    assert list(record) == [
        "type", "boot", "time_ns", "process", "pid", "ns_pid", "start_ns", "node", "namespace",
        "pod", "container", "tid", "api", "kind", "device", "address", "bytes", "result",
        "result_name", "latency_ns", "in_use", "stack_id", "stack",
    ]  # fmt: skip
    assert record["bytes"] == 80 * GIB
    assert record["stack"][1] == {
        "function": "alloc", "file": "a.py", "line": 1, "address": 0, "mapping": None,
        "build_id": None, "kind": "python",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1024**2 - 1, "1.00 MiB"),
        (-1536, "-1.50 KiB"), (55 * GIB, "55.00 GiB"), (2**63, "8.00 EiB"), (2**74, "16384.00 EiB"),
    ],
)  # fmt: skip
def test_bytes_for_people(count: int, text: str):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (850, "850 ns"), (12_300, "12.3 µs"), (4_560_000, "4.56 ms"), (7_800_000_000, "7.8 s"),
        (125_000_000_000, "2 min 05 s"), (11_220_000_000_000, "3 h 07 min"),
    ],
)  # fmt: skip
def test_times_for_people(nanoseconds: int, text: str):
    assert format_duration(nanoseconds) == text


def test_small_things():
    assert [plural(n, "process") for n in (1, 2)] == ["1 process", "2 processes"]
    assert [result_name(n) for n in (0, 2, 12345)] == [
        "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY", "CUresult 12345",
    ]  # fmt: skip
    assert shorten("/a/long/path/to/file.py", 12) == "/a/…/file.py"
    assert cut_end("python train.py", 8) == "python …"
    assert table(["n", "<what"], [["10", "x"], ["7", "y"]], 80) == [
        "   n  what",
        "  10  x",
        "   7  y",
    ]
    assert marker("why").name == "[why]"
    assert Frame("", address=0x7F151).name == "0x7f151"


def test_ids_of_stacks_depend_on_every_part_of_their_content():
    stacks = [[A], [A, B], [B, A], [replace(A, line=9)], [replace(A, file=None)], [LIBCUDA]]
    ids = {Stack.of(frames).id for frames in stacks}
    assert len(ids) == len(stacks)
    assert Stack.of([A, B]).id == Stack.of((A, B), how="other").id
