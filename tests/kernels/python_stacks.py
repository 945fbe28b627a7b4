# SPDX-License-Identifier: Apache-2.0
"""Whole stacks of Python programs, compared with what the program itself saw."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.kernels.machine import PATIENCE_S, ROOM
from tests.support import simdriver

from igsdk._events import Event, Stack
from igsdk._run import Run

#: Innermost first: function, file, line.
Truth = list[tuple[Any, ...]]
SIZE = (5 << 20) + 1
#: on a machine that is busy with other things a stack may take too long several times
TRIES = 8


def check_python(run: Run, driver: simdriver.Driver, python: str) -> str:
    """The whole merged stack: the program's own frames in order, down to the process's start.

    Time for one stack is limited, and an emulated processor may take longer for a program
    that it reads for the first time: such a stack ends early and says so. Then once more.
    """
    stack, truth = record_python(run, driver, python)
    tries = 1
    while tries < TRIES and "too many" in (stack.missing or ""):
        stack, truth = record_python(run, driver, python)
        tries += 1
    lost = {name: count for name, count in run.losses().items() if count}
    again = f" at try {tries}, the stack before took too long to follow" if tries > 1 else ""
    return f"{whole(stack, truth, lost)}{again}"


def record_python(run: Run, driver: simdriver.Driver, python: str) -> tuple[Stack, Truth]:
    script = ROOM / "allocate.py"
    if not script.exists():
        shutil.copy(Path(__file__).parent / "allocate.py", script)
    done = subprocess.run(
        [python, str(script)],
        env=driver.environment(base=dict(os.environ, PYTHONPATH="")),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    event = find_event(run)
    assert event.stack, "the allocation has no stack"
    return event.stack, [tuple(entry) for entry in json.loads(done.stdout)]


def find_event(run: Run) -> Event:
    """The one allocation of this size; it has gone from the queue with those before it."""
    found = [event for event in run.events(timeout=1) if event.bytes == SIZE]
    taken = [event for event in found if event.type == "alloc"]
    assert len(taken) == 1, f"{len(taken)} allocations of {SIZE} bytes were seen"
    return taken[0]


def whole(stack: Stack, truth: Truth, lost: dict[str, int]) -> str:
    """Compares with what the program saw; without qualified names by the last part."""
    python = [(f.function, f.file, f.line) for f in stack.frames if f.kind == "python"]
    shown = [f"{f.kind} {f.shown_name} {f.place}" for f in stack.frames]
    full = "\n    ".join([f" losses {lost}", *shown])
    assert not stack.missing, f"the stack lacks something: {stack.missing}{full}"
    assert all(frame.kind != "marker" for frame in stack.frames), f"not whole:{full}"
    assert [short(place) for place in python] == [short(place) for place in truth], (
        f"Python frames are not {truth}:{full}"
    )
    native = len(stack.frames) - len(python)
    assert native > len(truth) // 2 or native >= 3, f"hardly a native frame:{full}"
    last = stack.frames[-1]
    assert last.kind == "interpreter", f"it does not reach the process's start:{full}"
    function, file, line = python[0]
    return f"{len(python)} Python and {native} native frames, {function} {file}:{line} innermost"


def short(place: tuple[Any, ...]) -> tuple[Any, ...]:
    function, file, line = place
    return function.rpartition(".")[2], file, line


def name_of(python: str) -> str:
    ask = "import platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return f"Python {done.stdout.strip()}"
