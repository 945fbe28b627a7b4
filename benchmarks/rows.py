# SPDX-License-Identifier: Apache-2.0
"""Packets of a daemon to rows and to columns: how many rows a second of one core's time.

What other work takes of the core does not count, what it does to its caches does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import gadget_packets as gp

from igsdk.client.columns import ColumnReader
from igsdk.client.packets import slots_of
from igsdk.client.rows import RowReader
from igsdk.client.schema import read_source

from .support import heading, say

ROWS = 10_000
ROUNDS = 7
#: an account: where it belongs, and its totals and changes
OWN = [*(gp.Spec(f"number{place}", gp.UINT64, 8) for place in range(16))]
OWN.append(gp.Spec("proc.comm", gp.CSTRING, 16))
#: an event: half as many numbers
EVENT = [*OWN[:5], *(gp.Spec(f"small{place}", gp.UINT32, 4) for place in range(4)), OWN[-1]]
#: node, pod, container, user, symbols: what the daemon's operators add, each in its own slot
ADDED = [gp.Spec(f"text{place}", gp.STRING) for place in range(22)]


def run(_folder: Path) -> None:
    heading(f"packets of {ROWS:,} rows, and events one by one")
    own, all_fields = _packet(OWN), _packet(OWN + ADDED)
    _say("columns, the gadget's own fields", 500_000, *_columns(OWN, own))
    _say("columns, with 22 texts", 200_000, *_columns(OWN + ADDED, all_fields))
    _say("rows, the gadget's own fields", None, *_rows(OWN, own))
    _say("rows, with 22 texts", None, *_rows(OWN + ADDED, all_fields))
    _say("events, the gadget's own fields", 100_000, *_events(EVENT))
    _say("events, with 22 texts", None, *_events(EVENT + ADDED))


def _element(specs: list[gp.Spec]) -> Any:
    words = {gp.STRING: "a-pod-of-some-name", gp.CSTRING: "python3"}
    return gp.element(specs, [words.get(spec.kind, 7) for spec in specs])


def _packet(specs: list[gp.Spec]) -> bytes:
    return gp.packet([_element(specs)] * ROWS, 1).payload


def _columns(specs: list[gp.Spec], payload: bytes) -> tuple[Callable[[], Any], int]:
    reader = ColumnReader(read_source(gp.source("s", specs)))
    return lambda: reader.read([payload]), ROWS


def _rows(specs: list[gp.Spec], payload: bytes) -> tuple[Callable[[], Any], int]:
    source = read_source(gp.source("s", specs))
    read = RowReader(source).read
    return lambda: [read(slots) for slots in slots_of(source, payload) or ()], ROWS


def _events(specs: list[gp.Spec]) -> tuple[Callable[[], Any], int]:
    source = read_source(gp.source("s", specs, array=False))
    payload = gp.packet([_element(specs)], 1, array=False).payload
    read = RowReader(source).read

    def all_of_them() -> None:
        for _ in range(ROWS):
            for slots in slots_of(source, payload) or ():
                read(slots)

    return all_of_them, ROWS


def _say(name: str, goal: int | None, work: Callable[[], Any], rows: int) -> None:
    seconds = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    rate = rows / sorted(seconds)[ROUNDS // 2]
    say(f"  {name:<34} {rate:>11,.0f} a second" + (f"; goal {goal:,}" if goal else ""))
