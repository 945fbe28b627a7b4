# SPDX-License-Identifier: Apache-2.0
"""`igsdk instances`: make, list, attach, remove."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gadget_instances import Daemon
from tests.support.gadget_server import gadget_server

from igsdk._proto import gadget_pb2 as pb
from igsdk.cli.app import run

Igsdk = Callable[..., Any]


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def igsdk(tmp_path: Path, daemon: Daemon) -> Iterator[Igsdk]:
    with gadget_server(tmp_path / "socket") as server:
        daemon.serve_on(server)
        yield lambda *words: run(["instances", *words, "--target", server.target])
        daemon.kept.clear()


def test_from_beginning_to_end(igsdk: Igsdk, daemon: Daemon, capsys: Any) -> None:
    assert igsdk("list") == 0
    assert capsys.readouterr().out == ""

    assert igsdk("create", "opens:v1", "--name", "mine", "--tag", "a", "--tag", "b") == 0
    line = capsys.readouterr().out
    assert line.split()[:3] == ["mine", f"{1:032x}", "running"]
    assert line.endswith(" opens:v1\n")

    assert igsdk("list") == 0
    heading, again = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAME", "ID", "STATE", "SINCE", "IMAGE"]
    assert again + "\n" == line

    assert igsdk("list", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["tags"], told["image"]) == ("mine", ["a", "b"], "opens:v1")

    assert igsdk("attach", "mine", "--json", "--duration", "200ms") == 0
    rows = [json.loads(line)["row"]["pid"] for line in capsys.readouterr().out.splitlines()]
    assert rows == list(range(1, len(rows) + 1))
    assert len(rows) > 2

    assert igsdk("remove", "mine") == 0
    assert daemon.kept == {}
    assert capsys.readouterr() == ("", "")


def test_one_that_failed_says_why(igsdk: Igsdk, daemon: Daemon, capsys: Any) -> None:
    made = pb.GadgetInstance(id="a" * 32, name="broken")
    made.state.status, made.state.message = pb.StatusError, "load program: permission denied"
    daemon.kept[made.id] = made
    assert igsdk("list") == 0
    out = capsys.readouterr().out
    assert "broken" in out
    assert " error " in out
    assert out.endswith("  load program: permission denied\n")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("attach", "yours"), 13, "yours not found"),
        (("remove", "yours"), 2, "There are: none"),
        (("create", "opens", "--name", "No Name"), 2, "no name"),
        (("create", "opens", "-p", "nothing=1"), 2, "no parameter"),
    ],
)
def test_what_there_is_not(
    igsdk: Igsdk, capsys: Any, words: tuple[str, ...], code: int, told: str
) -> None:
    assert igsdk(*words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err


def test_alone_it_shows_its_help(capsys: Any) -> None:
    assert run(["instances"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: igsdk instances")
