# SPDX-License-Identifier: Apache-2.0
"""A profile over rows of the gadget: the real BPF program, read by Inspektor Gadget's rules,
over a real gRPC stream. The daemon in between is ours (tests/support/relay_rows.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gadgethost import hosting
from tests.support.recording import own_driver, paused, recording
from tests.support.relay_rows import relaying
from tests.support.remote_books import assert_booked
from tests.support.simdriver import Driver, all_books

import igsdk
from igsdk.profile import Profile

M = 1 << 20


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def target(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    socket = tmp_path_factory.mktemp("socket") / "gadget.socket"
    with hosting(driver, "-multi", events_wanted="all") as host, relaying(host, socket) as server:
        yield server.target


SCRIPT = """use 0 = 0; alloc p 3M = 0; managed m 2M = 0; alloc q 1M = 0; free q = 0
    alloc z 900G = 2; alloc r 5M = 0; free r = 0"""


def test_the_profile_has_what_the_driver_has_in_its_books(
    target: str, driver: Driver, tmp_path: Path
) -> None:
    with (
        igsdk.connect(target) as gpu,
        gpu.profile_cuda_memory(command=driver.play.name) as run,
        paused(driver, tmp_path, SCRIPT, "free p = 0") as process,
    ):
        assert_booked(run, all_books(tmp_path))
        failure = next(run.events(5))
        run.stop()
        profile, at = run.profile(), run.at(failure)
    assert profile.total("inuse_space", "own") == 3 * M
    assert profile.total("inuse_space", "managed") == 2 * M
    assert profile.total("alloc_space", "own") == 9 * M
    assert profile.metadata.peak == at.metadata.peak == "interval"
    assert profile.total("peak_space", "own") == at.total(host="own") == 3 * M
    (row,) = profile.metadata.processes
    assert (row.pid, row.state) == (process.pid, "live")
    assert failure.bytes == 900 << 30


ENDS = (
    "init = 0; ctx c 0 = 0; alloc p 8M = 0; destroy c = 0; ctx d 0 = 0; alloc q 2M = 0",
    "use 0 = 0; alloc p 1M = 0; alloc q 2M = 0; free q = 0; managed m 4M = 0; kill9",
    "use 0 = 0; alloc p 1M = 0; fork { use 0 = 0; alloc q 2M = 0 }; wait = 0; free p = 0",
)


def figures(profile: Profile) -> Counter[tuple[Any, ...]]:
    """Values by process and kind, without stacks, of which the two have their own."""
    names = ("inuse_space", "inuse_objects", "alloc_space", "alloc_objects", "failed_space")
    where = ("pid", "start_ns", "kind", "host")
    found: Counter[tuple[Any, ...]] = Counter()
    for row in profile.samples():
        for name in names:
            place = (name, *(row[one] for one in where))
            found[place] += row[name]
    return +found


def test_what_ended_held_what_a_local_run_says(target: str, driver: Driver, tmp_path: Path) -> None:
    with (
        recording(driver) as local,
        igsdk.connect(target) as gpu,
        gpu.profile_cuda_memory(command=driver.play.name) as run,
    ):
        for number, script in enumerate(ENDS):
            folder = tmp_path / str(number)
            folder.mkdir()
            driver.run(script, folder)
            assert_booked(run, all_books(folder))
        run.stop()
        local.stop()
        theirs, ours = run.profile(), local.profile()
    mine = ours.metadata.processes
    found = {(row.pid, row.start_ns): row for row in theirs.metadata.processes}
    assert len(mine) == 4
    for row in mine:
        other = found[row.pid, row.start_ns]
        assert (other.state, other.peak, other.classes) == (row.state, row.peak, row.classes)
    told = figures(theirs)  # the gadget still tells of what ended before this run
    assert {key: told[key] for key in figures(ours)} == figures(ours)
