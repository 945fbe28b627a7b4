# SPDX-License-Identifier: Apache-2.0
"""Programs whose stacks, files and Python structures are garbage, recorded on the real kernel.

Whatever they are: we don't fail and don't hang, every byte is booked, no address is shown
that is not code, and an honest stack behind all that is right.

IGSDK_FUZZ_ROUNDS multiplies the rounds, IGSDK_FUZZ_SEED is the first seed.
"""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.elves import compile_c
from tests.support.hostile_elves import damaged_elf, through_library
from tests.support.recording import balanced, own_driver, recording
from tests.support.simdriver import TESTS, Driver, all_books

from igsdk._events import Frame, Stack
from igsdk._native import elf_inspect
from igsdk._run import Run
from igsdk.runtime.pythons.offsets import _TABLE

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the clients are x86-64 only"),
]

M = 1 << 20
_PAGE = os.sysconf("SC_PAGESIZE")
ROUNDS = int(os.environ.get("IGSDK_FUZZ_ROUNDS", "1"))
SEED = int(os.environ.get("IGSDK_FUZZ_SEED", "1"))
SECONDS = 30 * ROUNDS  # for one program, with us; each needs less than one without us


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@contextmanager
def watched(driver: Driver, name: str, books: Path) -> Iterator[Run]:
    """A run over programs of that name; behind the block, all of them were booked right."""
    books.mkdir()
    with recording(command=name) as run:
        run._session.libraries.admit_path(str(driver.libcuda))
        yield run
        before = time.monotonic()
        balanced(run, all_books(books))
        assert time.monotonic() - before < SECONDS, "the reading takes for ever"
        for name in ("x.pb.gz", "x.folded", "x.json"):
            run.profile().write(books / name)
        mistakes = [note for note in run.notes() if "While tracing" in note]
        assert mistakes == []
        for stack in run._session.stacks.stacks.values():
            assert_is_code(stack)


def play(driver: Driver, books: Path, *argv: str | Path) -> None:
    """Runs a client, which must do what it does without us."""
    environment = driver.environment(books)
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


_code: dict[str, list[tuple[int, int]]] = {}


def code_of(path: str) -> list[tuple[int, int]]:
    """(first file offset, behind the last) of the code of a file that is still there.

    Code is mapped in whole pages: what stands behind its end in the last one can run too.
    """
    if path not in _code:
        fd = os.open(path, os.O_RDONLY)
        try:
            _code[path] = [
                (offset, (offset + size + _PAGE - 1) // _PAGE * _PAGE)
                for _, offset, size in elf_inspect(fd).code
            ]
        finally:
            os.close(fd)
    return _code[path]


def assert_is_code(stack: Stack) -> None:
    """Each frame is a reason in brackets, Python, or lies in the code of its file."""
    assert 0 < len(stack.frames) < 2000
    for frame in stack.frames:
        assert len(frame.function) < 5000
        if frame.kind in ("native", "interpreter") and frame.mapping and frame.mapping[0] == "/":
            assert_in_code(frame)


def assert_in_code(frame: Frame) -> None:
    path = frame.mapping or ""
    if "hostile" in path:  # what is code there, nobody knows
        return
    assert any(start <= frame.address < end for start, end in code_of(path)), frame


def stacks_of(run: Run, size: int) -> list[tuple[Frame, ...]]:
    """The stacks of all allocations of that size."""
    rows = [row for row in run.profile().samples() if row["alloc_objects"]]
    return [row["stack"] for row in rows if row["alloc_space"] == size * row["alloc_objects"]]


def compiled(name: str, folder: Path) -> Path:
    """A client, under a name that only this test's has."""
    program = folder / f"z{os.getpid()}{name[0]}"
    source = TESTS / "hostile" / f"{name}.c"
    subprocess.run(["cc", "-O2", "-g", "-o", program, source, "-ldl"], check=True)
    return program


# Stacks ---------------------------------------------------------------------------------


def test_stacks_of_garbage(driver: Driver, tmp_path: Path) -> None:
    program = compiled("garbage", tmp_path)
    with watched(driver, program.name, tmp_path / "books") as run:
        for seed in range(SEED, SEED + 3):
            play(driver, tmp_path / "books", program, str(seed), str(1000 * ROUNDS))
        assert_honest(run)


def assert_honest(run: Run) -> None:
    """The last allocation of a C client has the stack that it had without the garbage."""
    honest = [stack for stack in stacks_of(run, M) if stack[1].function == "honest"]
    assert honest
    for stack in honest:
        names = [frame.function for frame in stack if frame.kind != "interpreter"]
        assert names[:3] == ["cuMemAlloc_v2", "honest", "main"]
        assert not any(frame.kind == "marker" for frame in stack)


# Files ----------------------------------------------------------------------------------


def test_code_in_files_that_are_no_good(driver: Driver, tmp_path: Path) -> None:
    program = compiled("through", tmp_path)
    folder = tmp_path / "hostile"
    folder.mkdir()
    library, offset = through_library(folder)
    generator = random.Random(SEED)
    files = []
    for number in range(150 * ROUNDS):
        files.append(folder / f"{number}.so")
        files[-1].write_bytes(damaged_elf(library.read_bytes(), offset, generator))
    with watched(driver, program.name, tmp_path / "books") as run:
        for first in range(0, len(files), 150):
            some = files[first : first + 150]
            play(driver, tmp_path / "books", program, str(offset), *some)
        assert_honest(run)


# Python ---------------------------------------------------------------------------------


def test_a_python_that_is_damaged(driver: Driver, tmp_path: Path) -> None:
    python = tmp_path / f"z{os.getpid()}p"
    python.symlink_to(sys.executable)
    link = ("-O2", f"-L{driver.folder}", "-l:libcuda.so.1")
    source = (TESTS / "hostile" / "damage.c").read_text()
    library = compile_c(source, tmp_path / "libdamage.so", *link)
    script = TESTS / "hostile" / "damage.py"
    minor = sys.version_info.minor - 8
    numbers = [_TABLE[name][minor] for name in ("thread_frame", "cframe_frame", "frame_size")]
    words = [str(-1 if number == 0xFFFF else number) for number in numbers]
    with watched(driver, python.name, tmp_path / "books") as run:
        for seed in range(SEED, SEED + 3):
            arguments = [str(seed), str(300 * ROUNDS), str(library), *words]
            play(driver, tmp_path / "books", python, script, *arguments)
        honest = stacks_of(run, M)
    assert honest
    for stack in honest:
        names = [frame.function for frame in stack if frame.kind == "python"]
        assert [name.rpartition(".")[2] for name in names] == ["honest", "<module>"]
        assert not any(frame.kind == "marker" for frame in stack)
