# SPDX-License-Identifier: Apache-2.0
"""Runs on another kernel: our image in a real Inspektor Gadget, against the simulated driver.

    inspektor.py WORK RESULT [CHECK]...     some of the checks; all without a name

WORK holds `ig`, images and keys, as tests/integration/test_inspektor_gadget.py puts them
there; RESULT is written as by guest.py. Inspektor Gadget looks for libcuda where the dynamic
linker's cache says, so this machine gets an /etc of its own with the simulated driver in it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_kinds import CASES
from tests.kernels.machine import ROOM, Checks, mount, own_driver
from tests.kernels.roots import own_etc
from tests.support import remote_books
from tests.support.gadget_books import NS_PER_TICK, assert_changes_add_up, certain_losses, unlike
from tests.support.gadgethost import Host
from tests.support.simdriver import Books, Driver, all_books

import igsdk
from igsdk import _abi
from igsdk._remote.run import RemoteRun
from igsdk.client.remote import RemoteRuntime

NAME, UNSIGNED, FEW = "profile_cuda_memory:test", "profile_cuda_memory:unsigned", "few:test"
#: All that the short image attaches to: a probe takes its time on an emulated processor.
SYMBOLS = ("cuMemAlloc_v2", "cuMemFree_v2", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent")
#: What only one of the four data sources has.
MARKS = {
    "events": "latency_raw",
    "processes": "peak_raw",
    "heap": "untracked_bytes",
    "losses": "cause",
}
PROFILED = (
    "use 0 = 0; alloc p 3M = 0; alloc q 900G = 2; sleep 5000",
    "use 0 = 0; alloc p 1M = 0; alloc q 2M = 0; free p = 0; sleep 1000; kill9",
    "use 0 = 0; alloc p 5M = 0; fork { use 0 = 0; alloc q 7M = 0 }; wait = 0; free p = 0",
)
HELD = "use 0 = 0; alloc p 3M = 0; alloc q 900G = 2; sleep 20000"
ATTACH_S, STOP_S = 1200, 300
#: Until rows of an ended process have all been told as such.
SWEEP_S = 10
SOCKET = f"unix://{ROOM}/ig.socket"


@dataclass
class Inspektor:
    """The binary, and what it is given."""

    work: Path

    def command(self, *words: str, key: str = "key") -> list[str]:
        public = (self.work / f"{key}.pub").read_text()
        ig = [str(ROOM / "ig"), *words, "--auto-mount-filesystems"]
        return [*ig, f"--public-keys={public}"] if words[0] in ("run", "daemon") else ig

    def call(self, *words: str, key: str = "key") -> subprocess.CompletedProcess[str]:
        command = self.command(*words, key=key)
        return subprocess.run(command, capture_output=True, text=True, timeout=ATTACH_S)

    @contextmanager
    def running(self, image: str, probes: int, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A run whose probes are all on; ends as with Ctrl-C, and then has said all."""
        command = self.command("run", image, "--host", "--pull", "never", "-v", *options)
        with (ROOM / "said").open("w") as said, (ROOM / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=said, stderr=log, text=True)
        try:
            await_probes(process, probes, lambda: (ROOM / "log").read_text())
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait(STOP_S)
        assert status == 0, f"ig ended with {status}: {(ROOM / 'log').read_text()[-1000:]}"


def await_probes(process: subprocess.Popen[str], probes: int, log: Callable[[], str]) -> None:
    """Inspektor Gadget puts probes on one by one, and only its log tells of it."""
    until = time.monotonic() + ATTACH_S
    while "running..." not in log():
        assert process.poll() is None, f"ig has ended: {log()[-1000:]}"
        assert time.monotonic() < until, f"not all probes are on: {log()[-1000:]}"
        time.sleep(1)
    assert log().count("attaching uprobe") == probes


def packets() -> list[list[dict[str, Any]]]:
    """What `-o json` printed: an object for an event, a list for a map's rows."""
    texts = (ROOM / "said").read_text().splitlines()
    found = [json.loads(text) for text in texts if text[:1] in "[{"]
    return [one if isinstance(one, list) else [one] for one in found]


def source_of(row: dict[str, Any]) -> str:
    [source] = [source for source, mark in MARKS.items() if mark in row]
    return source


def told(process: subprocess.Popen[str], books: Iterable[Books]) -> Host:
    """The rows as our own host would tell them, to be compared by the same means."""
    started = {book.pid: book.start_ticks * NS_PER_TICK for book in books}
    host = Host(process)
    for row in (row for packet in packets() for row in packet):
        if "started_raw" in row:
            # On the wall's clock here, and a process of these books is known by ticks.
            row["started_raw"] = started.get(row["ns_pid"], 0)
        host.lines.append({"source": source_of(row), "row": row})
    return host


# Checks ---------------------------------------------------------------------------------


def check_import(ig: Inspektor) -> str:
    for name in ("image", "unsigned", "few"):
        done = ig.call("image", "import", str(ig.work / f"{name}.tar"))
        assert done.returncode == 0, done.stderr
    listed = ig.call("image", "list")
    for image in (NAME, UNSIGNED, FEW):
        name, tag = image.split(":")
        lines = [line.split()[:2] for line in listed.stdout.splitlines()]
        assert [name, tag] in lines, f"{image} is not listed: {listed.stdout}"
    assert "warning" not in listed.stderr, listed.stderr
    version = ig.call("version").stdout.strip()
    return f"ig {version} imports and lists three images"


def check_inspect(ig: Inspektor) -> str:
    done = ig.call("image", "inspect", NAME, "--pull", "never", "--verify-image=false")
    assert done.returncode == 0, done.stderr
    for word in ("ebpf.sections", "uprobe/libcuda:cuMemAlloc_v2", "heap_rows"):
        assert word in done.stdout, f"{word} is not in: {done.stdout[:2000]}"
    return f"describes it in {len(done.stdout)} bytes"


def check_refused(ig: Inspektor, image: str, key: str, words: str) -> str:
    done = ig.call("run", image, "--host", "--pull", "never", "--timeout", "1", key=key)
    assert done.returncode != 0, "it was run"
    assert words in done.stderr, f"other words: {done.stderr}"
    return f"refused: {done.stderr.strip().splitlines()[0][:120]}"


def play(driver: Driver, scripts: Iterable[tuple[str, dict[str, Any]]]) -> list[Books]:
    books = []
    for number, (script, options) in enumerate(scripts):
        folder = ROOM / f"books.{number}"
        folder.mkdir()
        done = driver.run(script, folder, timeout=120, **options)
        assert done.returncode in (0, -9), done.stdout + done.stderr
        books += all_books(folder)
    return books


def check_books(ig: Inspektor, driver: Driver) -> str:
    """Every function of the driver that is hooked, in processes of their own."""
    scripts = [(case.script, case.options) for case in CASES.values()]
    options = ("-o", "json", "--map-fetch-interval", "1s", "--max-entries", "-1")
    with ig.running(NAME, 2 * len(_abi.sites()), *options) as process:
        books = play(driver, [*scripts, (HELD, {})])
        time.sleep(SWEEP_S)
    host = told(process, books)
    assert not (wrong := unlike(host, books)), "\n".join(wrong)
    for source in ("heap", "processes"):
        assert_changes_add_up(host, source)
    wanted: dict[str, int] = {}
    for case in CASES.values():
        wanted = {name: wanted.get(name, 0) + case.losses.get(name, 0) for name in _abi.LOSSES}
    assert certain_losses(host) == {name: count for name, count in wanted.items() if count}
    calls = sum(book.calls for book in books)
    said = f"{len(books)} processes, {calls} calls: equal to the driver's books"
    return f"{said}; {check_failures(host, books)}; {check_symbols(host, books[-1])}"


def check_failures(host: Host, books: list[Books]) -> str:
    """With the default, `events` has each failed allocation and nothing else."""
    events = host.rows("events")
    rows = [row for book in books for row in book.rows.values()]
    assert {event["type"] for event in events} == {"FAILURE"}
    assert len(events) == sum(row.fail_calls for row in rows)
    assert sum(event["bytes_raw"] for event in events) == sum(row.fail_bytes for row in rows)
    assert all(event["result"].startswith("CUDA_ERROR_") for event in events)
    return f"{len(events)} failures as events"


def check_symbols(host: Host, held: Books) -> str:
    """Names need a process that lives still when Inspektor Gadget looks."""
    [row] = {
        row["row"]: row
        for row in host.rows("heap")
        if row["proc"]["pid"] == held.pid and row["ustack_raw"]["symbols"]
    }.values()
    symbols = row["ustack_raw"]["symbols"]
    assert "; main; " in symbols, symbols
    return f"the stack is {symbols}"


def check_columns(ig: Inspektor, driver: Driver) -> str:
    """What a person sees without any option."""
    with ig.running(FEW, 2 * len(SYMBOLS), "--map-fetch-interval", "2s"):
        play_held(driver, "columns")
    said = (ROOM / "said").read_text()
    lines = [line for line in said.splitlines() if " play " in line]
    assert any("3.1 MB" in line and "main; " in line for line in lines), said
    assert any("CUDA_ERROR_OUT_OF_MEMORY" in line for line in lines), said
    heads = {line for line in said.splitlines() if " COMM " in line}
    assert any("IN_USE" in line and "PEAK" in line for line in heads), said
    return f"{len(heads)} tables, {len(lines)} lines"


def play_held(driver: Driver, name: str) -> Books:
    folder = ROOM / f"books.{name}"
    folder.mkdir()
    done = driver.run(HELD, folder, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    [book] = all_books(folder)
    return book


@contextmanager
def serving(ig: Inspektor) -> Iterator[subprocess.Popen[str]]:
    """Inspektor Gadget's daemon, on a socket."""
    command = ig.command("daemon", "-H", SOCKET, "--tls-insecure", "-v")
    with (ROOM / "daemon.log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    try:
        await_socket(daemon)
        yield daemon
    finally:
        daemon.terminate()
        daemon.wait(STOP_S)


def check_daemon(ig: Inspektor, driver: Driver) -> str:
    """The same over the gadget service, asked by our own client."""
    with serving(ig) as daemon:
        return ask_daemon(daemon, driver)


def await_whole(run: RemoteRun, driver: Driver) -> None:
    """Until a program is booked whole: what probes are on is told to nobody."""
    until = time.monotonic() + ATTACH_S
    for number in range(ATTACH_S):
        folder = ROOM / f"books.try.{number}"
        folder.mkdir()
        driver.run("use 0 = 0; alloc p 1M = 0; free p = 0", folder, timeout=120)
        time.sleep(3)
        if not (wrong := remote_books.unlike(run, all_books(folder))):
            return
        assert time.monotonic() < until, wrong


def check_profile(ig: Inspektor, driver: Driver) -> str:
    """What the rows add up to is the driver's books, and what ended held stands there."""
    with (
        serving(ig),
        igsdk.connect(SOCKET, connect_timeout=60, call_timeout=ATTACH_S) as gpu,
        gpu.profile_cuda_memory(command=driver.play.name, gadget=FEW) as run,
    ):
        assert isinstance(run, RemoteRun)
        await_whole(run, driver)
        books = play(driver, [(script, {}) for script in PROFILED])
        remote_books.assert_booked(run, books, ATTACH_S)
        run.stop()
        remote_books.assert_booked(run, books)
        profile, failures = run.profile(), list(run.events(0))
    rows = [row for book in books for row in book.rows.values()]
    held = sum(row.alloc_bytes - row.free_bytes for row in rows)
    pids = {book.pid for book in books}
    told = sum(row["inuse_space"] for row in profile.samples() if row["pid"] in pids)
    assert told == held, (told, held)
    assert [event.bytes for event in failures] == [900 << 30]
    hows = {stack.how for stack in run.stacks().values()}
    return f"{len(books)} processes, held {held} bytes: equal to the driver's books; {hows}"


def await_socket(daemon: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while not Path(SOCKET.removeprefix("unix://")).exists():
        assert daemon.poll() is None, (ROOM / "daemon.log").read_text()
        assert time.monotonic() < until, "the daemon makes no socket"
        time.sleep(0.5)


def ask_daemon(daemon: subprocess.Popen[str], driver: Driver) -> str:
    settings: dict[str, Any] = {"host": True, "pull": "never", "map-fetch-interval": "1s"}
    with igsdk.connect(SOCKET, connect_timeout=60, call_timeout=ATTACH_S) as gpu:
        assert isinstance(gpu, RemoteRuntime)
        with pytest.raises(igsdk.IgsdkError, match="signature"):
            gpu.describe(UNSIGNED, {"pull": "never"})
        with gpu.run(FEW, settings, log_level="debug") as run:
            await_probes(
                daemon, 2 * len(SYMBOLS), lambda: "\n".join(line.text for line in run.logs)
            )
            book = play_held(driver, "daemon")
            run.stop(STOP_S)
            rows = [row for row in run.rows("processes") if row["proc.pid"] == book.pid]
            lost = run.losses()
    last = rows[-1]
    [(_, figures)] = [one for one in book.rows.items() if one[1].alloc_bytes]
    assert last["total_alloc_bytes"] == figures.alloc_bytes, last
    assert last["total_fail_calls"] == figures.fail_calls, last
    assert not {cause for cause, count in lost.items() if count} - {"log_lines"}, lost
    return f"{len(rows)} rows of the process, {figures.alloc_bytes} bytes: as in its books"


def main() -> None:
    work, result, *only = sys.argv[1:]
    checks = Checks(Path(result))
    mount()
    driver = own_driver()
    own_etc(ROOM, driver)
    shutil.copy(Path(work) / "ig", ROOM / "ig")  # read again and again, and slow from outside
    ig = Inspektor(Path(work))
    unknown, foreign = "signature", "was not signed by the provided keys"
    all_checks: dict[str, Callable[[], str]] = {
        "import": lambda: check_import(ig),
        "inspect": lambda: check_inspect(ig),
        "an unsigned image": lambda: check_refused(ig, UNSIGNED, "key", unknown),
        "another's key": lambda: check_refused(ig, NAME, "other", foreign),
        "columns": lambda: check_columns(ig, driver),
        "daemon": lambda: check_daemon(ig, driver),
        "profile": lambda: check_profile(ig, driver),
        "books": lambda: check_books(ig, driver),
    }
    for name in only or all_checks:
        checks.do(name, all_checks[name])
    checks.tell("end")


if __name__ == "__main__":
    main()
