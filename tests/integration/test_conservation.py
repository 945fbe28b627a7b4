# SPDX-License-Identifier: Apache-2.0
"""Bytes are conserved: whatever programs do, the accounts equal the driver's own books.

Real kernel, real BPF; the driver is the simulated one, which is the only one that keeps
books to compare with.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support import simdriver
from tests.support.balance import assert_balanced
from tests.support.programs import programs

import igsdk
from igsdk._run import Run


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> simdriver.Driver:
    """A copy whose player has a name of its own: a run counts nobody else's calls."""
    built = simdriver.build()
    folder = tmp_path_factory.mktemp("driver") / "copy"
    shutil.copytree(built.folder, folder, symlinks=True)
    play = (folder / built.play.name).rename(folder / f"play{os.getpid()}")
    return replace(built, folder=folder, play=play)


@pytest.fixture(scope="module")
def run(driver: simdriver.Driver) -> Iterator[Run]:
    """One run for all programs: what one left behind must not disturb the next."""
    with igsdk.connect("local:") as gpu, gpu.profile_cuda_memory(command=driver.play.name) as run:
        run._session.libraries.admit_path(str(driver.libcuda))
        yield run
    run.close()


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=programs())
def test_accounts_equal_the_drivers_books(
    script: str, driver: simdriver.Driver, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    books = tmp_path_factory.mktemp("books")
    played = driver.run(script, books, devices="256M,128M")
    assert played.returncode in (0, -9), played.stderr
    assert_balanced(run, simdriver.all_books(books))
