# SPDX-License-Identifier: Apache-2.0
"""What the README shows is run as it stands there, on the simulated driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import simdriver

from igsdk.profile import Profile

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def block(language: str, word: str) -> str:
    """The one block of a language that has the word in it."""
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (text,) = [text for text in found if word in text]
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Like a clone, with what the programs leave behind elsewhere."""
    for name in (".work", "tests", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "examples/hold_and_fail.py", tmp_path / "train.py")
    return tmp_path


def test_the_python_example(folder: Path) -> None:
    environment = simdriver.build().environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", block("python", "profile_cuda_memory")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "more memory: CUDA_ERROR_OUT_OF_MEMORY" in lines[0]
    assert "CUDA_ERROR_OUT_OF_MEMORY" in lines[1]
    assert any(line.startswith(f"{64 * MIB} {64 * MIB} ") for line in lines[2:])
    assert Profile.read(folder / "train.pb.gz").total("peak_space") == 116 * MIB


def test_a_program_of_ones_own_without_a_gpu(folder: Path) -> None:
    line = block("sh", "simdriver.py").replace("sudo ", "")
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("holds 4 layers")
    assert Profile.read(folder / "igsdk.pb.gz").total("inuse_space") == 68 * MIB


def test_the_sample_report_is_a_real_one(folder: Path) -> None:
    """Figures and headings; process ids, times, addresses and paths are each run's own."""
    environment = simdriver.build().environment()
    argv = [sys.executable, "-m", "igsdk.cli", "record", "--", sys.executable, "train.py"]
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    (sample,) = re.findall(
        r"^```\n(Traced: .*?)^```", (ROOT / "README.md").read_text(), re.M | re.S
    )
    assert skeleton(sample) == skeleton(done.stderr)


def skeleton(report: str) -> list[str]:
    """What two runs have in common: figures in bytes, headings and columns."""
    heads = r"^(?:[A-Z][a-z ]+(?=:| \(|$)|  kind .*| +(?:pid|self|total)  .*)"
    found = re.findall(rf"[\d.]+ [KMG]iB|{heads}", report, re.M)
    return [line.lstrip() for line in found]  # a column is as wide as its process ids
