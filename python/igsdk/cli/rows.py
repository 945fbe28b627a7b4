# SPDX-License-Identifier: Apache-2.0
"""The rows of a run on lines, for `run` and `instances`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from igsdk._units import plural
from igsdk.cli import output
from igsdk.cli.nodes_news import NodeNews
from igsdk.cli.options import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from igsdk.cli.signals import Signals
    from igsdk.client.fleet_run import FleetRun
    from igsdk.client.rows import Row
    from igsdk.client.run import GadgetRun
    from igsdk.client.schema import Field

    Verb = TypeVar("Verb", bound=Callable[..., Any])

# How long an idle stream may keep us from seeing ctrl-C, in seconds.
_IDLE = 0.1
# How long rows without a pause may keep log lines and news of nodes from us.
_BUSY = 1.0
_WIDTH = 16
_WIDEST = 60
_WIDEST_NODE = 40
_LOSSES = {
    "packets": ("packet", "dropped by the daemon"),
    "repeated": ("packet", "sent twice"),
    "unread": ("packet", "after the end, without room"),
    "unreadable_packets": ("packet", "not readable"),
    "unreadable_rows": ("row", "not readable"),
    "unreadable_events": ("message", "not readable"),
    "unknown_events": ("message", "of an unknown type"),
    "gaps": ("gap", "in the rows of nodes that broke off"),
}


def stream_options() -> Callable[[Verb], Verb]:
    """Adds what chooses rows, and how they are printed."""

    def add(verb: Verb) -> Verb:
        for option in (
            click.option("--json", "as_json", is_flag=True, help="One JSON object a line."),
            click.option(
                "--duration",
                type=Duration(),
                metavar="S",
                help="Stop after 30, 30s, 5m, 2h or 500ms.",
            ),
            click.option("--source", metavar="NAME", help="Only the rows of this data source."),
        ):
            verb = option(verb)
        return verb

    return add


def stream(
    run: GadgetRun | FleetRun,
    as_json: bool,
    source: str | None,
    duration: float | None,
    signals: Signals,
) -> None:
    """Prints until the gadget ends, the time is over, or the end was asked for."""
    printer = _Printer(run, as_json)
    until = math.inf if duration is None else time.monotonic() + duration

    def over() -> bool:
        return signals.requested or time.monotonic() >= until

    while not (over() or run.ended):
        output.check()
        pause = time.monotonic() + _BUSY
        for row in run.rows(source, timeout=_IDLE):
            printer.put(row)
            if over() or time.monotonic() >= pause:
                break
        printer.say_logs()
        printer.news.tick()
    run.stop()
    for row in run.rows(source):
        if signals.urgent:
            break
        printer.put(row)
    printer.say_logs()
    printer.news.tick()
    printer.say_losses()


class _Printer:
    """Prints the rows of one run, and says what daemons and we have to say of it.

    Attributes:
        news: tells of nodes that fail.
    """

    def __init__(self, run: GadgetRun | FleetRun, as_json: bool) -> None:
        self.run = run
        self.news = NodeNews(run)
        self._as_json = as_json
        self._headed = ""
        self._said = 0
        names = [node.name for node in run.nodes()] if hasattr(run, "nodes") else []
        self._has_nodes = bool(names)
        self._node_width = min(_WIDEST_NODE, max(map(len, ("NODE", *names))))

    def put(self, row: Row) -> None:
        if self._as_json:
            node = {"node": row.node} if row.node else {}
            output.put_json({**node, "source": row.source, "row": _plain(row.nested())})
            return
        # Of several nodes one may have a daemon of another version, with other fields.
        source = self.run.gadget.sources.get(row.source)
        fields = source.shown if source else ()
        if self._headed != row.source:
            self._headed = row.source
            self._put_line("NODE", [field.name.upper() for field in fields], fields)
        self._put_line(row.node, [_text(row.get(field.name, "")) for field in fields], fields)

    def _put_line(self, node: str, cells: Sequence[str], fields: Sequence[Field]) -> None:
        first = f"{node.ljust(self._node_width)} " if self._has_nodes else ""
        output.put(f"{first}{_line(cells, fields)}".rstrip())

    def say_logs(self) -> None:
        """Those lines that are new, as far as they were kept."""
        logs = self.run.logs
        seen = self.run.losses()["log_lines"] + len(logs)
        for line in logs[len(logs) - min(seen - self._said, len(logs)) :]:
            output.say(f"{line.node}{': ' if line.node else ''}{line.level}: {line.text}")
        self._said = seen

    def say_losses(self) -> None:
        lost = self.run.losses()
        told = [
            f"{plural(lost[cause], noun)} {what}"
            for cause, (noun, what) in _LOSSES.items()
            if lost.get(cause)
        ]
        if lost.get("gap_seconds"):
            told[-1] += f", {lost['gap_seconds']} s together"
        if told:
            output.say(f"not all is as it was sent: {'; '.join(told)}.")


def _line(cells: Sequence[str], fields: Sequence[Field]) -> str:
    padded = [cell.ljust(_width(field)) for cell, field in zip(cells, fields, strict=True)]
    return " ".join(padded).rstrip()


def _width(field: Field) -> int:
    told = (field.annotations or {}).get("columns.width", "")
    wide = int(told) if told.isascii() and told.isdecimal() and len(told) < 4 else _WIDTH
    return max(len(field.name), min(wide, _WIDEST))


def _text(value: Any) -> str:
    """A value on one line, as a person reads it."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: Any) -> Any:
    """As JSON has it: bytes in hex digits, and null for numbers that are none."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value
