# SPDX-License-Identifier: Apache-2.0
"""The ledger: fed with column batches, asked for sums."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk.ledger.columns import (
    HEAP,
    PROCESSES,
    TOTALS,
    Column,
    Columns,
    concatenate,
    length,
    take,
)
from igsdk.ledger.groups import group
from igsdk.ledger.rest import MEASURES, compare
from igsdk.ledger.running import RunningTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from igsdk._events import Event, ProcessInfo, Stack

#: how many failures are kept with their stacks; the counts go on
KEPT_FAILURES = 20
#: values of the ``marker`` column: whose stack a row stands under
ATTRIBUTED, ACCOUNTS_FULL, NOT_ATTRIBUTED = range(3)

KEYS = ("boot", "epoch", "process", "context", "kind", "host", "device", "stack", "marker")
VALUES = (*MEASURES, "peak_bytes", "peak_calls", "untracked_bytes")


class Ledger:
    """All accounts of one or several runtimes.

    Rows are running totals under the key (boot, epoch, row) and replace what is there:
    see :class:`~igsdk.ledger.running.RunningTotals` for why that heals loss and replay.

    Args:
        prefer_epoch: of several runtimes on one boot, the one to count (ours). Without
            it, or where it is not there, the older epoch counts. Never both.
    """

    def __init__(self, prefer_epoch: int | None = None) -> None:
        self._prefer_epoch = prefer_epoch
        self._heap = RunningTotals(HEAP)
        self._processes = RunningTotals(PROCESSES)
        self._infos: dict[tuple[int, int], ProcessInfo] = {}
        self._stacks: dict[int, Stack] = {}
        self._losses: dict[tuple[int, int], dict[str, int]] = {}
        self._notes: dict[str, None] = {}
        self._failures: OrderedDict[tuple[int, int, int, int], Event] = OrderedDict()
        self._devices: dict[tuple[int, int | None, int], str] = {}
        self._rows: Columns | None = None
        self._too_much: dict[str, int] = {}

    def update_heap(self, batch: Mapping[str, Any]) -> None:
        """Replace the running totals of the accounts that a HeapBatch names.

        Raises:
            ValueError: a column is missing, or the columns are not equally long.
        """
        self._heap.add(batch)
        self._rows = None

    def update_processes(self, batch: Mapping[str, Any]) -> None:
        """Replace the authority's running totals; a ProcessBatch, see :meth:`update_heap`.

        ``in_use`` of a process that has ended is what it held at its end.
        """
        self._processes.add(batch)
        self._rows = None

    def update_process_info(self, infos: Iterable[ProcessInfo], boot: int = 0) -> None:
        """Learn who the processes are. An end stays an end and a peak never falls."""
        for info in infos:
            key = (boot, info.instance)
            self._infos[key] = _newer_info(self._infos.get(key), info)
        self._rows = None

    def update_stacks(self, stacks: Iterable[Stack]) -> None:
        """Learn stacks; an id is a hash of the content, so a second one changes nothing."""
        for stack in stacks:
            self._stacks.setdefault(stack.id, stack)

    def update_losses(
        self,
        losses: Mapping[str, int],
        notes: Iterable[str] = (),
        boot: int = 0,
        epoch: int = 0,
    ) -> None:
        """Replace running counts of losses by cause, and add sentences for people."""
        known = self._losses.setdefault((boot, epoch), {})
        for cause, count in losses.items():
            known[cause] = max(known.get(cause, 0), int(count))
        self._notes.update(dict.fromkeys(notes))

    def update_failures(self, events: Iterable[Event]) -> None:
        """Keep the latest failures with their stacks; one that comes twice counts once."""
        for event in events:
            if event.type == "failure":
                key = (event.boot, event.time_ns, event.process.instance, event.tid)
                self._failures[key] = event
        while len(self._failures) > KEPT_FAILURES:
            self._failures.popitem(last=False)

    def update_devices(self, names: Mapping[tuple[int | None, int], str], boot: int = 0) -> None:
        """Name devices, for example by UUID.

        ``names`` has {(process instance, or None for all, ordinal): name}.
        """
        self._devices.update({(boot, *key): name for key, name in names.items()})

    def rows(self) -> Columns:
        """Every account that counts, and a row for what no account explains.

        Columns: ``KEYS`` and ``VALUES``, u64 where they are sums. In use is what is live
        now; for a process that has ended, what it held at its end. Not to be written to.
        """
        if self._rows is None:
            self._rows = self._make_rows()
        return self._rows

    def totals(self, by: Sequence[str] = ()) -> Columns:
        """All values added up by any of ``KEYS``: one row per group, in the keys' order.

        Without ``host`` or ``kind`` in ``by`` the sums mix what must not be mixed
        (design 3.2): memory of devices, pinned, registered, imported, managed.

        Raises:
            ValueError: a name in ``by`` is not a key.
        """
        unknown = [name for name in by if name not in KEYS]
        if unknown:
            raise ValueError(f"not a key: {', '.join(unknown)}; keys are {', '.join(KEYS)}")
        rows = self.rows()
        groups = group([rows[name] for name in by], length(rows))
        summed = {name: rows[name][groups.first] for name in by}
        return {**summed, **{name: groups.sums(rows[name]) for name in VALUES}}

    def processes(self) -> Columns:
        """The authority's rows of the epochs that count (ProcessBatch columns)."""
        return self._counted(self._processes.rows())

    def info(self, process: int, boot: int = 0) -> ProcessInfo | None:
        """Who a process instance is, None where nobody told."""
        return self._infos.get((boot, process)) or self._infos.get((0, process))

    def stack(self, stack: int) -> Stack | None:
        """The stack of an id, None where it has not come."""
        return self._stacks.get(stack)

    def device_name(self, boot: int, process: int, ordinal: int) -> str:
        """A device's name as told, else the ordinal that the process uses, else ``unknown``."""
        for key in (
            (boot, process, ordinal),
            (boot, None, ordinal),
            (0, process, ordinal),
            (0, None, ordinal),
        ):
            if key in self._devices:
                return self._devices[key]
        return str(ordinal) if ordinal >= 0 else "unknown"

    @property
    def failures(self) -> list[Event]:
        """The latest failures, oldest first."""
        return list(self._failures.values())

    @property
    def notes(self) -> list[str]:
        """Sentences about losses, in the order in which they came."""
        return list(self._notes)

    def losses(self) -> dict[str, int]:
        """Losses by cause, over the epochs that count; causes that never happened are left out.

        ``accounts_ahead_bytes`` says by how much accounts exceed the authority.
        """
        self.rows()
        counts: dict[str, int] = {}
        chosen = self._chosen_epochs()
        for (boot, epoch), causes in self._losses.items():
            if chosen.get(boot, epoch) != epoch:
                continue
            for cause, count in causes.items():
                counts[cause] = counts.get(cause, 0) + count
        counts.update(self._too_much)
        return {cause: count for cause, count in counts.items() if count}

    def _make_rows(self) -> Columns:
        accounts = _measured(self._counted(self._heap.rows()))
        processes = self.processes()
        rest = compare(accounts, processes, self._ended(processes, accounts))
        ahead = max(
            (rest.too_much.get(name, 0) for name in MEASURES if name.endswith("bytes")), default=0
        )
        self._too_much = {"accounts_ahead_bytes": ahead}
        return concatenate([accounts, _filled(rest.rows)])

    def _counted(self, rows: Columns) -> Columns:
        """The rows of one epoch per boot."""
        chosen = self._chosen_epochs()
        if not length(rows):
            return rows
        keep = np.zeros(length(rows), dtype=bool)
        for boot, epoch in chosen.items():
            keep |= (rows["boot"] == np.uint64(boot)) & (rows["epoch"] == np.uint64(epoch))
        return rows if keep.all() else take(rows, keep)

    def _chosen_epochs(self) -> dict[int, int]:
        """Per boot the epoch that counts: ours, then the older; never merged."""
        epochs: dict[int, list[int]] = {}
        for boot, epoch in self._epochs():
            epochs.setdefault(boot, []).append(epoch)
        ours = self._prefer_epoch
        return {
            boot: ours if ours is not None and ours in found else min(found)
            for boot, found in epochs.items()
        }

    def _epochs(self) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for rows in (self._heap.rows(), self._processes.rows()):
            first = group([rows["boot"], rows["epoch"]], length(rows)).first
            found.update(
                zip(rows["boot"][first].tolist(), rows["epoch"][first].tolist(), strict=True)
            )
        return found

    def _ended(self, processes: Columns, accounts: Columns) -> Column:
        """Per row of ``processes``, whether the process is known to have ended."""
        gone = [
            instance for (_, instance), info in self._infos.items() if info.ended_ns is not None
        ]
        ended = np.isin(processes["process"], np.array(gone, dtype=np.uint64))
        by_account = accounts["process"][accounts["ended"] == 2]
        both: Column = ended | np.isin(processes["process"], by_account)
        return both


def _newer_info(old: ProcessInfo | None, new: ProcessInfo) -> ProcessInfo:
    """The later of two, by what can only grow; where that says nothing, what came last."""
    if old is None:
        return new
    stale = old.ended_ns is not None and new.ended_ns is None
    kept, other = (old, new) if stale else (new, old)
    return replace(
        kept,
        peak=max(kept.peak, other.peak),
        unknown_frees=max(kept.unknown_frees, other.unknown_frees),
        cmdline=kept.cmdline if kept.cmdline is not None else other.cmdline,
        container=kept.container or other.container,
        before_us=kept.before_us or other.before_us,
    )


def _measured(heap: Columns) -> Columns:
    """Heap rows with what is in use worked out and the marker set."""
    rows = {name: heap[name] for name in HEAP.types}
    held = heap["ended"] == 2
    for unit in ("bytes", "calls"):
        left = heap[f"alloc_{unit}"] - heap[f"free_{unit}"]
        # At the end of a process everything left was given back: what it held.
        in_use = left - np.where(held, np.uint64(0), heap[f"implicit_{unit}"])
        # A row that was read between two additions may be short by one call.
        rows[f"in_use_{unit}"] = np.maximum(in_use.view(np.int64), 0).view(np.uint64)
    rows["marker"] = np.where(heap["overflow"] > 0, ACCOUNTS_FULL, ATTRIBUTED).astype(np.uint8)
    return rows


def _filled(rest: Columns) -> Columns:
    """Rest rows with all the columns of account rows."""
    count = length(rest)
    kinds = {**HEAP.types, "in_use_bytes": "u8", "in_use_calls": "u8"}
    rows = {
        name: rest[name] if name in rest else np.zeros(count, dtype=kind)
        for name, kind in kinds.items()
    }
    rows["marker"] = np.full(count, NOT_ATTRIBUTED, dtype=np.uint8)
    return rows


__all__ = ["KEPT_FAILURES", "KEYS", "TOTALS", "VALUES", "Ledger"]
