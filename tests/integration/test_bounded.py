# SPDX-License-Identifier: Apache-2.0
"""Tables have sizes: at the limit we count, and what the kernel's sums say stays exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.balance import assert_balanced
from tests.support.recording import own_driver, play, recording
from tests.support.simdriver import Driver, all_books

from igsdk._run import Run
from igsdk.profile import Profile

K, M = 1 << 10, 1 << 20
DEPTH = 5
STACKS = 1 << DEPTH
# 32 stacks, two blocks each; one block of each is freed
MANY_STACKS = f"""use 0 = 0; depth {DEPTH}
repeat {STACKS} {{
pattern #
alloc p 64K = 0; alloc q 4K = 0; free q = 0
}}"""
ALLOCATED, HELD = STACKS * 68 * K, STACKS * 64 * K


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def marked(profile: Profile, reason: str) -> list[int]:
    """Bytes allocated, in use and blocks allocated under the frame `[reason]`."""
    rows = [
        row
        for row in profile.samples()
        if any(frame.function == f"[{reason}]" for frame in row["stack"])
    ]
    names = ("alloc_space", "inuse_space", "alloc_objects")
    return [sum(row[name] for row in rows) for name in names]


def lost(run: Run) -> dict[str, int]:
    return {name: count for name, count in run.losses().items() if count}


def test_accounts(driver: Driver, tmp_path: Path) -> None:
    """One account stands for all that found no room, and their frees find it."""
    with recording(driver, settings={"accounts_max": 12}) as run:
        played = play(run, driver, MANY_STACKS, tmp_path)  # equal to the books
        profile = run.profile()
    accounts = 12 - 1 - 1  # without the global one and the one that is kept for the rest
    full = STACKS - accounts // 2
    assert profile.total("alloc_space") == ALLOCATED
    assert profile.total("inuse_space") == HELD
    rest = marked(profile, "accounts full")
    assert rest[0] > 0
    assert rest[1] == rest[0] // 17 * 16
    assert played.losses["accounts_full"] == rest[2]
    assert rest[2] >= full


def test_accounts_of_single_calls(driver: Driver, tmp_path: Path) -> None:
    """A stack that the kernel does not know again fills no table, and loses no event."""
    calls = 120
    script = f"use 0 = 0; depth 1; repeat {calls} {{ alloc p 64K = 0; free p = 0; sleep 30 }}"
    settings = {"use_templates": 0, "accounts_max": 64}
    with recording(driver, settings=settings, events="all") as run:
        played = play(run, driver, script, tmp_path)  # equal to the books
        with run._session._condition:
            run._session._attic.visit()
            run._session._attic.visit()
        settled = run._session._attic.settled
        counts = run._session.tracer.stack_counts()
        profile = run.profile()
        events = list(run.events(0.3))
    assert played.losses == {}
    assert len(settled) == 1
    assert settled.snapshot().accounts["alloc_calls"].tolist() == [calls]
    assert counts["native"] == calls
    assert counts["kept_keys"] == 0
    (row,) = (row for row in profile.samples() if row["alloc_space"])
    assert (row["alloc_space"], row["alloc_objects"]) == (calls * 64 * K, calls)
    assert {event.type for event in events} == {"alloc", "free"}
    assert len(events) == 2 * calls
    (stack,) = {event.stack.id for event in events if event.stack}
    assert all(event.stack and event.stack.id == stack for event in events)


def test_a_context_ends_with_accounts_of_single_calls(driver: Driver, tmp_path: Path) -> None:
    """What they held was given back with it; a process that lives on keeps its figures."""
    script = """init = 0; ctx c 0 = 0; depth 1
        alloc p 8M = 0; alloc q 4M = 0; free q = 0; destroy c = 0; sleep 1500
        ctx d 0 = 0; alloc r 2M = 0; sleep 2500"""
    with recording(driver, settings={"use_templates": 0}) as run:
        play(run, driver, script, tmp_path)
        moved = run._session._attic.settled.snapshot()
        profile = run.profile()
    assert moved.account_ended.tolist() == [1]
    assert moved.accounts["alloc_bytes"].tolist() == [12 * M]
    assert moved.accounts["free_bytes"].tolist() == [4 * M]
    assert profile.total("peak_space") == 12 * M
    assert sum(row["alloc_space"] for row in profile.samples()) == 14 * M
    assert profile.total("inuse_space") == 2 * M


def test_usage_rows(driver: Driver, tmp_path: Path) -> None:
    """Kinds without a row of their own are booked to the global one: no byte is missing."""
    script = "use 0 = 0; alloc p 1M = 0; async a 2M = 0; managed m 4M = 0; alloc q 8M = 0"
    with recording(driver, settings={"usages_max": 2}) as run:
        driver.run(script, tmp_path)
        losses = lost(run)
        profile = run.profile()
    assert losses.keys() == {"usage_full"}
    assert losses["usage_full"] >= 2
    assert profile.filter(kind="device").total("alloc_space") == 9 * M
    assert sum(row["alloc_space"] for row in profile.samples()) == 15 * M


def test_processes(driver: Driver, tmp_path: Path) -> None:
    """A process without a row is nobody's, and its bytes are somebody's."""
    script = """use 0 = 0; alloc p 1M = 0; fork { use 0 = 0; alloc q 2M = 0; sleep 300 }
        fork { sleep 100; use 0 = 0; alloc q 4M = 0 }; wait = 0"""
    with recording(driver, settings={"processes_max": 3}) as run:
        driver.run(script, tmp_path)
        losses = lost(run)
        profile = run.profile()
    assert losses["processes_full"] >= 1
    assert sum(row["alloc_space"] for row in profile.samples()) == 7 * M
    nobody = [row for row in profile.samples() if row["pid"] == 0]
    assert [row["alloc_space"] for row in nobody] == [4 * M]


def test_live_entries(driver: Driver, tmp_path: Path) -> None:
    """Blocks that can't be told apart stay in use, marked; nothing ever becomes negative."""
    blocks, room = 40, 16
    script = f"use 0 = 0; fill a {blocks} 64K = 0; alloc z 1M = 0; drain a = 0"
    with recording(driver, live_entries=room) as run:
        done = driver.run(script, tmp_path)
        assert done.returncode == 0, done.stderr
        losses = lost(run)
        profile = run.profile()
        (info,) = run.processes()
        untracked = int(run._session.reading().snapshot.accounts["untracked_bytes"].sum())
    (books,) = all_books(tmp_path)
    unknown = losses["unknown_free"]
    assert losses["live_full"] >= blocks + 1 - room
    assert unknown == info.unknown_frees
    assert profile.total("alloc_space") == books.row("device").alloc_bytes
    kept = profile.total("inuse_space")
    assert kept == M + unknown * 64 * K
    assert min(row["inuse_space"] for row in profile.samples()) >= 0
    # the last block is one of them or it is not; it was never freed
    last = losses["live_full"] - unknown
    assert untracked == last * M + unknown * 64 * K
    assert profile.metadata.losses["live_full"] == losses["live_full"]


def test_events(driver: Driver, tmp_path: Path) -> None:
    """Without all events the peak is marked; totals and the processes' peaks stay exact."""
    script = f"use 0 = 0; alloc p 3M = 0; pairs 20000 512; {MANY_STACKS}"
    settings = {"events_bytes": 4096, "interval_ms": 500}
    with recording(driver, settings=settings) as run:
        played = play(run, driver, script, tmp_path)
        profile = run.profile()
    assert played.losses.keys() == {"events"}
    assert played.losses["events"] > 10_000
    assert profile.metadata.peak == "inexact"
    assert profile.total("alloc_objects") == 1 + 20_000 + 2 * STACKS


def test_captures(driver: Driver, tmp_path: Path) -> None:
    """A stack that the ring had no room for says so, with all its bytes."""
    script = "use 0 = 0; depth 100; repeat 3000 {\npattern #\nalloc p 4K = 0\n}"
    with recording(driver, settings={"captures_bytes": 256 * K}) as run:
        played = play(run, driver, script, tmp_path)
        profile = run.profile()
    assert played.losses.keys() == {"stack_bytes"}
    assert profile.total("alloc_space") == 3000 * 4 * K
    missing = marked(profile, "native frames not taken: their buffer was full")
    assert missing[2] == played.losses["stack_bytes"]
    assert 0 < missing[2] < 3000
    named = [row for row in profile.samples() if any(f.name == "main" for f in row["stack"])]
    assert missing[2] + sum(row["alloc_objects"] for row in named) == 3000


def test_handles(driver: Driver, tmp_path: Path) -> None:
    """What was destroyed leaves its place: many pools and contexts, a small table."""
    script = """use 0 = 0; poolprops o device 1
        repeat 300 { pool p @o = 0; pooldestroy p = 0; ctx c 1 = 0; alloc q 4K = 0; destroy c = 0 }
        pool p @o = 0; frompool r 1M p = 0"""
    with recording(driver, settings={"handles_max": 32}) as run:
        played = play(run, driver, script, tmp_path)
    assert played.only["pool", "own", 1]["alloc_bytes"] == M
    assert played.losses == {}


def test_a_million_calls_give_one_stack(driver: Driver, tmp_path: Path) -> None:
    with recording(driver) as run:
        play(run, driver, "use 0 = 0; pairs 1000000 512", tmp_path)
        assert_balanced(run, all_books(tmp_path))
        rows = list(run.profile().samples())
        captured = len(run._session.stacks.stacks)
    assert [row["alloc_objects"] for row in rows] == [1_000_000]
    assert captured == 1
