# SPDX-License-Identifier: Apache-2.0
"""What a stranger meets first: `make run` a second time without network, `make clean`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What `build/run.sh` prints where no network is, on the simulated driver.

    From a shell in which the environment is active, which must not be made anew from itself.
    """
    path = f"{ROOT}/.work/venv/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["unshare", "-n", "build/run.sh"],
        cwd=ROOT,
        env={**os.environ, "IGSDK_DRIVER": "simulated", "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installs" not in done.stderr
    return done.stdout.splitlines()


def test_the_first_line_says_where_the_numbers_come_from(said: list[str]) -> None:
    assert "SIMULATED driver" in said[0]


def test_held_freed_peak_and_one_failure_are_shown(said: list[str]) -> None:
    examples = "\n".join(said).split("== examples/")[1:]
    assert [text.split(".py")[0] for text in examples] == ["hold_and_fail", "numba_arrays"]
    # held at exit, peak, allocated, freed, failed calls
    figures = r" ended +64.00 MiB +112.00 MiB +208.00 MiB +144.00 MiB +1 "
    assert len(re.findall(figures, examples[0])) == 1
    assert examples[0].count("CUDA_ERROR_OUT_OF_MEMORY (2)") == 1
    assert all("Losses: none" in text for text in examples)


def test_it_ends_with_what_to_do_next(said: list[str]) -> None:
    end = "\n".join(said[said.index("== Next") :])
    assert "go tool pprof" in end
    assert "igsdk doctor" in end
    profiles = [word for word in end.split() if word.endswith(".pb.gz")]
    assert len(profiles) == 2
    assert all(Path(path).stat().st_size > 100 for path in profiles)


def test_the_command_for_a_program_of_ones_own_works(said: list[str], tmp_path: Path) -> None:
    (line,) = [line for line in said if line.startswith("Your own program: ")]
    command = line.partition(":")[2].removeprefix(" sudo")
    shutil.copy(ROOT / "examples/hold_and_fail.py", tmp_path / "your_program.py")
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("holds 4 layers")
    assert (tmp_path / "igsdk.pb.gz").stat().st_size > 100


def test_clean_leaves_what_git_knows(tmp_path: Path) -> None:
    clone = tmp_path / "igsdk"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], check=True)
    shutil.copy(ROOT / "build/clean.sh", clone / "build/clean.sh")
    for made in (
        ".work/venv/bin/python",
        "dist/igsdk.whl",
        "python/igsdk/_native.cpython-311-x86_64-linux-gnu.so",
        "python/igsdk/_bpf/local.amd64.bpf.o",
        "python/igsdk.egg-info/PKG-INFO",
        "python/igsdk/__pycache__/x.pyc",
        "igsdk.pb.gz",
        ".mypy_cache/x",
    ):
        (clone / made).parent.mkdir(parents=True, exist_ok=True)
        (clone / made).write_text("")
    subprocess.run([clone / "build/clean.sh"], check=True)
    status = ["git", "status", "--porcelain", "--ignored"]
    left = subprocess.run(status, cwd=clone, check=True, capture_output=True, text=True).stdout
    assert [line for line in left.splitlines() if not line.endswith("build/clean.sh")] == []
