# SPDX-License-Identifier: Apache-2.0
"""Where accounts of single calls go once nothing in them is live.

A native stack that the kernel does not recognise gets a key that no other call has, and
so an account of its own. Such accounts leave the kernel's table as soon as they are done,
and here those of one stack become one row: neither table grows with the number of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _abi
from .snapshot import SLOT, TOTALS, Rows, Snapshot, slot_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._native import Tracer
    from .snapshot import Array

_SUMS = (*TOTALS, "untracked_bytes")
# What rows that become one have in common; ``stack`` is the id here.
_COMMON = [*_abi.ACCOUNT_KEY, ("ended", "u1")]


class Settled:
    """The accounts that were moved, one row each for what is equal.

    A visit moves what the visit before saw as done: by now the call that it was made for
    has returned, and no other call books there. ``by_usage`` has the
    totals of what was moved by the slot of its usage row, to which they still count.
    """

    def __init__(
        self, tracer: Tracer, ids_of: Callable[[Array, Array], Array], limit: int = 1_000_000
    ) -> None:
        """``ids_of``: (process instances, capture keys) -> ids of stacks."""
        self._tracer = tracer
        self._ids_of = ids_of
        self._limit = limit
        self._seen: Array = np.zeros(0, dtype=np.uint64)
        self._places: dict[tuple[int, ...], int] = {}
        self._rows = np.zeros(64, dtype=_abi.dtype("account"))
        self._stacks = np.zeros(64, dtype=np.uint64)
        self._ended = np.zeros(64, dtype=np.uint8)
        self._slots: Array = np.zeros(0, dtype=SLOT)
        self.by_usage: Array = np.zeros(0, dtype=[(name, "<u8") for name in TOTALS])
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._places)

    def visit(self) -> float:
        """Moves what is done; returns which share of the table single calls have taken."""
        rows = Rows.read(self._tracer)
        fresh = _fresh(rows.accounts)
        self._tracer.keep_fresh_keys(rows.accounts["stack"][fresh].tobytes())
        done = fresh[_done(rows, fresh)]
        seen = slot_keys(done, rows.accounts["generation"][done])
        moving = done[np.isin(seen, self._seen)]
        self._seen = seen
        if len(moving):
            self._move(rows, moving)
        return len(fresh) / max(self._tracer.account_slots, 1)

    def forget_usages(self, slots: Array) -> None:
        """Their usage rows are free for others."""
        self.by_usage[slots[slots < len(self.by_usage)]] = 0

    def forget_processes(self, instances: list[int]) -> None:
        """Lets go of the accounts of processes that are over and no longer asked for."""
        n = len(self)
        keep = ~np.isin(self._rows["process"][:n], instances)
        if keep.all():
            return
        places = np.cumsum(keep) - 1
        for name in ("_rows", "_stacks", "_ended"):
            setattr(self, name, getattr(self, name)[:n][keep])
        self._places = {key: int(places[row]) for key, row in self._places.items() if keep[row]}
        slots = self._slots[keep[self._slots["row"]]]
        slots["row"] = places[slots["row"]]
        self._slots = slots

    def snapshot(self) -> Snapshot:
        """A copy of what was moved: accounts only."""
        n = len(self)
        none = Snapshot.of(Rows(*(np.zeros(0, _abi.dtype(name)) for name in _ROWS)))
        return Snapshot(
            self._rows[:n].copy(),
            self._slots,
            self._ended[:n].copy(),
            self._stacks[:n].copy(),
            none.usages,
            none.usage_ended,
            none.processes,
        )

    def _move(self, rows: Rows, slots: Array) -> None:
        # the replay looks at rows when it meets an account, and keeps what it knows
        self._tracer.flush()
        picked = rows.accounts[slots]
        ids = self._ids_of(picked["process"], picked["stack"])
        keys = slot_keys(slots, picked["generation"])
        gone = np.frombuffer(self._tracer.recycle_accounts(keys.tobytes()), np.bool_)
        self._add(rows, picked[gone], ids[gone], keys[gone])
        self._forget_keys(rows.accounts, picked[gone], slots[gone])

    def _add(self, rows: Rows, picked: Array, ids: Array, keys: Array) -> None:
        common = np.zeros(len(picked), dtype=_COMMON)
        for name, _ in _COMMON[:-1]:
            common[name] = picked[name]
        common["stack"] = ids
        by_context = rows.usages["ended"][picked["usage"]] == _abi.ENDED_CONTEXT
        common["ended"] = np.where(by_context, _abi.ENDED_CONTEXT, _abi.LIVE)
        distinct, of = np.unique(common, return_inverse=True)
        places = np.fromiter((self._place(key) for key in distinct.tolist()), np.int64)[of]
        kept = places >= 0
        self.dropped += int((~kept).sum())
        for name in _SUMS:
            np.add.at(self._rows[name], places[kept], picked[name][kept])
        self._count(picked)
        self._remember(keys[kept], places[kept])

    def _place(self, key: tuple[int, ...]) -> int:
        """The row for what is equal; -1 where there is no room for another."""
        known = self._places.get(key)
        if known is not None:
            return known
        row = len(self._places)
        if row >= self._limit:
            return -1
        if row >= len(self._rows):
            self._grow()
        for (name, _), value in zip(_COMMON, key, strict=True):
            if name not in ("stack", "ended"):
                self._rows[name][row] = value
        self._stacks[row], self._ended[row] = key[1], key[-1]
        self._places[key] = row
        return row

    def _grow(self) -> None:
        for name in ("_rows", "_stacks", "_ended"):
            old = getattr(self, name)
            grown = np.zeros(max(2 * len(old), 64), dtype=old.dtype)
            grown[: len(old)] = old
            setattr(self, name, grown)

    def _count(self, picked: Array) -> None:
        most = int(picked["usage"].max(initial=0)) + 1
        if most > len(self.by_usage):
            grown = np.zeros(2 * most, dtype=self.by_usage.dtype)
            grown[: len(self.by_usage)] = self.by_usage
            self.by_usage = grown
        for name in TOTALS:
            np.add.at(self.by_usage[name], picked["usage"], picked[name])

    def _remember(self, keys: Array, places: Array) -> None:
        """Only what stood at the peak or at a failure is ever asked for by its slot."""
        fresh = np.zeros(len(keys), dtype=SLOT)
        fresh["key"], fresh["row"] = keys, places
        slots = np.concatenate([self._slots, fresh])
        wanted = self._tracer.remembers(np.ascontiguousarray(slots["key"]).tobytes())
        self._slots = slots[np.frombuffer(wanted, np.bool_)]

    def _forget_keys(self, accounts: Array, moved: Array, slots: Array) -> None:
        """A call that books to several accounts has one key."""
        rest = np.delete(_fresh(accounts), np.searchsorted(_fresh(accounts), slots))
        gone = moved[~np.isin(moved["stack"], accounts["stack"][rest])]
        self._tracer.forget_keys(
            np.ascontiguousarray(gone["process"]).tobytes(),
            np.ascontiguousarray(gone["stack"]).tobytes(),
        )


_ROWS = ("account", "usage", "process")


def _fresh(accounts: Array) -> Array:
    """Slots of the accounts that one call has for itself."""
    used = accounts["generation"] % 2 == 1
    single = accounts["stack"] & np.uint64(_abi.KEY_FRESH) != 0
    slots: Array = np.flatnonzero(used & single)
    return slots


def _done(rows: Rows, slots: Array) -> Array:
    """Everything was freed, or its context has ended; what has nothing booked is on its way."""
    picked = rows.accounts[slots]
    told = picked["alloc_calls"] + picked["fail_calls"] > 0
    freed = picked["alloc_calls"] == picked["free_calls"]
    done: Array = told & (freed | (rows.usages["ended"][picked["usage"]] != 0))
    return done
