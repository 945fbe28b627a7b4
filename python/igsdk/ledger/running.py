# SPDX-License-Identifier: Apache-2.0
"""Running totals by key: a batch replaces, it is never added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk.ledger.columns import Column, Columns, Schema, concatenate, length, take
from igsdk.ledger.groups import group

if TYPE_CHECKING:
    from collections.abc import Mapping

_SMALL = 1 << 16


class RunningTotals:
    """The newest row of every key.

    **Which row is newer.** Calls allocated, freed and failed only ever grow in the
    runtime, so of two rows of one key the one with more calls was read later, in
    whatever order they arrive; the smaller one says nothing that the larger does not
    know. That is what makes a lost batch, a replay, a duplicate and a second client
    heal. With equal calls the row that has ended is later (an end changes no count),
    then the one with more bytes (a row may have been read between its two additions),
    then the one that came last. Implicit frees and the peak are taken from that row
    and don't decide: a free that races with the end of its context moves bytes from
    implicit to freed, and a new peak may be lower in any one account.

    Rows of keys that no batch names any more stay as they were.

    Batches are put aside and merged when asked for, or when they outgrow the table,
    so feeding costs a constant per row and memory stays within twice the table.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._table = schema.empty()
        self._pending: list[Columns] = []
        self._pending_rows = 0

    def add(self, batch: Mapping[str, Any]) -> None:
        """Take a batch's rows in.

        Raises:
            ValueError: the batch does not have the schema's columns.
        """
        columns = self._schema.check(batch)
        # The caller may reuse its buffers, so what is put aside is ours.
        self._pending.append({name: column.copy() for name, column in columns.items()})
        self._pending_rows += length(columns)
        if self._pending_rows > max(_SMALL, length(self._table)):
            self._merge()

    def rows(self) -> Columns:
        """One row per key, in the order of the keys' columns. Not to be written to."""
        if self._pending:
            self._merge()
        return self._table

    def _merge(self) -> None:
        everything = concatenate([self._table, *self._pending])
        keys = [everything[name] for name in self._schema.key]
        newest = group(keys, length(everything), then=_age(everything)).last
        merged = take(everything, newest)
        if "peak" in self._schema.optional:
            merged["peak"] = _highest(keys, everything["peak"])
        self._table, self._pending, self._pending_rows = merged, [], 0


def _age(rows: Columns) -> list[Column]:
    """What sorts rows of one key from old to new, most important first."""
    whats = ("alloc", "free", "fail")
    calls = sum((rows[f"{what}_calls"] for what in whats[1:]), rows["alloc_calls"])
    sizes = sum((rows[f"{what}_bytes"] for what in whats[1:]), rows["alloc_bytes"])
    ended = [rows["ended"]] if "ended" in rows else []
    return [calls, *ended, sizes]


def _highest(keys: list[Column], peak: Column) -> Column:
    """The highest value of each key: a peak never falls, whichever row is newest."""
    groups = group(keys, len(peak))
    if not len(groups.starts):
        return peak[:0]
    highest: Column = np.maximum.reduceat(peak[groups.order], groups.starts)
    return highest
