# SPDX-License-Identifier: Apache-2.0
"""New libraries are seen when they are mapped; files of ended processes are still known."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.elves import compile_c

from igsdk._native import Mapping, MapWatch
from igsdk.runtime.mappings import read_maps

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")

# A name of our own: others on this machine may use a libcuda at the same time.
PREFIX = ["libwatched.so"]
LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


@pytest.fixture
def watch() -> Iterator[MapWatch]:
    watch = MapWatch(PREFIX)
    yield watch
    assert watch.lost == 0
    watch.close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(
        "int f(void) { return 1; }", tmp_path_factory.mktemp("lib") / "libwatched.so.1"
    )


def load(path: Path, more: str = "") -> subprocess.Popen[str]:
    """A process that maps the library, says so, and ends when its input is closed."""
    script = f"{LOAD}; {more} print('mapped', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mapped\n"
    return process


def take(watch: MapWatch, seconds: float = 10) -> list[Mapping]:
    return watch.take_libraries() if select.select([watch], [], [], seconds)[0] else []


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_a_new_library_is_seen_at_once(watch: MapWatch, built: Path) -> None:
    before = now()
    process = load(built)
    [seen] = take(watch)
    assert before < seen.time_ns < now()
    assert (seen.pid, seen.tid, seen.path) == (process.pid, process.pid, str(built))
    status = built.stat()
    assert (os.makedev(seen.major, seen.minor), seen.inode) == (status.st_dev, status.st_ino)
    [there] = [m for m in read_maps(process.pid) if m.path == str(built)]
    assert (there.start, there.end, there.offset) == (seen.start, seen.end, seen.offset)
    process.communicate()


def test_nobody_wakes_us_for_other_files(watch: MapWatch) -> None:
    subprocess.run(["true"], check=True)
    assert take(watch, 0.2) == []


def test_a_process_that_ended_is_still_known(watch: MapWatch, built: Path) -> None:
    process = load(built)
    there = [(m.start, m.end, m.offset, m.path) for m in read_maps(process.pid)]
    process.communicate()
    assert not Path(f"/proc/{process.pid}").exists()
    known = watch.mappings(process.pid)
    # The kernel's own pages beside the vdso have no mapping event everywhere.
    files = [entry for entry in there if entry[3].startswith("/")]
    assert [(m.start, m.end, m.offset, m.path) for m in known if m.path.startswith("/")] == files
    assert watch.complete(process.pid)


def test_fork_inherits_and_exec_forgets(watch: MapWatch, built: Path) -> None:
    fork = "import os; child = os.fork()\nif child == 0: os.execv('/bin/sleep', ['sleep', '60'])\n"
    script = f"{LOAD}\n{fork}\nprint(child, flush=True)\nsecond = os.fork()\n"
    script += "if second == 0: sys.stdin.read()\nelse: print(second, flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(built)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    executed, forked = (int(process.stdout.readline()) for _ in range(2))
    try:
        end = time.monotonic() + 10
        while Path(f"/proc/{executed}/comm").read_text() != "sleep\n":
            assert time.monotonic() < end
        # The new name is there a moment before the mappings of the new program.
        names: set[str] = set()
        while not any(name.endswith("/sleep") for name in names):
            assert time.monotonic() < end
            names = {m.path for m in watch.mappings(executed)}
        assert str(built) not in names
        assert str(built) in {m.path for m in watch.mappings(forked)}
        assert watch.complete(forked)
    finally:
        os.kill(executed, 9)
        process.communicate()


def test_what_is_mapped_over_takes_the_place(watch: MapWatch, built: Path, tmp_path: Path) -> None:
    """Two libraries at one address: the newer is what the address means."""
    other = tmp_path / "other.so"
    shutil.copy(built, other)
    more = """
import mmap, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
first = os.open(sys.argv[1], os.O_RDONLY); second = os.open(OTHER, os.O_RDONLY)
at = libc.mmap(None, 3 * 4096, 5, 2, first, 0)
assert libc.mmap(at + 4096, 4096, 5, 2 | 16, second, 0) == at + 4096
print(at, flush=True)
"""
    script = "import ctypes, sys" + more.replace("OTHER", repr(str(other))) + "sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(built)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    at = int(process.stdout.readline())
    found = [m for m in watch.mappings(process.pid) if at <= m.start < at + 3 * 4096]
    process.communicate()
    page = 4096
    assert [(m.start - at, m.end - at, m.offset, m.path) for m in found] == [
        (0, page, 0, str(built)),
        (page, 2 * page, 0, str(other)),
        (2 * page, 3 * page, 2 * page, str(built)),
    ]


def test_names_that_are_no_text(watch: MapWatch, built: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    path = folder / "libwatched.so.1"
    shutil.copy(built, path)
    load(path).communicate()
    assert [seen.path for seen in take(watch)] == [str(path)]


def test_the_table_is_bounded(built: Path) -> None:
    watch = MapWatch(PREFIX, processes=50)
    subprocess.run(["sh", "-c", "for i in $(seq 200); do /bin/true; done"], check=True)
    watch.mappings(1)
    counts = watch.counts()
    assert counts["processes"] <= 50
    assert counts["forgotten"] >= 150
    watch.close()


def test_ended_processes_are_dropped_after_a_while(built: Path) -> None:
    watch = MapWatch(PREFIX, keep_ended=0.2)
    process = load(built)
    process.communicate()
    assert watch.mappings(process.pid)
    time.sleep(0.3)
    assert watch.mappings(1) is not None  # any question sweeps
    assert watch.mappings(process.pid) == []
    watch.close()


def test_closing_twice_and_asking_afterwards() -> None:
    watch = MapWatch(PREFIX)
    watch.close()
    watch.close()
    assert watch.mappings(os.getpid()) == watch.take_libraries() == []


def test_libraries_that_nobody_takes_are_counted(built: Path) -> None:
    watch = MapWatch(PREFIX)
    map_often = (
        "import mmap, os, sys\n"
        "f = os.open(sys.argv[1], os.O_RDONLY)\n"
        "for _ in range(5000):\n"
        "    mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()\n"
    )
    subprocess.run([sys.executable, "-c", map_often, built], check=True)
    watch.mappings(os.getpid())
    counts = watch.counts()
    taken = len(watch.take_libraries())
    assert taken <= 4096
    assert counts["untaken"] + taken + counts["lost"] >= 5000
    assert watch.lost == counts["untaken"] + counts["lost"] > 0
    watch.close()
