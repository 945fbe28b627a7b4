# SPDX-License-Identifier: Apache-2.0
"""py-spy and pystack see the same stacks of the same process, which waits in its allocation.

What they have otherwise, and why:

- The driver sleeps while they look: above its function they see that sleep. We look at
  the function's entry. The driver has no symbols but its exports; the place in it that
  sleeps has no name, its entry has one.
- pystack keeps the interpreter's own functions (`builtin_sorted`); py-spy and we hide what
  stands in the interpreter's file. Below `<module>` py-spy leaves one nameless frame of
  libc's start.
- pystack tells `co_name` only; py-spy's names are qualified from 3.11 on, and never ours
  before (`Inner.method` by the first argument), so last parts of names are compared.
- Addresses in files without symbols have no name in either; those frames are compared by
  file.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.pythons import find_python
from tests.support.recording import own_driver, recording, with_environment
from tests.support.shapes import PROGRAMS, Told, samples_of
from tests.support.simdriver import Driver

from igsdk._events import Stack

BIN = Path(sys.executable).parent
SAMPLES = 5
SLEEP = "230 "  # clock_nanosleep on x86-64, in /proc/PID/syscall
_LINE = re.compile(r'\((C|Python)\) File "(.*)", line (\d+), in (.*?)(?: \((\S+)\))?$')


@dataclass(frozen=True)
class Seen:
    """A frame as a tool tells it: of Python, by file and line; of C, by the mapped file."""

    python: bool
    name: str
    file: str
    line: int = 0

    def same(self, other: Seen) -> bool:
        """Whether both may mean the same frame."""
        nameless = "" in (self.name, other.name)
        is_named = nameless or self.name == other.name
        return (self.python, self.file, self.line) == (
            other.python,
            other.file,
            other.line,
        ) and is_named


def of_c(name: str, mapping: str) -> Seen:
    """A native frame; without a version of its symbol, and "" for an address."""
    known = "" if name.startswith(("0x", "?")) else name.partition("@")[0]
    return Seen(False, known, Path(mapping).name)


def of_python(name: str, file: str, line: int) -> Seen:
    return Seen(True, name.rpartition(".")[2], file, line)


def by_py_spy(pid: int) -> list[Seen]:
    words = (BIN / "py-spy", "dump", "--native", "--full-filenames", "--json", "--pid", str(pid))
    (thread,) = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return [
        of_c(frame["name"], frame["module"])
        if frame["module"]
        else of_python(frame["name"], frame["filename"], frame["line"])
        for frame in thread["frames"]
    ]


def by_pystack(pid: int) -> list[Seen]:
    words = (BIN / "pystack", "remote", "--native", str(pid))
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    frames = []
    for line in told.splitlines():
        found = _LINE.search(line.strip())
        if found:
            kind, file, number, name, mapping = found.groups()
            name = name.removesuffix(" (inlined)")
            is_python = kind == "Python"
            frames.append(
                of_python(name, file, int(number)) if is_python else of_c(name, mapping or file)
            )
    return frames[::-1]  # it has the outermost first


def by_us(stack: Stack) -> list[Seen]:
    return [
        of_python(frame.function, frame.file or "", frame.line)
        if frame.kind == "python"
        else of_c(frame.function, frame.mapping or "")
        for frame in stack.frames
        if frame.kind in ("python", "native")
    ]


def comparable(frames: list[Seen]) -> list[Seen]:
    """Without the driver and its sleep, the interpreter's own functions, and libc's start."""
    driver = [place for place, frame in enumerate(frames) if frame.file.startswith("libcuda.so")]
    outermost = max(place for place, frame in enumerate(frames) if frame.python)
    own = re.compile(r"(libpython|python)3[.\d]+(so.*)?$")
    kept = frames[driver[-1] + 1 : outermost + 1]
    return [frame for frame in kept if frame.python or not own.match(frame.file)]


def wait_for_sleep(pid: int, said: Path, number: int) -> None:
    """Until so many truths are told and the process sleeps in the driver."""
    until = time.monotonic() + 20
    while True:
        told = said.read_bytes().count(b"\n") if said.exists() else 0
        if told == number and Path(f"/proc/{pid}/syscall").read_text().startswith(SLEEP):
            return
        assert time.monotonic() < until, f"{told} of {number} samples came"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize("version", ["3.9", "3.11", "3.13"])
def test_other_tools_see_the_same(version: str, driver: Driver, tmp_path: Path) -> None:
    if not shutil.which("py-spy", path=BIN) or not shutil.which("pystack", path=BIN):
        pytest.skip("py-spy and pystack are not installed: tests/requirements-clients.txt has them")
    said = tmp_path / "said"
    environment = with_environment(driver, latency="cuMemAlloc_v2:60000000")
    program = (find_python(f"pyenv {version}"), "-B", str(PROGRAMS / "compared.py"))
    theirs = []
    with recording(argv=(*environment, *program, str(said), "5000"), events="all") as run:
        assert run.command is not None
        pid = run.command.pid
        for number in range(1, SAMPLES + 1):
            wait_for_sleep(pid, said, number)
            theirs.append((by_py_spy(pid), by_pystack(pid)))
            run.command.send_signal(signal.SIGUSR1)
        ended = run.command.wait(20)
        assert ended is not None
        assert ended.status == 0
        run.stop()
        stacks = samples_of(run.events(0))
    samples = Told.read(said).samples
    assert len(samples) == SAMPLES
    for sample, tools in zip(samples, theirs, strict=True):
        stack = stacks[sample.number]
        assert sample.difference(stack) == ""
        assert stack is not None
        ours = comparable(by_us(stack))
        for name, seen in zip(("py-spy", "pystack"), tools, strict=True):
            frames = comparable(seen)
            assert len(ours) == len(frames), (name, ours, frames)
            for mine, other in zip(ours, frames, strict=True):
                assert mine.same(other), (name, mine, other)
