# SPDX-License-Identifier: Apache-2.0
"""What `record` and `events` share: start a run, look after the command, end as it did."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from igsdk._errors import IgsdkError, StartFailed, UsageError
from igsdk.cli import output
from igsdk.cli.ending import killed_by
from igsdk.cli.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._run import Run
    from igsdk.cli.ending import Ending
    from igsdk.runtime.launch import Command

# How long a command may take to end by a SIGTERM that reached its whole group.
_PASS_ON_AFTER = 0.2


def trace(
    target: str | list[str],
    settings: dict[str, Any],
    work: Callable[[Run, Signals], None],
    before: Callable[[], None] = lambda: None,
) -> Ending:
    """Starts a run, lets `work` use it, and says how to end.

    From the start of the command on its ending is ours, whatever happens to us.

    Args:
        settings: arguments of `profile_cuda_memory`.
        before: looks, where tracing is possible at all, at what would fail at the end.
        work: returns when it has seen enough; the command may still run then.

    Raises:
        IgsdkError: it could not start; or later, when there is no command.
    """
    with Signals(hang_up_ends=not settings["argv"]) as signals, contextlib.ExitStack() as stack:
        try:
            run = _start(stack, target, settings, before)
        except IgsdkError as error:
            return _not_started(error, bool(settings["argv"]))
        signals.started = True
        try:
            work(run, signals)
        except Exception as error:
            if run.command is None:
                raise
            _tell(error)
        return _ending(run, signals)


def _start(
    stack: contextlib.ExitStack,
    target: str | list[str],
    settings: dict[str, Any],
    before: Callable[[], None],
) -> Run:
    from igsdk._connect import connect

    runtime: Any = connect(target)
    stack.enter_context(runtime)
    before()
    run: Run = stack.enter_context(runtime.profile_cuda_memory(**settings))
    return run


def _not_started(error: IgsdkError, with_command: bool) -> int:
    """With a command small codes are its own, so ours are those that env and nohup use."""
    if not with_command or isinstance(error, StartFailed | UsageError):
        raise error
    output.complain(error)
    return StartFailed.exit_code


def _tell(error: Exception) -> None:
    if isinstance(error, IgsdkError):
        output.complain(error)
    elif not isinstance(error, output.OutputClosed):
        output.report_mistake(error)


def _ending(run: Run, signals: Signals) -> Ending:
    if run.command is None:
        return killed_by(signals.last) if signals.urgent else 0
    with contextlib.suppress(Exception):
        run.stop()  # nobody looks any more, so the command need not carry the probes
    follow(run.command, signals)
    ended = run.command.poll()
    if ended is not None:
        return ended
    output.say(f"the command (pid {run.command.pid}) still runs; it is not traced any more.")
    return killed_by(signals.last)


def follow(
    command: Command | None,
    signals: Signals,
    duration: float | None = None,
    tick: Callable[[], float | None] | None = None,
) -> None:
    """Waits until it is over, see `Watch`.

    Args:
        tick: called again and again; returns after how many seconds it wants to be next.
    """
    watch = Watch(command, signals, duration)
    while not watch.over():
        waits = [tick() if tick else None, watch.left(), watch.pass_on()]
        timeout = min((wait for wait in waits if wait is not None), default=None)
        signals.wait([command.fileno()] if command else [], timeout)


class Watch:
    """Says when it is over: with the command, the duration, or when the user wants it.

    A command is waited for when the end was asked for once, and left when it was twice.

    Args:
        duration: seconds from now; None: without end.
    """

    def __init__(
        self, command: Command | None, signals: Signals, duration: float | None = None
    ) -> None:
        self._command = command
        self._signals = signals
        self._deadline = None if duration is None else time.monotonic() + duration
        self._pass_on_at: float | None = None
        self._passed_on = self._hung_up = False

    def over(self) -> bool:
        """Whether the waiting has an end."""
        if self._command and self._command.poll() is not None:
            return True
        if self._signals.urgent or (self._signals.requested and self._command is None):
            return True
        return self.left() == 0.0

    def left(self) -> float | None:
        """Seconds that are left of the duration; None: it has no end."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def pass_on(self) -> float | None:
        """Hands on what would have reached the command without us.

        A SIGTERM for us alone: `kill PID`, a container's stop. A terminal or a service
        manager sends it to the command as well, which then ends by itself. A SIGHUP if
        we lead the session: without us the command would, and the leader alone gets it.
        SIGINT is left alone, since ctrl-C always reaches the whole group.

        Returns:
            The seconds after which to call again; None: no need to.
        """
        if self._command is None:
            return None
        if self._signals.hung_up and not self._hung_up:
            self._hung_up = True
            if os.getsid(0) == os.getpid():
                self._command.send_signal(signal.SIGHUP)
        if self._signals.last != signal.SIGTERM or self._passed_on:
            return None
        now = time.monotonic()
        if self._pass_on_at is None:
            self._pass_on_at = now + _PASS_ON_AFTER
        if now < self._pass_on_at:
            return self._pass_on_at - now
        self._passed_on = True
        self._command.send_signal(signal.SIGTERM)
        return None
