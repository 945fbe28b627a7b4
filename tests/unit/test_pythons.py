# SPDX-License-Identifier: Apache-2.0
"""Interpreters of other processes: which file they are, and where they keep their frames.

The numbers are proved on living processes: what a walk by them finds is what the process
says of itself.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.support.interpreters import (
    PYENV,
    CPython,
    a_python,
    described,
    patched,
    python_parameters,
)
from tests.support.python_frames import PythonFrame, Walk, held, wait_for_read

from igsdk import _abi
from igsdk.runtime.mappings import Mapping, read_maps
from igsdk.runtime.pythons import registry
from igsdk.runtime.pythons.discover import Interpreter, read_interpreter
from igsdk.runtime.pythons.registry import Pythons

TELL = Path(__file__).parents[1] / "clients" / "tell_stack.py"
SHAPES = 21  # stacks that it tells

x86_only = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="a thread's pointer is read by x86-64's ptrace"
)


class Told:
    """Stands for the kernel part, which needs a whole run: keeps what it is told."""

    def __init__(self) -> None:
        self.layouts: dict[int, bytes] = {}

    def set_python(self, pid: int, layout: bytes, /) -> None:
        self.layouts[pid] = layout

    def clear_python(self, pid: int, /) -> None:
        self.layouts.pop(pid, None)

    def numbers(self, pid: int) -> dict[str, int]:
        row = np.frombuffer(self.layouts[pid], _abi.dtype("python"))[0]
        return {name: int(row[name]) for name in row.dtype.names}


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def pythons(told: Told) -> Pythons:
    return Pythons(told)


@contextmanager
def telling(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, whatever happened."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_stack(process: subprocess.Popen[bytes]) -> tuple[int, list[PythonFrame]] | None:
    """(thread id, what it says); the thread waits there for a byte."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        return None
    said = json.loads(line)
    wait_for_read(said["tid"])
    return said["tid"], [PythonFrame(*frame) for frame in said["frames"]]


def go_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.write(b".")
    process.stdin.flush()


@x86_only
@pytest.mark.parametrize("python", python_parameters())
def test_the_walk_finds_what_the_process_says(
    python: CPython, told: Told, pythons: Pythons
) -> None:
    count = 0
    with telling(python.start("-c", TELL.read_text())) as process:
        while stack := next_stack(process):
            tid, said = stack
            if not count:
                pythons.see(process.pid)
            walk = Walk(process.pid, told.layouts[process.pid])
            with held(tid) as pointer:
                assert walk.frames(pointer) == said
                by_list = walk.find_thread(pointer)
                assert walk.by_slot(pointer) == (by_list if python.minor < 15 else 0)
            count += 1
            go_on(process)
    assert count == SHAPES
    assert pythons.reason(process.pid) == ""
    assert pythons.notes([process.pid]) == []  # what it says of itself is what our table says
    assert told.numbers(process.pid)["version"] == 0x0300 | python.minor


@x86_only
@pytest.mark.parametrize("minor", [8, 9, 10])
def test_the_class_of_self(minor: int, told: Told, pythons: Pythons) -> None:
    with telling(a_python(minor).start("-c", TELL.read_text())) as process:
        while stack := next_stack(process):
            tid, said = stack
            if said[1].name == "method":
                break
            go_on(process)
        pythons.see(process.pid)
        walk = Walk(process.pid, told.layouts[process.pid])
        with held(tid) as pointer:
            at = walk.at["frame_previous"]
            frame = walk.memory.word(walk.leaf(pointer) + at)
            assert walk.class_of(frame) == "Inner"


def check_first_stack(process: subprocess.Popen[bytes], told: Told, pythons: Pythons) -> None:
    stack = next_stack(process)
    assert stack
    pythons.see(process.pid)
    assert pythons.reason(process.pid) == ""
    walk = Walk(process.pid, told.layouts[process.pid])
    with held(stack[0]) as pointer:
        assert walk.frames(pointer) == stack[1]


@x86_only
@pytest.mark.parametrize("minor", [8, 11, 13])
def test_stripped_and_deleted(minor: int, tmp_path: Path, told: Told, pythons: Pythons) -> None:
    python = a_python(minor)
    copy = tmp_path / python.library.name
    subprocess.run(["strip", "-o", copy, python.library], check=True)
    with telling(python.start(str(TELL), LD_LIBRARY_PATH=str(tmp_path))) as process:
        stack = next_stack(process)
        assert str(copy) in {mapping.path for mapping in read_maps(process.pid)}
        copy.unlink()
        go_on(process)
        assert stack
        check_first_stack(process, told, pythons)


@x86_only
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="this machine has no Python of its own"
)
def test_a_program_with_another_name(tmp_path: Path, told: Told, pythons: Pythons) -> None:
    """Nothing but the file says what it is; it may be the command of a container."""
    copy = tmp_path / "serve"
    shutil.copy(Path("/usr/bin/python3").resolve(), copy)
    process = subprocess.Popen(
        [copy, TELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHOME": "/usr"},
    )
    with telling(process):
        check_first_stack(process, told, pythons)


def test_free_threaded_builds_say_why_not(tmp_path: Path, told: Told, pythons: Pythons) -> None:
    """The interpreter itself never looks at that number."""
    python = a_python(13)
    patched(python, tmp_path, (described(13), described(13, b"\1")))
    with telling(python.start(str(TELL), LD_LIBRARY_PATH=str(tmp_path))) as process:
        assert next_stack(process)
        pythons.see(process.pid)
        assert told.layouts == {}
        reason = "Python 3.13t: free-threaded builds are not supported"
        assert pythons.reason(process.pid) == reason


@pytest.mark.parametrize("name", ["2.7", "3.6", "3.7"])
def test_what_is_too_old_says_so(name: str, told: Told, pythons: Pythons) -> None:
    found = sorted(PYENV.glob(f"{name}.*/bin/python{name}"))
    if not found:
        pytest.skip(f"pyenv has no CPython {name} here")
    program = "import sys; sys.stdout.write('.\\n'); sys.stdout.flush(); sys.stdin.read(1)"
    with telling(CPython(str(found[0]), name).start("-c", program)) as process:
        assert process.stdout
        process.stdout.readline()
        assert pythons.reason(process.pid) == f"Python {name}: older than 3.8"
        assert told.layouts == {}


def test_libraries_of_other_programs_are_none(told: Told, pythons: Pythons) -> None:
    with telling(subprocess.Popen(["cat"], stdin=subprocess.PIPE)) as process:
        pythons.see(process.pid)
        assert pythons.reason(process.pid) == ""
    assert told.layouts == {}


def test_processes_that_cannot_be_read(told: Told, pythons: Pythons) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, 2, 0, -1, 1 << 30):
        pythons.see(pid)
        assert pythons.reason(pid) == ""
    assert told.layouts == {}


def test_a_process_with_rubbish_of_that_name(tmp_path: Path, told: Told, pythons: Pythons) -> None:
    path = tmp_path / "libpython3.13.so.1.0"
    path.write_bytes(b"\x7fELF" + bytes(range(256)) * 64)
    map_it = (
        "import mmap, os, sys\n"
        "f = os.open(sys.argv[1], os.O_RDONLY)\n"
        "m = mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)\n"
        "print(flush=True)\n"
        "input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", map_it, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with telling(process):
        assert process.stdout
        process.stdout.readline()
        assert str(path) in {mapping.path for mapping in read_maps(process.pid)}
        pythons.see(process.pid)
        assert pythons.reason(process.pid) == ""
        assert list(told.layouts) == [process.pid]  # its real one


def test_each_file_is_read_once(monkeypatch: pytest.MonkeyPatch, pythons: Pythons) -> None:
    reads: list[str] = []

    def count(fd: int, path: str, *, likely: bool) -> Interpreter | None:
        reads.append(path)
        return read_interpreter(fd, path, likely=likely)

    monkeypatch.setattr(registry, "read_interpreter", count)
    for _ in range(3):
        pythons.see(os.getpid())
    assert len(reads) == len(set(reads)) > 0


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    """In place, so that device and inode stay."""
    path = tmp_path / "libpython3.13.so.1.0"
    shutil.copy(a_python(13).library, path)
    status = path.stat()
    mapping = Mapping(0, 4096, 0, status.st_dev, status.st_ino, str(path))
    files = registry.Files()
    assert files.of(os.getpid(), mapping, likely=True)
    path.write_text("something else")
    assert files.of(os.getpid(), mapping, likely=True) is None


def test_who_was_seen_in_its_exec_is_told_of_again(
    monkeypatch: pytest.MonkeyPatch, told: Told, pythons: Pythons
) -> None:
    """The kernel forgets a process at the end of its exec, after its first mapping."""
    pythons.see(os.getpid())
    pythons.see(os.getpid())
    told.layouts.clear()
    pythons.see_again()
    assert told.layouts == {}  # too soon
    monkeypatch.setattr(registry, "_AGAIN", -1.0)
    pythons.see(os.getpid())
    told.layouts.clear()
    pythons.see_again()
    assert list(told.layouts) == [os.getpid()]
    told.layouts.clear()
    pythons.see_again()
    assert told.layouts == {}


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch, pythons: Pythons) -> None:
    monkeypatch.setattr(registry, "_MAX_PROCESSES", 2)
    monkeypatch.setattr(registry, "_MAX_FILES", 3)
    for pid in (os.getpid(), os.getppid(), 1, os.getpid()):
        pythons.see(pid)
    assert len(pythons._said) <= 2
    assert len(pythons._files._known) <= 3


def test_scan_finds_those_that_run_already(told: Told, pythons: Pythons) -> None:
    pythons.scan()
    assert os.getpid() in told.layouts


def test_an_image_without_python_has_no_layout_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, told: Told, pythons: Pythons
) -> None:
    """It may have been told of just after the exec, from a look just before it."""
    script = "import os; input(); os.execv('/bin/cat', ['cat'])"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with telling(process):
        assert process.stdin
        assert process.stdout
        deadline = time.monotonic() + 20
        while process.pid not in told.layouts:  # until its own exec is over
            assert time.monotonic() < deadline
            pythons.see(process.pid)
        old = told.layouts[process.pid]
        process.stdin.write(b"\nin cat\n")
        process.stdin.flush()
        while not any(mapping.path.endswith("/cat") for mapping in read_maps(process.pid)):
            assert time.monotonic() < deadline
        told.layouts[process.pid] = old
        pythons.see(process.pid)
        assert process.pid not in told.layouts
