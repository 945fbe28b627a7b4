# SPDX-License-Identifier: Apache-2.0
"""A fleet in trouble: nodes that lie, hang, break at once, or are replaced; readers that leave."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import gadget_packets as gp
from tests.support.gadget_server import (
    GadgetServer,
    Refusal,
    Session,
    described,
    gadget_server,
    log,
    serving_process,
)
from tests.support.opens import SOURCE, SPECS, opens, saying, until_stopped

from igsdk._errors import AnswerInvalid, IgsdkError, RunRefused, TargetUnavailable
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.at_once import ask_all, none_of
from igsdk.client.feed import Feed
from igsdk.client.fleet import Fleet, ListedMembers
from igsdk.client.fleet_run import FleetRun
from igsdk.client.gadget import parse_gadget
from igsdk.client.member import Member
from igsdk.client.remote import RemoteRuntime
from igsdk.client.shared_inbox import SharedInbox
from igsdk.client.stream import Packet


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[GadgetServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(gadget_server(tmp_path / f"s{n}")) for n in range(2)]


def fleet_of(*servers: GadgetServer) -> Fleet:
    return Fleet(ListedMembers([server.target for server in servers]), "a list")


def eventually(true: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


def state_of(run: FleetRun, name: str) -> str:
    return next(node.state for node in run.nodes() if node.name == name)


LIES: dict[str, list[Any]] = {
    "no description": [gp.packet(opens(1), 1)],
    "nonsense": [pb.GadgetEvent(type=4, payload=b"\xff\xff")],
    "wrong offsets": [
        described(gp.source("opens", [gp.Spec("pid", gp.UINT32, 4, gap=1 << 31)])),
    ],
    "nothing at all": [],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_lies_fails_alone(servers: list[GadgetServer], lie: str) -> None:
    servers[0].run = until_stopped(gp.packet(opens(1), 1))
    servers[1].run = lambda session: iter(LIES[lie])
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        assert next(run.rows(timeout=20)).node == servers[0].target
        (node,) = [one for one in run.nodes() if one.name == servers[1].target]
        assert node.state == "failed"
        assert isinstance(node.error, AnswerInvalid)
        assert run.error is None


def test_what_one_node_sends_wrongly_is_counted(servers: list[GadgetServer]) -> None:
    short = pb.DataElement(payload=[b"1", b"path"])
    servers[0].run = saying(gp.packet([*opens(1), short], 1), b"\xff\xff", gp.packet(opens(2), 7))
    servers[1].run = saying(*(log(3, f"{n} " + "x" * 20_000) for n in range(1_100)))
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        assert [row["pid"] for row in run.rows(timeout=20)] == [1, 2]
        lost = {cause: count for cause, count in run.losses().items() if count}
        assert lost == {
            "packets": 5,
            "unreadable_rows": 1,
            "unreadable_events": 1,
            "log_lines": 100,
        }
        assert {line.node for line in run.logs} == {servers[1].target}
        assert run.logs[-1].text.startswith("1099 ")


def test_log_lines_of_all_nodes_in_their_order(servers: list[GadgetServer]) -> None:
    first_said = threading.Event()

    def second(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        assert first_said.wait(20)
        yield log(3, "second")

    servers[0].run = until_stopped(log(3, "first"))
    servers[1].run = second
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        eventually(lambda: len(run.logs) == 1)
        first_said.set()
        eventually(lambda: len(run.logs) == 2)
        assert [(line.node, line.text) for line in run.logs] == [
            (servers[0].target, "first"),
            (servers[1].target, "second"),
        ]


def test_a_reader_that_leaves_loses_nothing(servers: list[GadgetServer]) -> None:
    other = gp.source("others", SPECS, number=1)

    def both(session: Session) -> Iterator[Any]:
        yield described(SOURCE, other)
        for number in range(1, 7):
            yield gp.packet(opens(number), number, number=number % 2)

    for server in servers:
        server.run = both
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        eventually(lambda: {node.state for node in run.nodes()} == {"ended"})
        first = next(run.batches(timeout=5))  # and its generator goes away
        row = next(run.rows(timeout=5))
        rest = [(each.node, each.source, each["pid"]) for each in run.rows(timeout=5)]
        assert run.ended
        seen = [(first.node, first.source.name, pid) for pid in first["pid"].tolist()]
        seen += [(row.node, row.source, row["pid"]), *rest]
    assert sorted(seen) == sorted(
        (server.target, ("opens", "others")[pid % 2], pid)
        for server in servers
        for pid in range(1, 7)
    )


def test_collect_takes_all_sources_of_all_nodes(servers: list[GadgetServer]) -> None:
    other = gp.source("others", SPECS, number=1)
    for server in servers:
        server.run = lambda session: iter(
            (described(SOURCE, other), *(gp.packet(opens(n), n, number=n % 2) for n in (1, 2, 3)))
        )
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        columns = run.collect(20)
    assert sorted(columns["opens"]["pid"].tolist()) == [2, 2]
    assert sorted(columns["others"]["pid"].tolist()) == [1, 1, 3, 3]


def test_what_broke_is_raised_when_there_is_nothing_else(servers: list[GadgetServer]) -> None:
    def broken(session: Session) -> Iterator[Any]:
        raise Refusal("the map is gone")

    for server in servers:
        server.run = broken
    with pytest.raises(RunRefused, match=r"None of 2 nodes runs the gadget.*the map is gone"):
        fleet_of(*servers).run("opens").__enter__()


def test_a_daemon_that_does_not_stop_is_left_in_time(servers: list[GadgetServer]) -> None:
    done = threading.Event()

    def stubborn(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        done.wait(60)

    servers[0].run = stubborn
    servers[1].run = until_stopped(gp.packet(opens(1), 1))
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        began = time.monotonic()
        run.stop(timeout=0.5)
        assert time.monotonic() - began < 8
        assert [node.state for node in run.nodes()] == ["ended", "ended"]
        assert next(run.rows())["pid"] == 1
    done.set()


def test_a_silent_node_is_not_waited_for(
    servers: list[GadgetServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()

    def silent(session: Session) -> Iterator[Any]:
        done.wait(60)
        return iter(())

    monkeypatch.setattr("igsdk.client.fleet_run._PATIENCE", 0.3)
    servers[0].run = until_stopped(gp.packet(opens(1), 1))
    servers[1].run = silent
    began = time.monotonic()
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        assert next(run.rows(timeout=20))["pid"] == 1
        assert state_of(run, servers[1].target) == "connecting"
    assert time.monotonic() - began < 8
    done.set()


def test_who_breaks_at_once_is_not_tried_all_the_time(servers: list[GadgetServer]) -> None:
    def broken(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        raise Refusal("out of memory")

    servers[0].run = broken
    with fleet_of(servers[0]) as fleet, fleet.run("opens") as run:
        began = time.monotonic()
        eventually(lambda: len(servers[0].sessions) >= 4)
        # 0.2, 0.4, 0.8 seconds at least, doubled each time
        assert time.monotonic() - began > 0.9
        assert state_of(run, servers[0].target) in ("broken", "running")
        assert run.losses()["gaps"] >= 3
    assert len(servers[0].sessions) < 10


class Changing:
    """A membership that the test changes."""

    where = None

    def start(self, joined: Callable[[Member], None], left: Callable[[str, str], None]) -> None:
        self.joined, self.left = joined, left

    def close(self) -> None:
        pass


def test_the_time_between_a_pod_and_its_successor_is_a_gap(servers: list[GadgetServer]) -> None:
    for number, server in enumerate(servers):
        server.run = until_stopped(gp.packet(opens(number), 1))
    changing = Changing()
    fleet = Fleet(changing, "changing")
    changing.joined(Member("node-1", lambda: RemoteRuntime(servers[0].target)))
    with fleet, fleet.run("opens") as run:
        changing.left("node-1", "its pod was deleted")
        eventually(lambda: state_of(run, "node-1") == "left")
        time.sleep(0.3)
        changing.joined(Member("node-1", lambda: RemoteRuntime(servers[1].target)))
        eventually(lambda: state_of(run, "node-1") == "running")
        assert [row["pid"] for row in itertools.islice(run.rows(timeout=20), 2)] == [0, 1]
        (node,) = run.nodes()
        (gap,) = node.gaps
        assert 0.3 <= gap.seconds < 20
        assert abs(gap.from_time - time.time()) < 30
        assert run.losses()["gaps"] == 1
        for _ in range(3):  # those that are gone for good are not kept, their losses are
            changing.left("node-1", "again")
            changing.joined(Member("node-1", lambda: RemoteRuntime(servers[1].target)))
            eventually(lambda: state_of(run, "node-1") == "running")
    assert run.losses()["gaps"] == 4


def test_gaps_of_one_that_breaks_and_is_replaced_follow_each_other(
    servers: list[GadgetServer],
) -> None:
    def breaking(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        raise Refusal("out of memory")

    def nobody() -> RemoteRuntime:
        raise TargetUnavailable("It is gone.", "Wait.")

    connecting = iter([lambda: RemoteRuntime(servers[0].target)])
    servers[0].run, servers[1].run = breaking, until_stopped(gp.packet(opens(1), 1))
    changing = Changing()
    fleet = Fleet(changing, "changing")
    changing.joined(Member("node-1", lambda: next(connecting, nobody)()))
    with fleet, fleet.run("opens") as run:
        eventually(lambda: state_of(run, "node-1") == "broken")
        time.sleep(0.5)
        for successor in (nobody, lambda: RemoteRuntime(servers[1].target)):
            changing.left("node-1", "its pod was deleted")
            eventually(lambda: state_of(run, "node-1") == "left")
            time.sleep(0.1)
            changing.joined(Member("node-1", successor))
            eventually(lambda: state_of(run, "node-1") in ("broken", "running"))
        (node,) = run.nodes()
    ends = [gap.from_time + gap.seconds for gap in node.gaps]
    begins = [gap.from_time for gap in node.gaps]
    assert len(begins) >= 3  # until it left, until its successor left, until the last one ran
    assert [begin - end for begin, end in zip(begins[1:], ends, strict=False)] == pytest.approx(
        [0.0] * (len(begins) - 1), abs=0.3
    )


def test_a_node_that_failed_keeps_nobody_from_coming_again(servers: list[GadgetServer]) -> None:
    def refuse(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        raise Refusal("ensuring image: no such image")

    servers[0].describe = refuse
    servers[1].run = until_stopped(gp.packet(opens(1), 1))
    changing = Changing()
    fleet = Fleet(changing, "changing")
    for number, server in enumerate(servers):
        changing.joined(Member(f"node-{number}", partial(RemoteRuntime, server.target)))
    with fleet, fleet.run("opens") as run:
        changing.left("node-1", "its pod was deleted")
        eventually(lambda: state_of(run, "node-1") == "left")
        changing.joined(Member("node-1", partial(RemoteRuntime, servers[1].target)))
        eventually(lambda: state_of(run, "node-1") == "running")
        rows = itertools.islice(run.rows(timeout=20), 2)
        assert [(row.node, row["pid"]) for row in rows] == [("node-1", 1)] * 2
        assert not run.ended


def test_rows_that_are_there_are_given_without_a_wait(servers: list[GadgetServer]) -> None:
    for server in servers:
        server.run = saying(gp.packet(opens(1), 1))
    with fleet_of(*servers) as fleet, fleet.run("opens") as run:
        eventually(lambda: {node.state for node in run.nodes()} == {"ended"})
        assert [row["pid"] for row in run.rows(timeout=0)] == [1, 1]


def test_ctrl_c_while_a_run_stops_ends_its_readers(
    servers: list[GadgetServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(feed: Feed, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    servers[0].run = until_stopped(gp.packet(opens(1), 1))
    with fleet_of(servers[0]) as fleet, fleet.run("opens") as run:
        with monkeypatch.context() as patched:
            patched.setattr(Feed, "join", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run.stop()
        reader = threading.Thread(target=lambda: list(run.batches()), daemon=True)
        reader.start()
        reader.join(20)
        assert not reader.is_alive()


def test_streams_that_ended_unread_count_too() -> None:
    inbox = SharedInbox(room=1000)
    (source,) = parse_gadget(described(SOURCE).payload, "opens").sources.values()
    run: Any = None  # whose packets are not read here
    shares = [inbox.share(f"node-{number}", run, lambda: None) for number in range(2)]
    shares[0].put(Packet(source, 1, bytes(700)))
    shares[0].close()
    inbox.give_back()
    shares[1].put(Packet(source, 1, bytes(10)))  # one each always finds room
    waiting = threading.Thread(
        target=shares[1].put, args=(Packet(source, 2, bytes(10)),), daemon=True
    )
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    taken = [inbox.take(20) for _ in range(3)]
    assert [one and (one[0].name, len(one[1])) for one in taken] == [
        ("node-0", 1),
        ("node-1", 1),
        ("node-1", 1),
    ]
    assert inbox.held == 0


def test_one_answer_is_enough_to_describe(servers: list[GadgetServer]) -> None:
    done = threading.Event()

    def slow(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        done.wait(60)
        return pb.GadgetInfo(name="slow")

    servers[0].describe = slow
    servers[1].describe = lambda request: pb.GadgetInfo(name="quick")
    with fleet_of(*servers) as fleet:
        assert fleet.describe("opens").name == "quick"
    done.set()


def test_ctrl_c_ends_questions_that_hang(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    code = (
        "import sys, time, _thread, threading\n"
        "from igsdk.client.fleet import Fleet, ListedMembers\n"
        "from igsdk.client.remote import RemoteRuntime\n"
        "class Hanging(RemoteRuntime):\n"
        "    def instances(self):\n"
        "        print('asked', flush=True)\n"
        "        time.sleep(60)\n"
        "fleet = Fleet(ListedMembers(sys.argv[1:], Hanging), 'all')\n"
        "try:\n    fleet.instances()\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    with serving_process(path) as (_, target):
        argv = [sys.executable, "-c", code, target]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "asked\n"
            os.kill(process.pid, signal.SIGINT)
            assert process.communicate(timeout=20)[0] == "interrupted\n"
            assert process.returncode == 0


def test_ctrl_c_ends_a_run(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    code = (
        "import sys, igsdk\n"
        "with igsdk.connect(sys.argv[1:]) as fleet, fleet.run('opens') as run:\n"
        "    try:\n"
        "        for row in run.rows():\n            print(row.node, flush=True)\n"
        "    except KeyboardInterrupt:\n        pass\n"
        "print({node.state for node in run.nodes()})\n"
    )
    with serving_process(path) as (_, target):
        argv = [sys.executable, "-c", code, target, f"unix://{tmp_path}/nobody"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{target}\n"
            os.kill(process.pid, signal.SIGINT)
            assert process.communicate(timeout=20)[0].endswith("{'ended'}\n")


def test_mistakes_of_ours_are_no_answers() -> None:
    def question(number: int) -> int:
        if number == 2:
            raise ZeroDivisionError
        if number % 2:
            raise RunRefused("It says no.", "Ask again.")
        return number

    told = ask_all(range(2), question)
    assert told[0] == (0, 0)
    assert isinstance(told[1][1], RunRefused)
    assert ask_all([], question) == []
    assert [one for one in ask_all([1, 4], question, first=True) if one[1] == 4] == [(4, 4)]
    with pytest.raises(ZeroDivisionError):
        ask_all([0, 2], question)


def test_many_reasons_are_cut_short() -> None:
    errors: list[tuple[str, IgsdkError]] = [
        (f"node-{number}", RunRefused(f"No {number}.", "Ask again.")) for number in range(8)
    ]
    told = none_of(errors, "runs the gadget")
    assert isinstance(told, RunRefused)
    assert told.cause.startswith("None of 8 nodes runs the gadget. node-0: No 0. ")
    assert told.cause.endswith("node-4: No 4. And 3 more.")
    assert none_of(errors[:1], "runs") is errors[0][1]
    assert "no members" in none_of([], "runs").cause
