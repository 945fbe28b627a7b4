# SPDX-License-Identifier: Apache-2.0
"""The real CUDA clients run unchanged on the simulated driver, and its books agree with them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import simdriver

CLIENTS = Path(__file__).parent.parent / "clients"
NEEDED = {
    "bindings_client.py": "cuda.bindings",
    "core_client.py": "cuda.core",
    "numba_client.py": "numba_cuda",
}


def installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def run_client(client: str, books: Path) -> dict[str, object]:
    """Runs one client to its end; what it says it holds and was refused."""
    if not installed(NEEDED[client]):
        pytest.skip(f"{NEEDED[client]} is not installed: tests/requirements-clients.txt has it")
    done = subprocess.run(
        [sys.executable, str(CLIENTS / client)],
        env=simdriver.build().environment(books, devices="8G,8G"),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("client", sorted(NEEDED))
def test_a_real_client_agrees_with_the_books(client: str, tmp_path: Path) -> None:
    said = run_client(client, tmp_path)
    (books,) = simdriver.all_books(tmp_path)
    allocated: dict[str, int] = {}
    in_use: dict[str, int] = {}
    for (kind, _, _), totals in books.rows.items():
        allocated[kind] = allocated.get(kind, 0) + totals.alloc_bytes
        in_use[kind] = in_use.get(kind, 0) + totals.in_use
    assert allocated == said["allocated"]
    refused = sum(totals.fail_bytes for totals in books.rows.values())
    # numba asks once more after it has freed what it had kept back
    tries = 2 if client == "numba_client.py" else 1
    assert refused == tries * int(str(said["refused"]))
    if client == "bindings_client.py":  # nothing tidies up at its end
        assert in_use == said["held"]
