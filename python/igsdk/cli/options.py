# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from igsdk._abi import MOST_LIVE_ENTRIES
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
            self.fail(f"{value!r} is no duration; write 30, 30s, 5m, 2h or 500ms.", param, ctx)
        return seconds


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A whole number from 1 on, with words of its own for what is none.

    Args:
        what: what it counts or names, for "0 is no WHAT".
        most: the largest one; None: as large as you like.
    """

    name = "number"

    def __init__(self, what: str, most: int | None = None) -> None:
        self._what = what
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        number = int(text) if text.isdecimal() else 0
        if number < 1:
            self.fail(f"{text!r} is no {self._what}; write a whole number from 1 on.", param, ctx)
        if self._most is not None and number > self._most:
            self.fail(f"{text} is too many; {self._most} is the largest {self._what}.", param, ctx)
        return number


def target_option(what: str) -> Callable[[Verb], Verb]:
    """Adds `--target`, which may be repeated; `what`: the help."""
    return click.option("--target", "targets", multiple=True, metavar="T", help=what)


def trace_target_option() -> Callable[[Verb], Verb]:
    """Adds `--target` of the verbs that trace."""
    return target_option(
        "Where to trace: local: (this machine, if not given), unix:PATH, "
        "tcp[+tls]://HOST:PORT or k8s:; may be repeated."
    )


def selection(no_stacks: str) -> Callable[[Verb], Verb]:
    """Adds what chooses the processes: a command to run, or filters.

    Args:
        no_stacks: what a verb without stacks still shows, for the help.
    """
    return lambda verb: _with_options(verb, no_stacks)


def _with_options(verb: Verb, no_stacks: str) -> Verb:
    options = (
        trace_target_option(),
        click.option(
            "--pid",
            type=Number("process id"),
            multiple=True,
            metavar="P",
            help="Only this process; may be repeated.",
        ),
        click.option(
            "--command", metavar="NAME", help="Only processes of this name, as in /proc/PID/comm."
        ),
        click.option(
            "--mount-ns",
            type=Number("inode number"),
            metavar="N",
            help="Only this mount namespace, by inode number.",
        ),
        click.option(
            "--namespace", metavar="N", help="Only this namespace of a cluster, such as ml or ml-*."
        ),
        click.option("--pod", metavar="P", help="Only pods of this name, such as vllm-*."),
        click.option("--node", metavar="N", help="Only this node of a cluster."),
        click.option(
            "--user", metavar="U", help="Run CMD as this user; under sudo it is the caller."
        ),
        click.option("--no-stacks", is_flag=True, help=no_stacks),
        click.option(
            "--live-entries",
            type=Number("number of live allocations", MOST_LIVE_ENTRIES),
            metavar="N",
            help="Room for this many live allocations (default 262144, at most 67108864).",
        ),
        click.option(
            "--gadget",
            metavar="IMAGE",
            help="Trace with this image's program: a file, a folder, or a name in a registry.",
        ),
        click.option(
            "--plain-http", is_flag=True, help="Ask the registry of --gadget without TLS."
        ),
        click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD ...]"),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb


def target_of(targets: Sequence[str]) -> str | list[str]:
    """What `connect` takes, from a repeatable option."""
    return list(targets) if len(targets) > 1 else targets[0] if targets else "local:"


def run_settings(options: dict[str, Any], targets: Sequence[str] = ()) -> dict[str, Any]:
    """What `profile_cuda_memory` takes, from the options of `selection`.

    Raises:
        UsageError: options that exclude one another, or that the targets have no use for.
    """
    here = target_of(targets) == "local:"
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
    if options["plain_http"] and options["gadget"] is None:
        raise UsageError(
            "--plain-http is for the registry of a gadget, and none is named.",
            "Name it with --gadget.",
        )
    if here and options.get("node"):
        raise UsageError(
            "This machine alone has no nodes.", "Leave --node away, or name a cluster."
        )
    elsewhere = {name: options.get(name) for name in ("namespace", "pod", "node")}
    for pid in options["pid"] if here else ():
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
        "gadget": options["gadget"],
        "plain_http": options["plain_http"],
        **{name: value for name, value in elsewhere.items() if value},
    }
