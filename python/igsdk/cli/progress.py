# SPDX-License-Identifier: Apache-2.0
"""The line on the terminal while something is recorded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from igsdk._units import format_bytes, format_duration, plural
from igsdk.cli import output

if TYPE_CHECKING:
    from igsdk._run import Run

_EVERY = 1.0
# The figures may take at most this part of one core.
_SHARE = 0.05


class Progress:
    """Bytes in use, processes and failures, about once a second.

    With a command there is none: the terminal is the command's.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failed = False
        self._start = time.monotonic()
        self._next = self._start + _EVERY

    def tick(self) -> float | None:
        """Shows the line when it is time; returns the seconds until then, None: never."""
        if self._failed or not output.is_terminal():
            return None
        try:
            return self._show()
        except Exception as error:  # a line for show must not end a recording
            self._failed = True
            output.report_mistake(error)
            return None

    def _show(self) -> float:
        now = time.monotonic()
        if now >= self._next:
            output.show_progress(self._line(now))
            done = time.monotonic()
            self._next = done + max(_EVERY, (done - now) / _SHARE)
            now = done
        return self._next - now

    def _line(self, now: float) -> str:
        profile = self._run.profile()
        return ", ".join(
            [
                f"{format_bytes(profile.total('inuse_space'))} in use",
                plural(len(profile.metadata.processes), "process"),
                plural(profile.total("failed_objects"), "failure"),
                format_duration(int((now - self._start) * 1e9)),
            ]
        )
