# SPDX-License-Identifier: Apache-2.0
"""The work of ``igsdk record``: wait, write, and only then tell."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from igsdk._errors import OutputUnwritable
from igsdk.cli import output
from igsdk.cli.nodes_news import NodeNews, is_remote, named
from igsdk.cli.progress import Progress
from igsdk.cli.tracing import follow
from igsdk.cli.unwritable import explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._run import Run
    from igsdk.cli.signals import Signals
    from igsdk.profile import Profile

# The largest holders that the report at the end shows; `igsdk report` shows more.
_SHORT = 5
# Seconds of removing probes that nobody needs to hear of.
_QUICK = 1.0
DEFAULT_FILE = "igsdk.pb.gz"


class Recording:
    """One recording into one file.

    Args:
        path: where the profile goes; None: to the usual name, where an older profile
            stays if there is nothing to put in its place.
        duration: seconds; None: until the command ends, or the user ends it.
        as_json: the summary as JSON instead of a short report.
    """

    def __init__(self, path: str | None, duration: float | None, as_json: bool) -> None:
        self._path = path or DEFAULT_FILE
        self._keep_older = path is None
        self._duration = duration
        self._json = as_json

    def check(self) -> None:
        """Finds out before the start whether the profile can be written.

        Raises:
            UsageError: the suffix stands for no format.
            OutputUnwritable: the folder is missing or cannot be written to.
        """
        from igsdk.profile.store import check_output

        try:
            check_output(self._path)
        except OutputUnwritable as error:
            raise explained(error, self._path) from error.__cause__

    def work(self, run: Run, signals: Signals) -> None:
        """Records until it is over, writes the profile, and shows what is in it.

        Raises:
            OutputUnwritable: neither the file nor a temporary folder can be written to.
        """
        signals.answer_with(lambda count: self._answer(count, run.command is not None))
        progress = None if run.command else Progress(run)
        if progress:
            nodes = f" from {named(run)}" if is_remote(run) else ""
            output.say(f"recording{nodes}; ctrl-C ends it and writes the profile.")
        follow(run.command, signals, self._duration, _ticks(progress, NodeNews(run)))
        output.clear_progress()
        run.stop()
        profile = run.profile()
        nothing = _is_empty(profile)
        keep = nothing and self._keep_older and Path(self._path).exists()
        where = None if keep else self._write(run, profile)
        _name_survivors(run)
        if not signals.urgent:
            self._show(run, profile, where)
        if where is None:
            output.say(f"nothing was traced; {self._path} was left as it is.")
        elif nothing:
            output.say(f"nothing was traced; the profile in {shlex.quote(str(where))} is empty.")
        else:
            _say_where(where)
        _say_detaching(run)

    def _answer(self, count: int, with_command: bool) -> None:
        """Says at the terminal what ctrl-C did, since nothing else shows it."""
        if not output.is_terminal():
            return
        output.leave_line()
        if count > 1:
            output.say("writing the profile and leaving.")
        elif with_command:
            output.say("waiting for the command; ctrl-C again writes the profile and leaves.")
        else:
            output.say("writing the profile.")

    def _write(self, run: Run, profile: Profile) -> Path:
        from igsdk.profile.store import write_or_rescue

        # Lines of names can't say which frames are the interpreter's: those stay out.
        kept = profile.shown() if self._path.endswith(".folded") else profile
        where, problem = write_or_rescue(kept, self._path, _owner(run))
        if problem:
            cause = explained(problem, self._path).cause
            output.say(f"{cause} The profile went elsewhere, see below.")
        return where

    def _show(self, run: Run, profile: Profile, where: Path | None) -> None:
        """The result: on standard output, unless that is the command's own."""
        with_command = run.command is not None
        if self._json:
            output.put_json(_summary(run, profile, where), error=with_command)
            return
        from igsdk.views import report_text

        columns = output.width(2 if with_command else 1)
        output.put(report_text(profile.shown(), _SHORT, columns).rstrip("\n"), error=with_command)


def _ticks(progress: Progress | None, news: NodeNews) -> Callable[[], float | None] | None:
    """Both, each in its own time; nothing while a command has the terminal."""
    if progress is None:
        return None

    def tick() -> float | None:
        waits = [wait for wait in (news.tick(), progress.tick()) if wait is not None]
        return min(waits, default=None)

    return tick


def _owner(run: Run) -> tuple[int, int] | None:
    """To whom the file belongs: whom the command ran as; under sudo the caller."""
    from igsdk.runtime.identity import find_caller

    identity = run.command.owner if run.command else find_caller(None, os.environ).identity
    return (identity.uid, identity.gid) if identity else None


def _name_survivors(run: Run) -> None:
    """Processes that outlive the command: what they do from now on is not recorded."""
    if run.command is None or run.command.poll() is None:
        return
    left = [process for process in run.processes() if process.ended_ns is None]
    if left:
        names = ", ".join(f"{process.name} ({process.pid})" for process in left[:5])
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        output.say(f"the command has ended; still running: {names}{more}.")


def _is_empty(profile: Profile) -> bool:
    values = ("alloc_space", "failed_objects", "inuse_space")
    return not (profile.metadata.processes or any(profile.total(value) for value in values))


def _say_where(where: Path) -> None:
    """With what reads this format."""
    name = shlex.quote(str(where))
    if where.name.endswith(".folded"):
        output.say(f"the profile is in {name}; drop it on speedscope, or give it to flamegraph.pl.")
        return
    output.say(f"the profile is in {name}; read it with `igsdk report {name}`.")
    if where.name.endswith(".pb.gz"):
        output.say(f"as a flame graph: `go tool pprof -http=: {name}`.")


def _say_detaching(run: Run) -> None:
    """Where there is one link for each probe they take seconds, and we wait for none."""
    singly = any(library.how == "uprobe-single" for library in run.attached)
    end = time.monotonic() + (0 if singly else _QUICK)
    while run.detaching:
        if time.monotonic() >= end:
            output.say(
                "the kernel is still removing the probes; they count nothing any more, and "
                "you can start again."
            )
            return
        time.sleep(0.01)


def _summary(run: Run, profile: Profile, where: Path | None) -> dict[str, Any]:
    """The summary that `--json` prints; the keys are stable, bytes are exact."""
    ended = run.command.poll() if run.command else None
    return {
        "profile": None if where is None else str(where),
        "in_use_bytes": profile.total("inuse_space"),
        "peak_bytes": profile.total("peak_space"),
        "allocated_bytes": profile.total("alloc_space"),
        "failed_bytes": profile.total("failed_space"),
        "failed_calls": profile.total("failed_objects"),
        "processes": len(profile.metadata.processes),
        "peak": profile.metadata.peak,
        "driver": profile.metadata.driver,
        "gadget": profile.metadata.gadget or None,
        "losses": profile.metadata.losses,
        "notes": list(profile.metadata.notes),
        "command": ended
        and {
            "code": ended.code,
            "signal": signal.Signals(ended.signal).name if ended.signal else None,
        },
    }
