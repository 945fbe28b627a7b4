# SPDX-License-Identifier: Apache-2.0
"""A process that allocates at once after its start and ends is recorded whole, every time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.balance import assert_balanced
from tests.support.recording import command, own_driver, recording, with_environment
from tests.support.simdriver import Driver, all_books

from igsdk._run import Run
from igsdk.runtime.hold import DEADLINE
from igsdk.runtime.stacks import StackResolver

if TYPE_CHECKING:
    from igsdk._events import Stack
    from igsdk._native import RawStack

K, M = 1 << 10, 1 << 20
RUNS = 100
SCRIPT = "use 0 = 0; alloc p 1M = 0; alloc q 3K = 0; free q = 0; alloc r 100G = 2"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def assert_complete(run: Run, books: Path, processes: int) -> None:
    """Every byte, every call, every name; nothing lost."""
    assert run.command is not None
    ended = run.command.wait()
    assert ended is not None
    assert ended.status == 0
    run.stop()
    told = all_books(books)
    assert len(told) == processes
    assert_balanced(run, told)
    assert {name: count for name, count in run.losses().items() if count} == {}
    profile = run.profile()
    assert profile.total("alloc_space") == processes * (M + 3 * K)
    assert profile.total("inuse_space") == processes * M
    for row in profile.samples():
        names = [frame.name for frame in row["stack"]]
        assert names[:2] == ["cuMemAlloc_v2", "allocate_leaf"]
        assert "main" in names


def test_a_hundred_of_one_command(driver: Driver, tmp_path: Path) -> None:
    loop = f'for i in $(seq {RUNS}); do "$0" -e "$1" || exit 9; done'
    words = ("sh", "-c", loop, str(driver.play), SCRIPT)
    with recording(argv=(*with_environment(driver, tmp_path), *words)) as run:
        assert_complete(run, tmp_path, RUNS)


@pytest.mark.parametrize("number", range(20))
def test_a_command_of_its_own(number: int, driver: Driver, tmp_path: Path) -> None:
    """The library is new to each of these runs: the first allocation waits for its probes."""
    with recording(argv=command(driver, SCRIPT, tmp_path)) as run:
        assert_complete(run, tmp_path, 1)


def test_an_open_does_not_wait_for_names_of_stacks(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols of a large library take seconds; the next process opens its driver meanwhile."""
    resolve = StackResolver._resolve
    busy = 0

    def slow(resolver: StackResolver, raw: RawStack) -> Stack:
        nonlocal busy
        busy += 1
        if busy == 1:
            time.sleep(DEADLINE + 1.5)
        return resolve(resolver, raw)

    monkeypatch.setattr(StackResolver, "_resolve", slow)
    loop = 'for i in 1 2 3; do "$0" -e "$1" || exit 9; sleep 0.5; done'
    words = ("sh", "-c", loop, str(driver.play), SCRIPT)
    with recording(argv=(*with_environment(driver, tmp_path), *words)) as run:
        assert run.command is not None
        ended = run.command.wait()
        run.stop()
        assert busy
        assert (ended and ended.status, run.losses()["late_opens"]) == (0, 0)
        assert_balanced(run, all_books(tmp_path))
