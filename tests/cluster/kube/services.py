# SPDX-License-Identifier: Apache-2.0
"""One program of the cluster: started in its groups, with a log, stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .groups import join_command


@dataclass
class Service:
    """A program that serves until it is ended.

    A session of its own, so that Ctrl-C comes to the test runner only, which then ends
    everything in order.
    """

    name: str
    command: Sequence[str | Path]
    groups: list[Path]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [*join_command(self.groups), *map(str, self.command)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def stop(self, how: int = signal.SIGKILL, seconds: float = 30) -> None:
        """Sends that signal and waits for the end."""
        assert self._process
        self._process.send_signal(how)
        self._process.wait(seconds)

    def reap(self) -> None:
        """Takes note of its end, which somebody else brought about."""
        if self._process:
            self._process.wait(30)

    def check(self) -> None:
        """Raises with the log's end if it is no longer there."""
        if self._process and self._process.poll() is not None:
            text = self.log.read_text(errors="replace")[-3000:]
            raise AssertionError(f"{self.name} ended with {self._process.returncode}:\n{text}")


def await_true(
    what: str,
    condition: Callable[[], object],
    seconds: float = 90,
    services: Sequence[Service] = (),
    pause: float = 0.1,
) -> None:
    """Waits until ``condition()`` is true; raises when it takes too long or a service ends."""
    until = time.monotonic() + seconds
    while not condition():
        for service in services:
            service.check()
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(pause)
