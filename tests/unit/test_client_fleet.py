# SPDX-License-Identifier: Apache-2.0
"""Many daemons as one: what one of them does wrong is said, and stops no other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
    serving_process,
)
from tests.support.opens import SOURCE, opens

from igsdk._errors import RunRefused, TargetUnavailable, UsageError
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.fleet import Fleet, ListedMembers
from igsdk.client.fleet_run import FleetRun
from igsdk.client.member import Member
from igsdk.client.remote import RemoteRuntime


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[GadgetServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(gadget_server(tmp_path / f"s{n}")) for n in range(3)]


def fleet_of(*targets: str) -> Fleet:
    return Fleet(ListedMembers(targets), "a list")


def waiting(session: Session) -> Iterator[Any]:
    assert session.stop.wait(60)
    return iter(())


def giving(*pids: int, then: Callable[[Session], Iterator[Any]] = waiting) -> Any:
    def run(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        for number, pid in enumerate(pids, 1):
            yield gp.packet(opens(pid), number)
        yield from then(session)

    return run


def eventually(true: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


def test_the_rows_of_all_come_with_their_nodes(servers: list[GadgetServer]) -> None:
    for number, server in enumerate(servers):
        server.run = giving(10 * number, 10 * number + 1)
    with fleet_of(*(server.target for server in servers)) as fleet, fleet.run("opens") as run:
        rows = list(itertools.islice(run.rows(timeout=20), 6))
        assert {(row.node, row["pid"]) for row in rows} == {
            (server.target, 10 * n + k) for n, server in enumerate(servers) for k in (0, 1)
        }
        assert [node.state for node in run.nodes()] == ["running"] * 3
        assert not any(run.losses().values())
    assert [node.state for node in run.nodes()] == ["ended"] * 3
    assert all(server.sessions[0].asked_to_stop.is_set() for server in servers)


def test_a_frame_of_all_nodes_has_a_column_for_them(servers: list[GadgetServer]) -> None:
    for number, server in enumerate(servers):
        server.run = giving(number, then=lambda session: iter(()))
    with fleet_of(*(server.target for server in servers)) as fleet, fleet.run("opens") as run:
        columns = run.collect(20)["opens"]
    frame = columns.to_pandas()
    assert list(frame.columns) == ["pid", "path", "node"]
    assert dict(zip(frame["pid"], frame["node"], strict=True)) == {
        number: server.target for number, server in enumerate(servers)
    }
    assert columns.to_arrow().column("node").to_pylist() == list(frame["node"])


def test_nodes_that_fail_stop_no_other(servers: list[GadgetServer], tmp_path: Path) -> None:
    servers[0].run = giving(1)

    def refuse(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        raise Refusal("ensuring image: no such image")

    servers[1].describe = refuse
    nobody = f"unix://{tmp_path}/nobody"
    targets = (servers[0].target, servers[1].target, nobody)
    with fleet_of(*targets) as fleet, fleet.run("opens") as run:
        assert next(run.rows(timeout=20))["pid"] == 1
        states = {node.name: node for node in run.nodes()}
        assert states[servers[0].target].state == "running"
        assert states[servers[1].target].state == "failed"
        assert isinstance(states[servers[1].target].error, RunRefused)
        assert isinstance(states[nobody].error, TargetUnavailable)
        assert run.error is None


def test_a_node_that_comes_later_joins_the_run(servers: list[GadgetServer], tmp_path: Path) -> None:
    servers[0].run = giving(1)
    late = tmp_path / "late"
    fleet = fleet_of(servers[0].target, f"unix://{late}")
    with fleet, fleet.run("opens") as run, gadget_server(late) as server:
        server.run = giving(2)
        assert {row["pid"] for row in itertools.islice(run.rows(timeout=20), 2)} == {1, 2}
        run.stop()


def test_where_none_runs_the_reason_is_the_error(
    servers: list[GadgetServer], tmp_path: Path
) -> None:
    def refuse(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        raise Refusal("ensuring image: no such image")

    servers[0].describe = refuse
    with (
        fleet_of(servers[0].target) as one,
        pytest.raises(RunRefused, match="no such image"),
        one.run("opens"),
    ):
        pass
    both = fleet_of(servers[0].target, f"unix://{tmp_path}/nobody")
    with both, pytest.raises(TargetUnavailable, match="None of 2 nodes runs the gadget"):
        both.run("opens").__enter__()


def test_a_broken_stream_is_resumed_and_the_gap_is_said(
    servers: list[GadgetServer], tmp_path: Path
) -> None:
    servers[0].run = giving(1)
    path = tmp_path / "dies"
    with serving_process(path) as (process, target):
        fleet = fleet_of(servers[0].target, target)
        with fleet, fleet.run("opens") as run:
            eventually(lambda: any(row.node == target for row in run.rows(timeout=1)))
            process.kill()
            process.wait()
            eventually(lambda: state_of(run, target) == "broken")
            assert run.losses()["gaps"] == 1
            path.unlink(missing_ok=True)
            with serving_process(path):
                eventually(lambda: state_of(run, target) == "running")
                eventually(lambda: any(row.node == target for row in run.rows(timeout=1)))
                (gap,) = next(node for node in run.nodes() if node.name == target).gaps
                assert 0 < gap.seconds < 20
                run.stop()
    assert run.losses()["gaps"] == 1


def state_of(run: FleetRun, name: str) -> str:
    return next(node.state for node in run.nodes() if node.name == name)


def test_a_run_that_ends_by_itself_ends_there(servers: list[GadgetServer]) -> None:
    for server in servers:
        server.run = giving(1, then=lambda session: iter(()))
    with fleet_of(*(server.target for server in servers)) as fleet, fleet.run("opens") as run:
        assert len(list(run.rows())) == 3
        assert run.ended
    assert [len(server.sessions) for server in servers] == [1, 1, 1]


def test_an_endless_run_is_started_again(servers: list[GadgetServer]) -> None:
    servers[0].run = giving(1, then=lambda session: iter(()))
    with fleet_of(servers[0].target) as fleet, fleet.run("opens", endless=True) as run:
        assert len(list(itertools.islice(run.rows(timeout=20), 3))) == 3
        run.stop()
    assert len(servers[0].sessions) >= 3
    assert run.losses()["gaps"] >= 2


class Changing:
    """A membership that the test changes."""

    where = None

    def __init__(self, *members: Member) -> None:
        self.first = members

    def start(self, joined: Callable[[Member], None], left: Callable[[str, str], None]) -> None:
        self.joined, self.left = joined, left
        for member in self.first:
            joined(member)

    def close(self) -> None:
        pass


def member(server: GadgetServer, name: str) -> Member:
    return Member(name, lambda: RemoteRuntime(server.target), {"node": name})


def test_members_that_come_and_go_during_a_run(servers: list[GadgetServer]) -> None:
    for number, server in enumerate(servers):
        server.run = giving(number)
    changing = Changing(member(servers[0], "a"))
    with Fleet(changing, "changing") as fleet, fleet.run("opens") as run:
        changing.joined(member(servers[1], "b"))
        assert {row.node for row in itertools.islice(run.rows(timeout=20), 2)} == {"a", "b"}
        changing.left("a", "its pod was deleted")
        eventually(lambda: state_of(run, "a") == "left")
        assert servers[0].sessions[0].stop.wait(20)
        changing.joined(member(servers[2], "a"))  # its successor has its name
        assert next(run.rows(timeout=20))["pid"] == 2
        assert not run.ended
        changing.left("a", "gone")
        changing.left("b", "gone")
        eventually(lambda: {node.state for node in run.nodes()} == {"left"})
        assert not run.ended  # others may come
    assert run.ended


def test_a_node_that_floods_holds_up_no_other(servers: list[GadgetServer]) -> None:
    def flood(session: Session) -> Iterator[Any]:
        yield described(SOURCE)
        many = gp.packet(opens(*[7] * 5000), 1).SerializeToString()
        while not session.stop.is_set():
            yield many

    servers[0].run = flood
    servers[1].run = giving(1, 2, 3)
    calm = servers[1].target
    with fleet_of(servers[0].target, calm) as fleet, fleet.run("opens") as run:
        eventually(lambda: state_of(run, calm) == "running")
        time.sleep(0.5)  # until what the reader does not take has filled its share
        first = [batch.node for batch in itertools.islice(run.batches(timeout=20), 3)]
        assert calm in first


def test_parameters_may_depend_on_the_node(servers: list[GadgetServer]) -> None:
    pid = pb.Param(key="pid", prefix="operator.oci.ebpf.", typeHint="uint32", defaultValue="0")
    servers[0].describe = lambda request: pb.GadgetInfo(params=[pid])
    for server in servers[:2]:
        server.run = giving(1)

    def wanted(gadget: Any) -> dict[str, int]:
        return {one.name: 7 for one in gadget.parameters}

    with fleet_of(servers[0].target, servers[1].target) as fleet, fleet.run("opens", wanted) as run:
        list(itertools.islice(run.rows(timeout=20), 2))
    sent = [dict(server.sessions[0].request.runRequest.paramValues) for server in servers[:2]]
    assert sent == [{"operator.oci.ebpf.pid": "7"}, {}]


def test_lists_of_targets_make_sense() -> None:
    for targets in ([], ["unix:///a", "unix:///a"]):
        with pytest.raises(UsageError):
            ListedMembers(targets)
