# SPDX-License-Identifier: Apache-2.0
"""What the columns of profile_cuda_memory are read into: rows, processes, stacks; and which of
several rows, and of several runtimes, counts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import gadget_packets as gp
from tests.support.cuda_packets import AGENT, GADGET

from igsdk import AnswerInvalid
from igsdk._events import Frame, ProcessInfo, Stack
from igsdk._remote.feeds import Feeds
from igsdk._remote.selection import RemoteSelection, parameters
from igsdk.client.columns import ColumnReader, Columns
from igsdk.client.cuda_processes import placed, process_info
from igsdk.client.cuda_rows import loss_counts
from igsdk.client.cuda_stacks import agent_stacks, gadget_stack, is_named
from igsdk.client.gadget import Gadget
from igsdk.client.member import PodRef
from igsdk.client.parameters import Parameter
from igsdk.client.schema import read_source
from igsdk.ledger.live import LiveRows

ADDRESSES = "0x00000000000000a1; 0x00000000000000b2; "


def columns(source: str, *rows: dict[str, Any], fields: Any = GADGET) -> Columns:
    specs = [gp.Spec(name, kind, size) for name, (kind, size) in fields[source].items()]
    texts = (gp.STRING, gp.CSTRING)
    elements = [
        gp.element(specs, [row.get(one.name, "" if one.kind in texts else 0) for one in specs])
        for row in rows
    ]
    reader = ColumnReader(read_source(gp.source(source, specs)))
    return reader.read([gp.packet(elements, 1).payload])[0]


def stack(**texts: Any) -> Stack | None:
    named = {f"ustack_raw.{name}": value for name, value in texts.items() if name[0] != "_"}
    row = {"stack": 5, "stack_state_raw": texts.get("_state", 1), **named}
    return gadget_stack(columns("heap", row), 0)


def test_stacks_of_inspektor_gadget_have_the_names_that_it_found() -> None:
    found = stack(addresses=ADDRESSES, symbols="cuMemAlloc_v2; 0xb2; ")
    assert found is not None
    assert found.frames == (Frame("cuMemAlloc_v2"), Frame("", address=0xB2))
    assert found.how == "inspektor-gadget symbols"
    assert "shared libraries" in (found.missing or "")


def test_without_names_they_have_build_ids_and_offsets_or_bare_addresses() -> None:
    found = stack(addresses=ADDRESSES, buildid="ab12 +c0; b2; ")
    assert found is not None
    assert found.frames == (Frame("", address=0xC0, build_id="ab12"), Frame("", address=0xB2))
    assert found.how == "inspektor-gadget build ids"
    bare = stack(addresses=ADDRESSES)
    assert bare is not None
    assert [frame.address for frame in bare.frames] == [0xA1, 0xB2]


def test_a_stack_of_the_opentelemetry_profiler_may_be_longer() -> None:
    found = stack(addresses=ADDRESSES, symbols="one; train; main; ", buildid="ab12 +c0; ")
    assert found is not None
    assert [frame.function for frame in found.frames] == ["one", "train", "main"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [(1, "stack lost"), (2, "no frame could be read"), (3, "too many different stacks")],
)
def test_no_stack_has_a_reason(state: int, reason: str) -> None:
    found = stack(_state=state)
    assert found is not None
    assert [frame.function for frame in found.frames] == [f"[{reason}]"]
    assert found.missing == reason


@pytest.mark.parametrize("state", [0, 4])
def test_where_stacks_are_off_there_is_none(state: int) -> None:
    assert stack(_state=state) is None


@given(st.text(), st.text(), st.text(), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_any_texts_make_a_stack_or_none(
    addresses: str, symbols: str, builds: str, state: int
) -> None:
    row = {"ustack_raw.addresses": addresses, "ustack_raw.symbols": symbols}
    row |= {"ustack_raw.buildid": builds}
    encoded = {name: text.encode("utf-8", "surrogatepass") for name, text in row.items()}
    one = columns("heap", {"stack": 5, "stack_state_raw": state, **encoded})
    found = gadget_stack(one, 0)
    assert found is None or found.frames
    assert is_named(one, 0) == bool(symbols)


def test_stacks_of_the_agent_are_as_they_were() -> None:
    frames = [
        ["train", "a.py", 7, 0, None, None, "python"],
        ["main", None, 0, 9, "/b", "cd", "native"],
    ]
    row = {"id": 6, "how": "unwind tables", "frames": json.dumps(frames), "missing": "an end"}
    one = columns("stacks", row, {**row, "id": 7}, fields=AGENT)
    (found,) = agent_stacks(one, {7})
    assert found == Stack(
        6,
        (Frame("train", "a.py", 7, kind="python"), Frame("main", None, 0, 9, "/b", "cd")),
        "unwind tables",
        "an end",
    )


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[[]]", '[["a"]]', "[[[", "null"])
def test_frames_that_cannot_be_read_are_an_error(text: str) -> None:
    one = columns("stacks", {"id": 6, "frames": text}, fields=AGENT)
    with pytest.raises(AnswerInvalid):
        list(agent_stacks(one, ()))


def test_processes_have_what_either_runtime_says_of_them() -> None:
    k8s = {"k8s.node": "n", "k8s.namespace": "ml", "k8s.podName": "p", "k8s.containerName": "c"}
    row = {"process": 5, "proc.pid": 10, "proc.comm": "py", "started_raw": 9, "late": 1, **k8s}
    info = process_info(columns("processes", row), 0)
    assert (info.node, info.namespace, info.pod, info.container) == ("n", "ml", "p", "c")
    assert (info.instance, info.pid, info.start_ns, info.before_us) == (5, 10, 9, True)
    ours = {"process": 5, "cmdline": "python a.py", "container_id": "f" * 64, "state_raw": 2}
    one = columns("processes", {**ours, "time_raw": 77}, fields=AGENT)
    info = process_info(one, 0, "here")
    assert (info.name, info.container, info.node, info.ended_ns) == (
        *("python a.py", "f" * 64, "here", 77),
    )
    there = placed(info, PodRef("ml", "p", "", "n"))
    assert (there.pod, there.container, there.node) == ("p", "f" * 64, "n")


def test_losses_are_called_as_the_runtime_calls_them() -> None:
    where = {"boot": 1, "epoch": 2}
    theirs = columns("losses", {**where, "count": 3, "cause_name": "lost_nested"})
    ours = columns("losses", {**where, "count": 3, "cause": "nested"}, fields=AGENT)
    assert loss_counts(theirs) == loss_counts(ours) == {(1, 2): {"nested": 3}}


# Which row counts -------------------------------------------------------------------------

TYPES = dict.fromkeys(
    (
        *("row", "alloc_bytes", "alloc_calls", "free_bytes", "free_calls"),
        *("fail_bytes", "fail_calls", "time"),
    ),
    "u8",
) | {"ended": "u1"}


def batch(*rows: tuple[int, int, int]) -> dict[str, Any]:
    """(number, calls, time)."""
    found = {name: np.zeros(len(rows), kind) for name, kind in TYPES.items()}
    for place, (number, calls, time) in enumerate(rows):
        found["row"][place], found["alloc_calls"][place], found["time"][place] = number, calls, time
    return found


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=8), max_size=8))
def test_the_newest_row_of_each_number_stays_in_whatever_order_they_come(
    batches: list[list[tuple[int, int]]],
) -> None:
    live = LiveRows(TYPES)
    most: dict[int, int] = {}
    for rows in batches:
        live.take(batch(*((number, calls, 0) for number, calls in rows)))
        for number, calls in rows:
            most[number] = max(most.get(number, 0), calls)
    numbers, calls = live.column("row").tolist(), live.column("alloc_calls").tolist()
    assert dict(zip(numbers, calls, strict=True)) == most
    assert len(numbers) == len(most)
    assert live.find(np.array([99], np.uint64)).tolist() == [-1]


def test_of_a_sender_of_whole_readings_the_later_one_counts_also_where_it_is_less() -> None:
    live = LiveRows(TYPES, by_time=True)
    live.take(batch((1, 5, 10), (2, 1, 10)))
    live.take(batch((1, 0, 11)))
    live.take(batch((1, 5, 10)))
    assert live.column("alloc_calls").tolist() == [0, 1]


def test_what_finds_no_room_is_counted_and_what_is_known_goes_on() -> None:
    live = LiveRows(TYPES, limit=2)
    live.take(batch((1, 1, 0), (2, 1, 0), (3, 1, 0)))
    taken = live.take(batch((1, 4, 0), (9, 1, 0), (2, 2, 0)))
    assert live.column("alloc_calls").tolist() == [4, 2]
    assert (live.dropped, sorted(taken.rows.tolist())) == (2, [0, 2])


# Which runtime counts ---------------------------------------------------------------------


def test_of_several_feeds_of_a_boot_one_counts_with_all_its_epochs() -> None:
    feeds = Feeds()
    assert feeds.see("ig", 1, 100, False)
    assert not feeds.see("ig", 1, 100, False)
    assert feeds.see("other", 1, 90, False)
    assert (feeds.counts(1, 90), feeds.counts(1, 100)) == (True, False)
    feeds.see("agent", 1, 200, True)
    feeds.see("agent", 1, 300, True)
    assert feeds.chosen()[1].epochs == [200, 300]
    assert {chain.epochs[0] for chain, _ in feeds.left_out()} == {90, 100}
    feeds.see("second agent", 1, 250, True)
    assert feeds.chosen()[1].epochs == [250], "it saw what the other one's restart missed"
    feeds.see("second agent", 1, 400, True)
    assert feeds.chosen()[1].epochs == [200, 300]
    feeds.see("agent by tcp", 1, 300, True)
    assert feeds.chosen()[1].nodes == {"agent", "agent by tcp"}
    assert not feeds.counts(2, 100)


# Which processes are meant ----------------------------------------------------------------


def test_what_the_daemon_cannot_leave_out_is_left_out_here() -> None:
    manager = "operator.KubeManager."
    names = ["operator.oci.ebpf.pid", f"{manager}namespace", "operator.oci.ebpf.events"]
    names += [f"{manager}podname", f"{manager}all-namespaces"]
    gadget = Gadget("x", {}, tuple(Parameter(key, key.rpartition(".")[2]) for key in names))
    exact = RemoteSelection(pids=(1,), namespace="ml", pod="vllm-0")
    assert parameters(gadget, exact, "all", True) == {
        "operator.oci.ebpf.pid": 1,
        "operator.oci.ebpf.events": "all",
        "operator.KubeManager.namespace": "ml",
        "operator.KubeManager.podname": "vllm-0",
    }
    glob = RemoteSelection(pids=(1, 2), namespace="ml-*", pod="a,b")
    assert parameters(gadget, glob, "none", True) == {
        "operator.oci.ebpf.events": "none",
        "operator.KubeManager.all-namespaces": True,
    }
    info = ProcessInfo(5, 2, comm="a" * 15, mntns_id=3, namespace="ml-1", pod="p", node="n")
    assert RemoteSelection((1, 2), "a" * 20, 3, "ml-*", "p", "n").has(info)
    for other in ({"pids": (1,)}, {"command": "b"}, {"mount_ns": 4}, {"pod": "q*"}, {"node": "m"}):
        assert not RemoteSelection(**other).has(info)
    assert exact.describe() == "pid 1, namespace ml, pod vllm-0"
