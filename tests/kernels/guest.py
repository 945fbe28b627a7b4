# SPDX-License-Identifier: Apache-2.0
"""Runs on another kernel, as root of a virtual machine that sees this one's files.

    guest.py PROGRAMS RESULT PYTHON...

Appends one line a check to RESULT, since the console is the kernel's too: `ok` or `FAILED`,
the kernel, what was looked at; the last one is `end`. PROGRAMS are those of prepare.py.

What is traced lies on a tmpfs: files on 9p, as which the machine sees ours, have no uprobes.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support import simdriver
from tests.support.balance import assert_balanced

import igsdk
from igsdk import _native
from igsdk._events import Event, Stack
from igsdk._run import Run

#: Innermost first: function, file, line.
Truth = list[tuple[Any, ...]]

ROOM = Path("/run/igsdk")
OBJECT = Path(igsdk.__file__).parent / "_bpf" / "local.amd64.bpf.o"
RELEASE = platform.release()
VERSION = tuple(int(part) for part in RELEASE.split("-")[0].split(".")[:2])
#: Link mode as the program numbers them, and the first kernel that has it.
MODES = {"session": (1, (6, 13)), "multi": (2, (6, 6)), "single": (3, (0, 0))}
SIZE = (5 << 20) + 1
PATIENCE_S = 60


class Checks:
    """Does one check after the other and tells each; a failed one stops none of the rest."""

    def __init__(self, result: Path) -> None:
        self._result = result

    def do(self, name: str, work: Callable[[], str]) -> None:
        start = time.monotonic()
        try:
            said, word = work(), "ok"
        except BaseException as error:
            traceback.print_exc()
            said, word = f"{type(error).__name__}: {error}"[:2000], "FAILED"
        self.tell(f"{word:6} {RELEASE} {name}: {said} ({time.monotonic() - start:.0f} s)")

    def tell(self, line: str) -> None:
        with self._result.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


def mount() -> None:
    """What a machine that was not booted by an init system lacks."""
    libc = ctypes.CDLL(None, use_errno=True)
    ROOM.mkdir(exist_ok=True)
    for kind, place in (
        ("tmpfs", str(ROOM)),
        ("tracefs", "/sys/kernel/tracing"),
        ("bpf", "/sys/fs/bpf"),
    ):
        busy = 16
        done = libc.mount(b"none", place.encode(), kind.encode(), 0, None)
        if done and ctypes.get_errno() != busy:
            raise OSError(ctypes.get_errno(), f"mounting {place}")


def own_driver() -> simdriver.Driver:
    built = simdriver.build()
    folder = ROOM / "driver"
    shutil.copytree(built.folder, folder, symlinks=True)
    return replace(built, folder=folder, play=folder / built.play.name)


def expected_modes() -> list[str]:
    """Best first."""
    return [name for name, (_, since) in MODES.items() if since <= VERSION]


def check_automatic() -> str:
    tracer = _native.Tracer(OBJECT.read_bytes(), {}, {})
    mode = tracer.mode
    tracer.close()
    assert mode == expected_modes()[0], f"{mode} was chosen, not {expected_modes()[0]}"
    return f"{mode} links are chosen, the best that this kernel has"


def check_refused(mode: str, driver: simdriver.Driver) -> str:
    """A mode that the kernel lacks must be refused in words, at loading or at attaching."""
    try:
        with recording(mode, driver) as run:
            sites = sum(len(library.sites) for library in run.attached)
            refusals = [note for note in run.notes() if str(driver.libcuda) in note]
    except (OSError, igsdk.IgsdkError) as error:
        return f"not in this kernel, and refused: {str(error).splitlines()[0]}"
    assert not sites, f"the kernel has no {mode} links, and {sites} probes are said to be on"
    assert refusals, "nothing is attached, and no note says why"
    return f"not in this kernel, and refused: {refusals[0].splitlines()[0]}"


@contextmanager
def recording(mode: str, driver: simdriver.Driver) -> Iterator[Run]:
    """A run of the whole machine, which has nothing but us."""
    settings = {"link_mode": MODES[mode][0]}
    with igsdk.connect("local:") as gpu:
        run = gpu.profile_cuda_memory(events="all", settings=settings)
        with run:
            run._session.libraries.admit_path(str(driver.libcuda))
            yield run
        run.close()


def check_balance(run: Run, driver: simdriver.Driver, scripts: list[str], mode: str) -> str:
    """Every byte and call of every process, and nothing lost."""
    books: list[simdriver.Books] = []
    for number, script in enumerate(scripts):
        folder = ROOM / f"books.{mode}.{number}"
        folder.mkdir()
        done = driver.run(script, folder, timeout=PATIENCE_S, devices="256M,128M")
        assert done.returncode in (0, -9), done.stderr
        made = simdriver.all_books(folder)
        assert made, f"program {number} kept no books"
        assert_balanced(run, made)
        books += made
    calls = sum(book.calls for book in books)
    rows = [row for book in books for row in book.rows.values()]
    allocated = sum(row.alloc_bytes for row in rows)
    assert allocated, "programs that allocate nothing prove nothing"
    return (
        f"{len(scripts)} programs of {len(books)} processes, {calls:,} calls, "
        f"{allocated:,} bytes allocated: equal to the driver's books"
    )


def check_python(run: Run, driver: simdriver.Driver, python: str) -> str:
    """The whole merged stack: the program's own frames in order, down to the process's start.

    Time for one stack is limited, and an emulated processor may take longer for a program
    that it reads for the first time: such a stack ends early and says so. Then once more.
    """
    stack, truth = record_python(run, driver, python)
    tries = 1
    while tries < 3 and "too many" in (stack.missing or ""):
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


def check_mode(
    checks: Checks, mode: str, driver: simdriver.Driver, scripts: list[str], pythons: list[str]
) -> None:
    start = time.monotonic()
    with recording(mode, driver) as run:
        libraries = run.attached

        def attached() -> str:
            assert [library.how for library in libraries] == [f"uprobe-{mode}"], libraries
            sites = sum(len(library.sites) for library in libraries)
            return f"loaded and attached in {time.monotonic() - start:.0f} s, {sites} functions"

        checks.do(f"{mode} links", attached)
        checks.do(f"{mode} links, bytes", lambda: check_balance(run, driver, scripts, mode))
        for python in pythons:
            what = f"{mode} links, {name_of(python)}"
            checks.do(what, lambda python=python: check_python(run, driver, python))  # type: ignore[misc]


def main() -> None:
    programs, result, *pythons = sys.argv[1:]
    checks = Checks(Path(result))
    mount()
    driver = own_driver()
    scripts = json.loads(Path(programs).read_text())
    checks.do("automatic", check_automatic)
    for mode in MODES:
        if mode in expected_modes():
            try:
                check_mode(checks, mode, driver, scripts, pythons)
            except Exception as error:
                traceback.print_exc()
                checks.tell(f"FAILED {RELEASE} {mode} links: {error}")
        else:
            checks.do(f"{mode} links", lambda mode=mode: check_refused(mode, driver))  # type: ignore[misc]
    checks.tell("end")


if __name__ == "__main__":
    main()
