# SPDX-License-Identifier: Apache-2.0
"""py-spy and pystack see the same stacks of the same process, which waits before it allocates.

It waits in a C function of its own, which then calls the driver: from that function
outwards all must see the same. In the driver they would not: while a return probe is
pending, ours or anybody's, the return address of its function is the kernel's trampoline,
and both end their native frames there. What they have otherwise, and why:

- pystack keeps the interpreter's own functions (`builtin_sorted`); py-spy and we hide what
  stands in the interpreter's file. Outside `<module>` py-spy leaves one nameless frame of
  libc's start.
- pystack tells `co_name` only, and neither tells classes before 3.11, where we know them by
  the first argument; so the last parts of names are compared.
- py-spy finds no thread of a CPython before 3.11 in another mount namespace, which a
  command of ours has; so the program is started first and recorded by its pid.
- Addresses in files without symbols have no name in theirs; such frames are compared by
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
from tests.support.recording import own_driver, recording
from tests.support.shapes import PROGRAMS, Told, compiled, samples_of
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
    known = "" if name.startswith(("0x", "?")) or "+0x" in name else name.partition("@")[0]
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
    """From the waiting function to the outermost of Python, without the interpreter's own."""
    names = [frame.name for frame in frames]
    outermost = max(place for place, frame in enumerate(frames) if frame.python)
    own = re.compile(r"(libpython|python)3[.\d]+(so.*)?$")
    kept = frames[names.index("allocate_when_told") : outermost + 1]
    return [frame for frame in kept if frame.python or not own.match(frame.file)]


def wait_for_sleep(pid: int, said: Path, number: int) -> None:
    """Until so many truths are told and the process sleeps."""
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


def looked_at(
    process: subprocess.Popen[bytes], said: Path, theirs: list[tuple[list[Seen], list[Seen]]]
) -> dict[int, Stack | None]:
    """Lets the program go from wait to wait; others look in each. Gives our stacks."""
    wait_for_sleep(process.pid, said, 1)
    with recording(pid=process.pid, events="all") as run:
        for number in range(1, SAMPLES + 1):
            wait_for_sleep(process.pid, said, number)
            theirs.append((by_py_spy(process.pid), by_pystack(process.pid)))
            process.send_signal(signal.SIGUSR1)
        assert process.wait(20) == 0
        run.stop()
        return samples_of(run.events(0))


@pytest.mark.parametrize("version", ["3.9", "3.11", "3.13"])
def test_other_tools_see_the_same(version: str, driver: Driver, tmp_path: Path) -> None:
    if not shutil.which("py-spy", path=BIN) or not shutil.which("pystack", path=BIN):
        pytest.skip("py-spy and pystack are not installed: tests/requirements-clients.txt has them")
    said = tmp_path / "said"
    theirs: list[tuple[list[Seen], list[Seen]]] = []
    words = (find_python(f"pyenv {version}"), "-B", str(PROGRAMS / "compared.py"))
    program = (*words, str(compiled(tmp_path)), str(said), "5000")
    with subprocess.Popen(program, env=driver.environment()) as process:
        try:
            stacks = looked_at(process, said, theirs)
        finally:
            process.kill()
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
