# SPDX-License-Identifier: Apache-2.0
"""What the gadget's own data sources tell, loaded as Inspektor Gadget loads the object."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.test_kinds import BEHAVIOURS, CASES, Case
from tests.support.gadget_books import assert_booked, certain_losses, unlike
from tests.support.gadgethost import Host, Parameter, Row, hosting
from tests.support.recording import own_driver, paused
from tests.support.simdriver import Driver, all_books

from igsdk import _abi

K, M, G = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def host(driver: Driver) -> Iterator[Host]:
    """One host for all scripts, its programs attached one by one as Inspektor Gadget does it."""
    with hosting(driver, events_wanted="all") as host:
        yield host


# Books ----------------------------------------------------------------------------------


def check(case: Case, host: Host, driver: Driver, folder: Path) -> None:
    host.drain()
    before = certain_losses(host)
    done = driver.run(case.script, folder, timeout=30, **case.options)
    assert done.returncode in (0, -9), done.stdout + done.stderr
    figures = assert_booked(host, all_books(folder))
    assert tuple(figures.values()) == case.figures
    added = {name: count - before.get(name, 0) for name, count in certain_losses(host).items()}
    assert {name: count for name, count in added.items() if count} == case.losses


@pytest.mark.parametrize("symbol", CASES)
def test_function(symbol: str, host: Host, driver: Driver, tmp_path: Path) -> None:
    check(CASES[symbol], host, driver, tmp_path)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(name: str, host: Host, driver: Driver, tmp_path: Path) -> None:
    check(BEHAVIOURS[name], host, driver, tmp_path)


def test_every_symbol_has_its_pair_of_programs(host: Host) -> None:
    pairs = {f"{end}_{symbol}" for symbol in _abi.sites() for end in ("enter", "leave")}
    others = {"on_exit", "on_exec", "on_rename", "on_fork", "tick"}
    assert set(host.ready["attached"]) == pairs | others
    assert not host.ready["missing"]


# Rows over time -------------------------------------------------------------------------


@contextmanager
def fresh(driver: Driver, *flags: str, **parameters: Parameter) -> Iterator[Host]:
    """A host of a test's own: its tables are empty and its parameters are the test's."""
    with hosting(driver, "-multi", *flags, of=None, **parameters) as host:
        yield host


def rows_since(host: Host, begin: int, source: str, key: int) -> list[Row]:
    return [row for row in host.rows(source, begin) if row["row"] == key]


def nothing_changed(row: Row) -> bool:
    return not any(value for name, value in row.items() if name.startswith("mem_"))


@pytest.mark.parametrize("source", ["heap", "processes"])
def test_a_row_is_sent_again_without_a_change(
    source: str, host: Host, driver: Driver, tmp_path: Path
) -> None:
    """Whoever missed one has it within 30 s, although nobody calls anything."""
    with paused(driver, tmp_path, "use 0 = 0; alloc p 3M = 0", "free p = 0") as process:
        assert_booked(host, all_books(tmp_path))
        (known,) = (row for row in mine(host, source, process.pid) if row["total_alloc_bytes"])
        begin, until = len(host.lines), time.monotonic() + 30
        while not (again := rows_since(host, begin, source, known["row"])):
            assert time.monotonic() < until, "the row is not sent again"
            host.drain()
            time.sleep(0.2)
    assert all(nothing_changed(row) for row in again)
    assert again[0]["total_alloc_bytes"] == again[0]["in_use_raw"] == 3 * M
    assert again[0]["time_raw"] > known["time_raw"]


def mine(host: Host, source: str, pid: int) -> list[Row]:
    """The last rows of one process; all of them say the same of it."""
    return [row for row in host.latest(source).values() if row["proc"]["pid"] == pid]


def test_thousands_of_rows_are_sent_again(driver: Driver, tmp_path: Path) -> None:
    """In steps, all within 30 s: what resends is bounded, not what is resent."""
    stacks = 8000
    script = f"use 0 = 0; depth 14; repeat {stacks} {{\npattern #\nalloc p 4K = 0\n}}"
    with fresh(driver) as host, paused(driver, tmp_path, script, "exit 0"):
        assert_booked(host, all_books(tmp_path))
        known = {key for key, row in host.latest("heap").items() if row["total_alloc_calls"]}
        begin, began = len(host.lines), time.monotonic()
        assert len(known) == stacks
        while known - {row["row"] for row in host.rows("heap", begin)}:
            assert time.monotonic() < began + 30, "some rows are not sent again"
            time.sleep(0.5)
            host.drain()


def test_what_a_context_held_comes_back_at_its_end(
    host: Host, driver: Driver, tmp_path: Path
) -> None:
    before = "init = 0; ctx c 0 = 0; alloc p 8M = 0; alloc q 4M = 0; free q = 0; destroy c = 0"
    with paused(driver, tmp_path, before, "ctx d 0 = 0; alloc r 2M = 0") as process:
        assert_booked(host, all_books(tmp_path))
        (account,) = (row for row in mine(host, "heap", process.pid) if row["total_alloc_bytes"])
        (row,) = mine(host, "processes", process.pid)
    assert account["state"] == "context_ended"
    assert row["state"] == "live"
    for one in account, row:
        assert one["total_implicit_free_bytes"] == 8 * M
        assert one["total_implicit_free_calls"] == 1
        assert one["in_use_raw"] == 0
    assert row["peak_raw"] == 12 * M
    assert_booked(host, all_books(tmp_path))


def test_what_a_process_held_comes_back_at_its_end(
    host: Host, driver: Driver, tmp_path: Path
) -> None:
    driver.run("use 0 = 0; alloc p 1M = 0; alloc q 2M = 0; managed m 4M = 0; kill9", tmp_path)
    (book,) = all_books(tmp_path)
    assert_booked(host, [book])
    rows = [row for row in mine(host, "heap", book.pid) if row["total_alloc_bytes"]]
    assert sum(row["total_implicit_free_bytes"] for row in rows) == 7 * M
    for row in rows + mine(host, "processes", book.pid):
        assert row["state"] == "process_ended"
        assert row["in_use_raw"] == 0


def test_an_end_is_told_for_a_while_and_then_no_more(driver: Driver, tmp_path: Path) -> None:
    kept, silence = 2, 4
    with fresh(driver, keep_ended_ms=kept * 1000, resend_ms=500) as host:
        driver.run("use 0 = 0; alloc p 1M = 0", tmp_path)
        assert_booked(host, all_books(tmp_path))
        ended = last = time.monotonic()
        while time.monotonic() < last + silence:
            assert time.monotonic() < ended + 60, "an end is told for ever"
            time.sleep(0.2)
            if any(line["source"] == "heap" for line in host.drain()):
                last = time.monotonic()
        assert last - ended > kept / 2
        assert {row["state"] for row in host.latest("heap").values()} == {"process_ended"}


def test_a_process_that_comes_again_is_another_one(driver: Driver, tmp_path: Path) -> None:
    """Rows are let go and used again: a key never means two things."""
    with fresh(driver, keep_ended_ms=500) as host:
        for turn in range(8):
            folder = tmp_path / str(turn)
            folder.mkdir()
            driver.run(f"use 0 = 0; alloc p {turn + 1}M = 0", folder)
            assert_booked(host, all_books(folder))
            time.sleep(1)
        owners = {(row["row"], row["process"]) for row in host.rows("heap")}
        assert len(owners) == len({row for row, _ in owners})
        assert len({process for _, process in owners}) == 8


# Threads, processes, many ---------------------------------------------------------------


def test_two_threads_at_once(host: Host, driver: Driver, tmp_path: Path) -> None:
    script = """use 0 = 0; retain c 0 = 0; barrier
        thread 0 { repeat 5000 { alloc p 4K = 0; free p = 0 }; alloc p 1M = 0 }
        thread 1 { set c = 0; repeat 5000 { alloc q 8K = 0; free q = 0 }; alloc q 2M = 0 }"""
    done = driver.run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    (figures,) = assert_booked(host, all_books(tmp_path)).values()
    assert figures["device", "own", 0]["alloc_calls"] == 10_002
    assert figures["device", "own", 0]["implicit_bytes"] == 3 * M


def test_a_fork_is_another_process(host: Host, driver: Driver, tmp_path: Path) -> None:
    script = """use 0 = 0; alloc p 1M = 0
        fork { use 0 = 0; free p = 1; alloc q 2M = 0; free q = 0; alloc r 4M = 0 }
        wait = 0; free p = 0"""
    done = driver.run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    parent, child = all_books(tmp_path)
    assert_booked(host, [parent, child])
    rows = [mine(host, "processes", book.pid)[0] for book in (parent, child)]
    assert rows[0]["process"] != rows[1]["process"]
    assert rows[1]["proc"]["parent"]["pid"] == parent.pid
    assert [row["late"] for row in rows] == [0, 0]


def test_who_ran_before_is_marked(driver: Driver, tmp_path: Path) -> None:
    """It may hold what nobody saw; what it does from now on is booked."""
    ready, go = tmp_path / "attached", tmp_path / "done"
    after = f"await {ready}; alloc q 2M = 0; free p = 0; touch {go}; sleep 300"
    with paused(driver, tmp_path, "use 0 = 0; alloc p 1M = 0", after) as process:
        (tmp_path / "go").touch()
        pid = process.pid
        with fresh(driver) as host:
            ready.touch()
            host.settle(go.exists)
            host.settle(lambda: any(row["unknown_frees"] for row in mine(host, "processes", pid)))
            (row,) = mine(host, "processes", pid)
    assert row["late"] == 1
    assert row["total_alloc_bytes"] == 2 * M
    assert row["unknown_frees"] == 1


def test_the_end_of_many_allocations_is_quick(driver: Driver, tmp_path: Path) -> None:
    """They are given back from the account, not one by one in the call that ends them.

    One by one is a quarter of a second for a million, so 12 ms here; the driver itself takes
    50 us. The best of four, since others may have the processor meanwhile.
    """
    count, rounds = 50_000, 4
    turn = f"fill a {count} 512 = 0; time end {{ reset 0 = 0 }}; use 0 = 0"
    with fresh(driver) as host:
        done = driver.run(f"use 0 = 0; repeat {rounds} {{ {turn} }}", tmp_path, timeout=120)
        assert done.returncode == 0, done.stderr
        (figures,) = assert_booked(host, all_books(tmp_path)).values()
        assert certain_losses(host) == {}
    assert figures["device", "own", 0]["implicit_calls"] == count * rounds
    took = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("end ")]
    assert len(took) == rounds
    assert min(took) < 4_000_000


def test_what_short_processes_left_is_swept(driver: Driver, tmp_path: Path) -> None:
    """Many processes that free nothing, one table with room for a few of them."""
    blocks, room, processes = 500, 6000, 36
    with fresh(driver, live_table_max_entries=room) as host:
        for turn in range(processes):
            folder = tmp_path / str(turn)
            folder.mkdir()
            driver.run(f"use 0 = 0; fill a {blocks} 512 = 0", folder)
            assert_booked(host, all_books(folder))
            time.sleep(0.2)
        assert certain_losses(host) == {}


def test_every_exec_is_a_new_process_with_the_same_pid(
    host: Host, driver: Driver, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    second.write_text("use 0 = 0; alloc q 2M = 0; free q = 0; alloc r 4M = 0")
    done = driver.run(f"use 0 = 0; alloc p 1M = 0; exec self {second}", tmp_path)
    assert done.returncode == 0, done.stderr
    books = all_books(tmp_path)
    assert len(books) == 2
    assert len({book.pid for book in books}) == 1
    assert_booked(host, books)
    rows = sorted(mine(host, "processes", books[0].pid), key=lambda row: row["exec_id"])
    assert [row["total_alloc_bytes"] for row in rows] == [M, 6 * M]
    assert rows[0]["process"] != rows[1]["process"]
    assert rows[0]["total_implicit_free_bytes"] == M, "its memory went with the image"
    assert {row["state_raw"] for row in rows} == {2}


# Limits ---------------------------------------------------------------------------------

MANY = "use 0 = 0; depth 8; repeat 100 {\npattern #; alloc p 4K = 0\n}"


def test_stacks_without_an_account_share_one(driver: Driver, tmp_path: Path) -> None:
    """Every byte is in `heap`, under a stack or under the row that says why not."""
    with fresh(driver, "-set=accounts_max=16") as host:
        driver.run(MANY, tmp_path)
        assert_booked(host, all_books(tmp_path))
        rows = [row for row in host.latest("heap").values() if row["total_alloc_calls"]]
        lost = certain_losses(host)
    (shared,) = (row for row in rows if row["overflow"])
    assert shared["stack"] == 0
    assert lost == {"accounts_full": shared["total_alloc_calls"]}
    assert shared["total_alloc_calls"] >= 100 - 16
    assert sum(row["total_alloc_calls"] for row in rows) == 100


def test_allocations_without_an_entry_stay_in_use(driver: Driver, tmp_path: Path) -> None:
    """Nobody can tell which of them is freed; nothing ever becomes negative."""
    blocks, room = 40, 16
    script = f"use 0 = 0; fill a {blocks} 64K = 0; drain a = 0; sleep 1500"
    with fresh(driver, live_table_max_entries=room) as host:
        done = driver.run(script, tmp_path)
        assert done.returncode == 0, done.stderr
        (book,) = all_books(tmp_path)
        host.settle(lambda: all(row["state_raw"] for row in mine(host, "heap", book.pid)))
        rows = [row for row in mine(host, "heap", book.pid) if row["total_alloc_calls"]]
        (sums,) = mine(host, "processes", book.pid)
        lost = certain_losses(host)
    untold = blocks - room
    assert lost["live_full"] >= untold
    assert lost["unknown_free"] == sums["unknown_frees"] == lost["live_full"]
    assert sums["total_alloc_calls"] == blocks
    assert sums["total_free_calls"] == blocks - lost["live_full"]
    assert sum(row["untracked_bytes"] for row in rows) == lost["live_full"] * 64 * K
    assert sums["total_implicit_free_bytes"] == lost["live_full"] * 64 * K, "its end gives it back"


# The host -------------------------------------------------------------------------------


def test_the_last_rows_come_when_it_ends(driver: Driver, tmp_path: Path) -> None:
    """As with Inspektor Gadget's annotation for it: one more reading, before it detaches."""
    with fresh(driver) as host:
        driver.run("use 0 = 0; alloc p 1M = 0", tmp_path)
        assert host.rows("processes") == []
    assert unlike(host, all_books(tmp_path), ("processes",)) == []


def test_rows_come_in_the_interval(driver: Driver, tmp_path: Path) -> None:
    """A packet of each source each time, empty ones too."""
    with fresh(driver, "-interval=200ms") as host:
        driver.run("use 0 = 0; alloc p 1M = 0; sleep 1500", tmp_path)
        time.sleep(0.5)
        packets = [line for line in host.lines if "rows" in line]
        assert len({line["packet"] for line in packets}) >= 4
        assert {line["source"] for line in packets} == {"heap", "processes", "losses"}
        assert {line["rows"] for line in packets} >= {0, 1}
        assert not unlike(host, all_books(tmp_path), ("processes",))
