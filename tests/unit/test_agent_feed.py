# SPDX-License-Identifier: Apache-2.0
"""What a client is sent, from frames made by hand.

The hub is a stand-in: which rows change between two readings is what these tests choose.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from igsdk import _abi
from igsdk._events import Frame as Call
from igsdk._events import Stack
from igsdk.agent.feed import RESEND, Feed
from igsdk.agent.frame import Frame, Table
from igsdk.agent.hub import Subscriber
from igsdk.agent.layout import HEAP, PROCESSES, Source
from igsdk.agent.wanted import Wanted
from igsdk.client.rows import RowReader
from igsdk.client.schema import read_source

STACKS = [Stack.of([Call(name, "/x.py", 1, kind="python")]) for name in ("a", "b", "c")]
STATE = ("total_alloc_bytes", "total_free_bytes")


def table(source: Source, rows: list[dict[str, Any]]) -> Table:
    made = np.zeros(len(rows), dtype=source.fixed)
    for at, row in enumerate(rows):
        for name, value in row.items():
            made[name][at] = value
    made = made[np.argsort(made["row"])]
    names = [name for name in source.fixed.names or () if name.startswith("total_")]
    texts = tuple(("", "", "", "") for _ in rows) if source.texts else ()
    return Table(made, np.column_stack([made[name] for name in names]), texts)


def frame(heap: list[dict[str, Any]], *, processes: tuple[int, ...] = (1, 2), **more: Any) -> Frame:
    known = np.zeros(len(processes), dtype=_abi.dtype("process"))
    known["instance"] = known["pid"] = processes
    rows = [{"row": 100 + one, "process": one, "time_raw": 5} for one in processes]
    values: dict[str, Any] = {"losses": {"events": 0, "threads": 0}, "report": "{}", **more}
    heap = [{"time_raw": 5, **row} for row in heap]
    return Frame(0.0, 1, 2, known, table(HEAP, heap), table(PROCESSES, rows), **values)


def row(number: int, alloc: int, process: int = 1, stack: int = 0) -> dict[str, Any]:
    return {
        "row": number << 56,
        "process": process,
        "total_alloc_bytes": alloc,
        "stack": STACKS[stack].id,
    }


def feed(wanted: Wanted | None = None) -> Feed:
    hub: Any = SimpleNamespace(
        session=SimpleNamespace(
            stacks=SimpleNamespace(stacks={stack.id: stack for stack in STACKS})
        )
    )
    return Feed(hub, wanted or Wanted())


def sent(packets: Any) -> list[Any]:
    rows = []
    for source, payload in packets:
        read = RowReader(read_source(source.describe())).packet(payload)
        assert read
        assert read[1] == 0
        for one in read[0]:
            one.source = source.name
            rows.append(one)
    return rows


def of(rows: list[Any], source: str) -> list[Any]:
    return [one for one in rows if one.source == source]


def changed(rows: list[Any]) -> list[tuple[int, int, int]]:
    return [
        (one["row"] >> 56, one["mem_alloc_bytes"], one["total_alloc_bytes"])
        for one in of(rows, "heap")
    ]


def test_the_first_tick_has_everything_and_no_change() -> None:
    rows = sent(feed().tick(frame([row(1, 10), row(2, 20, 2)])))
    assert changed(rows) == [(1, 0, 10), (2, 0, 20)]
    assert [one["id"] for one in of(rows, "stacks")] == [stack.id for stack in STACKS]
    assert [one.source for one in rows] == (
        ["stacks"] * 3 + ["processes"] * 2 + ["heap"] * 2 + ["losses"] * 2 + ["report"]
    )


def test_later_ones_have_what_changed() -> None:
    one = feed()
    sent(one.tick(frame([row(1, 10), row(2, 20)])))
    assert sent(one.tick(frame([row(1, 10), row(2, 20)]))) == []
    rows = sent(one.tick(frame([row(1, 10), row(2, 25), row(3, 7)])))
    assert changed(rows) == [(2, 5, 25), (3, 7, 7)]
    rows = sent(one.tick(frame([row(1, 10), row(2, 25), row(3, 7)], report='{"x":1}')))
    assert [each.source for each in rows] == ["report"]
    rows = sent(
        one.tick(
            frame(
                [row(1, 10), row(2, 25), row(3, 7)],
                report='{"x":1}',
                losses={"events": 3, "threads": 0},
            )
        )
    )
    assert [(each["cause"], each["count"]) for each in rows] == [("events", 3)]


def test_all_comes_again_in_steps() -> None:
    one = feed()
    heap = [row(number, 10) for number in range(1, 250)]
    sent(one.tick(frame(heap)))
    seen: list[int] = []
    for _ in range(10):
        rows = changed(sent(one.tick(frame(heap), RESEND / 10)))
        assert all(change == 0 for _, change, _ in rows)
        assert 15 < len(rows) < 35
        seen += [number for number, _, _ in rows]
    assert set(seen) == set(range(1, 250))
    assert len(seen) < 252


def test_a_long_pause_is_no_more_than_all_of_it() -> None:
    one = feed()
    heap = [row(number, 10) for number in range(1, 250)]
    sent(one.tick(frame(heap)))
    assert len(changed(sent(one.tick(frame(heap), RESEND * 10)))) == 249
    assert changed(sent(one.tick(frame(heap), 0.0))) == []


def test_a_filter_leaves_out_rows_and_their_stacks() -> None:
    one = feed(Wanted(pid=2))
    heap = [row(1, 10, 1, stack=0), row(2, 20, 2, stack=1)]
    rows = sent(one.tick(frame(heap)))
    assert changed(rows) == [(2, 0, 20)]
    assert [each["id"] for each in of(rows, "stacks")] == [STACKS[1].id]
    assert [each["process"] for each in of(rows, "processes")] == [2]
    rows = sent(one.tick(frame([row(1, 11, 1), row(2, 21, 2, stack=1), row(3, 5, 2, stack=2)])))
    assert changed(rows) == [(2, 1, 21), (3, 5, 5)]
    assert [each["id"] for each in of(rows, "stacks")] == [STACKS[2].id]


def test_an_account_that_became_another_is_withdrawn() -> None:
    """A stack that was lost and found later: the bytes must not stand twice."""
    one = feed()
    sent(one.tick(frame([row(1, 10), row(2, 20, 2)])))
    later = {**row(3, 10), "time_raw": 9}
    rows = sent(one.tick(frame([later, row(2, 20, 2)])))
    assert changed(rows) == [(1, 0, 0), (3, 10, 10)]
    assert of(rows, "heap")[0]["time_raw"] > 5
    assert sent(one.tick(frame([later, row(2, 20, 2)]))) == []


def test_what_goes_with_its_process_stays_with_clients() -> None:
    one = feed()
    sent(one.tick(frame([row(1, 10), row(2, 20, 2)])))
    assert sent(one.tick(frame([row(1, 10)], processes=(1,)))) == []


def events(count: int, record: int = _abi.RECORD_ALLOC, owner: int = 1) -> Any:
    rows = np.zeros(count, dtype=_abi.dtype("kept_event"))
    rows["record"], rows["owner"], rows["time"] = record, owner, np.arange(count)
    return rows


def test_subscribers_take_what_they_want() -> None:
    now = frame([])
    one = Subscriber(Wanted(events="failures"))
    one.offer(events(3), now)
    one.offer(events(2, _abi.RECORD_FAILURE), now)
    assert [len(batch) for batch in one.take(0)] == [2]
    other = Subscriber(Wanted(events="all", pid=2))
    other.offer(events(3), now)
    other.offer(events(4, owner=2), now)
    other.offer(events(4, _abi.RECORD_PROCESS_END, owner=2), now)
    assert [len(batch) for batch in other.take(0)] == [4]
    none = Subscriber(Wanted(events="none"))
    none.offer(events(1, _abi.RECORD_FAILURE), now)
    assert none.take(0) == []


def test_who_does_not_read_loses_with_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("igsdk.agent.hub.MOST_WAITING", 10)
    one = Subscriber(Wanted(events="all"))
    for _ in range(4):
        one.offer(events(4), None)
    assert one.skipped == 0
    assert [len(batch) for batch in one.take(0)] == [4, 4]
    assert one.skipped == 8
    one.offer(events(4), None)
    assert [len(batch) for batch in one.take(0)] == [4]
    assert one.skipped == 8


@pytest.mark.parametrize("sizes", [(1,) * 30, (7, 7, 7), (50,), (3, 9, 1), (2,)])
def test_what_is_kept_are_the_last(sizes: tuple[int, ...]) -> None:
    one = Subscriber(Wanted(events="all"), keep_last=10)
    at = 0
    for size in sizes:
        batch = events(size)
        batch["time"] = np.arange(at, at + size)
        one.offer(batch, None)
        at += size
    times = [time for batch in one.kept() for time in batch["time"].tolist()]
    assert times == list(range(max(at - 10, 0), at))


def test_who_attaches_begins_with_what_is_kept() -> None:
    kept, one = Subscriber(Wanted(events="all"), keep_last=10), Subscriber(Wanted(events="all"))
    kept.offer(events(4), None)
    one.begin(kept.kept())
    one.offer(events(3), None)
    assert [len(batch) for batch in one.take(0)] == [4, 3]
    assert [len(batch) for batch in kept.kept()] == [4]


def test_the_end_of_a_run_wakes_it() -> None:
    one = Subscriber(Wanted())
    one.stop()
    assert one.take(60) == []
    assert one.stopped
