# SPDX-License-Identifier: Apache-2.0
"""``igsdk run``: any gadget on a daemon, its rows as they come."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import click

from igsdk._errors import TargetUnavailable, UsageError
from igsdk._units import plural
from igsdk.cli import output
from igsdk.cli.options import Duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.cli.ending import Ending
    from igsdk.cli.signals import Signals
    from igsdk.client.gadget import Gadget
    from igsdk.client.remote import RemoteRuntime
    from igsdk.client.rows import Row
    from igsdk.client.run import GadgetRun
    from igsdk.client.schema import Field

# How long an idle stream may keep us from seeing ctrl-C, in seconds.
_IDLE = 0.1
_DAEMON = "unix:///var/run/ig/ig.socket"
_WIDTH = 16
_WIDEST = 60
_LOSSES = {
    "packets": ("packet", "dropped by the daemon"),
    "repeated": ("packet", "sent twice"),
    "unread": ("packet", "after the end, without room"),
    "unreadable_packets": ("packet", "not readable"),
    "unreadable_rows": ("row", "not readable"),
    "unreadable_events": ("message", "not readable"),
    "unknown_events": ("message", "of an unknown type"),
}


@click.command(short_help="Run any gadget on a daemon, and print its rows.")
@click.argument("image")
@click.option(
    "--target",
    default=_DAEMON,
    metavar="T",
    help=f"The daemon: unix:///PATH or tcp://HOST:PORT (default {_DAEMON}).",
)
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter, by short or full name; may be repeated.",
)
@click.option("--source", metavar="NAME", help="Only the rows of this data source.")
@click.option(
    "--duration", type=Duration(), metavar="S", help="Stop after 30, 30s, 5m, 2h or 500ms."
)
@click.option("--log-level", default="warning", metavar="L", help="error, warning, info, debug …")
@click.option("--describe", is_flag=True, help="Print what it takes and gives; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def run(
    image: str,
    target: str,
    params: tuple[str, ...],
    source: str | None,
    duration: float | None,
    log_level: str,
    describe: bool,
    as_json: bool,
) -> Ending:
    """Runs the gadget IMAGE on a daemon, such as Inspektor Gadget's, and prints its rows.

    \b
        igsdk run trace_open:latest --describe
        igsdk run trace_open:latest -p pid=4711 --json | jq .row.fname

    Ctrl-C ends it. Rows go to standard output, the daemon's log to standard error.
    """
    from igsdk.cli.signals import Signals

    values = dict(map(_pair, params))
    with Signals() as signals, _connect(target) as host:
        if describe:
            _describe(host.describe(image, values), as_json)
            return 0
        with host.run(image, values, log_level=log_level) as ours:
            signals.started = True
            _stream(_Printer(ours, as_json), source, duration, signals)
    return 0


def _connect(target: str) -> RemoteRuntime:
    if target.partition(":")[0] not in ("unix", "tcp"):
        raise TargetUnavailable(
            f"This version of igsdk cannot run gadgets on {target}.",
            "Name a daemon: unix:///PATH or tcp://HOST:PORT.",
        )
    from igsdk.client.remote import RemoteRuntime

    return RemoteRuntime(target)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is no parameter.", "Write KEY=VALUE.")
    return key, value


def _stream(
    printer: _Printer, source: str | None, duration: float | None, signals: Signals
) -> None:
    """Prints until the gadget ends, the time is over, or the end was asked for."""
    run = printer.run
    until = math.inf if duration is None else time.monotonic() + duration

    def over() -> bool:
        return signals.requested or time.monotonic() >= until

    while not (over() or run.ended):
        output.check()
        for row in run.rows(source, timeout=_IDLE):
            printer.put(row)
            if over():
                break
        printer.say_logs()
    run.stop()
    for row in run.rows(source):
        if signals.urgent:
            break
        printer.put(row)
    printer.say_logs()
    printer.say_losses()


class _Printer:
    """Prints the rows of one run, and says what the daemon and we have to say of it."""

    def __init__(self, run: GadgetRun, as_json: bool) -> None:
        self.run = run
        self._as_json = as_json
        self._headed = ""
        self._said = 0

    def put(self, row: Row) -> None:
        if self._as_json:
            output.put_json({"source": row.source, "row": _plain(row.nested())})
            return
        fields = self.run.gadget.sources[row.source].shown
        if self._headed != row.source:
            self._headed = row.source
            output.put(_line([field.name.upper() for field in fields], fields))
        output.put(_line([_text(row[field.name]) for field in fields], fields))

    def say_logs(self) -> None:
        """Those lines that are new, as far as they were kept."""
        logs = self.run.logs
        seen = self.run.losses()["log_lines"] + len(logs)
        for line in logs[len(logs) - min(seen - self._said, len(logs)) :]:
            output.say(f"{line.level}: {line.text}")
        self._said = seen

    def say_losses(self) -> None:
        lost = self.run.losses()
        told = [
            f"{plural(lost[cause], noun)} {what}"
            for cause, (noun, what) in _LOSSES.items()
            if lost[cause]
        ]
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


def _describe(gadget: Gadget, as_json: bool) -> None:
    if as_json:
        output.put_json(_as_record(gadget))
        return
    for source in gadget.sources.values():
        shape = "rows each interval" if source.array else "a row for each event"
        output.put(f"{source.name}: {shape}, {plural(len(source.fields), 'field')}")
        for field in source.fields:
            mark = "  (hidden)" if field.hidden else ""
            output.put(f"  {field.name:<32} {field.kind!s:<10} {field.description}{mark}".rstrip())
    output.put("parameters:")
    for one in gadget.parameters:
        allowed = f" [{', '.join(one.allowed)}]" if one.allowed else ""
        default = f" = {one.default}" if one.default else ""
        head = f"  {one.name}{default}  ({one.type or 'text'}{allowed})"
        output.put(f"{head}\n      {one.key}")
        if one.description:
            output.put(f"      {' '.join(one.description.split())}")


def _as_record(gadget: Gadget) -> dict[str, Any]:
    sources = {
        source.name: {
            "array": source.array,
            "fields": [
                {
                    "name": field.name,
                    "kind": str(field.kind),
                    "hidden": field.hidden,
                    "description": field.description,
                }
                for field in source.fields
            ],
        }
        for source in gadget.sources.values()
    }
    parameters = [
        {
            "key": one.key,
            "name": one.name,
            "type": one.type,
            "default": one.default,
            "allowed": list(one.allowed),
            "required": one.required,
            "description": one.description,
        }
        for one in gadget.parameters
    ]
    return {"image": gadget.image, "sources": sources, "parameters": parameters}
