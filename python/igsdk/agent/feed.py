# SPDX-License-Identifier: Apache-2.0
"""What one client is sent: at first everything, then what changed, all again in steps."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi
from igsdk._events import Frame as Call
from igsdk._results import result_name
from igsdk.agent.frame import CHANGES, KINDS, TOTALS, heap_numbers, loss_rows
from igsdk.agent.layout import EVENTS, HEAP, LOSSES, PROCESSES, REPORT, STACKS, Source
from igsdk.agent.packets import array_packets, row_packets, text_packet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from igsdk._events import Stack
    from igsdk.agent.frame import Frame, Table
    from igsdk.agent.hub import Hub
    from igsdk.agent.wanted import Wanted

Array = Any
Packet = tuple[Source, bytes]

#: seconds in which every row is sent again
RESEND = 30.0
_HIGHEST = (1 << 64) - 1
_TYPES = np.array(["", "ALLOCATION", "FREE", "FAILURE"], dtype="S12")
_APIS = np.array([_abi.call_name(call) for call in range(len(_abi.CALLS))], dtype="S40")
_FRAME_FIELDS = tuple(field.name for field in fields(Call))


class Feed:
    """The packets of one run.

    ``tick`` gives those of the state, ``events`` those of single calls; both send a stack
    before the first row that has it. Nothing is kept for a client that does not read: it
    gets what has changed meanwhile when it does.
    """

    def __init__(self, hub: Hub, wanted: Wanted) -> None:
        self._hub = hub
        self._wanted = wanted
        self._before: Frame | None = None
        self._losses: dict[str, int] = {}
        self._report = ""
        self._stacks: set[int] = set()
        self._resent = 0.0  # how much of all rows, 0 to 1

    def tick(self, frame: Frame, seconds: float = 0.0) -> Iterator[Packet]:
        """What changed since the tick before, and as much more as so many seconds are worth."""
        again = self._again(seconds)
        heap = self._changed("heap", frame, again)
        processes = self._changed("table", frame, again)
        if self._before is None and self._wanted.everything:
            yield from self._stack_packets(self._hub.session.stacks.stacks)
        yield from self._stack_packets(np.unique(heap[0]["stack"]).tolist())
        yield from ((PROCESSES, packet) for packet in array_packets(PROCESSES, *processes))
        yield from ((HEAP, packet) for packet in array_packets(HEAP, self._withdrawn(frame)))
        yield from ((HEAP, packet) for packet in array_packets(HEAP, heap[0]))
        yield from self._loss_packets(frame)
        if frame.report != self._report:
            self._report = frame.report
            yield REPORT, text_packet(b"", frame.report)
        self._before = frame

    def events(self, arrays: Iterable[Array]) -> Iterator[Packet]:
        """Rows of dtype ``kept_event`` as packets."""
        for events in arrays:
            frame = self._hub.frame(0.0)
            yield from self._stack_packets(np.unique(events["stack"]).tolist())
            rows = event_rows(events, frame)
            yield from ((EVENTS, packet) for packet in row_packets(EVENTS, rows))

    def _again(self, seconds: float) -> tuple[int, ...]:
        """The next range of row numbers: they are spread evenly."""
        begin = self._resent
        self._resent = min(begin + seconds / RESEND, 1.0)
        numbers = tuple(min(int(part * _HIGHEST), _HIGHEST) for part in (begin, self._resent))
        if self._resent >= 1.0:
            self._resent = 0.0
        return numbers

    def _changed(
        self, name: str, frame: Frame, again: tuple[int, ...]
    ) -> tuple[Array, list[tuple[str, ...]]]:
        """Rows and texts of a table that this client is to be sent now."""
        table: Table = getattr(frame, name)
        wanted: Array = np.ones(len(table.rows), dtype=bool)
        if not self._wanted.everything:
            chosen = frame.processes[self._wanted.chosen(frame.processes)]["instance"]
            wanted = np.isin(table.rows["process"], chosen)
        changes = np.zeros((len(table.rows), len(TOTALS)), dtype=np.uint64)
        if self._before is not None:
            differs, changes = _differences(table, getattr(self._before, name))
            first, last = (np.uint64(number) for number in again)
            wanted &= differs | ((table.numbers >= first) & (table.numbers <= last))
        rows = table.rows[wanted]
        for column, change in enumerate(CHANGES):
            rows[change] = changes[wanted, column]
        texts = [table.texts[place] for place in np.flatnonzero(wanted)] if table.texts else []
        return rows, texts

    def _withdrawn(self, frame: Frame) -> Array:
        """Rows without figures for accounts that became others, as stacks get their names.

        What is gone with its process is not: clients keep what it held.
        """
        if self._before is None:
            return frame.heap.rows[:0]
        rows = self._before.heap.rows
        rows = rows[~np.isin(rows["row"], frame.heap.numbers)]
        known = frame.processes[self._wanted.chosen(frame.processes)]["instance"]
        rows = rows[np.isin(rows["process"], known)]
        for name in (*TOTALS, "in_use_raw", "peak_bytes", "peak_calls", "untracked_bytes"):
            rows[name] = 0
        if len(rows):
            rows["time_raw"] = frame.heap.rows["time_raw"].max(initial=0) or rows["time_raw"] + 1
        return rows

    def _stack_packets(self, ids: Iterable[int]) -> Iterator[Packet]:
        known = self._hub.session.stacks.stacks
        for number in list(ids):
            if number in self._stacks or number not in known:
                continue
            self._stacks.add(number)
            yield STACKS, _stack_packet(known[number])

    def _loss_packets(self, frame: Frame) -> Iterator[Packet]:
        first = self._before is None
        news = {
            cause: count
            for cause, count in frame.losses.items()
            if first or count != self._losses.get(cause)
        }
        self._losses = dict(frame.losses)
        yield from ((LOSSES, packet) for packet in array_packets(LOSSES, loss_rows(frame, news)))


def _differences(table: Table, before: Table) -> tuple[Array, Array]:
    """Which rows are new or differ, and by how much their totals do."""
    known = before.numbers
    at: Array = np.searchsorted(known, table.numbers)
    found: Array = at < len(known)
    found[found] = known[at[found]] == table.numbers[found]
    old = np.zeros_like(table.state)
    old[found] = before.state[at[found]]
    differs = ~found | (table.state != old).any(axis=1)
    totals = len(TOTALS)
    return differs, table.state[:, :totals] - old[:, :totals]


def event_rows(events: Array, frame: Frame) -> Array:
    """Rows of `events` from rows of dtype ``kept_event``."""
    rows = np.zeros(len(events), dtype=EVENTS.fixed)
    for field, name in (
        *(("time_raw", "time"), ("proc.tid", "tid"), ("process", "owner"), ("stack", "stack")),
        *(("address", "address"), ("bytes_raw", "bytes"), ("in_use_raw", "in_use")),
        *(("latency_raw", "latency_ns"), ("result_raw", "result"), ("context", "context")),
        *(("device", "device"), ("kind_raw", "kind"), ("host_raw", "host")),
        *(("type_raw", "record"), ("api_raw", "call")),
    ):
        rows[field] = events[name]
    rows["boot"], rows["epoch"] = frame.boot, frame.epoch
    key = {name: rows[name] for name in ("boot", "epoch", "process", "context", "device", "stack")}
    rows["row"] = heap_numbers({**key, "kind": events["kind"], "host": events["host"]})
    rows["kind"] = KINDS[events["kind"]]
    rows["type"], rows["api"] = _TYPES[events["record"]], _APIS[events["call"]]
    results, of = np.unique(events["result"], return_inverse=True)
    names = [result_name(number) for number in results.tolist()]
    rows["result"] = np.array(names, dtype="S44")[of]
    _name_owners(rows, frame)
    return rows


def _name_owners(rows: Array, frame: Frame) -> None:
    owners = frame.processes
    for instance in np.unique(rows["process"]).tolist():
        owner = owners[owners["instance"] == instance]
        if len(owner):
            mine = rows["process"] == instance
            rows["proc.pid"][mine] = owner["pid"][0]
            rows["proc.comm"][mine] = owner["comm"][0]


def _stack_packet(stack: Stack) -> bytes:
    frames = ",".join(map(_frame_text, stack.frames))
    number = stack.id.to_bytes(8, "little")
    return text_packet(number, stack.how, stack.missing or "", f"[{frames}]")


@lru_cache(maxsize=1 << 15)
def _frame_text(call: Call) -> str:
    """Most stacks are made of frames that were seen before."""
    return json.dumps([getattr(call, name) for name in _FRAME_FIELDS], separators=(",", ":"))
