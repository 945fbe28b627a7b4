# SPDX-License-Identifier: Apache-2.0
"""The work of ``igsdk record``: wait, write, and only then tell."""

from __future__ import annotations

import os
import shlex
import signal
import time
from typing import TYPE_CHECKING, Any

from igsdk.cli import output
from igsdk.cli.progress import Progress
from igsdk.cli.tracing import follow

if TYPE_CHECKING:
    from pathlib import Path

    from igsdk._run import Run
    from igsdk.cli.signals import Signals
    from igsdk.profile import Profile

# The largest holders that the report at the end shows; `igsdk report` shows more.
_SHORT = 5
# Seconds of removing probes that nobody needs to hear of.
_QUICK = 0.2


class Recording:
    """One recording into one file.

    Args:
        duration: seconds; None: until the command ends, or the user ends it.
        as_json: the summary as JSON instead of a short report.
    """

    def __init__(self, path: str, duration: float | None, as_json: bool) -> None:
        self._path = path
        self._duration = duration
        self._json = as_json

    def check(self) -> None:
        """Finds out before the start whether the profile can be written.

        Raises:
            UsageError: the suffix stands for no format.
            OutputUnwritable: the folder is missing or cannot be written to.
        """
        from igsdk.profile.store import check_output

        check_output(self._path)

    def work(self, run: Run, signals: Signals) -> None:
        """Records until it is over, writes the profile, and shows what is in it.

        Raises:
            OutputUnwritable: neither the file nor a temporary folder can be written to.
        """
        signals.answer_with(lambda count: self._answer(count, run.command is not None))
        progress = None if run.command else Progress(run)
        if progress:
            output.say("recording; ctrl-C ends it and writes the profile.")
        follow(run.command, signals, self._duration, progress.tick if progress else None)
        output.clear_progress()
        run.stop()
        profile = run.profile()
        where = self._write(run, profile)
        _name_survivors(run)
        if not signals.urgent:
            self._show(run, profile, where)
        _say_where(where)
        _say_detaching(run)

    def _answer(self, count: int, with_command: bool) -> None:
        """Says at the terminal what ctrl-C did, since nothing else shows it."""
        if not output.is_terminal():
            return
        if count > 1:
            output.say("writing the profile and leaving.")
        elif with_command:
            output.say("waiting for the command; ctrl-C again writes the profile and leaves.")
        else:
            output.say("writing the profile.")

    def _write(self, run: Run, profile: Profile) -> Path:
        from igsdk.profile.store import write_or_rescue

        where, problem = write_or_rescue(profile, self._path, _owner(run))
        if problem:
            output.say(f"{problem.cause} The profile went elsewhere, see below.")
        return where

    def _show(self, run: Run, profile: Profile, where: Path) -> None:
        """The result: on standard output, unless that is the command's own."""
        with_command = run.command is not None
        if self._json:
            output.put_json(_summary(run, profile, where), error=with_command)
            return
        from igsdk.views import report_text

        columns = output.width(2 if with_command else 1)
        output.put(report_text(profile, _SHORT, columns).rstrip("\n"), error=with_command)


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


def _say_where(where: Path) -> None:
    name = shlex.quote(str(where))
    output.say(f"the profile is in {name}; read it with `igsdk report {name}`.")
    if name.endswith(".pb.gz"):
        output.say(f"as a flame graph: `go tool pprof -http=: {name}`.")


def _say_detaching(run: Run) -> None:
    """Without uprobe-multi links the kernel takes about 0.1 s for each probe."""
    end = time.monotonic() + _QUICK
    while run.detaching:
        if time.monotonic() > end:
            output.say("the kernel is still removing the probes; that ends by itself.")
            return
        time.sleep(0.01)


def _summary(run: Run, profile: Profile, where: Path) -> dict[str, Any]:
    """The summary that `--json` prints; the keys are stable, bytes are exact."""
    ended = run.command.poll() if run.command else None
    return {
        "profile": str(where),
        "in_use_bytes": profile.total("inuse_space"),
        "peak_bytes": profile.total("peak_space"),
        "allocated_bytes": profile.total("alloc_space"),
        "failed_bytes": profile.total("failed_space"),
        "failed_calls": profile.total("failed_objects"),
        "processes": len(profile.metadata.processes),
        "peak": profile.metadata.peak,
        "driver": profile.metadata.driver,
        "losses": profile.metadata.losses,
        "notes": list(profile.metadata.notes),
        "command": ended
        and {
            "code": ended.code,
            "signal": signal.Signals(ended.signal).name if ended.signal else None,
        },
    }
