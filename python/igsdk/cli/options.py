# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from igsdk._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Verb = TypeVar("Verb", bound=Callable[..., Any])

_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|)")


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Seconds, written as 30, 30s, 1.5m, 2h or 500ms."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(value.strip())
        seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
        if seconds <= 0:
            self.fail(f"{value!r} is no duration; write 30, 30s, 5m or 2h.", param, ctx)
        return seconds


def selection(verb: Verb) -> Verb:
    """Adds what chooses the processes: a command to run, or filters."""
    options = (
        click.option(
            "--target",
            default="local:",
            metavar="T",
            help="Where to trace; local: is this machine.",
        ),
        click.option(
            "--pid",
            type=click.IntRange(min=1),
            multiple=True,
            metavar="P",
            help="Only this process; may be repeated.",
        ),
        click.option(
            "--command", metavar="NAME", help="Only processes of this name, as in /proc/PID/comm."
        ),
        click.option(
            "--mount-ns",
            type=click.IntRange(min=1),
            metavar="N",
            help="Only this mount namespace, by inode number.",
        ),
        click.option(
            "--user", metavar="U", help="Run CMD as this user; under sudo it is the caller."
        ),
        click.option("--no-stacks", is_flag=True, help="Totals only, which costs the least."),
        click.option(
            "--live-entries",
            type=click.IntRange(min=1),
            metavar="N",
            help="Room for this many live allocations (default 262144).",
        ),
        click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD ...]"),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb


def run_settings(options: dict[str, Any]) -> dict[str, Any]:
    """What `profile_cuda_memory` takes, from the options of `selection`.

    Raises:
        UsageError: options that exclude one another.
    """
    cmd: Sequence[str] = options["cmd"]
    filters = [name for name in ("pid", "command", "mount_ns") if options[name]]
    if cmd and filters:
        raise UsageError(
            f"--{filters[0].replace('_', '-')} chooses processes that run already, "
            "and CMD is one that starts.",
            "Leave one of the two away.",
        )
    if options["user"] and not cmd:
        raise UsageError(
            "--user says as whom a command runs, and there is none.", "Write it behind `--`."
        )
    for pid in options["pid"]:
        if not Path(f"/proc/{pid}").exists():
            raise UsageError(f"There is no process {pid}.", "Look with `ps`, and name another.")
    return {
        "argv": list(cmd) or None,
        "user": options["user"],
        "pid": list(options["pid"]) or None,
        "command": options["command"],
        "mount_ns": options["mount_ns"],
        "stacks": not options["no_stacks"],
        "live_entries": options["live_entries"],
    }
