# SPDX-License-Identifier: Apache-2.0
"""What the accounts do not explain: the difference to the authority, ``processes``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from igsdk.ledger.columns import TOTALS, Column, Columns, length
from igsdk.ledger.groups import group

_PLACE = ("boot", "epoch", "process", "kind", "host", "device")
#: what is compared: the running totals and what is in use
MEASURES = (*TOTALS, "in_use_bytes", "in_use_calls")


@dataclass(frozen=True, slots=True)
class Rest:
    """Rows for what no account explains, and how much the accounts have too many.

    ``too_much`` has one sum per measure: the two data sources are read one after the
    other, so accounts may be ahead. That is told as a loss; a negative sample would be
    a lie about some stack.
    """

    rows: Columns
    too_much: dict[str, int]


def compare(accounts: Columns, processes: Columns, ended: Column) -> Rest:
    """Find what ``processes`` has and ``accounts`` do not.

    Args:
        accounts: rows with the place columns and all ``MEASURES``.
        processes: checked ProcessBatch columns, one row per place.
        ended: per row of ``processes``, whether the process has ended.
    """
    found = _accounted(accounts, processes)
    expected = _expected(processes, ended, found)
    differences = {name: (expected[name] - found[name]).view(np.int64) for name in MEASURES}
    too_much = {
        name: -int(difference[difference < 0].sum()) for name, difference in differences.items()
    }
    wanting = {name: np.maximum(part, 0).view(np.uint64) for name, part in differences.items()}
    some = np.zeros(length(processes), dtype=bool)
    for part in wanting.values():
        some |= part > 0
    rows = {name: processes[name][some] for name in _PLACE}
    rows.update({name: part[some] for name, part in wanting.items()})
    return Rest(rows, {name: count for name, count in too_much.items() if count})


def _accounted(accounts: Columns, processes: Columns) -> Columns:
    """The accounts' sums at each row of ``processes``, zero where there are none."""
    rows = length(processes)
    keys = [np.concatenate([processes[name], accounts[name]]) for name in _PLACE]
    groups = group(keys, rows + length(accounts))
    at = groups.inverse[:rows]
    padding = np.zeros(rows, dtype=np.uint64)
    return {name: groups.sums(np.concatenate([padding, accounts[name]]))[at] for name in MEASURES}


def _expected(processes: Columns, ended: Column, found: Columns) -> Columns:
    """The measures as the authority has them.

    What an ended process held is its ``in_use`` where the runtime keeps that figure
    past the end; where it says 0, what was given back beyond the accounts counts.
    """
    expected = {name: processes[name] for name in TOTALS}
    live_calls = processes["alloc_calls"] - processes["free_calls"] - processes["implicit_calls"]
    held_calls = found["in_use_calls"] + _surplus(processes, found, "calls")
    held_bytes = found["in_use_bytes"] + _surplus(processes, found, "bytes")
    told = processes["in_use"] > 0
    expected["in_use_calls"] = np.where(ended, held_calls, live_calls)
    expected["in_use_bytes"] = np.where(ended & ~told, held_bytes, processes["in_use"])
    return expected


def _surplus(processes: Columns, found: Columns, unit: str) -> Column:
    """What the end gave back beyond what accounts hold.

    An account whose own end was not told yet holds still what its process's row has as
    given back.
    """
    implicit = f"implicit_{unit}"
    more = (processes[implicit] - found[implicit]).view(np.int64)
    live = found[f"alloc_{unit}"] - found[f"free_{unit}"] - found[implicit]
    surplus: Column = np.maximum(more - np.maximum(live.view(np.int64), 0), 0).view(np.uint64)
    return surplus
