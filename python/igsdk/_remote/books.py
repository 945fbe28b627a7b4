# SPDX-License-Identifier: Apache-2.0
"""The rows of one run of the gadget on one machine: accounts, processes, who they are."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi
from igsdk.client.cuda_rows import HEAP_TYPES, PROCESS_TYPES
from igsdk.ledger.columns import TOTALS
from igsdk.ledger.live import LiveRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from igsdk._events import ProcessInfo
    from igsdk.ledger.columns import Column, Columns

_OWN = {
    # what an account has in use now, and at the highest moment of the run's own sums
    **dict.fromkeys(("live_bytes", "live_calls", "high_bytes", "high_calls"), "u8"),
    "stack": "u8",  # the id of the content, 0 where there is none
    "named": "u1",
    "wanted": "u1",
}
# of rows of processes: when their texts were read last, and how long they were
_READ = {"read_at": "f8", "text_size": "i8"}
_FIGURES = ("process_peak", "unknown_frees", "late_ns", "nvml_bytes")
_LOOK_AGAIN = 10.0  # seconds after which a process's texts are read once more
_PLACE = ("kind", "host", "device")


@dataclass
class Held:
    """What accounts had in use at one moment: only those that had something."""

    slots: Column
    bytes: Column
    calls: Column

    @classmethod
    def nothing(cls) -> Held:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.uint64))

    @property
    def size(self) -> int:
        return int(self.slots.nbytes + self.bytes.nbytes + self.calls.nbytes)


@dataclass
class Books:
    """One (boot, epoch).

    Attributes:
        everything: whether all processes are wanted, known or not.
        ours: whether the agent sends it.
        node: the target that sent the first of it.
        infos: processes by instance, as their newest rows have them.
        losses: counts by cause.
        devices: names of devices by (process instance, ordinal).
        live: bytes of devices in use, over the wanted processes.
        wall_minus_boot: what Inspektor Gadget adds to the boot clock; None: not known.
        homeless: processes by instance whose pod nobody could say yet, with what to ask by:
            their container's id and their pod's uid.
    """

    boot: int
    epoch: int
    everything: bool = True
    ours: bool = False
    node: str = ""
    infos: dict[int, ProcessInfo] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    devices: dict[tuple[int | None, int], str] = field(default_factory=dict)
    live: int = 0
    wall_minus_boot: int | None = None
    heap: LiveRows = field(init=False)
    processes: LiveRows = field(init=False)
    wanted: set[int] = field(default_factory=set)
    homeless: dict[int, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heap = LiveRows({**HEAP_TYPES, **_OWN}, by_time=self.ours)
        self.processes = LiveRows({**PROCESS_TYPES, **_READ})

    def keep_processes(self, batch: Mapping[str, Any]) -> list[int]:
        """Takes rows of processes in.

        Returns:
            Those of the batch whose texts are to be read: they are other ones than before,
            or were read long ago.
        """
        before = self.processes.find(batch["row"])
        known = np.full(len(before), -1)
        known[before >= 0] = self.processes.column("text_size")[before[before >= 0]]
        taken = self.processes.take(batch)
        now = time.monotonic()
        due = now - self.processes.column("read_at")[taken.slots] >= _LOOK_AGAIN
        due |= known[taken.rows] != batch["text_size"][taken.rows]
        self.processes.write("read_at", taken.slots[due], np.full(int(due.sum()), now))
        rows: list[int] = taken.rows[due].tolist()
        return rows

    def know(self, info: ProcessInfo, wanted: bool) -> int:
        """Learns who a process is; returns by how much that changes what is in use."""
        self.infos[info.instance] = info
        if self.everything or wanted == (info.instance in self.wanted):
            return 0
        (self.wanted.add if wanted else self.wanted.discard)(info.instance)
        slots = np.flatnonzero(self.heap.column("process") == np.uint64(info.instance))
        before = self._counted(slots)
        self.heap.write("wanted", slots, np.full(len(slots), wanted))
        return self._moved(self._counted(slots) - before)

    def keep(self, batch: Mapping[str, Any], before_fall: Callable[[], None]) -> None:
        """Takes accounts in.

        Args:
            before_fall: called before what is in use becomes less.
        """
        taken = self.heap.take(batch)
        slots = taken.slots
        fresh = slots[taken.fresh]
        self.heap.write("wanted", fresh, self._are_wanted(self.heap.column("process")[fresh]))
        live_bytes, live_calls = _live(self.heap.columns(), slots)
        change = self._counted(slots, live_bytes) - self._counted(slots)
        if change < 0:
            before_fall()
        self.heap.write("live_bytes", slots, live_bytes)
        self.heap.write("live_calls", slots, live_calls)
        self._moved(change)

    def held(self) -> Held:
        """What is in use now."""
        live = self.heap.column("live_bytes")
        slots = np.flatnonzero(live)
        return Held(slots, live[slots], self.heap.column("live_calls")[slots])

    def mark(self) -> None:
        """What is in use now is what was in use at the highest moment."""
        everything = np.arange(len(self.heap))
        self.heap.write("high_bytes", everything, self.heap.column("live_bytes"))
        self.heap.write("high_calls", everything, self.heap.column("live_calls"))

    def _are_wanted(self, owners: Column) -> Column:
        if self.everything:
            return np.ones(len(owners), bool)
        return np.isin(owners, np.fromiter(self.wanted, np.uint64, len(self.wanted)))

    def _moved(self, change: int) -> int:
        self.live += change
        return change

    def _counted(self, slots: Column, live: Column | None = None) -> int:
        """Bytes of devices of these accounts, of wanted processes."""
        heap = self.heap
        counts = (heap.column("host")[slots] == 0) & (heap.column("wanted")[slots] > 0)
        values = heap.column("live_bytes")[slots] if live is None else live
        return int(values[counts].sum())

    def heap_batch(self, epoch: int, held: Held | None, exact: bool) -> Columns:
        """The wanted accounts as a HeapBatch.

        Args:
            epoch: under which they are booked: the first of the feed's.
            held: what was in use at another moment than the highest, for the peak's columns.
            exact: whether the sender's own peak is what the peak's columns have.
        """
        columns = self.heap.columns()
        keep = np.flatnonzero(columns["wanted"])
        batch = _placed(columns, keep, self.boot, epoch)
        for name in ("context", "stack", "overflow", "untracked_bytes", "ended"):
            batch[name] = columns[name][keep]
        batch["peak_bytes"], batch["peak_calls"] = self._peaks(keep, held, exact)
        return batch

    def _peaks(self, keep: Column, held: Held | None, exact: bool) -> tuple[Column, Column]:
        if held is not None:
            both = np.zeros((2, len(self.heap)), np.uint64)
            both[:, held.slots] = held.bytes, held.calls
            return both[0][keep], both[1][keep]
        first = "peak" if exact else "high"
        columns = self.heap
        return columns.column(f"{first}_bytes")[keep], columns.column(f"{first}_calls")[keep]

    def process_batch(self, epoch: int, ended: set[int]) -> Columns:
        """The wanted processes as a ProcessBatch.

        Args:
            ended: of them, those that have ended: Inspektor Gadget's rows say then that
                nothing is in use, and the ledger works out what they held from accounts.
        """
        columns = self.processes.columns()
        keep = np.flatnonzero(self._are_wanted(columns["process"]))
        batch = _placed(columns, keep, self.boot, epoch)
        batch["in_use"], batch["peak"] = columns["in_use"][keep], columns["peak"][keep]
        if not self.ours and ended:
            gone = np.isin(batch["process"], np.fromiter(ended, np.uint64, len(ended)))
            batch["in_use"] = np.where(gone, np.uint64(0), batch["in_use"])
        return batch

    def wanted_infos(self) -> list[ProcessInfo]:
        """Who the wanted processes are, with their figures as they are now."""
        columns = self.processes.columns()
        order = np.argsort(columns["process"], kind="stable")
        owners, starts = np.unique(columns["process"][order], return_index=True)
        figures = {
            name: np.maximum.reduceat(columns[name][order], starts).tolist() if len(order) else []
            for name in _FIGURES
        }
        places = {instance: place for place, instance in enumerate(owners.tolist())}
        return [
            _with_figures(info, figures, places.get(instance))
            for instance, info in self.infos.items()
            if self.everything or instance in self.wanted
        ]

    def ended(self) -> set[int]:
        """The processes that are known to have ended."""
        gone = self.processes.column("ended") == _abi.ENDED_PROCESS
        return set(self.processes.column("process")[gone].tolist())


def _with_figures(
    info: ProcessInfo, figures: Mapping[str, list[int]], place: int | None
) -> ProcessInfo:
    if place is None:
        return info
    peak, frees, late, nvml = (figures[name][place] for name in _FIGURES)
    return replace(
        info, peak=peak, unknown_frees=frees, late_ns=late, nvml_bytes=nvml or info.nvml_bytes
    )


def _placed(columns: Columns, keep: Column, boot: int, epoch: int) -> Columns:
    batch: Columns = {
        "boot": np.full(len(keep), boot, np.uint64),
        "epoch": np.full(len(keep), epoch, np.uint64),
    }
    for name in ("process", *_PLACE, *TOTALS):
        batch[name] = columns[name][keep]
    return batch


def _live(columns: Columns, slots: Column) -> tuple[Column, Column]:
    """Bytes and blocks in use; a row that was read between two additions may be one short."""
    found = []
    for unit in ("bytes", "calls"):
        given_back = columns[f"free_{unit}"][slots] + columns[f"implicit_{unit}"][slots]
        left = (columns[f"alloc_{unit}"][slots] - given_back).view(np.int64)
        found.append(np.maximum(left, 0).view(np.uint64))
    return found[0], found[1]
