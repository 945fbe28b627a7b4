# SPDX-License-Identifier: Apache-2.0
"""The rows of one gadget's run as they stand: each under its number, the newest of each.

A runtime far away sends the rows that changed, again and again. :class:`LiveRows` keeps
them in place, so that taking a batch in costs what the batch is long, not what is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk.ledger.groups import group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from igsdk.ledger.columns import Column, Columns

_FIRST_ROOM = 256
_CALLS = ("alloc_calls", "free_calls", "fail_calls")
_BYTES = ("alloc_bytes", "free_bytes", "fail_bytes")
_DECIDING = (*_CALLS, *_BYTES, "ended", "time")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a batch did.

    Attributes:
        rows: of the batch, those that were newer than what was known.
        slots: where they are now.
        fresh: whether their number had not been seen before.
    """

    rows: Column
    slots: Column
    fresh: Column


class LiveRows:
    """Newest rows by number.

    **Which row is newer** is decided as in :class:`~igsdk.ledger.running.RunningTotals`:
    more calls, then the one that has ended, then more bytes, then the later time, then the
    one that came last. So lost packets, replays, a second client and packets out of order heal.

    Args:
        types: numpy type by column; ``row`` (the number), the totals and ``ended`` and
            ``time`` have to be among them.
        limit: rows at most; new ones beyond are not taken, and counted in ``dropped``.
        by_time: the later time decides alone: of a sender whose rows are all of one reading,
            and that may take back what it said of a row.
    """

    def __init__(
        self, types: Mapping[str, str], limit: int = 1 << 20, by_time: bool = False
    ) -> None:
        self.dropped = 0
        self._limit = limit
        self._types = dict(types)
        self._by_time = by_time
        self._columns = {name: np.zeros(_FIRST_ROOM, kind) for name, kind in types.items()}
        self._numbers: Column = np.zeros(0, np.uint64)  # ascending
        self._slots: Column = np.zeros(0, np.int64)  # of each number

    def __len__(self) -> int:
        return len(self._numbers)

    def column(self, name: str) -> Column:
        """One column over all slots. Not to be written to, and old after the next batch."""
        return self._columns[name][: len(self)]

    def columns(self) -> Columns:
        """All columns over all slots, as :meth:`column`."""
        return {name: self.column(name) for name in self._types}

    def write(self, name: str, slots: Column, values: Column | int) -> None:
        """Sets a column of the caller's own."""
        self._columns[name][slots] = values

    def find(self, numbers: Column) -> Column:
        """The slots of these numbers, -1 where one is not known."""
        if not len(self._numbers):
            return np.full(len(numbers), -1, np.int64)
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        slots: Column = np.where(self._numbers[at] == numbers, self._slots[at], -1)
        return slots

    def take(self, batch: Mapping[str, Any]) -> Taken:
        """Takes a batch in; columns that it lacks keep what they had, zero at first.

        Returns:
            Which of its rows counted; where a number came twice only the newest did.
        """
        mine = {name: np.asarray(batch[name], kind) for name, kind in self._known(batch)}
        rows = self._with_room(self._newest(mine), mine["row"])
        slots, fresh = self._places(mine["row"][rows])
        newer = fresh | self._not_older(mine, rows, slots)
        rows, slots, fresh = rows[newer], slots[newer], fresh[newer]
        for name, column in mine.items():
            self._columns[name][slots] = column[rows]
        return Taken(rows, slots, fresh)

    def _known(self, batch: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind in self._types.items() if name in batch]

    def _with_room(self, rows: Column, numbers: Column) -> Column:
        """The rows without those that are new and find no room."""
        room = self._limit - len(self)
        if len(rows) <= room:
            return rows
        fresh = self.find(numbers[rows]) < 0
        kept: Column = rows[~fresh | (np.cumsum(fresh) <= room)]
        self.dropped += len(rows) - len(kept)
        return kept

    def _places(self, numbers: Column) -> tuple[Column, Column]:
        """Slots for these numbers, and which of them are new; no number comes twice."""
        slots = self.find(numbers)
        fresh = slots < 0
        count = int(fresh.sum())
        if count:
            first = len(self)
            self._make_room(first + count)
            slots[fresh] = np.arange(first, first + count)
            self._numbers = np.concatenate([self._numbers, numbers[fresh]])
            self._slots = np.concatenate([self._slots, slots[fresh]])
            order = np.argsort(self._numbers, kind="stable")
            self._numbers, self._slots = self._numbers[order], self._slots[order]
        return slots, fresh

    def _make_room(self, wanted: int) -> None:
        room = len(self._columns["row"])
        if wanted <= room:
            return
        more = max(wanted, 2 * room) - room
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.zeros(more, column.dtype)])

    def _not_older(self, batch: Columns, rows: Column, slots: Column) -> Column:
        """Per row, whether it is at least as new as the one in its slot."""
        ours = {name: self._columns[name][slots] for name in _DECIDING}
        theirs = {name: batch[name][rows] if name in batch else ours[name] for name in ours}
        newer: Column = np.zeros(len(rows), bool)
        same: Column = np.ones(len(rows), bool)
        for mine, other in zip(self._age(ours), self._age(theirs), strict=True):
            newer |= same & (other > mine)
            same &= other == mine
        result: Column = newer | same
        return result

    def _newest(self, batch: Columns) -> Column:
        """The newest row of each number, in no order; the later one where they are equal."""
        numbers = batch["row"]
        if len(np.unique(numbers)) == len(numbers):
            return np.arange(len(numbers))
        zero = np.zeros(len(numbers), np.uint64)
        found = {name: batch.get(name, zero) for name in _DECIDING}
        return group([numbers], len(numbers), then=self._age(found)).last

    def _age(self, rows: Columns) -> list[Column]:
        """What sorts rows of one number from old to new, most important first."""
        if self._by_time:
            return [rows["time"]]
        calls = rows[_CALLS[0]] + rows[_CALLS[1]] + rows[_CALLS[2]]
        size = rows[_BYTES[0]] + rows[_BYTES[1]] + rows[_BYTES[2]]
        return [calls, rows["ended"], size, rows["time"]]
