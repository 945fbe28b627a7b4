# SPDX-License-Identifier: Apache-2.0
"""Compares what igsdk booked with the simulated driver's own books, to the byte and call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi
from igsdk.runtime.snapshot import heap_batch, process_batch

from .simdriver import Books

if TYPE_CHECKING:
    from igsdk._run import Run

Image = tuple[int, int, int]
"""One process image: its pid as it sees it, start in clock ticks, how many execs before."""
Place = tuple[str, str, int]
Sums = dict[str, int]
Figures = dict[Place, Sums]

TOTALS = tuple(
    f"{what}_{unit}"
    for what in ("alloc", "free", "implicit", "fail")
    for unit in ("bytes", "calls")
)
#: Losses that may be there without a byte being wrong: each is a count of its own kind.
HARMLESS = {"nested", "unknown_free", "not_booked_graph", "not_booked_external"}
HARMLESS |= {"not_booked_sparse", "format_unknown", "size_unknown"}
_NS_PER_TICK = 10_000_000


def identity(pid: int, start_ticks: int, order: int) -> Image:
    return pid, start_ticks, order


def expected(books: Iterable[Books]) -> dict[Image, Figures]:
    """Figures per process image; what a dead one still held, its end gave back."""
    images: dict[tuple[int, int], int] = defaultdict(int)
    result = {}
    for book in books:
        order = images[book.pid, book.start_ticks]
        images[book.pid, book.start_ticks] += 1
        figures = {
            place: {name: getattr(row, name) for name in TOTALS} for place, row in book.rows.items()
        }
        if not book.alive:
            for sums in figures.values():
                for unit in ("bytes", "calls"):
                    sums[f"implicit_{unit}"] = sums[f"alloc_{unit}"] - sums[f"free_{unit}"]
        result[identity(book.pid, book.start_ticks, order)] = _without_empty(figures)
    return {key: figures for key, figures in result.items() if figures}


def booked(run: Run, wanted: Collection[Image]) -> tuple[dict[Image, Figures], dict[str, int]]:
    """The same from a run: from the accounts, after they were found equal to `processes`.

    Others than `wanted` are left out: a run sees the whole machine.
    """
    reading = run._session.reading()
    nothing = np.zeros(0, _abi.dtype("held"))
    groups = np.zeros(0, _abi.dtype("group_peak"))
    heap = heap_batch(reading.snapshot, 1, 1, nothing)
    rows = process_batch(reading.snapshot, 1, 1, groups)
    names = _names(run)
    accounts, authority = _figures(heap, names), _figures(rows, names)
    accounts = {key: accounts.get(key, {}) for key in wanted}
    unlike = differences(accounts, {key: authority.get(key, {}) for key in wanted})
    assert not unlike, f"heap and processes differ: {unlike}"
    return accounts, reading.losses


def _names(run: Run) -> dict[int, Image]:
    """Process instance -> (pid in its namespace, start in ticks, which image)."""
    images: dict[tuple[int, int], int] = defaultdict(int)
    names = {}
    for info in sorted(run.processes(), key=lambda info: info.exec_id):
        key = info.ns_pid, info.start_ns // _NS_PER_TICK
        names[info.instance] = identity(*key, images[key])
        images[key] += 1
    return names


def _figures(batch: dict[str, Any], names: dict[int, Any]) -> dict[Any, Figures]:
    result: dict[Any, Figures] = defaultdict(dict)
    for row in range(len(batch["process"])):
        place = (
            _abi.KINDS[batch["kind"][row]],
            _abi.HOSTS[batch["host"][row]],
            int(batch["device"][row]),
        )
        sums = result[names[int(batch["process"][row])]].setdefault(place, dict.fromkeys(TOTALS, 0))
        for name in TOTALS:
            sums[name] += int(batch[name][row])
    return {key: _without_empty(figures) for key, figures in result.items()}


def _without_empty(figures: Figures) -> Figures:
    return {place: sums for place, sums in figures.items() if any(sums.values())}


def differences(accounts: dict[Any, Figures], wanted: dict[Any, Figures]) -> list[str]:
    """One line per figure that differs, for the processes of `wanted`."""
    lines = []
    for key, figures in wanted.items():
        mine = accounts.get(key, {})
        for place in sorted(figures.keys() | mine.keys()):
            left, right = mine.get(place, {}), figures.get(place, {})
            lines += [
                f"pid {key[0]} {'/'.join(map(str, place))} {name}: "
                f"booked {left.get(name, 0)}, driver {right.get(name, 0)}"
                for name in TOTALS
                if left.get(name, 0) != right.get(name, 0)
            ]
    return lines


def assert_balanced(run: Run, books: list[Books], allowed: frozenset[str] = frozenset()) -> None:
    """Every byte and every call of `books` is booked, and nothing else, and nothing was lost."""
    wanted = expected(books)
    accounts, losses = booked(run, wanted)
    assert differences(accounts, wanted) == []
    lost = {
        name: count
        for name, count in losses.items()
        if count and name not in HARMLESS and name not in allowed
    }
    assert lost == {}
