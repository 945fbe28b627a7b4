# SPDX-License-Identifier: Apache-2.0
"""`igsdk run` and `igsdk instances` on several daemons: whose each row is, and who failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support import gadget_packets as gp
from tests.support.gadget_instances import Daemon
from tests.support.gadget_server import GadgetServer, Refusal, gadget_server, log
from tests.support.opens import SOURCE, opens, saying

from igsdk._proto import gadget_pb2 as pb
from igsdk.cli.app import run


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[GadgetServer]]:
    with ExitStack() as stack:
        both = [stack.enter_context(gadget_server(tmp_path / name)) for name in ("a", "b")]
        for number, server in enumerate(both):
            server.describe = lambda request: pb.GadgetInfo(dataSources=[SOURCE])
            server.run = saying(log(3, f"line {number}"), gp.packet(opens(number), 1))
        yield both


def targets(*names: str) -> list[str]:
    return [word for name in names for word in ("--target", name)]


def test_lines_say_their_node(servers: list[GadgetServer], capsys: Any) -> None:
    first, second = (server.target for server in servers)
    assert run(["run", "opens", *targets(first, second)]) == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["NODE", "PID", "PATH"]
    assert sorted(row.split() for row in rows) == [
        [first, "0", "/proc/0"],
        [second, "1", "/proc/1"],
    ]
    assert len({row.index(" /proc") for row in rows}) == 1
    assert sorted(err.splitlines()) == [
        f"igsdk: {first}: warning: line 0",
        f"igsdk: {second}: warning: line 1",
    ]


def test_objects_say_their_node(servers: list[GadgetServer], capsys: Any) -> None:
    names = [server.target for server in servers]
    assert run(["run", "opens", *targets(*names), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["node"]: one["row"]["pid"] for one in told} == {names[0]: 0, names[1]: 1}
    assert {one["source"] for one in told} == {"opens"}


def test_a_node_that_fails_is_told_of_and_stops_no_other(
    servers: list[GadgetServer], capsys: Any
) -> None:
    def refuse(request: pb.GetGadgetInfoRequest) -> pb.GadgetInfo:
        raise Refusal("ensuring image: no such image")

    servers[1].describe = refuse
    assert run(["run", "opens", *targets(*(server.target for server in servers))]) == 0
    out, err = capsys.readouterr()
    assert "/proc/0" in out
    assert f"{servers[1].target}: " in err
    assert "no such image" in err


def test_without_any_node_it_fails_with_their_code(
    servers: list[GadgetServer], tmp_path: Path, capsys: Any
) -> None:
    gone = [f"unix://{tmp_path}/no{number}" for number in range(2)]
    assert run(["run", "opens", *targets(*gone)]) == 9
    out, err = capsys.readouterr()
    assert out == ""
    assert "None of 2 nodes" in err
    assert run(["run", "opens", *targets(servers[0].target, servers[0].target)]) == 2
    assert "twice" in capsys.readouterr().err
    assert run(["run", "opens", *targets("local:", servers[0].target)]) == 9
    assert "igsdk's own gadget only" in capsys.readouterr().err


def test_instances_of_all_nodes(servers: list[GadgetServer], capsys: Any) -> None:
    daemons = [Daemon(), Daemon()]
    for daemon, server in zip(daemons, servers, strict=True):
        daemon.serve_on(server)
    where = targets(*(server.target for server in servers))
    assert run(["instances", "create", "opens", "--name", "mine", *where]) == 0
    assert all(server.target in capsys.readouterr().out for server in servers[:1])
    assert [len(daemon.kept) for daemon in daemons] == [1, 1]

    assert run(["instances", "list", *where]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "NODE"
    assert [line.split()[-1] for line in lines] == [server.target for server in servers]

    assert run(["instances", "attach", "mine", "--json", "--duration", "300ms", *where]) == 0
    nodes = {json.loads(line)["node"] for line in capsys.readouterr().out.splitlines()}
    assert nodes == {server.target for server in servers}

    daemons[1].kept.clear()  # it is gone from one of them, which is no mistake
    assert run(["instances", "remove", "mine", *where]) == 0
    assert daemons[0].kept == {}
    assert capsys.readouterr() == ("", "")
    assert run(["instances", "remove", "mine", *where]) == 2


def test_instances_where_a_node_fails(
    servers: list[GadgetServer], tmp_path: Path, capsys: Any
) -> None:
    Daemon().serve_on(servers[0])
    where = targets(servers[0].target, f"unix://{tmp_path}/nobody")
    assert run(["instances", "create", "opens", "--name", "mine", *where]) == 9
    out, err = capsys.readouterr()
    assert out.startswith("mine ")
    assert "There is no socket" in err
    assert run(["instances", "list", "--json", *where]) == 9
    out, err = capsys.readouterr()
    assert json.loads(out)["nodes"] == [servers[0].target]
    assert f"{tmp_path}/nobody" in err
