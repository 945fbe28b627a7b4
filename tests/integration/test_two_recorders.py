# SPDX-License-Identifier: Apache-2.0
"""Others look at the same functions at the same time, and each sees everything."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.balance import assert_balanced
from tests.support.recording import own_driver, play, recording, with_environment
from tests.support.simdriver import Driver, all_books

from igsdk._run import Run

SIZE = 4242  # of the allocations that the other tool counts
SCRIPT = f"""use 0 = 0; depth 4
repeat 50 {{ alloc p {SIZE} = 0; free p = 0; pattern #
}}
repeat 30 {{ alloc p {SIZE} = 0 }}
alloc q 100G = 2; kill9"""
CALLS = 80


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def rows(run: Run) -> list[dict[str, Any]]:
    """Everything that a profile says, in an order of its own."""
    return sorted(run.profile().samples(), key=repr)


def test_two_runs_see_the_same(driver: Driver, tmp_path: Path) -> None:
    """One knows the library before it is opened; the other one starts the program."""
    words = (*with_environment(driver, tmp_path), str(driver.play), "-e", SCRIPT)
    with recording(driver, events="all") as one, recording(argv=words) as other:
        assert other.command is not None
        other.command.wait()
        one.stop()
        other.stop()
        for run in (one, other):
            assert_balanced(run, all_books(tmp_path))
            assert run.profile().total("alloc_objects") == CALLS
        assert one.profile().metadata.boots == other.profile().metadata.boots
        assert rows(one) == rows(other)
        assert [info.instance for info in one.processes()] == [
            info.instance for info in other.processes()
        ]


def test_one_of_two_runs_ends_while_the_other_goes_on(driver: Driver, tmp_path: Path) -> None:
    with recording(driver) as stays:
        with recording(driver) as leaves:
            play(leaves, driver, SCRIPT, tmp_path)
        later = tmp_path / "later"
        later.mkdir()
        play(stays, driver, SCRIPT, later)
        stays.stop()
        assert_balanced(stays, all_books(tmp_path) + all_books(later))


# bpftrace -------------------------------------------------------------------------------

TOOL = """
uprobe:{library}:cuMemAlloc_v2 /arg1 == {size}/ {{ @entries = count(); @inside[tid] = 1; }}
uretprobe:{library}:cuMemAlloc_v2 /@inside[tid]/ {{
    @returns = count(); delete(@inside[tid]);
}}
uprobe:{library}:cuMemFree_v2 {{ @frees = count(); }}
uretprobe:{library}:cuMemFree_v2 {{ @freed = count(); }}
uprobe:{library}:cuDeviceGetCount {{ printf("attached\\n"); }}
"""
MOUNTS = "mount -t debugfs none /sys/kernel/debug && mount -t tracefs none /sys/kernel/tracing"


@contextmanager
def bpftrace(driver: Driver, counts: dict[str, int]) -> Iterator[None]:
    """Counts beside the block what goes in and out; `counts` is filled at its end."""
    if not shutil.which("bpftrace"):
        pytest.skip("bpftrace is not installed: apt-get install bpftrace")
    program = TOOL.format(library=driver.libcuda, size=SIZE)
    shell = f'{MOUNTS} && exec bpftrace -e "$0"'
    tool = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", shell, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        _await_probes(driver, tool)
        yield
    finally:
        tool.send_signal(signal.SIGINT)
        output, _ = tool.communicate(timeout=60)
    counts.update({name: int(n) for name, n in re.findall(r"@(\w+): (\d+)", output)})


def _await_probes(driver: Driver, tool: subprocess.Popen[str]) -> None:
    """Calls a function of its own, by another name, until the tool says that it saw it."""
    assert tool.stdout is not None
    caller = driver.folder / "caller"
    shutil.copy(driver.play, caller)
    until = time.monotonic() + 60
    while time.monotonic() < until and tool.poll() is None:
        script = "blob n 8; cuInit 0; cuDeviceGetCount @n"
        subprocess.run([caller, "-e", script], env=driver.environment(), check=True)
        time.sleep(0.2)
        if _says(tool):
            return
    pytest.fail(f"bpftrace does not attach: {tool.stdout.read() if tool.poll() else ''}")


def _says(tool: subprocess.Popen[str]) -> bool:
    assert tool.stdout is not None
    descriptor = tool.stdout.fileno()
    text = b""
    while select.select([descriptor], [], [], 0)[0]:
        got = os.read(descriptor, 4096)
        if not got:
            break
        text += got
    return b"attached" in text


@pytest.mark.parametrize("mode", [1, 2, 3], ids=["session", "multi", "single"])
@pytest.mark.parametrize("first", ["bpftrace", "igsdk"])
def test_bpftrace_beside_us(first: str, mode: int, driver: Driver, tmp_path: Path) -> None:
    """Whoever was there first; its return probes stand in the stacks that we take."""
    counts: dict[str, int] = {}
    settings = {"link_mode": mode}
    if first == "bpftrace":
        with bpftrace(driver, counts), recording(driver, settings=settings) as run:
            played, profile = play(run, driver, SCRIPT, tmp_path), run.profile()
    else:
        with recording(driver, settings=settings) as run, bpftrace(driver, counts):
            played, profile = play(run, driver, SCRIPT, tmp_path), run.profile()
    assert counts == {"entries": CALLS, "returns": CALLS, "frees": 50, "freed": 50}
    assert played.losses == {}
    assert profile.total("alloc_objects") == CALLS
    for row in profile.samples():
        names = [frame.name for frame in row["stack"]]
        assert names[:2] == ["cuMemAlloc_v2", "allocate_leaf"]
        assert "main" in names
