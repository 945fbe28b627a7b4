# SPDX-License-Identifier: Apache-2.0
"""A profile over rows of the gadget: the real BPF program, read by Inspektor Gadget's rules,
over a real gRPC stream. The daemon in between is ours (tests/support/relay_rows.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.gadgethost import hosting
from tests.support.recording import own_driver, paused
from tests.support.relay_rows import relaying
from tests.support.remote_books import assert_booked
from tests.support.simdriver import Driver, all_books

import igsdk

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
