# SPDX-License-Identifier: Apache-2.0
"""What a person is told of the nodes of a run over targets while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from igsdk._units import plural
from igsdk.cli import output

if TYPE_CHECKING:
    from igsdk._errors import IgsdkError

_EVERY = 1.0  # seconds
_BAD = ("broken", "failed")


def is_remote(run: Any) -> bool:
    """Whether others trace, and send rows."""
    return hasattr(run, "nodes")


def named(run: Any) -> str:
    """The one node's name, or how many there are."""
    nodes = run.nodes()
    return nodes[0].name if len(nodes) == 1 else plural(len(nodes), "node")


class NodeNews:
    """Says once what is wrong with a node, once that it is well again; who comes and who goes."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._said: dict[str, str] = {}
        self._newcomer: tuple[str, ...] = ()  # at first all are, and nothing is said of them

    def tick(self) -> float | None:
        """Says what is new; returns in how many seconds to look again, None: never."""
        if not is_remote(self._run):
            return None
        for node in self._run.nodes():
            before = self._said.get(node.name, "")
            if node.state in _BAD and node.state != before:
                output.say(f"{node.name}: {_cause(node.error)}{_then(node.state)}")
            elif before in _BAD and node.state == "running":
                output.say(f"{node.name}: its rows come again.")
            elif before and node.state == "left" != before:
                output.say(f"{node.name}: it left; its rows end here.")
            elif node.state == "running" and before in self._newcomer:
                output.say(f"{node.name}: it joined; its rows come from now on.")
            self._said[node.name] = node.state
        self._newcomer = ("", "connecting", "left")
        return _EVERY


def _cause(error: IgsdkError | None) -> str:
    return error.cause if error is not None else "its rows have stopped."


def _then(state: str) -> str:
    return " It is tried again and again." if state == "broken" else ""
