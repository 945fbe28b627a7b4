# SPDX-License-Identifier: Apache-2.0
"""Perf-event links, as kernels before 6.6 need them: seconds to remove, and nobody waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.balance import assert_balanced
from tests.support.recording import own_driver, paused, recording
from tests.support.simdriver import Driver, all_books

from igsdk import _abi
from igsdk._run import Run
from igsdk.cli.recording import _say_detaching
from igsdk.runtime.libraries import Libraries

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="probes need root")

PERF_EVENTS = {"link_mode": 3}
SETUP = "cuInit 0; cuCtxCreate_v2 &c 0 0; cuMemAlloc_v2 &p 3M = 0"
BREAKPOINT = {"x86_64": b"\xcc"}
NAME = "igsdk-detach"
#: a program that uses us as a library, and then ends
USER = """
import os, sys, time, igsdk
from igsdk import _abi
from igsdk.runtime.libraries import Libraries
_abi.sites = lambda sites=_abi.sites(): dict(list(sites.items())[:20])
Libraries.scan = Libraries.admit_seen = lambda *_: None
with igsdk.connect("local:") as gpu:
    run = gpu.profile_cuda_memory(command="nobody", settings={"link_mode": 3})
    with run:
        run._session.libraries.admit_path(sys.argv[1])
        assert len(run._session.libraries.attached[0].sites) == 20
    run.close()
    assert run.detaching
try:
    os.waitpid(-1, os.WNOHANG)
    print("a child that is not its own")
except ChildProcessError:
    pass
print(time.monotonic())
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes on no other driver of this machine: their removal would take its time too."""
    monkeypatch.setattr(Libraries, "scan", lambda _: None)
    monkeypatch.setattr(Libraries, "admit_seen", lambda *_: None)


def attach_few(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Each function has an entry and a return, which take about 0.1 s to remove."""
    every = _abi.sites()
    few = ["cuCtxCreate_v2", *every][:count]
    monkeypatch.setattr(_abi, "sites", lambda: {symbol: every[symbol] for symbol in few})


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """One that no other recorder on this machine takes for a driver."""
    driver = own_driver(tmp_path)
    hidden = driver.libcuda.rename(driver.folder / "driver.so")
    link = driver.folder / "libcuda.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(hidden.name)
    return driver


def seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def helpers() -> set[int]:
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if f"({NAME})" in text and ") Z" not in text:
            found.add(int(status.parent.name))
    return found


def first_bytes(pid: int, library: Path, offsets: list[int]) -> list[bytes]:
    """What stands at some offsets of a library in a process's memory."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        start, end, rights, offset, path = re.match(
            r"(\w+)-(\w+) (\S+) (\w+) \S+ \S+\s+(.*)", line
        ).groups()  # type: ignore[union-attr]
        if "x" in rights and path == str(library):
            base, length = int(start, 16) - int(offset, 16), int(end, 16) - int(start, 16)
            assert all(0 <= at - int(offset, 16) < length for at in offsets)
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                return [os.pread(memory.fileno(), 1, base + at) for at in offsets]
    raise AssertionError("the library is not mapped")


def wait_until_gone(run: Run, limit: float = 120) -> None:
    end = time.monotonic() + limit
    while run.detaching:
        assert time.monotonic() < end, "the probes are still there"
        time.sleep(0.05)


def test_the_probes_go(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_few(monkeypatch, 3)
    with (
        recording(driver, settings=PERF_EVENTS) as run,
        paused(driver, tmp_path, SETUP, "cuMemFree_v2 p = 0") as process,
    ):
        offsets = [site.offset for site in run._session.libraries.attached[0].sites]
        usual = [driver.libcuda.read_bytes()[at : at + 1] for at in offsets]
        assert len(offsets) == 3
        assert_every_site_is_probed(first_bytes(process.pid, driver.libcuda, offsets), usual)
        run.stop()
        run.close()
        wait_until_gone(run)
        assert first_bytes(process.pid, driver.libcuda, offsets) == usual
    assert process.returncode == 0


def assert_every_site_is_probed(seen: list[bytes], usual: list[bytes]) -> None:
    trap = BREAKPOINT.get(os.uname().machine)
    if trap:
        assert set(seen) == {trap}
    else:
        assert all(now != before for now, before in zip(seen, usual, strict=True))


def open_files(pid: int) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(fd.readlink()))
    return found


def assert_it_holds_nothing_else(helper: int) -> None:
    """Neither memory nor terminal nor anybody's session, and no file that we have too."""
    text = Path(f"/proc/{helper}/stat").read_text().rpartition(") ")[2].split()
    parent, group, session, terminal = map(int, text[1:5])
    assert parent != os.getpid()
    assert group == session == helper
    assert terminal == 0
    assert Path(f"/proc/{helper}/maps").read_text() == ""
    probes = {"anon_inode:[perf_event]", "anon_inode:bpf_link", "anon_inode:bpf-link"}
    assert not (open_files(helper) - probes) & open_files(os.getpid())


def test_a_program_that_used_us_ends_at_once(driver: Driver) -> None:
    words = [sys.executable, "-c", USER, str(driver.libcuda)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    ended = time.monotonic()
    assert (done.returncode, done.stderr) == (0, "")
    assert ended - float(done.stdout) < 2


def test_nobody_waits(
    driver: Driver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    others = helpers()
    attach_few(monkeypatch, 30)
    with recording(driver, settings=PERF_EVENTS) as run:
        with paused(driver, tmp_path, SETUP, "exit 7") as process:
            assert_balanced(run, all_books(tmp_path))
            assert seconds(run.stop) < 1
            assert seconds(run.close) < 1
            assert helpers() - others
            for helper in helpers() - others:
                assert_it_holds_nothing_else(helper)
            _say_detaching(run)
            assert "still removing the probes" in capsys.readouterr().err
            ending = time.monotonic()
        assert time.monotonic() - ending < 2, "the workload waited"
        assert process.returncode == 7
        assert run.detaching, "else this proves nothing"
