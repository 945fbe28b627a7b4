# SPDX-License-Identifier: Apache-2.0
"""The gadget's parameters, filters, stacks and buffers, loaded as Inspektor Gadget does it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection
from tests.support import gadgethost
from tests.support.gadget_books import assert_booked, losses
from tests.support.gadgethost import Host, Parameter, Row, hosting
from tests.support.recording import own_driver, paused
from tests.support.simdriver import Driver, all_books

M, G = 1 << 20, 1 << 30
NOBODY = 65534


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """Where other users come to it too."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield own_driver(folder)
    shutil.rmtree(folder)


@contextmanager
def fresh(driver: Driver, *flags: str, **parameters: Parameter) -> Iterator[Host]:
    with hosting(driver, "-multi", *flags, of=None, **parameters) as host:
        yield host


def seen(host: Host) -> set[int]:
    """The pids that have rows, the same in both sources."""
    host.drain()
    heap, processes = (
        {row["proc"]["pid"] for row in host.rows(source)} for source in ("heap", "processes")
    )
    assert heap == processes
    return processes


def start(driver: Driver, script: str, folder: Path, *wrapper: str, **options: Any) -> int:
    """Plays a script to its end; the pid that it had."""
    words = [*wrapper, str(driver.play), "-e", script]
    environment = driver.environment(folder)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, **options) as process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    return process.pid


# Events ---------------------------------------------------------------------------------

STORY = "use 0 = 0; alloc p 3M = 0; async a 1M = 0; free p = 0; alloc z 100G = 2; free 12345 = 1"


def told(host: Host, count: int) -> list[Row]:
    """Events, once there are as many; they come without being asked for."""
    until = time.monotonic() + 10
    while len(host.rows("events")) < count and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    return host.rows("events")


BUFFERS = {"ring": (), "perf": ("-perf-buffer", "-set=use_perf_buffer=true")}


@pytest.mark.parametrize("buffer", BUFFERS)
def test_all_events(buffer: str, driver: Driver, tmp_path: Path) -> None:
    """Each call that moved bytes, in order, with the bytes in use behind it."""
    with fresh(driver, *BUFFERS[buffer], events_wanted="all") as host:
        pid = start(driver, STORY, tmp_path)
        events = told(host, 4)
        assert_booked(host, all_books(tmp_path))
        assert host.lost("events") == 0
    assert [
        (row["type"], row["api"], row["kind"], row["bytes_raw"], row["in_use_raw"], row["result"])
        for row in events
    ] == [
        ("ALLOCATION", "cuMemAlloc_v2", "device", 3 * M, 3 * M, "CUDA_SUCCESS"),
        ("ALLOCATION", "cuMemAllocAsync", "pool", M, 4 * M, "CUDA_SUCCESS"),
        ("FREE", "cuMemFree_v2", "device", 3 * M, M, "CUDA_SUCCESS"),
        ("FAILURE", "cuMemAlloc_v2", "device", 100 * G, M, "CUDA_ERROR_OUT_OF_MEMORY"),
    ]
    accounts = host.latest("heap")
    for row in events:
        assert row["proc"]["pid"] == row["proc"]["tid"] == pid
        assert row["proc"]["comm"] == driver.play.name[:15]
        assert accounts[row["row"]]["process"] == row["process"]
        assert 0 < row["latency_raw"] < 10_000_000_000
    assert events[0]["address"] == events[2]["address"] != 0
    assert [row["time_raw"] for row in events] == sorted(row["time_raw"] for row in events)


@pytest.mark.parametrize("buffer", BUFFERS)
def test_events_of_threads(buffer: str, driver: Driver, tmp_path: Path) -> None:
    """Each under the thread that called, complete and once."""
    script = """use 0 = 0; retain c 0 = 0; barrier
        thread 0 { repeat 300 { alloc p 4K = 0; free p = 0 } }
        thread 1 { set c = 0; repeat 300 { alloc q 8K = 0; free q = 0 } }"""
    with fresh(driver, *BUFFERS[buffer], events_wanted="all") as host:
        pid = start(driver, script, tmp_path)
        events = told(host, 1200)
        assert_booked(host, all_books(tmp_path))
    assert len(events) == 1200
    threads = {row["proc"]["tid"] for row in events}
    assert len(threads) == 2
    assert {row["proc"]["pid"] for row in events} == {pid}
    for thread in threads:
        own = [row for row in events if row["proc"]["tid"] == thread]
        assert len(own) == 600
        assert len({row["bytes_raw"] for row in own}) == 1


@pytest.mark.parametrize(
    ("wanted", "types"), [("failures", ["FAILURE"]), ("none", []), ("", ["FAILURE"])]
)
def test_fewer_events(wanted: str, types: list[str], driver: Driver, tmp_path: Path) -> None:
    """Without a default in the metadata a text is empty, which has to mean the usual."""
    with fresh(driver, events_wanted=wanted) as host:
        start(driver, STORY, tmp_path)
        assert_booked(host, all_books(tmp_path))
        assert [row["type"] for row in told(host, len(types))] == types


def test_events_that_find_no_room_are_counted(driver: Driver, tmp_path: Path) -> None:
    """By the gadget, where a reader of rows sees it, and in Inspektor Gadget's own map."""
    count = 3000
    flags = ("-entries=cuda_events=4096", "-interval=100ms")
    with fresh(driver, *flags, events_wanted="all") as host:
        start(driver, f"use 0 = 0; repeat {count} {{ alloc p 512; free p }}", tmp_path)
        assert_booked(host, all_books(tmp_path))
        events = told(host, 1)
        host.settle(lambda: host.lost("events") + len(host.rows("events")) == 2 * count)
        host.settle(lambda: losses(host).get("events") == host.lost("events"))
    assert 0 < len(events) < 2 * count


# Filters --------------------------------------------------------------------------------

ONE = "use 0 = 0; alloc p 1M = 0"


def test_by_pid(driver: Driver, tmp_path: Path) -> None:
    with (
        paused(driver, tmp_path, "show 0", ONE) as process,
        fresh(driver, targ_pid=process.pid) as host,
    ):
        start(driver, ONE, tmp_path)
        assert seen(host) == set()
        (tmp_path / "go").touch()
        process.wait(10)
        assert seen(host) == {process.pid}


def test_by_name(driver: Driver, tmp_path: Path) -> None:
    other = driver.folder / "another-name"
    shutil.copy(driver.play, other)
    with fresh(driver, targ_comm=other.name) as host:
        start(driver, ONE, tmp_path)
        assert seen(host) == set()
        environment = driver.environment(tmp_path)
        subprocess.run([other, "-e", ONE], env=environment, check=True, capture_output=True)
        assert len(seen(host)) == 1


@pytest.mark.parametrize("what", ["uid", "gid"])
def test_by_owner(what: str, driver: Driver, tmp_path: Path) -> None:
    books = Path(tempfile.mkdtemp())
    books.chmod(0o777)
    who: dict[str, Any] = {"user" if what == "uid" else "group": NOBODY}
    with fresh(driver, **{f"targ_{what}": NOBODY}) as host:
        start(driver, ONE, tmp_path)
        assert seen(host) == set()
        pid = start(driver, ONE, books, **who)
        assert seen(host) == {pid}
        (row,) = (row for row in host.latest("processes").values())
    assert row["proc"]["creds"][what] == NOBODY
    shutil.rmtree(books)


def test_root_can_be_asked_for(driver: Driver, tmp_path: Path) -> None:
    """0 is an owner like any other; only for pids it means all of them."""
    with fresh(driver, targ_uid=0, targ_gid=0, targ_pid=0) as host:
        assert seen(host) == set()
        pid = start(driver, ONE, tmp_path)
        assert seen(host) == {pid}


def test_by_mount_namespace(driver: Driver, tmp_path: Path) -> None:
    """The set of namespaces is the manager's map in place of the object's own."""
    script, ready = f"touch {tmp_path}/ready; await {tmp_path}/go; {ONE}", tmp_path / "ready"
    words = ["unshare", "--mount", str(driver.play), "-e", script]
    with subprocess.Popen(words, env=driver.environment(tmp_path), stdout=subprocess.PIPE) as one:
        while not ready.exists():
            time.sleep(0.01)
        inode = Path(f"/proc/{one.pid}/ns/mnt").stat().st_ino
        with fresh(driver, f"-mntns={inode}") as host:
            start(driver, ONE, tmp_path)
            assert seen(host) == set()
            (tmp_path / "go").touch()
            one.communicate(timeout=20)
            assert seen(host) == {one.pid}
            (row,) = host.latest("processes").values()
    assert row["proc"]["mntns_id"] == inode


# Stacks ---------------------------------------------------------------------------------


def functions(path: Path) -> list[tuple[int, int, str]]:
    """Addresses in the file's own terms: begin, end, name."""
    with path.open("rb") as file:
        tables = [s for s in ELFFile(file).iter_sections() if isinstance(s, SymbolTableSection)]
        return [
            (symbol["st_value"], symbol["st_value"] + symbol["st_size"], symbol.name)
            for table in tables
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]
        ]


def named(pid: int, addresses: list[int]) -> list[tuple[str, str]]:
    """File and function of each address, of a process that still runs."""
    areas: list[tuple[int, int, str]] = []
    begins: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        area, _, _, _, inode, *file = line.split(maxsplit=5)
        low, high = (int(part, 16) for part in area.split("-"))
        if inode != "0":
            begins.setdefault(file[0], low)
            areas.append((low, high, file[0]))
    names = []
    for address in addresses:
        path = next((path for low, high, path in areas if low <= address < high), "")
        inside = address - begins.get(path, 0)
        known = functions(Path(path)) if path else []
        name = next((name for low, high, name in known if low <= inside < high), "")
        names.append((Path(path).name, name))
    return names


def assert_identity(stack: Row, pid: int, driver: Driver) -> None:
    """What a symbolizer checks before it believes that it reads the right file."""
    status = driver.play.stat()
    assert (stack["major"], stack["minor"]) == (os.major(status.st_dev), os.minor(status.st_dev))
    assert stack["inode"] == status.st_ino
    assert stack["mtime_sec"] * 1_000_000_000 + stack["mtime_nsec"] == status.st_mtime_ns
    assert stack["tgid_level0"] == stack["pid_level0"] == pid
    assert stack["base_addr_hash"] != 0
    assert 0 < stack["boot_timestamp"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert stack["otel_correlation_id"] == 0
    space = Path("/proc/self/ns/pid").stat().st_ino
    assert stack["pidns_level0"] == space
    assert stack["pid_level1"] == stack["pidns_level1"] == 0


def build_id(path: Path) -> str:
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    return ""


def stack_of(host: Host, pid: int) -> Row:
    rows = [row for row in host.latest("heap").values() if row["proc"]["pid"] == pid]
    (stack,) = (row["ustack_raw"] for row in rows if row["total_alloc_bytes"])
    return dict(stack)


DEEP = "use 0 = 0; depth 5; alloc p 1M = 0"


def test_a_stack_leads_from_the_driver_into_main(driver: Driver, tmp_path: Path) -> None:
    with fresh(driver) as host, paused(driver, tmp_path, DEEP, "exit 0") as process:
        assert_booked(host, all_books(tmp_path))
        stack = stack_of(host, process.pid)
        names = named(process.pid, stack["addresses"])
        assert_identity(stack, process.pid, driver)
    assert names[0] == (driver.libcuda.name, "cuMemAlloc_v2")
    players = [name for file, name in names if file == driver.play.name]
    assert sum(name.startswith("allocate_") for name in players) >= 5
    assert "main" in players


def test_one_account_for_each_stack(driver: Driver, tmp_path: Path) -> None:
    script = (
        "use 0 = 0; depth 3; repeat 40 {\npattern 1; alloc p 1M = 0; pattern 2; alloc q 2M = 0\n}"
    )
    with fresh(driver) as host:
        start(driver, script, tmp_path)
        assert_booked(host, all_books(tmp_path))
        rows = [row for row in host.latest("heap").values() if row["total_alloc_calls"]]
    assert sorted(row["total_alloc_bytes"] for row in rows) == [40 * M, 80 * M]
    assert len({row["stack"] for row in rows}) == 2
    assert len({tuple(row["ustack_raw"]["addresses"]) for row in rows}) == 2
    assert {row["stack_state"] for row in rows} == {"stack_taken"}


def test_build_ids(driver: Driver, tmp_path: Path) -> None:
    """By them a stack can be named elsewhere, and after the process has gone."""
    with fresh(driver, "-build-ids", collect_build_id=True) as host:
        pid = start(driver, DEEP, tmp_path)
        assert_booked(host, all_books(tmp_path))
        stack = stack_of(host, pid)
    assert len(stack["build_ids"]) == len(stack["addresses"])
    known = {
        build_id(path): {name: low for low, _, name in functions(path)}
        for path in (driver.libcuda, driver.play)
    }
    places = [entry.split(" +") for entry in stack["build_ids"] if " +" in entry]
    first, *rest = [(known.get(one, {}), int(offset, 16)) for one, offset in places]
    assert first == (known[build_id(driver.libcuda)], first[0]["cuMemAlloc_v2"])
    deepest = [(names, offset) for names, offset in rest if "main" in names]
    assert len(deepest) > 5


def test_without_build_ids_their_map_stays_empty(driver: Driver, tmp_path: Path) -> None:
    with fresh(driver, "-build-ids") as host:
        pid = start(driver, DEEP, tmp_path)
        assert_booked(host, all_books(tmp_path))
        assert stack_of(host, pid)["build_ids"] == []


def test_no_stacks(driver: Driver, tmp_path: Path) -> None:
    """One account for all calls of a kind; an inode of 0 says that there is nothing to name."""
    script = "use 0 = 0; depth 2; pattern 1; alloc p 1M = 0; pattern 2; alloc q 2M = 0"
    with fresh(driver, events_wanted="all", collect_ustack=False) as host:
        start(driver, script, tmp_path)
        assert_booked(host, all_books(tmp_path))
        (row,) = (row for row in host.latest("heap").values() if row["total_alloc_calls"])
        events = told(host, 2)
    assert row["total_alloc_bytes"] == 3 * M
    assert row["stack"] == 0
    assert row["stack_state"] == "stack_off"
    for stack in row["ustack_raw"], *(event["ustack_raw"] for event in events):
        assert set(stack.values()) == {0}


def test_a_stack_in_a_pid_namespace(driver: Driver, tmp_path: Path) -> None:
    """Both numbers of the process, so that who resolves it finds it from either side."""
    words = ("unshare", "--pid", "--fork", "--kill-child")
    with fresh(driver) as host, paused(driver, tmp_path, DEEP, "exit 0", *words) as process:
        inner = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        space = Path(f"/proc/{inner}/ns/pid").stat().st_ino
        host.settle(lambda: bool(host.rows("heap")))
        stack = stack_of(host, inner)
        (row,) = host.latest("processes").values()
    assert (stack["tgid_level0"], stack["pid_level0"]) == (inner, inner)
    assert (stack["pid_level1"], stack["pidns_level1"]) == (1, space)
    assert row["ns_pid"] == 1


def test_a_full_stack_table_takes_nothing_from_the_books(driver: Driver, tmp_path: Path) -> None:
    """Two stacks may meet in one place of Inspektor Gadget's table, which is never emptied."""
    script = "use 0 = 0; depth 8; repeat 200 {\npattern #; alloc p 4K = 0\n}"
    with fresh(driver, "-entries=ig_ustack=16") as host:
        start(driver, script, tmp_path)
        assert_booked(host, all_books(tmp_path))
        rows = [row for row in host.latest("heap").values() if row["total_alloc_calls"]]
        lost = losses(host)
    states = [row["stack_state"] for row in rows]
    assert len({row["stack"] for row in rows}) == len(rows) == 200
    assert set(states) == {"stack_taken", "stack_table_full"}
    assert lost == {"stack_table": states.count("stack_table_full")}
    for row in rows:
        taken = row["stack_state"] == "stack_taken"
        assert bool(row["ustack_raw"].get("addresses")) == taken


# OTel -----------------------------------------------------------------------------------

OTEL = gadgethost.TESTS / "gadgets/otel/entry.bpf.c"
FIRST = 0x0A0B0C0D00000001


def test_otel_leaves_a_number_with_each_stack(driver: Driver, tmp_path: Path) -> None:
    entry = f"-otel={gadgethost.compiled(OTEL)}"
    script = "use 0 = 0; depth 2; pattern 1; alloc p 1M = 0; pattern 2; alloc q 2M = 0; free p = 0"
    with fresh(driver, entry, events_wanted="all", collect_otel_stack=True) as host:
        start(driver, script, tmp_path)
        assert_booked(host, all_books(tmp_path))
        events = told(host, 3)
    numbers = [row["ustack_raw"]["otel_correlation_id"] for row in events]
    assert numbers[:2] == [FIRST, FIRST + 1], "one number for each allocating call"
    assert numbers[2] == FIRST, "a free has the stack of what it frees"


@pytest.mark.parametrize("parameter", [{"collect_otel_stack": True}, {}])
def test_without_otel_a_stack_has_no_number(
    parameter: dict[str, bool], driver: Driver, tmp_path: Path
) -> None:
    """Nobody fills the slot, or nobody asked: the call goes on behind it."""
    flags = [] if parameter else [f"-otel={gadgethost.compiled(OTEL)}"]
    with fresh(driver, *flags, **parameter) as host:
        pid = start(driver, ONE, tmp_path)
        assert_booked(host, all_books(tmp_path))
        stack = stack_of(host, pid)
    assert stack["otel_correlation_id"] == 0
    assert stack["addresses"]
