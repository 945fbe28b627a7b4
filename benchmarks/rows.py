# SPDX-License-Identifier: Apache-2.0
"""Packets of a daemon to columns and rows: how many rows a second of one core's time.

Beside it, in turns: the floor, which copies the packet's bytes; protobuf that only parses;
and what a client would write with protobuf alone, a loop that takes every value out of its
messages. What other work takes of the core does not count, what it does to its caches does.
"""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import gadget_packets as gp

from igsdk._proto import gadget_pb2 as pb
from igsdk.client.columns import ColumnReader
from igsdk.client.inbox import Inbox
from igsdk.client.rows import RowReader
from igsdk.client.schema import DataSource, read_source
from igsdk.client.stream import Stream

from .daemon import ADDED, EVENT, OWN, element, payload
from .support import heading, say

ROWS = 10_000
EVENTS = 5_000
ROUNDS = 9
PEER = "protobuf's messages, by hand"
Work = Callable[[], Any]


def run(_folder: Path) -> None:
    for name, specs, goal in (
        ("the gadget's own fields", OWN, 500_000),
        ("and 22 texts", OWN + ADDED, 200_000),
    ):
        packet = payload(specs, ROWS)
        heading(f"a packet of {ROWS:,} rows, {len(packet) // ROWS} bytes each: {name}")
        source = read_source(gp.source("rows", specs))
        _compare(_ways(source, specs, packet), ROWS, {"columns": goal})
    for name, specs in (("an event's own fields", EVENT), ("and 22 texts", EVENT + ADDED)):
        heading(f"one row in each packet: {name}")
        _compare(_event_ways(specs), EVENTS, {"rows": 100_000})


def _ways(source: DataSource, specs: list[gp.Spec], packet: bytes) -> dict[str, Work]:
    columns, slow_columns = ColumnReader(source), ColumnReader(source, native=False)
    rows, slow_rows = RowReader(source), RowReader(source, native=False)
    return {
        "floor: a copy": lambda: bytearray(packet),
        "protobuf, parsed only": lambda: pb.GadgetDataArray.FromString(packet),
        PEER: lambda: _by_hand(specs, pb.GadgetDataArray.FromString(packet).dataArray),
        "columns": lambda: columns.read([packet]),
        "columns, to Arrow": lambda: columns.read([packet])[0].to_arrow(),
        "columns, to pandas": lambda: columns.read([packet])[0].to_pandas(),
        "rows": lambda: rows.packet(packet),
        "columns, without the extension": lambda: slow_columns.read([packet]),
        "rows, without the extension": lambda: slow_rows.packet(packet),
    }


def _event_ways(specs: list[gp.Spec]) -> dict[str, Work]:
    told = gp.source("rows", specs, array=False)
    first = pb.GadgetEvent(type=4, payload=pb.GadgetInfo(dataSources=[told]).SerializeToString())
    packet = gp.packet([element(specs)], 1, array=False).payload
    event = pb.GadgetEvent(seq=1, payload=packet).SerializeToString()
    source = read_source(told)
    read, slow = RowReader(source).packet, RowReader(source, native=False).packet

    def by_hand() -> None:
        for _ in range(EVENTS):
            _by_hand(specs, [pb.GadgetData.FromString(packet).data])

    def through_the_client() -> None:
        stream, inbox = Stream(), Inbox()
        stream.take(first.SerializeToString())
        for _ in range(EVENTS):
            taken = stream.take(event)
            assert taken is not None
            inbox.put(taken)
        for _ in range(EVENTS):
            waiting = inbox.get()
            assert waiting is not None
            read(waiting.payload)

    return {
        "floor: a copy": lambda: [bytearray(event) for _ in range(EVENTS)],
        "protobuf, parsed only": lambda: [pb.GadgetData.FromString(packet) for _ in range(EVENTS)],
        PEER: by_hand,
        "rows": lambda: [read(packet) for _ in range(EVENTS)],
        "rows, from the stream's messages on": through_the_client,
        "rows, without the extension": lambda: [slow(packet) for _ in range(EVENTS)],
    }


def _by_hand(specs: list[gp.Spec], elements: Any) -> list[list[Any]]:
    """A list of values for each row, as plainly as one writes it."""
    codes = {gp.UINT64: "Q", gp.UINT32: "I", gp.CSTRING: "16s"}
    numbers = struct.Struct("<" + "".join(codes[spec.kind] for spec in specs if spec.size))
    rows = []
    for one in elements:
        body, *texts = one.payload
        *values, comm = numbers.unpack(body)
        values.append(comm.rstrip(b"\0").decode())
        values += [text.decode() for text in texts]
        rows.append(values)
    return rows


def _compare(ways: dict[str, Work], rows: int, goals: dict[str, int]) -> None:
    """A B A B ...; the first round is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, work in ways.items():
            before = time.process_time()
            work()
            if number:
                seconds[name].append(time.process_time() - before)
    for name, taken in seconds.items():
        ratio = statistics.median(p / t for p, t in zip(seconds[PEER], taken, strict=True))
        rate = rows / statistics.median(taken)
        goal = f"; goal {goals[name]:,}" if name in goals else ""
        say(f"  {name:<36} {rate:>13,.0f} a second  {ratio:8.1f} x the messages{goal}")
