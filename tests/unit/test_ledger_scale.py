# SPDX-License-Identifier: Apache-2.0
"""A million rows are array work: Python runs the same number of lines for any number of rows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk.ledger import Ledger
from igsdk.ledger.columns import HEAP, PROCESSES

if TYPE_CHECKING:
    from types import FrameType


def batch(rows: int, calls: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    columns = {name: np.zeros(rows, dtype=kind) for name, kind in HEAP.types.items()}
    columns["boot"][:], columns["epoch"][:] = 1, 2
    columns["process"][:] = rng.integers(1, 2**63, 20, dtype=np.uint64)[np.arange(rows) % 20]
    columns["kind"][:] = 1
    columns["stack"][:] = np.arange(rows) + 1
    columns["alloc_calls"][:] = calls
    columns["alloc_bytes"][:] = 1024 * calls
    return columns


def authority(heap: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    instances, counts = np.unique(heap["process"], return_counts=True)
    columns = {name: np.zeros(len(instances), dtype=kind) for name, kind in PROCESSES.types.items()}
    columns["boot"][:], columns["epoch"][:], columns["kind"][:] = 1, 2, 1
    columns["process"][:] = instances
    columns["alloc_calls"][:] = counts + 1
    columns["alloc_bytes"][:] = columns["in_use"][:] = 1024 * (counts + 1)
    return columns


def lines_run(rows: int) -> int:
    """Lines of our own ledger code that run for two batches of ``rows`` and a query."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        if "igsdk/ledger" not in frame.f_code.co_filename:
            return None
        counted += event == "line"
        return trace

    first, second = batch(rows), batch(rows, calls=2)
    ledger = Ledger()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ledger.update_heap(first)
        ledger.update_heap(second)
        ledger.update_processes(authority(second))
        ledger.totals(by=["process", "kind"])
    finally:
        sys.settrace(before)
    return counted


def test_python_runs_no_line_per_row():
    few, many = lines_run(1_000), lines_run(50_000)
    assert few > 50
    assert many <= few * 1.2


def test_a_million_rows_merge_exactly():
    rows = 1_000_000
    ledger = Ledger()
    ledger.update_heap(batch(rows))
    ledger.update_heap(batch(rows, calls=3))
    ledger.update_heap(batch(rows, calls=2))
    totals = ledger.totals()
    assert int(totals["alloc_calls"][0]) == 3 * rows
    assert int(totals["in_use_bytes"][0]) == 3 * 1024 * rows
