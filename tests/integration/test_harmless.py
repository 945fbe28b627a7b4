# SPDX-License-Identifier: Apache-2.0
"""The workload never notices: the same endings and output with us, without us, and when we die.

After a kill -9 of the recorder the kernel has nothing left of it, and the workload's text
is what its file says again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording import command, own_driver, paused, recording
from tests.support.simdriver import Driver, all_books

from igsdk.runtime.mappings import read_maps

KINDS = ("prog", "map", "link")
ROOT = Path(__file__).resolve().parents[2]
M = 1 << 20
MODES = pytest.mark.parametrize("mode", [1, 2, 3], ids=["session", "multi", "single"])
LOAD = """
thread 0 {{ use 0 = 0; until {end} {{ alloc p 4096 = 0; free p = 0 }} }}
thread 1 {{ use 0 = 0; until {end} {{ alloc q 512 = 0; free q = 0 }} }}"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


ENDINGS = {
    "success": "",
    "a status": "exit 7",
    "an unexpected result": "alloc q 1M = 2",
    "kill -9": "kill9",
    "SIGTERM": "signal 15",
    "SIGSEGV": "signal 11",
    "SIGABRT": "signal 6",
    "a refusal": "alloc q 100G = 2; exit 3",
}


def outcome(driver: Driver, script: str) -> tuple[int, str, str]:
    done = driver.run(script)
    return done.returncode, done.stdout, done.stderr


@MODES
def test_endings_and_output_are_the_same(mode: int, driver: Driver) -> None:
    begin = "use 0 = 0; alloc p 1M = 0; hostalloc h 1M = 0; free p = 0; say begun; "
    alone = {name: outcome(driver, begin + end) for name, end in ENDINGS.items()}
    assert [status for status, _, _ in alone.values()] == [0, 7, 3, -9, -15, -11, -6, 3]
    with recording(driver, settings={"link_mode": mode}) as run:
        beside = {name: outcome(driver, begin + end) for name, end in ENDINGS.items()}
        assert len(run.processes()) == len(ENDINGS), "nobody looked"
    assert beside == alone


@pytest.mark.parametrize("name", ENDINGS)
def test_a_commands_ending_is_told(name: str, driver: Driver, tmp_path: Path) -> None:
    script = "use 0 = 0; alloc p 1M = 0; " + ENDINGS[name]
    alone = driver.run(script).returncode
    with recording(argv=command(driver, script, tmp_path)) as run:
        assert run.command is not None
        ended = run.command.wait()
    assert ended is not None
    assert (ended.code if ended.code is not None else -(ended.signal or 0)) == alone


# Coming and going under load ------------------------------------------------------------


@contextmanager
def loaded(driver: Driver, books: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two threads that allocate and free as fast as they can, to our end; they must end well."""
    end = books / "end"
    words = [str(driver.play), "-e", LOAD.format(end=end)]
    with subprocess.Popen(words, env=driver.environment(books)) as process:
        while not all_books(books):
            time.sleep(0.005)
        try:
            yield process
        finally:
            end.touch()
        assert process.wait(120) == 0


def assert_undisturbed(books: Path) -> None:
    """The load did what it would have done alone: everything worked and was freed."""
    (book,) = all_books(books)
    row = book.row("device")
    assert row.alloc_calls == row.free_calls > 1000
    assert (row.fail_calls, book.in_use) == (0, 0)


@MODES
def test_attaching_and_leaving_under_load(mode: int, driver: Driver, tmp_path: Path) -> None:
    """What is in use is what is in flight: a call of each thread at most."""
    settings = {"link_mode": mode}
    with (
        loaded(driver, tmp_path) as process,
        recording(driver, settings=settings) as run,
    ):
        time.sleep(0.3)
        run.stop()
        assert process.poll() is None
        profile = run.profile()
        (info,) = run.processes()
    assert profile.total("alloc_objects") > 100
    assert 0 <= profile.total("inuse_objects") <= 2
    # of the allocations that were in flight when the probes came
    assert info.unknown_frees <= 2
    assert_undisturbed(tmp_path)


@MODES
def test_what_was_seen_under_load_is_exact(mode: int, driver: Driver, tmp_path: Path) -> None:
    """Attached while it runs, then it allocates afresh: that is booked to the byte."""
    after = "repeat 5000 { alloc p 4096 = 0; free p = 0; alloc q 100 = 0 }"
    with (
        paused(driver, tmp_path, "use 0 = 0; alloc z 1M = 0; free z = 0", after) as process,
        recording(driver, settings={"link_mode": mode}) as run,
    ):
        (tmp_path / "go").touch()
        process.wait(60)
        losses = {name: count for name, count in run.losses().items() if count}
        profile = run.profile()
    assert losses == {}
    assert profile.total("alloc_space") == 5000 * (4096 + 100)
    assert profile.total("inuse_space") == 5000 * 100


# Dying ----------------------------------------------------------------------------------


@contextmanager
def recorder(driver: Driver, mode: int) -> Iterator[subprocess.Popen[str]]:
    """A recorder in a process of its own, with its probes on; killed at the end, if not before."""
    words = [sys.executable, "-m", "tests.support.recorder", str(mode), str(driver.libcuda)]
    words.append(driver.play.name)
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "on\n"
            yield process
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL


def objects_of(pid: int) -> dict[str, set[int]]:
    """BPF programs, maps and links that a process has open."""
    found: dict[str, set[int]] = {kind: set() for kind in KINDS}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(OSError):
            for kind, number in re.findall(
                r"^(prog|map|link)_id:\s+(\d+)$", entry.read_text(), re.M
            ):
                found[kind].add(int(number))
    return found


def living(kind: str) -> set[int]:
    """All of one kind that the kernel has now."""
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is not installed: apt-get install bpftool")
    done = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return {row["id"] for row in rows if "id" in row}


def hidden_driver(folder: Path) -> Driver:
    """One whose file has another name: who watches the whole machine attaches to it not."""
    driver = own_driver(folder)
    link = driver.folder / "libcuda.so.1"
    link.rename(driver.folder / "driver.so")
    link.symlink_to("driver.so")
    return driver


def text_of(process: subprocess.Popen[Any], driver: Driver) -> bytes:
    """The whole code of the driver as the process has it now, breakpoints and all."""
    (mapping,) = (one for one in read_maps(process.pid) if one.path == str(driver.libcuda))
    with Path(f"/proc/{process.pid}/mem").open("rb") as memory:
        memory.seek(mapping.start)
        return memory.read(mapping.end - mapping.start)


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 90  # perf-event probes go one by one
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)
    return holds()


@MODES
def test_the_kernel_is_clean_after_a_kill(mode: int, tmp_path: Path) -> None:
    """In the middle of a program, which goes on and ends as it would."""
    driver = hidden_driver(tmp_path)
    after = "alloc q 2M = 0; free p = 0; free q = 0; repeat 1000 { alloc r 4096 = 0 }"
    with paused(driver, tmp_path, "use 0 = 0; alloc p 1M = 0", after) as process:
        original = text_of(process, driver)
        with recorder(driver, mode) as doomed:
            held = objects_of(doomed.pid)
            assert all(held[kind] & living(kind) for kind in KINDS)
            assert text_of(process, driver) != original, "there are no probes to remove"
        assert eventually(lambda: text_of(process, driver) == original)
        assert eventually(lambda: not any(held[kind] & living(kind) for kind in KINDS))
    assert process.returncode == 0
    (books,) = all_books(tmp_path)
    assert books.row("device").alloc_calls == 1002


@MODES
def test_the_kernel_is_clean_after_a_stop(mode: int, tmp_path: Path) -> None:
    driver = hidden_driver(tmp_path)
    with paused(driver, tmp_path, "use 0 = 0; alloc p 1M = 0", "free p = 0") as process:
        original = text_of(process, driver)
        before = objects_of(os.getpid())
        with recording(driver, settings={"link_mode": mode}):
            assert text_of(process, driver) != original
            held = objects_of(os.getpid())
            assert all(held[kind] > before[kind] for kind in KINDS)
        assert objects_of(os.getpid()) == before
        assert eventually(lambda: text_of(process, driver) == original)
        assert eventually(
            lambda: not any((held[kind] - before[kind]) & living(kind) for kind in KINDS)
        )


@MODES
def test_a_kill_under_load(mode: int, driver: Driver, tmp_path: Path) -> None:
    """Calls are in flight through our probes at that moment, and return to where they came from."""
    with loaded(driver, tmp_path) as process:
        with recorder(driver, mode):
            time.sleep(0.2)
        time.sleep(0.2)
        assert process.poll() is None
    assert_undisturbed(tmp_path)


def test_nothing_is_pinned_and_nobody_is_left(driver: Driver) -> None:
    """No object of ours outlives us by a name, and no process of ours does."""
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is not installed: apt-get install bpftool")
    words = ["bpftool", "-j", "-f", "map", "show"]
    with recorder(driver, 0) as doomed:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        pinned = {row["id"] for row in json.loads(done.stdout) if row.get("pinned")}
        assert not objects_of(doomed.pid)["map"] & pinned
        group = _descendants(doomed.pid)
        assert doomed.pid in group
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in group))


def _descendants(pid: int) -> set[int]:
    found = {pid}
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    for _ in range(4):
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def test_a_command_outlives_us(driver: Driver, tmp_path: Path) -> None:
    """Killed while the command has its library still to open: that open goes on."""
    done = tmp_path / "done"
    script = f"sleep 400; use 0 = 0; alloc p 1M = 0; touch {done}"
    words = command(driver, script, tmp_path)
    code = f"""import igsdk
with igsdk.connect("local:") as gpu, gpu.profile_cuda_memory(argv={words!r}) as run:
    print(run.command.pid, flush=True)
    run.command.wait()"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as doomed:
        assert doomed.stdout is not None
        pid = int(doomed.stdout.readline())
        doomed.send_signal(signal.SIGSTOP)  # it can't let anything go on by itself
        time.sleep(0.6)
        assert not all_books(tmp_path), "the open was not held"
        doomed.kill()
    assert eventually(done.exists)
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())
    (books,) = all_books(tmp_path)
    assert books.row("device").alloc_bytes == M
