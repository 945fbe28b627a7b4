# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own: what it prints, keys, and the terminal going away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

CTRL_C = b"\x03"


class Terminal:
    """Runs a program as the leader of a session on a new terminal.

    Args:
        stdout: a descriptor to use for standard output instead of the terminal.
    """

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> None:
        self.text = ""
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", **(env or {})}
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=slave,
                stdout=slave if stdout is None else stdout,
                stderr=slave,
                cwd=cwd,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        finally:
            os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def read_until(self, pattern: str, timeout: float = 15.0) -> re.Match[str]:
        """Reads until the text that was not matched yet has the pattern in it."""
        end = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.text)
            if found:
                self.text = self.text[found.end() :]
                return found
            if time.monotonic() > end or not self._read(end - time.monotonic()):
                raise AssertionError(f"no {pattern!r} in {self.text!r}")

    def press(self, keys: bytes) -> None:
        """Types on its keyboard."""
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """Takes the terminal away."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def wait(self, timeout: float = 15.0) -> int:
        """Reads on until the program has ended; returns its status, -N for signal N."""
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"still running after {timeout} s: {self.text!r}")
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode

    def _read(self, timeout: float) -> bool:
        if self._master < 0:
            time.sleep(max(0.0, min(timeout, 0.05)))
            return False
        ready, _, _ = select.select([self._master], [], [], max(0.0, timeout))
        data = b""
        if ready:
            with contextlib.suppress(OSError):
                data = os.read(self._master, 65536)
        self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)
