# SPDX-License-Identifier: Apache-2.0
"""What the gadget's own data sources tell, loaded as Inspektor Gadget loads the object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_kinds import BEHAVIOURS, CASES, Case
from tests.support import gadgethost
from tests.support.gadget_books import assert_booked, losses
from tests.support.gadgethost import Host, hosting
from tests.support.recording import own_driver
from tests.support.simdriver import Driver, all_books

from igsdk import _abi

K, M, G = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def host(driver: Driver) -> Iterator[Host]:
    """One host for all scripts, its programs attached one by one as Inspektor Gadget does it."""
    with hosting(driver, events_wanted="all") as host:
        yield host


# Books ----------------------------------------------------------------------------------


def check(case: Case, host: Host, driver: Driver, folder: Path) -> None:
    host.drain()
    before = losses(host)
    done = driver.run(case.script, folder, timeout=30, **case.options)
    assert done.returncode in (0, -9), done.stdout + done.stderr
    figures = assert_booked(host, all_books(folder))
    assert tuple(figures.values()) == case.figures
    added = {name: count - before.get(name, 0) for name, count in losses(host).items()}
    assert {name: count for name, count in added.items() if count} == case.losses


@pytest.mark.parametrize("symbol", CASES)
def test_function(symbol: str, host: Host, driver: Driver, tmp_path: Path) -> None:
    check(CASES[symbol], host, driver, tmp_path)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(name: str, host: Host, driver: Driver, tmp_path: Path) -> None:
    check(BEHAVIOURS[name], host, driver, tmp_path)


def test_every_symbol_has_its_pair_of_programs(host: Host) -> None:
    pairs = {f"{end}_{symbol}" for symbol in _abi.sites() for end in ("enter", "leave")}
    others = {"on_exit", "on_exec", "on_rename", "on_fork", "tick"}
    assert set(host.ready["attached"]) == pairs | others
    assert not host.ready["missing"]
