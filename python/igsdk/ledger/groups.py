# SPDX-License-Identifier: Apache-2.0
"""Grouping rows by several columns at once, exactly, as array work.

Sums of uint64 columns stay uint64: ``np.bincount`` with weights would go through
float64 and lose bytes above 2^53.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.ledger.columns import Column

_ROOM = 1 << 62


def codes(columns: Sequence[Column], rows: int) -> Column:
    """One int64 per row, equal exactly where all the columns are equal.

    Columns are numbered one by one and combined as digits. Where the digits would
    no longer fit, the number so far is renumbered: it never exceeds rows squared.
    """
    code: Column = np.zeros(rows, dtype=np.int64)
    size = 1
    for column in columns:
        digits, count = _number(column)
        if count == 1:
            continue
        if size * count >= _ROOM:
            code, size = _number(code)
        code = code * count + digits
        size *= count
    return code


def _number(column: Column) -> tuple[Column, int]:
    """The column's distinct values as 0, 1, 2, … in ascending order, and how many there are."""
    if not len(column) or bool((column == column[0]).all()):
        return np.zeros(len(column), dtype=np.int64), 1
    values, inverse = np.unique(column, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64, copy=False), len(values)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows brought together by key.

    ``order`` sorts the rows so that a group's rows are neighbours, in the order in
    which they came; ``starts`` says where in ``order`` each group begins.
    """

    order: Column
    starts: Column

    @property
    def first(self) -> Column:
        """The first row of each group."""
        return self.order[self.starts]

    @property
    def last(self) -> Column:
        """The last row of each group."""
        if not len(self.starts):
            return self.order[:0]
        ends = np.append(self.starts[1:], len(self.order))
        last: Column = self.order[ends - 1]
        return last

    @property
    def inverse(self) -> Column:
        """The number of the group that each row belongs to."""
        marks = np.zeros(len(self.order), dtype=np.int64)
        marks[self.starts[1:]] = 1
        inverse = np.empty_like(marks)
        inverse[self.order] = np.cumsum(marks)
        return inverse

    def sums(self, column: Column) -> Column:
        """The column added up by group, in the column's own integer type."""
        if not len(self.starts):
            return column[:0]
        return np.add.reduceat(column[self.order], self.starts)


def group(columns: Sequence[Column], rows: int, then: Sequence[Column] = ()) -> Groups:
    """Group rows by ``columns``; inside a group sort by ``then``, most important first."""
    code = codes(columns, rows)
    order = np.lexsort((*reversed(then), code)) if then else np.argsort(code, kind="stable")
    if not rows:
        return Groups(order, np.zeros(0, dtype=np.int64))
    ordered = code[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return Groups(order, starts)
