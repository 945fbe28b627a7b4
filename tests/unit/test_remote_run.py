# SPDX-License-Identifier: Apache-2.0
"""Runs over targets, from servers of ours that say what a test wants: what is lost, repeated,
late, broken or there twice does not change the figures, and is stated."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.cuda_packets import AGENT, GADGET, Sender, gadget_info
from tests.support.gadget_server import GadgetServer, Refusal, Session, gadget_server

import igsdk
from igsdk import AnswerInvalid, UsageError
from igsdk._events import Frame, Stack
from igsdk._proto import gadget_pb2 as pb
from igsdk._remote.run import RemoteRun
from igsdk._remote.runtime import FleetTarget
from igsdk.client.fleet import ListedMembers
from igsdk.client.member import PodRef

M = 1 << 20
BOOT, EPOCH, PROCESS, STACK = 77, 1000, 4242, 5
ADDRESSES = "0x00000000000000a1; 0x00000000000000b2; "
Play = Callable[[Session], Iterator[pb.GadgetEvent]]


def account(row: int = 1, allocated: int = 0, freed: int = 0, **more: Any) -> dict[str, Any]:
    """A row of `heap`; bytes in MiB, a call for each."""
    return {
        "row": row,
        "boot": BOOT,
        "epoch": EPOCH,
        "process": PROCESS,
        "stack": STACK,
        "kind_raw": 1,
        "total_alloc_bytes": allocated * M,
        "total_alloc_calls": allocated,
        "total_free_bytes": freed * M,
        "total_free_calls": freed,
        "time_raw": allocated + freed,
        "stack_state_raw": 1,
        "ustack_raw.addresses": ADDRESSES,
        "ustack_raw.symbols": "cuMemAlloc_v2; main; ",
        "proc.pid": 10,
        **more,
    }


def process(allocated: int = 0, freed: int = 0, **more: Any) -> dict[str, Any]:
    """The row of `processes` that goes with it."""
    row = account(allocated=allocated, freed=freed)
    kept = {name: value for name, value in row.items() if name in GADGET["processes"]}
    return {
        **kept,
        "in_use_raw": (allocated - freed) * M,
        "proc.comm": "play",
        "ns_pid": 10,
        "started_raw": 9,
        **more,
    }


def failure(time: int = 50, **more: Any) -> dict[str, Any]:
    return {
        "boot": BOOT,
        "process": PROCESS,
        "stack": STACK,
        "time_raw": time,
        "proc.pid": 10,
        "proc.tid": 11,
        "type_raw": 3,
        "result_raw": 2,
        "bytes_raw": 900,
        "kind_raw": 1,
        "api": "cuMemAlloc_v2",
        "ustack_raw.addresses": ADDRESSES,
        **more,
    }


@contextmanager
def serving(folder: Path, *plays: Play, name: str = "one") -> Iterator[GadgetServer]:
    """A daemon; each run of the gadget gets the next play, the last one again and again."""
    with gadget_server(folder / f"{name}.socket") as server:
        server.describe = lambda _: gadget_info()

        def run(session: Session) -> Iterator[pb.GadgetEvent]:
            yield from plays[min(len(server.sessions), len(plays)) - 1](session)

        server.run = run
        yield server


def playing(*packets: tuple[Any, ...], fields: Any = GADGET, end: bool = False) -> Play:
    """Sends packets (source, row, …); a number skips so many. Goes on until it is stopped,
    with empty packets as a daemon's interval gives them, or ends."""

    def play(session: Session) -> Iterator[pb.GadgetEvent]:
        sender = Sender(fields)
        yield sender.begin()
        for source, *rows in packets:
            if source == "lost":
                sender.skip(rows[0])
            else:
                yield from sender.send(source, *rows)
        while not end and not session.stop.wait(0.05):
            yield from sender.send("heap")
            yield from sender.send("processes")

    return play


def breaking(*packets: tuple[Any, ...]) -> Play:
    """The same, and then the daemon is gone in the middle of it."""

    def play(session: Session) -> Iterator[pb.GadgetEvent]:
        yield from playing(*packets, end=True)(session)
        raise Refusal("cut")

    return play


@contextmanager
def running(target: Any, **settings: Any) -> Iterator[RemoteRun]:
    with igsdk.connect(target) as gpu, gpu.profile_cuda_memory(**settings) as run:
        yield run


def until(run: RemoteRun, check: Callable[[], bool]) -> None:
    run._wait(check, 10)
    assert check()


def stopped(run: RemoteRun) -> igsdk.Profile:
    run.stop()
    return run.profile()


def test_totals_replace_whatever_is_lost_repeated_or_late(tmp_path: Path) -> None:
    plays = playing(
        ("processes", process(3)),
        ("heap", account(1, 3)),
        ("heap", account(1, 9, 4), account(1, 5)),  # the older one stands behind
        ("heap", account(1, 3)),  # a replay
        ("lost", 7),
        ("processes", process(9, 4)),
        ("losses", {"boot": BOOT, "epoch": EPOCH, "count": 3, "cause_name": "lost_nested"}),
        ("losses", {"boot": BOOT, "epoch": EPOCH, "count": 2, "cause_name": "lost_nested"}),
    )
    with serving(tmp_path, plays) as server, running(server.target) as run:
        profile = stopped(run)
        losses = run.losses()
    assert profile.total("inuse_space") == 5 * M
    assert profile.total("alloc_space") == 9 * M
    assert [frame.function for frame in profile.frames()] == ["cuMemAlloc_v2", "main"]
    assert (losses["packets"], losses["nested"]) == (7, 3)
    assert profile.metadata.losses == {"packets": 7, "nested": 3}
    (row,) = profile.metadata.processes
    assert (row.process, row.pid, row.own("in_use")) == ("play", 10, 5 * M)


def test_losses_that_are_told_before_any_process_count(tmp_path: Path) -> None:
    lost = ("losses", {"boot": BOOT, "epoch": EPOCH, "count": 3, "cause_name": "rows"})
    play = playing(lost, ("processes", process(2)), ("heap", account(1, 2)))
    with serving(tmp_path, play) as server, running(server.target) as run:
        until(run, lambda: run.losses().get("rows") == 3)
        assert stopped(run).metadata.losses["rows"] == 3


def test_the_peak_is_the_highest_of_the_intervals(tmp_path: Path) -> None:
    other = {"process": 4343, "proc.pid": 12}
    plays = playing(
        ("processes", process(6), process(2, row=2, **other)),
        ("heap", account(1, 6), account(2, 2, **other)),
        ("heap", account(1, 6, 5)),
        ("heap", account(2, 4, **other)),
        ("heap", account(1, 6, 5), account(3, 1, host_raw=2, kind_raw=4)),
    )
    with serving(tmp_path, plays) as server:
        with running(server.target) as run:
            profile = stopped(run)
        with running(server.target, pid=12) as run:
            one = stopped(run)
    assert profile.metadata.peak == one.metadata.peak == "interval"
    by_pid = {row["pid"]: row["peak_space"] for row in profile.samples() if row["peak_space"]}
    assert by_pid == {10: 6 * M, 12: 2 * M}
    assert one.total("peak_space") == one.total("inuse_space") == 4 * M
    assert {row["pid"] for row in one.samples()} == {12}
    assert one.metadata.selection == "pid 12"
    assert [session.request.runRequest.paramValues for session in server.sessions][1] == {
        "operator.oci.ebpf.events": "failures",
        "operator.oci.ebpf.collect-ustack": "true",
        "operator.oci.ebpf.collect-build-id": "true",
        "operator.oci.ebpf.pid": "12",
    }


def test_a_failure_has_what_was_in_use_before_it(tmp_path: Path) -> None:
    plays = playing(
        ("processes", process(6)),
        ("heap", account(1, 6)),
        ("events", failure()),
        ("events", failure()),  # an attached client gets some again
        ("heap", account(1, 6, 2)),
        ("events", failure(time=60)),
    )
    with serving(tmp_path, plays) as server, running(server.target) as run:
        first, second = list(run.events(1))
        before, after = run.at(first), run.at(second)
        profile = stopped(run)
        with pytest.raises(UsageError, match="not kept"):
            run.at(igsdk.Event(**{**_fields(first), "time_ns": 51}))
    assert (before.total(), after.total()) == (6 * M, 4 * M)
    assert before.metadata.peak == "interval"
    assert first.process.name == "play"
    assert first.stack is not None
    assert len(profile.metadata.failures) == 2


def _fields(event: igsdk.Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__slots__}


def test_a_gadget_that_begins_anew_loses_nothing_that_it_told(tmp_path: Path) -> None:
    first = breaking(("processes", process(5, 1)), ("heap", account(1, 5, 1)))
    again = {"epoch": EPOCH + 500}
    second = playing(("processes", process(2, **again)), ("heap", account(1, 2, **again)))
    with serving(tmp_path, first, second) as server, running(server.target) as run:
        until(run, lambda: len(run._collector.books) == 2)
        profile = stopped(run)
        (node,) = run.nodes()
    assert profile.total("alloc_space") == 7 * M
    assert profile.total("inuse_space") == 6 * M
    assert run.losses()["gaps"] == len(node.gaps) == 1
    assert any("started anew 1 time" in note for note in profile.metadata.notes)
    assert any("rows were missing" in note for note in profile.metadata.notes)
    assert len(profile.metadata.processes) == 1


def test_an_agent_goes_on_after_a_break(tmp_path: Path) -> None:
    """Its epoch is the same, so nothing is to be said of it but the gap."""
    first = breaking(("processes", process(5)), ("heap", account(1, 5)))
    second = playing(("processes", process(6)), ("heap", account(1, 6)))
    with serving(tmp_path, first, second) as server, running(server.target) as run:
        until(run, lambda: bool(run._collector.highest.bytes == 6 * M))
        profile = stopped(run)
    assert profile.total("inuse_space") == 6 * M
    assert not any("anew" in note for note in profile.metadata.notes)


def test_two_runtimes_on_one_boot_are_counted_once(tmp_path: Path) -> None:
    """The agent's rows count, although Inspektor Gadget's began earlier and came first."""
    stack = Stack.of([Frame("cuMemAlloc_v2"), Frame("train", "train.py", 7, kind="python")], "ours")
    ours = {"epoch": EPOCH + 9, "stack": stack.id, "peak_bytes": 8 * M, "peak_calls": 8}
    agent = playing(
        ("stacks", stack_row(stack)),
        ("processes", process(6, epoch=EPOCH + 9, cmdline="python3 train.py")),
        ("heap", account(1, 6, **ours)),
        ("report", report(peak="exact", peak_ns=99, node="node-a", notes=["a note"])),
        fields=AGENT,
    )
    theirs = playing(("processes", process(6)), ("heap", account(1, 6)), ("events", failure()))
    with (
        serving(tmp_path, theirs, name="theirs") as one,
        serving(tmp_path, agent, name="ours") as two,
        running([one.target, two.target]) as run,
    ):
        until(run, lambda: len(run._collector.books) == 2)
        profile = stopped(run)
    assert profile.total("alloc_space") == 6 * M
    assert profile.total("peak_space") == 8 * M
    assert (profile.metadata.peak, profile.metadata.peak_ns) == ("exact", 99)
    assert {frame.name for frame in profile.frames()} == {"cuMemAlloc_v2", "train"}
    (row,) = profile.metadata.processes
    assert (row.process, row.node) == ("python3 train.py", "node-a")
    assert "a note" in profile.metadata.notes
    assert any("is the same machine as" in note for note in profile.metadata.notes)


def stack_row(stack: Stack) -> dict[str, Any]:
    names = ("function", "file", "line", "address", "mapping", "build_id", "kind")
    frames = [[getattr(frame, name) for name in names] for frame in stack.frames]
    return {"id": stack.id, "how": stack.how, "frames": json.dumps(frames)}


def report(**said: Any) -> dict[str, Any]:
    return {"json": json.dumps(said)}


def test_nodes_are_added_up_and_say_whose_is_what(tmp_path: Path) -> None:
    with ExitStack() as stack:
        targets = []
        for number in range(3):
            where: dict[str, Any] = {
                "boot": number + 1,
                "k8s.node": f"node-{number}",
                "k8s.podName": "vllm-0",
            }
            where |= {"k8s.namespace": "ml", "k8s.containerName": "main"}
            play = playing(
                ("processes", process(number + 1, **where)),
                ("heap", account(1, number + 1, **where)),
                ("losses", {"boot": number + 1, "epoch": EPOCH, "count": 1, "cause_name": "rows"}),
            )
            server = stack.enter_context(serving(tmp_path, play, name=str(number)))
            targets.append(server.target)
        missing = f"unix://{tmp_path}/nobody.socket"
        with running([*targets, missing], pod="vllm-*") as run:
            until(run, lambda: len(run._collector.books) == 3)
            profile = stopped(run)
            states = {node.name: node.state for node in run.nodes()}
    assert profile.total("inuse_space") == 6 * M
    assert profile.filter(node="node-2", pod="vllm-0").total("inuse_space") == 3 * M
    assert profile.total("peak_space") == 6 * M
    assert run.losses()["rows"] == 3
    assert sum("lost: rows 1" in note for note in run.notes()) == 3
    assert any("nobody.socket" in note for note in run.notes())
    assert set(states) == {*targets, missing}


@pytest.mark.parametrize(
    "wrong",
    [
        ("report", {"json": "no JSON"}),
        ("stacks", {"id": 9, "frames": "[1, 2]", "how": "", "missing": ""}),
    ],
)
def test_a_node_whose_rows_make_no_sense_stops_no_other(
    tmp_path: Path, wrong: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("igsdk._remote.run._FIRST_ROWS", 0.1)
    told = ("heap", account(1, 2)), ("processes", process(2))
    refused = threading.Event()

    def later(session: Session) -> Iterator[pb.GadgetEvent]:
        events = playing(*told)(session)
        yield next(events)
        assert refused.wait(20)
        yield from events

    with serving(tmp_path, playing(wrong, fields=AGENT), name="bad") as bad:
        with (
            serving(tmp_path, later, name="good") as good,
            running([bad.target, good.target]) as run,
        ):
            until(run, lambda: bool(run._refused))
            refused.set()
            until(run, lambda: bool(run._collector.books))
            profile = stopped(run)
        assert profile.total("inuse_space") == 2 * M
        assert any(note.startswith(f"{bad.target}: ") for note in run.notes())
        assert run.error is None
        with running(bad.target) as run:
            until(run, lambda: run._over)
            assert isinstance(run.error, AnswerInvalid)


def test_ctrl_c_while_the_last_rows_are_awaited_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(run: RemoteRun) -> None:
        raise KeyboardInterrupt

    told = ("heap", account(1, 2)), ("processes", process(2))
    monkeypatch.setattr(RemoteRun, "_await_last_rows", interrupted)
    with serving(tmp_path, playing(*told)) as server, igsdk.connect(server.target) as gpu:
        run: Any = gpu.profile_cuda_memory()
        run.__enter__()
        until(run, lambda: bool(run._collector.books))
        with pytest.raises(KeyboardInterrupt):
            run.stop()
        assert run._over
        assert run.profile().total("inuse_space") == 2 * M


class Cluster:
    """Knows one container; only from the second time on which of the pod's it is."""

    notes = ("names of other pods are not known",)

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def pod_of(self, container_id: str, pod_uid: str) -> PodRef | None:
        self.asked.append((container_id, pod_uid))
        return PodRef("ml", "vllm-0", "main" if len(self.asked) > 1 else "", "node-a")


def test_the_agents_containers_have_the_names_that_the_cluster_knows(tmp_path: Path) -> None:
    play = playing(
        ("processes", process(4, container_id="c0", pod_uid="u0", cmdline="serve")),
        ("heap", account(1, 4)),
        ("report", report(node="node-a")),
        fields=AGENT,
    )
    cluster = Cluster()
    with serving(tmp_path, play) as server:
        members = ListedMembers([server.target])
        members.where = cluster  # type: ignore[assignment]
        with FleetTarget(members, "k8s:") as gpu, gpu.profile_cuda_memory(pod="vllm-*") as run:
            until(run, lambda: bool(run.processes()) and run.processes()[0].container == "main")
            profile = stopped(run)
    (row,) = profile.metadata.processes
    assert (row.namespace, row.pod, row.container, row.node) == ("ml", "vllm-0", "main", "node-a")
    assert profile.filter(pod="vllm-0").total("inuse_space") == 4 * M
    assert cluster.asked[:2] == [("c0", "u0")] * 2
    assert cluster.notes[0] in profile.metadata.notes


def test_a_run_that_no_node_can_start_is_an_error(tmp_path: Path) -> None:
    refused = gadget_info()

    def refuse(_: Any) -> Any:
        raise Refusal("no such image")

    with serving(tmp_path, playing()) as server:
        server.describe = refuse
        with pytest.raises(igsdk.RunRefused), running(server.target):
            pass
        server.describe = lambda _: refused
        bare = {name: fields for name, fields in GADGET.items() if name != "heap"}
        server.run = lambda session: iter([Sender(bare).begin()])
        with (
            pytest.raises(igsdk.AnswerInvalid, match="no data source heap"),
            running(server.target),
        ):
            pass


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"events": "some"}, "no choice of events"),
        ({"argv": ["true"]}, "local: only"),
        ({"live_entries": 5}, "daemon's affair"),
        ({"colour": 1}, "takes no 'colour'"),
    ],
)
def test_what_only_local_can_do_is_refused(
    settings: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with (
        serving(tmp_path, playing()) as server,
        igsdk.connect(server.target) as gpu,
        pytest.raises(UsageError, match=what),
    ):
        gpu.profile_cuda_memory(**settings)


def test_events_of_processes_that_are_told_later_are_filtered(tmp_path: Path) -> None:
    """Inspektor Gadget's events have a thread's name, and no more until the process is told."""
    thread: dict[str, Any] = {"proc.comm": "worker"}
    other: dict[str, Any] = {"proc.comm": "other"}
    plays = playing(
        ("events", failure(**thread)),
        ("events", failure(time=60, process=9, **thread)),
        ("processes", process(1), process(1, row=2, process=9, **other)),
    )
    with serving(tmp_path, plays) as server, running(server.target, command="play") as run:
        (event,) = run.events(1)
    assert event.process.comm == "play"


def test_a_second_reader_of_the_same_gadget_sees_the_same(tmp_path: Path) -> None:
    plays = playing(("processes", process(4)), ("heap", account(1, 4)))
    with (
        serving(tmp_path, plays) as server,
        running(server.target) as one,
        running(server.target) as two,
    ):
        first, second = stopped(one), stopped(two)
    assert list(first.samples()) == list(second.samples())
    assert threading.active_count() < 50
