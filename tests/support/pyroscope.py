# SPDX-License-Identifier: Apache-2.0
"""Builds and runs ``tests/pyroscope``: Pyroscope v0.37.2, the last one under Apache-2.0.

It is built once into ``.work/pyroscope/`` (minutes of CPU the first time, seconds from Go's
cache), by ``make test`` before the tests begin, or by hand:

    python -m tests.support.pyroscope
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from .gadgethost import ROOT, TESTS, fingerprint, why_not
from .igoperators import OUT_OF_REACH, OutOfReach
from .registry import free_port
from .simdriver import made_once

Found = TypeVar("Found")

SOURCE = TESTS / "pyroscope"
CACHE = ROOT / ".work" / "pyroscope"
_PROGRAM = "github.com/pyroscope-io/pyroscope/cmd/pyroscope"
_QUIET = ("-analytics-opt-out", "-no-self-profiling", "-no-adhoc-ui", "-log-level", "error")


def _folder() -> Path:
    return CACHE / fingerprint(SOURCE, SOURCE / "godeltaprof")


def _build_into(folder: Path) -> None:
    command = ["nice", "go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w"]
    command += ["-o", str(folder / "pyroscope"), _PROGRAM]
    environment = {**os.environ, "CGO_ENABLED": "1", "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True)
    if done.returncode and any(word in done.stderr for word in OUT_OF_REACH):
        raise OutOfReach(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"the old Pyroscope does not build:\n{done.stderr}")


def build() -> str:
    """Builds what is not built yet; says why where it can't be."""
    reason = why_not()
    if reason:
        return reason
    try:
        made_once(_folder(), _build_into)
    except OutOfReach as error:
        return f"modules of Pyroscope can't be had here: {error}"
    return ""


@dataclass
class Server:
    """A server that runs; its data outlive a restart."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        config = self.folder / "empty.yml"
        config.touch()
        command = [str(_folder() / "pyroscope"), "server", "-config", str(config), *_QUIET]
        command += ["-api-bind-addr", f"127.0.0.1:{self.port}"]
        command += ["-storage-path", str(self.folder / "data")]
        command += ["-admin-socket-path", str(self.folder / "admin.sock")]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder
        )
        ends = time.monotonic() + 30
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError("the old Pyroscope does not start")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it by SIGTERM, so that its data are on the disk."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)
            self.process = None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/healthz") as answer:
            return bool(answer.status == 200)
        return False

    def ask(self, path: str, **query: str) -> bytes:
        """A GET request's body."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url) as answer:
            return bytes(answer.read())

    def applications(self) -> list[str]:
        """Names of all that was pushed, each with its sample type at the end."""
        names: list[str] = json.loads(self.ask("/label-values", label="__name__"))
        return names

    def stacks(self, query: str, at: float) -> dict[str, int]:
        """What it shows of a moment: by stack, root first, joined by semicolons."""
        when = {"from": str(int(at)), "until": str(int(at))}

        def asked() -> dict[str, int]:
            text = self.ask("/render", query=query, format="collapsed", **when).decode()
            lines = (line.rpartition(" ") for line in text.splitlines())
            return {stack: int(value) for stack, _, value in lines}

        return _soon(asked, lambda found: bool(found))

    def becomes(self, expected: int, query: str, since: float, until: float) -> int:
        """The sum as soon as it is as expected, or what it is after some seconds."""
        return _soon(lambda: self.sum(query, since, until), lambda found: found == expected)

    def sum(self, query: str, since: float, until: float) -> int:
        """All of an interval added up, as its flame graph does."""
        times = {"from": str(int(since)), "until": str(int(until))}
        found: dict[str, Any] = json.loads(self.ask("/render", query=query, format="json", **times))
        return int(found["flamebearer"]["numTicks"])


def _soon(ask: Callable[[], Found], good: Callable[[Found], bool]) -> Found:
    """The first good answer: what was pushed is shown a little later, on a busy machine."""
    ends = time.monotonic() + 5
    while True:
        found = ask()
        if good(found) or time.monotonic() > ends:
            return found
        time.sleep(0.05)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server of its own; skips the test that asks where it can't be."""
    reason = why_not()
    if not reason and not _folder().exists():
        reason = "the old Pyroscope is not built: `python -m tests.support.pyroscope`, 5 minutes"
    if reason:
        pytest.skip(reason)
    folder.mkdir(exist_ok=True)
    server = Server(folder, free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    missing = build()
    if missing:
        print(f"without the old Pyroscope: {missing}", file=sys.stderr)
