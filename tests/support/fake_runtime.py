# SPDX-License-Identifier: Apache-2.0
"""A runtime without a kernel, to try the command line on.

As a program (``python -m tests.support.fake_runtime VERB …``) it is igsdk with this
runtime; FAKE_* variables choose what the run does.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from igsdk._events import Event, Frame, ProcessInfo, Stack
from igsdk.runtime.launch import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk._events import AttachedLibrary
    from igsdk.profile import Profile

MIB = 1 << 20
PROCESS = ProcessInfo(instance=1, pid=4711, comm="python", cmdline="python train.py")
STACK = Stack.of([Frame("cuMemAlloc_v2"), Frame("load_weights", "train.py", 7), Frame("main")])


def event(number: int) -> Event:
    """A failed allocation of `number` MiB."""
    return Event(
        type="failure",
        time_ns=number,
        process=PROCESS,
        tid=4711,
        api="cuMemAlloc_v2",
        kind="device",
        device=0,
        address=0,
        bytes=number * MIB,
        result=2,
        result_name="CUDA_ERROR_OUT_OF_MEMORY",
        latency_ns=1500,
        in_use=64 * MIB,
        stack=STACK,
    )


class FakeRun:
    """A run that has seen one process: 64 MiB in use, one failure of 1 MiB."""

    attached: ClassVar[list[AttachedLibrary]] = []
    earlier: ClassVar[list[tuple[int, str]]] = []
    detaching = False

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.command: Command | None = None
        self.stopped = self.profiles = 0
        self.survivors: list[ProcessInfo] = []
        self._events = [event(number) for number in range(1, int(_said("EVENTS", "1")) + 1)]

    def __enter__(self) -> FakeRun:
        if self.settings["argv"]:
            self.command = Command(self.settings["argv"], self.settings["user"])
            self.command.prepare()
            self.command.go()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        while self._events:
            yield self._events.pop(0)
        if not self.stopped:
            time.sleep(timeout or 0)

    def profile(self) -> Profile:
        from igsdk.profile import Metadata, Profile

        self.profiles += 1
        mode = _said("MODE", "")
        if mode == "PROFILE_FAILS" or (mode == "FIRST_PROFILE_FAILS" and self.profiles == 1):
            raise ZeroDivisionError("a mistake")
        time.sleep(float(_said("SLOW", "0")))
        if mode == "NOTHING":
            return Profile.from_samples([], Metadata())
        sample = {
            "stack": STACK.frames,
            "process": "python train.py",
            "pid": 4711,
            "kind": "device",
            "device": "0",
            "host": "own",
            "inuse_space": 64 * MIB,
            "inuse_objects": 4,
            "alloc_space": 112 * MIB,
            "alloc_objects": 10,
            "peak_space": 96 * MIB,
            "peak_objects": 8,
            "failed_space": MIB,
            "failed_objects": 1,
        }
        return Profile.from_samples([sample], Metadata(driver="simulated", peak="exact"))

    def processes(self) -> list[ProcessInfo]:
        return self.survivors

    def losses(self) -> dict[str, int]:
        return {}

    def notes(self) -> list[str]:
        return []

    def stop(self) -> None:
        self.stopped += 1


class FakeRuntime:
    """Gives one run; keeps it in `run` for tests to look at."""

    def __init__(self) -> None:
        self.run: FakeRun | None = None

    def __enter__(self) -> FakeRuntime:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def profile_cuda_memory(self, **settings: Any) -> FakeRun:
        self.run = FakeRun(**settings)
        return self.run


def _said(name: str, default: str) -> str:
    return os.environ.get(f"FAKE_{name}", default)


if __name__ == "__main__":
    import igsdk._connect
    from igsdk.cli import main

    igsdk._connect.connect = lambda target: FakeRuntime()  # type: ignore[assignment]
    main()
