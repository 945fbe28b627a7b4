# SPDX-License-Identifier: Apache-2.0
"""Agents in this process and in ones of their own, and clients that keep what they read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import igsdk
from igsdk.agent.agent import Agent, Settings
from igsdk.client.remote import RemoteRuntime
from igsdk.client.run import GadgetRun

GADGET = "profile_cuda_memory"
INTERVAL = "100ms"
SECONDS = 20.0


@contextmanager
def agent(folder: Path, **settings: Any) -> Iterator[Agent]:
    """One in this process, at a socket in the folder."""
    with Agent(Settings((f"unix:{folder}/agent.sock",), **settings)) as one:
        yield one


@contextmanager
def agent_process(socket: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """One in a process of its own, from the moment on when it serves."""
    argv = [sys.executable, "-m", "igsdk.cli", "agent", "--listen", f"unix:{socket}", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(igsdk.__file__).parents[1])}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr
        try:
            lines = []
            while not (line := process.stderr.readline()).startswith("igsdk: Listening"):
                lines.append(line)
                assert line, lines
            yield process
        finally:
            process.kill()


class Client:
    """Reads a run in a thread, and keeps all rows; as `gadget_books` wants them."""

    def __init__(self, run: GadgetRun) -> None:
        self.run = run
        self.kept: list[Any] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for row in self.run.rows():
                self.kept.append(row)
        except igsdk.IgsdkError as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def rows(self, source: str) -> list[Any]:
        """In the order of their coming."""
        return [row for row in list(self.kept) if row.source == source]

    def latest(self, source: str) -> dict[int, Any]:
        """The last row of each number."""
        return {row["row"]: row for row in self.rows(source)}

    def changes(self, source: str) -> dict[int, Any]:
        """The sums of all changes of each row."""
        sums: dict[int, Any] = defaultdict(lambda: defaultdict(int))
        for row in self.rows(source):
            for name in row:
                if name.startswith("mem_"):
                    sums[row["row"]][name] += row[name]
        return sums

    def await_rows(self, source: str) -> None:
        """Waits until the first rows of a data source are there."""
        self.settle(lambda: bool(self.rows(source)))

    def settle(
        self,
        check: Callable[[], bool],
        seconds: float = SECONDS,
        or_else: Callable[[], str] = lambda: "the rows do not become what is expected",
    ) -> None:
        """Waits until `check` says that it is well."""
        until = time.monotonic() + seconds
        while not check():
            assert self.error is None, self.error
            assert time.monotonic() < until, or_else()
            time.sleep(0.05)


@contextmanager
def client(target: str, **params: Any) -> Iterator[Client]:
    """A run, read from its first row on; a short interval unless another is asked for."""
    values = {"interval": INTERVAL, **params}
    with RemoteRuntime(target) as host, host.run(GADGET, values) as run:
        yield from _reading(run)


@contextmanager
def attached(target: str, instance: str) -> Iterator[Client]:
    """The same of an instance."""
    with RemoteRuntime(target) as host, host.attach(instance) as run:
        yield from _reading(run)


def _reading(run: GadgetRun) -> Iterator[Client]:
    one = Client(run)
    one.settle(lambda: bool(one.rows("report")))
    yield one
    with suppress(igsdk.IgsdkError):
        run.stop()
    one.join()
