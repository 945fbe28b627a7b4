# SPDX-License-Identifier: Apache-2.0
"""The script that asks a real driver, on the simulated one: what it can't check there, it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "build" / "gpu_checks.py"
DOCUMENT = ROOT / "docs" / "gpu-checks.md"
# What the simulated driver does not model, or the vendor's runtime does not allow.
ONLY_REAL = {"torch", "runtime", "cost", "nvml", "pool-reserve", "mig", "capture"}


def gpu_checks(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def beliefs() -> Iterator[ModuleType]:
    """The scripts of build/ are no package: they find one another as neighbours."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import gpu_beliefs
        import gpu_world

        assert gpu_beliefs.KINDS
        yield gpu_world
    finally:
        sys.path.remove(str(SCRIPT.parent))


@pytest.mark.slow
def test_every_check_runs_on_the_simulated_driver(beliefs: ModuleType) -> None:
    done = gpu_checks("--simulated")
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    verdicts = {row.split(" | ")[0][2:]: row.split(" | ")[-1][:-2] for row in rows}
    assert set(verdicts) == {check.name for check in beliefs.CHECKS}
    unlike = {name: verdict for name, verdict in verdicts.items() if verdict != "ok"}
    assert unlike == dict.fromkeys(ONLY_REAL, "not possible here"), done.stdout
    assert done.returncode == 0
    title, where, empty = done.stdout.splitlines()[:3]
    assert title.startswith("### 20")
    assert "simulated driver, CUDA 13.0" in title
    assert where.startswith("igsdk at ")
    assert empty == ""


def test_a_driver_that_behaves_otherwise_differs(beliefs: ModuleType, tmp_path: Path) -> None:
    world = beliefs.make_world(True, tmp_path, None)
    checks = {check.name: check for check in beliefs.CHECKS}
    world.environment |= {"SIMCUDA_NESTED": "1", "SIMCUDA_FAIL": "cuMemFree_v2:*:700"}
    found = {name: checks[name].find(world) for name in ("nesting", "free")}
    assert {finding.state for finding in found.values()} == {"differs"}, found
    assert "device 700" in found["free"].observed
    world.environment["SIMCUDA_FAIL"] = "cuInit:*:999"
    assert "CUDA_ERROR_UNKNOWN" in checks["handles"].find(world).reason


def test_a_check_that_crashes_its_process_is_an_observation(
    beliefs: ModuleType, tmp_path: Path
) -> None:
    world = beliefs.World(True, dict(os.environ), tmp_path, tmp_path, tmp_path)

    def look(world: object) -> tuple[str, bool]:
        with beliefs.Child(dict(os.environ)) as child:
            os.kill(child.pid, 9)
            return str(child.ask("facts")), True

    finding = beliefs.Check("none", "it goes on", look).find(world)
    assert (finding.state, finding.observed) == ("differs", "ended by SIGKILL at facts")


def test_a_check_that_is_wrong_itself_loses_no_other(beliefs: ModuleType) -> None:
    finding = beliefs.Check("none", "it goes on", lambda world: ("", 1 / 0 > 0)).find(None)
    assert (finding.state, finding.reason) == ("failed", "ZeroDivisionError: division by zero")


def test_without_a_gpu_it_says_so() -> None:
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        pytest.skip("this machine has a GPU")
    for argv in ([sys.executable, str(SCRIPT)], [str(ROOT / "build" / "gpu-checks.sh")]):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        cause, remedy = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (37, "")
        assert cause.startswith("igsdk: This machine has no NVIDIA GPU")
        assert "make gpu-checks CHECKS=--simulated" in remedy


def test_an_unknown_check_is_named() -> None:
    done = gpu_checks("--simulated", "uuid", "nonsense")
    assert done.returncode == 2
    assert "There is no check nonsense." in done.stderr


def test_the_document_lists_every_check() -> None:
    done = gpu_checks("--list")
    assert done.returncode == 0
    assert done.stdout in DOCUMENT.read_text()
