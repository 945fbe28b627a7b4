# SPDX-License-Identifier: Apache-2.0
"""Compares what a run over a target booked with the simulated driver's own books."""

from __future__ import annotations

import time
from collections import defaultdict

from igsdk import _abi
from igsdk._remote.profiles import ledger_of
from igsdk._remote.run import RemoteRun
from igsdk._run import Run

from .balance import TOTALS, Figures, Image, differences, expected, identity
from .simdriver import Books

NS_PER_TICK = 10_000_000


def figures(run: RemoteRun, source: str) -> dict[Image, Figures]:
    """Sums by process image and place, of ``heap`` (with the rest) or ``processes``."""
    ledger = ledger_of(run._collector)
    rows = ledger.rows() if source == "heap" else ledger.processes()
    names = _names(run)
    found: dict[Image, Figures] = defaultdict(dict)
    for row in range(len(rows["process"])):
        place = (
            _abi.KINDS[rows["kind"][row]],
            _abi.HOSTS[rows["host"][row]],
            int(rows["device"][row]),
        )
        image = names.get(int(rows["process"][row]), (0, 0, 0))
        sums = found[image].setdefault(place, dict.fromkeys(TOTALS, 0))
        for name in TOTALS:
            sums[name] += int(rows[name][row])
    return found


def _names(run: RemoteRun) -> dict[int, Image]:
    order: dict[tuple[int, int], int] = defaultdict(int)
    names = {}
    for info in sorted(run.processes(), key=lambda one: one.exec_id):
        key = info.ns_pid, info.start_ns // NS_PER_TICK
        names[info.instance] = identity(*key, order[key])
        order[key] += 1
    return names


def unlike(run: RemoteRun, books: list[Books]) -> list[str]:
    """What differs between the books and what was booked here."""
    wanted = expected(books)
    return [
        f"{source}: {line}"
        for source in ("heap", "processes")
        for line in differences(figures(run, source), wanted)
    ]


def assert_booked(run: Run | RemoteRun, books: list[Books], seconds: float = 10) -> None:
    """What came so far says what the books say, after some intervals at most."""
    assert isinstance(run, RemoteRun)
    assert books, "a program without the driver proves nothing"
    until = time.monotonic() + seconds
    while found := unlike(run, books):
        assert time.monotonic() < until, found
        time.sleep(0.1)
