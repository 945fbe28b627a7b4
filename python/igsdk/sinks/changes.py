# SPDX-License-Identifier: Apache-2.0
"""What was allocated since the last push, so that a server that adds up counts it once.

Profiles say what was allocated since a run's start. A row may move meanwhile: its stack gets
its names, its process a pod. Then the old row shrinks and a new one has it all; that is no
allocation, and what was counted moves along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from igsdk.ledger.groups import group
from igsdk.profile.names import VALUES
from igsdk.profile.table import combine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.ledger.columns import Column
    from igsdk.profile.table import Table

_IN_USE = tuple(VALUES.index(f"inuse_{unit}") for unit in ("space", "objects"))
_ALLOC = tuple(VALUES.index(f"alloc_{unit}") for unit in ("space", "objects"))


class Counted:
    """What was allocated and is counted already, row by row; as large as one profile."""

    def __init__(self) -> None:
        self._table: Table = combine([])

    def due(self, now: Table) -> Table:
        """Rows with what is in use now, and what was allocated and is not counted yet.

        Never negative: what is less than was counted (a source that began anew) stays
        counted, so that its return is not counted again.
        """
        kept = _only(now, (*_IN_USE, *_ALLOC))
        counted = replace(self._table, values=-self._table.values)
        rows = combine([kept, counted]).grouped()
        moved = _moved(rows)
        if moved.values.any():
            self._table = combine([self._table, moved])
        values = rows.values - moved.values
        return replace(rows, values=np.maximum(values, 0)).grouped()

    def settle(self, parts: Sequence[Table]) -> None:
        """These are counted now: all of :meth:`due`, or parts that were taken from it."""
        if parts:
            rows = _only(_rejoined(parts), _ALLOC)
            self._table = combine([self._table, rows]).grouped()


def _rejoined(parts: Sequence[Table]) -> Table:
    """Parts of one table, which share its frames and strings, as one."""
    labels = {name: np.concatenate([p.labels[name] for p in parts]) for name in parts[0].labels}
    return replace(
        parts[0],
        labels=labels,
        stack=np.concatenate([part.stack for part in parts]),
        values=np.concatenate([part.values for part in parts]),
    )


def _only(table: Table, columns: Sequence[int]) -> Table:
    values = np.zeros_like(table.values)
    values[:, columns] = table.values[:, columns]
    return replace(table, values=values)


def _moved(rows: Table) -> Table:
    """What left one row of a process for another: minus there, plus here."""
    values = np.zeros_like(rows.values)
    moved = replace(rows, values=values)
    if not (rows.values[:, _ALLOC] < 0).any():
        return moved
    keys = [rows.labels[label] for label in ("pid", "start_ns", "kind")]
    groups = group(keys, len(rows))
    for members in np.split(groups.order, groups.starts[1:]):
        for column in _ALLOC:
            values[members, column] = _transfer(rows.values[members, column])
    return moved


def _transfer(changes: Column) -> Column:
    """As much of the gains as there are losses, and the other way round."""
    gains, losses = np.maximum(changes, 0), np.maximum(-changes, 0)
    common = min(int(gains.sum()), int(losses.sum()))
    taken: Column = _first(gains, common) - _first(losses, common)
    return taken


def _first(amounts: Column, most: int) -> Column:
    """The amounts from the first on, until they come to so much."""
    before = np.cumsum(amounts) - amounts
    taken: Column = np.clip(most - before, 0, amounts)
    return taken
