# SPDX-License-Identifier: Apache-2.0
"""Turns the tracer's rows into the column batches of a ledger.

Everything here is array work. The rows are read while the workload goes on, first
the accounts, then what they are compared with, so a call in flight can show in one
and not in the other; a snapshot that does not add up is taken again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import _abi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._native import Tracer

Array = npt.NDArray[Any]
Columns = dict[str, Array]

_TRIES = 4
TOTALS = tuple(name for name, _ in _abi.LAYOUTS["usage"] if name.endswith(("_bytes", "_calls")))
_PLACE = ("kind", "host", "device")
SLOT = np.dtype([("key", "<u8"), ("row", "<i8")])


@dataclass(frozen=True, slots=True)
class Rows:
    """The three row arrays as the kernel had them at one moment; slots are indices."""

    accounts: Array
    usages: Array
    processes: Array

    @classmethod
    def take(cls, tracer: Tracer, moved: Array | None = None) -> Rows:
        """Reads all rows, again where they do not add up yet.

        ``moved``: by usage row, the totals of its accounts that are no longer there.
        """
        rows = cls.read(tracer)
        for _ in range(_TRIES):
            if rows.adds_up(moved):
                break
            rows = cls.read(tracer)
        return rows

    @classmethod
    def read(cls, tracer: Tracer) -> Rows:
        """As they are at this moment, whether they add up or not."""
        accounts, usages, processes = tracer.accounts(), tracer.usages(), tracer.processes()
        return cls(
            np.frombuffer(accounts, _abi.dtype("account")),
            np.frombuffer(usages, _abi.dtype("usage")),
            np.frombuffer(processes, _abi.dtype("process")),
        )

    def adds_up(self, moved: Array | None = None) -> bool:
        """Whether accounts sum to their usage rows, byte for byte and call for call."""
        used = self.accounts[self.accounts["generation"] % 2 == 1]
        busy = self.usages["generation"] % 2 == 1
        for name in TOTALS:
            sums = np.zeros(len(self.usages), dtype=np.uint64)
            known = used["usage"] < len(sums)
            np.add.at(sums, used["usage"][known], used[name][known])
            if moved is not None:
                sums[: len(moved)] += moved[name][: len(sums)]
            if not np.array_equal(sums[busy], self.usages[name][busy]):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows that have something to tell, with what their end says of them.

    ``slots`` (dtype ``SLOT``) says by which slots and generations rows of ``accounts`` are
    or were known; ``*_ended`` how each row ended: its context first, else its process, else
    it lives. ``account_stacks`` are the ids of the stacks, 0 until :meth:`with_stacks` has
    worked them out.
    """

    accounts: Array
    slots: Array
    account_ended: Array
    account_stacks: Array
    usages: Array
    usage_ended: Array
    processes: Array

    @classmethod
    def of(cls, rows: Rows, processes: Array | None = None) -> Snapshot:
        """Of all rows, or of those of some process slots."""
        accounts, usages = _used(rows.accounts), _used(rows.usages)
        busy = rows.processes["generation"] % 2 == 1
        slots = np.flatnonzero(busy & (rows.processes["instance"] != 0))
        if processes is not None:
            accounts = accounts[np.isin(rows.accounts["slot"][accounts], processes)]
            usages = usages[np.isin(rows.usages["slot"][usages], processes)]
            slots = np.intersect1d(slots, processes)
        picked, picked_usages = rows.accounts[accounts], rows.usages[usages]
        return cls(
            picked,
            _slots(slot_keys(accounts, picked["generation"])),
            _ended(rows, picked["usage"], picked["slot"]),
            np.zeros(len(picked), dtype=np.uint64),
            picked_usages,
            _ended(rows, usages, picked_usages["slot"]),
            rows.processes[slots],
        )

    def with_stacks(self, ids_of: Callable[[Array, Array], Array]) -> Snapshot:
        """The same with its stacks, of (process instances, capture keys)."""
        rows = self.accounts
        return replace(self, account_stacks=ids_of(rows["process"], rows["stack"]))

    def without_accounts(self) -> Snapshot:
        """Only what the usage rows tell."""
        return Snapshot(
            self.accounts[:0],
            self.slots[:0],
            self.account_ended[:0],
            self.account_stacks[:0],
            self.usages,
            self.usage_ended,
            self.processes,
        )

    def joined(self, others: Sequence[Snapshot]) -> Snapshot:
        """This one and others, of different accounts and processes."""
        parts = [self, *others]
        whole = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in self.__slots__
        }
        firsts = np.cumsum([0, *(len(part.accounts) for part in parts[:-1])])
        whole["slots"]["row"] += np.repeat(firsts, [len(part.slots) for part in parts])
        return Snapshot(**whole)


def _used(rows: Array) -> Array:
    """Slots that are in use and have something to tell; slot 0 counts only if it was needed."""
    busy = rows["generation"] % 2 == 1
    told = rows["alloc_calls"] + rows["fail_calls"] > 0
    slots: Array = np.flatnonzero(busy & told)
    return slots


def _ended(rows: Rows, usages: Array, owners: Array) -> Array:
    by_context = rows.usages["ended"][usages] == _abi.ENDED_CONTEXT
    by_process = rows.processes["ended"][owners] != 0
    ended: Array = np.where(
        by_context, _abi.ENDED_CONTEXT, np.where(by_process, _abi.ENDED_PROCESS, _abi.LIVE)
    ).astype(np.uint8)
    return ended


def _implicit(columns: Columns, ended: Array) -> None:
    """What no call freed was given back by the end: that is its definition."""
    for unit in ("bytes", "calls"):
        rest = columns[f"alloc_{unit}"] - columns[f"free_{unit}"]
        columns[f"implicit_{unit}"] = np.where(ended != _abi.LIVE, rest, np.uint64(0))


def _where(length: int, boot: int, epoch: int) -> Columns:
    return {
        "boot": np.full(length, boot, dtype=np.uint64),
        "epoch": np.full(length, epoch, dtype=np.uint64),
    }


def heap_batch(
    snapshot: Snapshot,
    boot: int,
    epoch: int,
    held: Array,
) -> Columns:
    """One row per account of a snapshot, in the columns of a HeapBatch.

    ``held`` is what accounts held at the peak, dtype ``held``.
    """
    rows = snapshot.accounts
    columns = _where(len(rows), boot, epoch)
    for name in ("process", "context", *_PLACE, *TOTALS, "overflow", "untracked_bytes"):
        columns[name] = rows[name]
    columns["ended"] = snapshot.account_ended
    columns["stack"] = snapshot.account_stacks
    _implicit(columns, snapshot.account_ended)
    columns["peak_bytes"], columns["peak_calls"] = _peaks(snapshot, held)
    return columns


def _peaks(snapshot: Snapshot, held: Array) -> tuple[Array, Array]:
    """Bytes and blocks at the peak, by slot and generation: slots change their owners."""
    slots = snapshot.slots[np.argsort(snapshot.slots["key"])]
    known = slot_keys(held["account"], held["generation"])
    at = np.searchsorted(slots["key"], known)
    found = at < len(slots)
    found[found] = slots["key"][at[found]] == known[found]
    sums = []
    for name in ("bytes", "calls"):
        column = np.zeros(len(snapshot.accounts), dtype=np.uint64)
        np.add.at(column, slots["row"][at[found]], held[name][found])
        sums.append(column)
    return sums[0], sums[1]


def slot_keys(slots: Array, generations: Array) -> Array:
    """What the tracer calls an account: its slot above its generation, u64."""
    keys: Array = slots.astype(np.uint64) << np.uint64(32) | generations.astype(np.uint64)
    return keys


def _slots(keys: Array) -> Array:
    """Each key is the row of its position."""
    slots = np.zeros(len(keys), dtype=SLOT)
    slots["key"], slots["row"] = keys, np.arange(len(keys))
    return slots


def process_batch(snapshot: Snapshot, boot: int, epoch: int, groups: Array) -> Columns:
    """One row per process x kind x host x device, in the columns of a ProcessBatch.

    ``groups`` has each such row's own peak (dtype ``group_peak``).
    """
    rows, ended = snapshot.usages, snapshot.usage_ended
    columns = _where(len(rows), boot, epoch)
    for name in ("process", *_PLACE, *TOTALS):
        columns[name] = rows[name]
    _implicit(columns, ended)
    live = columns["alloc_bytes"] - columns["free_bytes"]
    # what a process held when it ended stays its figure; its end gave it back
    columns["in_use"] = np.where(ended == _abi.ENDED_CONTEXT, np.uint64(0), live)
    return _with_peaks(merge_rows(columns, ("boot", "epoch", "process", *_PLACE)), groups)


def _with_peaks(columns: Columns, groups: Array) -> Columns:
    peaks = {
        (int(row["process"]), int(row["kind"]), int(row["host"]), int(row["device"])): row["peak"]
        for row in groups
    }
    places = zip(*(columns[name].tolist() for name in ("process", *_PLACE)), strict=True)
    values = (peaks.get(place, 0) for place in places)
    columns["peak"] = np.fromiter(values, dtype=np.uint64, count=len(columns["process"]))
    return columns


def merge_rows(columns: Columns, key: tuple[str, ...]) -> Columns:
    """Sums the rows that have the same key; other small columns keep their highest value."""
    length = len(columns[key[0]])
    if length == 0:
        return columns
    order = np.lexsort([columns[name] for name in key])
    sorted_columns = {name: column[order] for name, column in columns.items()}
    differs = np.zeros(length, dtype=bool)
    differs[0] = True
    for name in key:
        differs[1:] |= sorted_columns[name][1:] != sorted_columns[name][:-1]
    starts = np.flatnonzero(differs)
    merged: Columns = {}
    for name, column in sorted_columns.items():
        if name in key:
            merged[name] = column[starts]
        elif column.dtype == np.uint64:
            merged[name] = np.add.reduceat(column, starts)
        else:
            merged[name] = np.maximum.reduceat(column, starts)
    return merged


HEAP_KEY = ("boot", "epoch", "process", "context", *_PLACE, "stack")
