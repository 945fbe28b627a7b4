# SPDX-License-Identifier: Apache-2.0
"""The real CUDA clients, recorded: our figures are the driver's and what they say themselves."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.balance import assert_balanced
from tests.support.recording import own_driver, recording, with_environment
from tests.support.simdriver import Driver, all_books

CLIENTS = Path(__file__).parent.parent / "clients"
NEEDED = {
    "bindings_client.py": "cuda.bindings",
    "core_client.py": "cuda.core",
    "numba_client.py": "numba_cuda",
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("client", sorted(NEEDED))
def test_a_client_is_recorded_whole(client: str, driver: Driver, tmp_path: Path) -> None:
    if not installed(NEEDED[client]):
        pytest.skip(f"{NEEDED[client]} is not installed: tests/requirements-clients.txt has it")
    books, said = tmp_path / "books", tmp_path / "said"
    books.mkdir()
    program = ("sh", "-c", '"$0" "$1" > "$2"', sys.executable, str(CLIENTS / client), str(said))
    # what it compiles goes to a folder of its own, and it finds what we find
    environment = (*with_environment(driver, books, devices="8G,8G"), "PATH=/usr/bin:/bin")
    with recording(argv=(*environment, *program)) as run:
        assert run.command is not None
        ended = run.command.wait()
        assert ended is not None
        assert ended.status == 0
        run.stop()
        told = all_books(books)
        assert len(told) == 1
        assert_balanced(run, told)
        profile = run.profile()
        (info,) = run.processes()
    allocated: Counter[str] = Counter()
    for row in profile.samples():
        allocated[row["kind"]] += row["alloc_space"]
    expected = json.loads(said.read_text())
    assert {kind: size for kind, size in allocated.items() if size} == expected["allocated"]
    tries = 2 if client == "numba_client.py" else 1  # numba asks again after it has tidied up
    assert profile.total("failed_space") == tries * expected["refused"]
    assert info.peak == told[0].peak
    assert client in (info.cmdline or "")
