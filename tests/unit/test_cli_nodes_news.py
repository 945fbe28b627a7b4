# SPDX-License-Identifier: Apache-2.0
"""What is said of nodes while a run goes on: once each, and only what changed."""

from __future__ import annotations

from typing import Any

from igsdk._errors import RunRefused, TargetUnavailable
from igsdk.cli.nodes_news import NodeNews
from igsdk.client.feed import NodeState


class Nodes:
    """A run of which only the nodes are asked for."""

    def __init__(self) -> None:
        self.states: dict[str, NodeState] = {}

    def nodes(self) -> list[NodeState]:
        return list(self.states.values())

    def are(self, **states: str) -> None:
        errors = {
            "broken": TargetUnavailable("It is gone.", "Start it."),
            "failed": RunRefused("It says no.", "Ask another."),
        }
        self.states = {
            name: NodeState(name, state, error=errors.get(state)) for name, state in states.items()
        }


def test_each_change_is_said_once(capsys: Any) -> None:
    run = Nodes()
    news = NodeNews(run)

    def said(**states: str) -> list[str]:
        run.are(**states)
        news.tick()
        news.tick()
        return [line.removeprefix("igsdk: ") for line in capsys.readouterr().err.splitlines()]

    assert said(a="running", b="failed", c="connecting") == ["b: It says no."]
    assert said(a="broken", b="failed", c="running") == [
        "a: It is gone. It is tried again and again.",
        "c: it joined; its rows come from now on.",
    ]
    assert said(a="running", b="failed", c="left", d="running") == [
        "a: its rows come again.",
        "c: it left; its rows end here.",
        "d: it joined; its rows come from now on.",
    ]
    assert said(a="running", b="failed", c="running", d="running") == [
        "c: it joined; its rows come from now on."
    ]
    assert said(a="broken", b="ended", c="ended", d="ended") == [
        "a: It is gone. It is tried again and again."
    ]
    assert said(a="ended", b="ended", c="ended", d="ended") == []  # with the run, not well again


def test_a_single_daemon_has_no_news(capsys: Any) -> None:
    assert NodeNews(object()).tick() is None
    assert capsys.readouterr().err == ""
