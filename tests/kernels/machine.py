# SPDX-License-Identifier: Apache-2.0
"""This machine, its kernel and driver, and how checks on it are told."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.support import simdriver
from tests.support.balance import assert_balanced, booked, differences, expected

import igsdk
from igsdk._run import Run

ROOM = Path("/run/igsdk")
RELEASE = platform.release()
VERSION = tuple(int(part) for part in RELEASE.split("-")[0].split(".")[:2])
#: Link mode as the program numbers them, and the first kernel that has it.
MODES = {"session": (1, (6, 13)), "multi": (2, (6, 6)), "single": (3, (0, 0))}
#: what an emulated processor may lose: time for one stack is limited
SLOW = frozenset({"stacks_cut"})
PATIENCE_S = 240


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


def attempt(checks: Checks, name: str, work: Callable[[], None]) -> None:
    """Several checks on something that may itself fail to begin or to end."""
    try:
        work()
    except BaseException as error:
        traceback.print_exc()
        checks.tell(f"FAILED {RELEASE} {name}: {error}")


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


@contextmanager
def recording(mode: str, driver: simdriver.Driver, image: Path | None = None) -> Iterator[Run]:
    """A run of the whole machine, which has nothing but us; with an image, by its program."""
    settings = {"link_mode": MODES[mode][0]}
    with igsdk.connect("local:") as gpu:
        gadget = str(image) if image else None
        run = gpu.profile_cuda_memory(events="all", settings=settings, gadget=gadget)
        with run:
            run._session.libraries.admit_path(str(driver.libcuda))
            yield run
        run.close()


def check_balance(run: Run, driver: simdriver.Driver, scripts: list[str], name: str) -> str:
    """Every byte and call of every process, and nothing lost."""

    def compare(books: list[simdriver.Books]) -> None:
        try:
            assert_balanced(run, books, SLOW)
        except AssertionError as error:  # which outside of pytest says nothing
            raise AssertionError(f"{differing(run, books)} {run.losses()}") from error

    return balanced(driver, scripts, name, compare)


def differing(run: Run, books: list[simdriver.Books]) -> list[str]:
    wanted = expected(books)
    return differences(booked(run, wanted)[0], wanted)


def balanced(
    driver: simdriver.Driver,
    scripts: list[str],
    name: str,
    compare: Callable[[list[simdriver.Books]], object],
) -> str:
    """Plays all, and has the books of each compared."""
    books: list[simdriver.Books] = []
    for number, script in enumerate(scripts):
        folder = ROOM / f"books.{name}.{number}"
        folder.mkdir()
        done = driver.run(script, folder, timeout=PATIENCE_S, devices="256M,128M")
        assert done.returncode in (0, -9), done.stderr
        made = simdriver.all_books(folder)
        assert made, f"program {number} kept no books"
        compare(made)
        books += made
    calls = sum(book.calls for book in books)
    rows = [row for book in books for row in book.rows.values()]
    allocated = sum(row.alloc_bytes for row in rows)
    assert allocated, "programs that allocate nothing prove nothing"
    return (
        f"{len(scripts)} programs of {len(books)} processes, {calls:,} calls, "
        f"{allocated:,} bytes allocated: equal to the driver's books"
    )
