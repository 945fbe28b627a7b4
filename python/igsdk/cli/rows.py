# SPDX-License-Identifier: Apache-2.0
"""What `run` and `instances` share: a daemon, and the rows of a run on lines."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from igsdk._errors import TargetUnavailable, UsageError
from igsdk._units import plural
from igsdk.cli import output
from igsdk.cli.options import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from igsdk.cli.signals import Signals
    from igsdk.client.remote import RemoteRuntime
    from igsdk.client.rows import Row
    from igsdk.client.run import GadgetRun
    from igsdk.client.schema import Field

    Verb = TypeVar("Verb", bound=Callable[..., Any])

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


def target_option() -> Callable[[Verb], Verb]:
    """Adds `--target` for a daemon."""
    return click.option(
        "--target",
        default=_DAEMON,
        metavar="T",
        help=f"The daemon: unix:///PATH, tcp://HOST:PORT or tcp+tls:// (default {_DAEMON}).",
    )


def param_option() -> Callable[[Verb], Verb]:
    """Adds `-p KEY=VALUE`; see `values_of`."""
    return click.option(
        "-p",
        "--param",
        "params",
        multiple=True,
        metavar="KEY=VALUE",
        help="A parameter, by short or full name; may be repeated.",
    )


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


def connect(target: str) -> RemoteRuntime:
    if target.partition(":")[0] not in ("unix", "tcp", "tcp+tls"):
        raise TargetUnavailable(
            f"This version of igsdk cannot run gadgets on {target}.",
            "Name a daemon: unix:///PATH, tcp://HOST:PORT or tcp+tls://HOST:PORT?ca=FILE….",
        )
    from igsdk.client.remote import RemoteRuntime

    return RemoteRuntime(target)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is no parameter.", "Write KEY=VALUE.")
    return key, value


def values_of(params: Sequence[str]) -> dict[str, str]:
    """What `-p` was given.

    Raises:
        UsageError: it is not KEY=VALUE.
    """
    return dict(map(_pair, params))


def stream(
    run: GadgetRun, as_json: bool, source: str | None, duration: float | None, signals: Signals
) -> None:
    """Prints until the gadget ends, the time is over, or the end was asked for."""
    printer = _Printer(run, as_json)
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
