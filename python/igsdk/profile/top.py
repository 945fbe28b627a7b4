# SPDX-License-Identifier: Apache-2.0
"""The largest holders: self and total by function, line or stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from igsdk.ledger.groups import group

if TYPE_CHECKING:
    from collections.abc import Hashable

    from igsdk._events import Frame
    from igsdk.ledger.columns import Column
    from igsdk.profile.table import Table

By = Literal["function", "line", "stack"]


@dataclass(frozen=True, slots=True)
class TopRow:
    """One holder.

    ``self`` is what it allocated itself (it was the leaf), ``total`` also what the
    functions did that it called. ``frames`` is the whole stack, leaf first, for
    ``by="stack"``; else the one frame that stands for the function or line.
    """

    name: str
    file: str | None
    line: int
    self: int
    total: int
    frames: tuple[Frame, ...]


def top(table: Table, value: Column, n: int, by: By) -> list[TopRow]:
    """The ``n`` rows with the largest total (by stack: self), largest first."""
    per_stack = np.zeros(len(table.stacks), dtype=np.int64)
    np.add.at(per_stack, table.stack, value)
    if by == "stack":
        return [_stack_row(table, int(s), int(per_stack[s])) for s in _largest(per_stack, n)]
    names, numbers = _holders(table, by)
    totals = _totals(table, per_stack, numbers, len(names))
    selves = np.zeros(len(names), dtype=np.int64)
    leaves = numbers[table.stacks.members[table.stacks.offsets[:-1]]]
    np.add.at(selves, leaves, per_stack)
    chosen = _largest(totals, n, selves)
    return [_row(names[h], int(selves[h]), int(totals[h]), by) for h in chosen]


def _largest(totals: Column, n: int, then: Column | None = None) -> list[int]:
    """Numbers of the rows that are largest in size, of either sign; zeros are left out."""
    other = np.zeros_like(totals) if then is None else then
    order = np.lexsort((np.arange(len(totals)), -np.abs(other), -np.abs(totals)))
    largest: list[int] = [i for i in order[:n].tolist() if totals[i] or other[i]]
    return largest


def _holders(table: Table, by: By) -> tuple[list[Frame], Column]:
    """What frames are counted under: a frame that stands for each, and frame -> number."""
    found: dict[Hashable, int] = {}
    first: list[Frame] = []
    numbers = np.zeros(len(table.frames), dtype=np.int64)
    for place, frame in enumerate(table.frames):
        key = (frame.name, frame.file, frame.line if by == "line" else 0)
        if key not in found:
            found[key] = len(first)
            first.append(frame)
        numbers[place] = found[key]
    return first, numbers


def _totals(table: Table, per_stack: Column, numbers: Column, count: int) -> Column:
    """Totals per holder; a holder that stands twice in a stack (recursion) counts once."""
    owners = table.stacks.owners
    holders = numbers[table.stacks.members]
    once = group([owners, holders], len(owners)).first
    totals = np.zeros(count, dtype=np.int64)
    np.add.at(totals, holders[once], per_stack[owners[once]])
    return totals


def _row(frame: Frame, own: int, total: int, by: By) -> TopRow:
    line = frame.line if by == "line" else 0
    return TopRow(frame.name, frame.file or frame.mapping, line, own, total, (frame,))


def _stack_row(table: Table, stack: int, size: int) -> TopRow:
    frames = tuple(table.frames[number] for number in table.stacks.frames(stack))
    leaf = frames[0]
    return TopRow(leaf.name, leaf.file or leaf.mapping, leaf.line, size, size, frames)
