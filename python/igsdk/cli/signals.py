# SPDX-License-Identifier: Apache-2.0
"""What ctrl-C and its relatives mean while something is recorded.

The first one asks for the end, the second one for the end at once; from the third
on a signal does what it always does. A signal that was ignored when we were started
(nohup, a background job of a script) stays ignored.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# `timeout` and others send a signal to a process and then to its group: that is one.
_ONE_SIGNAL = 0.2


class Signals:
    """Counts the wishes to end, as a context manager, in the main thread only.

    Attributes:
        requests: how often the end was asked for.
        last: the number of the signal that did so last; 0 at first.
        hung_up: whether the terminal went away.
    """

    def __init__(self, *, hang_up_ends: bool = True) -> None:
        self.requests = 0
        self.last = 0
        self.hung_up = False
        self.started = False
        self._hang_up_ends = hang_up_ends
        self._at = -_ONE_SIGNAL
        self._before: dict[int, Any] = {}
        self._wake_before = -1
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._answer: Callable[[int], None] | None = None

    @property
    def requested(self) -> bool:
        """Whether the end was asked for."""
        return self.requests > 0

    @property
    def urgent(self) -> bool:
        """Whether it was asked for twice."""
        return self.requests > 1

    def answer_with(self, answer: Callable[[int], None]) -> None:
        """Calls `answer` with the number of requests at each one, at once for one that was."""
        self._answer = answer
        if self.requested:
            answer(self.requests)

    def __enter__(self) -> Signals:
        for number in _HANDLED:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._handle)
        # Written to before Python runs our handler: a signal just before select wakes it too.
        self._wake_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            with contextlib.suppress(ValueError):
                signal.signal(number, handler)
        signal.set_wakeup_fd(self._wake_before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, descriptors: list[int], timeout: float | None) -> list[int]:
        """Waits until one of the descriptors is readable, a signal came or time is over.

        Returns:
            The descriptors that are readable.
        """
        poller = select.poll()  # select() takes no descriptor above 1023
        for descriptor in (self._read, *descriptors):
            poller.register(descriptor, select.POLLIN)
        ready = poller.poll(None if timeout is None else math.ceil(timeout * 1000))
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 64)
        return [fd for fd, _ in ready if fd != self._read]

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.hung_up = True
            if not self._hang_up_ends:
                return
        now = time.monotonic()
        if now - self._at < _ONE_SIGNAL:
            return
        self._at = now
        self.requests += 1
        self.last = number
        self._escalate()

    def _escalate(self) -> None:
        if self._answer:
            self._answer(self.requests)
        if self.requests < 2:
            return
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
        if not self.started:
            raise KeyboardInterrupt
