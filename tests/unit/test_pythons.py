# SPDX-License-Identifier: Apache-2.0
"""Interpreters of other processes: which file they are, and where they keep their frames.

The numbers are proved on living processes: what a walk by them finds is what the process
says of itself.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.interpreters import PYENV, CPython, find_pythons, python_parameters
from tests.support.python_frames import PythonFrame, Walk, held, wait_for_read

from igsdk import _abi
from igsdk.runtime.mappings import Mapping, read_maps
from igsdk.runtime.pythons import registry
from igsdk.runtime.pythons.discover import Interpreter, libc_of, read_interpreter
from igsdk.runtime.pythons.offsets import NONE, Unsupported, layout
from igsdk.runtime.pythons.registry import Pythons

TELL = Path(__file__).parents[1] / "clients" / "tell_stack.py"
SHAPES = 21  # stacks that it tells
FREE_THREADED_AT, VERSION_AT = 16, 8

x86_only = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="a thread's pointer is read by x86-64's ptrace"
)


class Told:
    """Stands for the kernel part, which needs a whole run: keeps what it is told."""

    def __init__(self) -> None:
        self.layouts: dict[int, bytes] = {}

    def set_python(self, pid: int, layout: bytes, /) -> None:
        self.layouts[pid] = layout

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


def a_python(minor: int) -> CPython:
    for each in find_pythons():
        if each.minor == minor and each.root is None and str(PYENV) in each.path:
            return each
    pytest.skip(f"pyenv has no CPython 3.{minor} here")


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


@pytest.mark.parametrize("python", python_parameters())
def test_the_version_without_a_name(python: CPython) -> None:
    found = read(python.library, "/x/program")
    assert found
    assert found.layout
    assert found.layout.version == 0x0300 | python.minor
    assert found == read(python.library, str(python.library))


def read(path: Path, name: str, *, likely: bool = True) -> Interpreter | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_interpreter(fd, name, likely=likely)
    finally:
        os.close(fd)


def patched(python: CPython, folder: Path, *changes: tuple[bytes, bytes]) -> Path:
    """A copy of its library where bytes are others."""
    folder.mkdir(exist_ok=True)
    content = python.library.read_bytes()
    for old, new in changes:
        assert len(old) == len(new)
        assert old in content
        content = content.replace(old, new)
    copy = folder / python.library.name
    copy.write_bytes(content)
    copy.chmod(0o755)
    return copy


NO_SYMBOL = (b"\0_PyRuntime\0", b"\0_PyXuntime\0")
NO_SECTION = (b"\0.PyRuntime\0", b"\0.PyXuntime\0")


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_without_its_symbol_the_section_tells(minor: int, tmp_path: Path) -> None:
    python = a_python(minor)
    copy = patched(python, tmp_path, NO_SYMBOL)
    assert read(copy, copy.name) == read(python.library, copy.name)


def test_without_symbol_and_section_the_description_tells(tmp_path: Path) -> None:
    python = a_python(13)
    copy = patched(python, tmp_path, NO_SYMBOL, NO_SECTION)
    assert read(copy, copy.name) == read(python.library, copy.name)
    assert read(copy, copy.name, likely=False) is None  # nobody reads through any library


def test_an_old_one_without_symbol_is_none(tmp_path: Path) -> None:
    copy = patched(a_python(9), tmp_path, NO_SYMBOL)
    assert read(copy, copy.name) is None


def described(minor: int, free_threaded: bytes = b"\0", said: int | None = None) -> bytes:
    """The head of a description."""
    version = bytes([0xF0, 0, minor if said is None else said, 3])
    return b"xdebugpy" + version + bytes(4) + free_threaded


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


@cache
def description_of(python: CPython) -> bytes:
    """The first bytes of its runtime."""
    content = python.library.read_bytes()
    found = re.search(rb"xdebugpy\xf0.%c\x03\0{4}" % python.minor, content, re.DOTALL)
    assert found
    return content[found.start() :][:1024]


def as_version(description: bytes, minor: int) -> bytes:
    return described(minor) + description[len(described(minor)) :]


def test_a_later_version_is_read_by_its_description() -> None:
    newest = [each for each in find_pythons() if each.minor == 15]
    if not newest:
        pytest.skip("this machine has no CPython 3.15: tests/support/sid.py brings one")
    description = description_of(newest[0])
    found = layout(0x0310, "x86_64", as_version(description, 16))
    assert found.note == "Python 3.16 is newer than what igsdk was tested with: check its stacks."
    assert found.numbers == layout(0x030F, "x86_64", description).numbers


def test_a_later_version_with_other_structures_is_not_read() -> None:
    """Positions of 3.13 hold something else than those of the newest."""
    description = as_version(description_of(a_python(13)), 16)
    with pytest.raises(Unsupported, match=r"3\.16: it describes its structures in an unknown"):
        layout(0x0310, "x86_64", description)


def test_what_it_says_of_itself_is_believed() -> None:
    """And the reader of results is told where that is not what its version usually says."""
    description = bytearray(description_of(a_python(13)))
    description[64:72] = (7280).to_bytes(8, "little")  # interpreter_state.next
    found = layout(0x030D, "x86_64", bytes(description))
    assert found.numbers["interp_next"] == 7280
    assert found.note == (
        "Python 3.13 here describes other structures than usual (interp_next): check its stacks."
    )


@pytest.mark.parametrize(
    ("version", "description", "why"),
    [
        (0x030D, b"", "does not describe itself"),
        (0x030D, described(14), "another version"),
        (0x030E, described(14), "in an unknown way"),
        (0x030D, described(13, b"\1" + bytes(7)), r"3\.13t: free-threaded"),
        (0x0307, b"", r"older than 3\.8"),
        (0x0207, b"", r"older than 3\.8"),
    ],
)
def test_what_is_not_supported(version: int, description: bytes, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        layout(version, "x86_64", description)


@given(st.binary(max_size=1100), st.integers(13, 20), st.booleans())
def test_a_damaged_description_is_refused_or_bounded(
    garbage: bytes, minor: int, keeps_head: bool
) -> None:
    description = (described(minor) + bytes(7) if keeps_head else b"") + garbage
    check_layout(minor, description)


@given(st.lists(st.tuples(st.integers(24, 700), st.binary(min_size=1, max_size=8)), min_size=1))
def test_a_description_with_a_few_other_numbers(changes: list[tuple[int, bytes]]) -> None:
    description = bytearray(description_of(a_python(13)))
    for at, piece in changes:
        description[at : at + len(piece)] = piece
    check_layout(13, bytes(description))


def check_layout(minor: int, description: bytes) -> None:
    """It is refused, or the kernel part can work with it."""
    with suppress(Unsupported):
        found = layout(0x0300 | minor, "x86_64", description)
        assert found.numbers["frame_size"] <= 128
        assert found.numbers["code_size"] <= 256
        assert len(found.pack(1 << 47, "glibc", "x86_64")) == _abi.dtype("python").itemsize


def test_arm64_compares_thread_ids_that_the_kernel_knows() -> None:
    numbers = layout(0x030B, "aarch64").numbers
    assert (numbers["thread_id"], numbers["thread_native_id"]) == (NONE, 160)
    assert numbers["tss_key"] == layout(0x030B, "x86_64").numbers["tss_key"] + 16
    assert layout(0x030C, "aarch64").numbers["tss_key"] == 1548
    with pytest.raises(Unsupported, match="can't be told apart on arm64"):
        layout(0x030A, "aarch64")


def test_slots_of_the_c_library() -> None:
    def slots(libc: str, machine: str) -> int:
        packed = layout(0x030B, machine).pack(0, libc, machine)
        return int(np.frombuffer(packed, _abi.dtype("python"))[0]["tss_slots"])

    assert slots("glibc", "x86_64") == 784
    assert {slots("musl", "x86_64"), slots("", "x86_64"), slots("glibc", "aarch64")} == {NONE}


@pytest.mark.parametrize(
    ("path", "loader", "libc"),
    [
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "", "glibc"),
        ("/lib/libc-2.17.so", "", "glibc"),
        ("/lib/ld-musl-x86_64.so.1", "", "musl"),
        ("/bin/python3", "/lib64/ld-linux-x86-64.so.2", "glibc"),
        ("/bin/python3", "/lib/ld-musl-x86_64.so.1", "musl"),
        ("/bin/python3", "", ""),
    ],
)
def test_which_c_library(path: str, loader: str, libc: str) -> None:
    assert libc_of([Mapping(0, 4096, 0, 1, 1, path)], loader) == libc


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


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    copy = tmp_path_factory.mktemp("damaged") / "libpython3.13.so.1.0"
    copy.write_bytes(a_python(13).library.read_bytes())
    return copy, copy.read_bytes()


SPOTS = ("start", "sections", "symbols", "names", "runtime")
damage = st.tuples(st.sampled_from(SPOTS), st.integers(0, 3000), st.binary(min_size=1, max_size=64))


def spot(content: bytes, name: str) -> int:
    return {
        "start": 0,
        "sections": len(content) - 4096,
        "symbols": 4096,
        "names": content.index(b"_PyRuntime\0"),
        "runtime": content.index(described(13)),
    }[name]


@settings(max_examples=100)
@given(damages=st.lists(damage, min_size=1, max_size=4), cut=st.sampled_from((1, 1, 1, 2, 4096)))
def test_a_damaged_file_is_refused_or_read(
    victim: tuple[Path, bytes], damages: list[tuple[str, int, bytes]], cut: int
) -> None:
    """Headers, sections, symbols and descriptions that lie."""
    path, content = victim
    for name, offset, piece in damages:
        write_at(path, spot(content, name) + offset, piece)
    os.truncate(path, len(content) // cut)
    fd = os.open(path, os.O_RDONLY)
    found = registry._read(fd, str(path), True)
    os.close(fd)
    if cut > 1:
        path.write_bytes(content)
    for name, offset, piece in damages:
        at = spot(content, name) + offset
        write_at(path, at, content[at : at + len(piece)])
    os.truncate(path, len(content))
    if found and found.layout:
        assert found.layout.numbers["frame_size"] <= 128
    elif found:
        assert found.reason.startswith("Python")


def write_at(path: Path, at: int, piece: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(piece)


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
