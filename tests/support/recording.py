# SPDX-License-Identifier: Apache-2.0
"""Records simulated programs on the real kernel, and tells what one of them added to a run."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import igsdk
from igsdk._events import ProcessInfo
from igsdk._run import Run

from .balance import Figures, booked, differences, expected
from .simdriver import Books, Driver, all_books, build

NS_PER_TICK = 10_000_000
_copies = itertools.count(1)


def own_driver(folder: Path, **options: Any) -> Driver:
    """A copy of a build whose player has a name of its own.

    Others may test at the same time: a run that keeps to that name sees nobody else.
    """
    built = build(**options)
    number = next(_copies)
    copy = folder / f"driver{number}"
    shutil.copytree(built.folder, copy, symlinks=True)
    own = copy / f"p{os.getpid()}.{number}"
    (copy / built.play.name).rename(own)
    return replace(built, folder=copy, play=own)


@contextmanager
def recording(driver: Driver | None = None, **options: Any) -> Iterator[Run]:
    """A run that is closed at the end; with a driver, it is on before anybody opens it.

    Unless something else selects, only the driver's own player is recorded.
    """
    if driver and not {"argv", "pid", "mount_ns"} & options.keys():
        options.setdefault("command", driver.play.name)
    with igsdk.connect("local:") as gpu:
        run = gpu.profile_cuda_memory(**options)
        with run:
            if driver:
                run._session.libraries.admit_path(str(driver.libcuda))
            yield run
        run.close()


def command(
    driver: Driver, script: str, books: Path | None = None, **options: Any
) -> tuple[str, ...]:
    """The player as a command for `argv`; the environment goes with it."""
    return (*with_environment(driver, books, **options), str(driver.play), "-e", script)


def with_environment(driver: Driver, books: Path | None = None, **options: Any) -> tuple[str, ...]:
    """``env NAME=VALUE...``: what a command needs to use a driver and keep books."""
    variables = driver.environment(books, base={}, **options)
    return ("env", *(f"{name}={value}" for name, value in variables.items()))


@dataclass(frozen=True)
class Played:
    """One program of a run: the driver's books, what we booked, what it added to losses."""

    done: subprocess.CompletedProcess[str]
    books: list[Books]
    figures: list[Figures]
    infos: list[ProcessInfo]
    losses: Mapping[str, int]

    @property
    def only(self) -> Figures:
        """The figures of a program of one process."""
        (figures,) = self.figures
        return figures


def balanced(run: Run, books: list[Books]) -> list[Figures]:
    """What we booked for these processes, after it was found equal to their books."""
    wanted = expected(books)
    accounts, _ = booked(run, wanted)
    assert differences(accounts, wanted) == []
    return [accounts[image] for image in wanted]


def play(
    run: Run, driver: Driver, script: str, folder: Path, *, peaks: bool = True, **options: Any
) -> Played:
    """Plays a script beside a run; every expectation in it and every figure must hold.

    Peaks too, unless threads make it a matter of nanoseconds which call came first.
    """
    before = run.losses()
    done = driver.run(script, folder, timeout=30, **options)
    assert done.returncode in (0, -9), done.stdout + done.stderr
    books = all_books(folder)
    assert books, "a program without the driver proves nothing"
    figures = balanced(run, books)
    infos = [info_of(run, book) for book in books]
    for book, info in zip(books, infos, strict=True):
        assert not peaks or info is None or info.peak == book.peak
    added = {name: count - before[name] for name, count in run.losses().items()}
    known = [info for info in infos if info]
    return Played(done, books, figures, known, {name: n for name, n in added.items() if n})


def info_of(run: Run, book: Books) -> ProcessInfo | None:
    """The process that kept these books; the images of one pid and start are told by order."""
    before = [
        other
        for other in all_books(book.path.parent)
        if (other.pid, other.start_ticks) == (book.pid, book.start_ticks)
        and other.counter < book.counter
    ]
    same = [
        info
        for info in run.processes()
        if (info.ns_pid, info.start_ns // NS_PER_TICK) == (book.pid, book.start_ticks)
    ]
    same.sort(key=lambda info: info.exec_id)
    return same[len(before)] if len(before) < len(same) else None


@contextmanager
def paused(
    driver: Driver, folder: Path, before: str, after: str, *wrapper: str, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A program that has played `before` and waits; it plays `after` when the block ends.

    The block gets the process that was started, which is the player unless it is wrapped.
    """
    ready, go = folder / "ready", folder / "go"
    script = f"{before}; touch {ready}; await {go}; {after}"
    words = [*wrapper, str(driver.play), "-e", script]
    environment = driver.environment(folder, **options)
    with subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE) as process:
        try:
            until = time.monotonic() + 20
            while not ready.exists() and process.poll() is None:
                assert time.monotonic() < until, "the program does not come to its pause"
                time.sleep(0.002)
            assert process.poll() is None, "the program ended before its time"
            yield process
        finally:
            go.touch()
            process.communicate(timeout=30)
            ready.unlink(missing_ok=True)
            go.unlink()
