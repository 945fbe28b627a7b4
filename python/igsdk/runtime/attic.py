# SPDX-License-Identifier: Apache-2.0
"""Where rows go that nothing changes any more, so that the kernel's tables never fill."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .. import _abi

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._native import Tracer
    from .settled import Settled
    from .snapshot import Array, Snapshot

_EVERY = 1.0  # seconds between two visits
_OFTEN = 0.1  # where single calls fill the table
_CROWDED = 0.2  # their share of it from which on that is so
_REST_NS = 2_000_000_000  # an ended process's last events are in by then
_CROWD = 64  # ended processes that are worth a move
_MAX_ACCOUNTS = 1_000_000  # kept with their stacks; more show as [not attributed]


class Attic:
    """Moves ended processes and settled accounts out of the kernel's tables.

    In the session's thread; the session's lock guards what was moved.
    """

    def __init__(self, tracer: Tracer, ids_of: Callable[[Array, Array], Array]) -> None:
        """``ids_of``: (process instances, capture keys) -> ids of stacks."""
        self._tracer = tracer
        self._ids_of = ids_of  # keys mean nothing once their process is recycled
        self._next = time.monotonic() + _EVERY
        self._swept_ends = 0
        self._accounts = 0
        self._moved: list[Snapshot] = []
        self._moved_at: list[float] = []  # of each of them, monotonic clock
        self._dropped = 0
        self._settled: Settled | None = None

    @property
    def settled(self) -> Settled:
        """The accounts of single calls that are over."""
        if self._settled is None:
            from .settled import Settled  # needs numpy, which the start of a run can do without

            self._settled = Settled(self._tracer, self._ids_of, _MAX_ACCOUNTS)
        return self._settled

    @property
    def moved(self) -> list[Snapshot]:
        """All that is here."""
        return [*self._moved, self.settled.snapshot()]

    @property
    def dropped(self) -> int:
        """Accounts that there was no room for."""
        return self._dropped + self.settled.dropped

    def due(self) -> bool:
        """Whether a visit is worth its while now."""
        return time.monotonic() >= self._next

    def visit(self) -> None:
        """Moves what is over for some time, and sweeps what ends left behind."""
        crowded = self.settled.visit() > _CROWDED
        self._next = time.monotonic() + (_OFTEN if crowded else _EVERY)
        processes = self._processes()
        ended = processes["ended"] != 0
        rested = ended & (processes["ended_at"] + _REST_NS < _boot_ns())
        if rested.sum() >= min(_CROWD, len(processes) // 2 + 1):
            self._move(rested)
        self._sweep(int(ended.sum()))

    def forget(self, seconds: float) -> list[int]:
        """Lets go of processes that were moved so long ago; returns their instances.

        For a session without an end. All that is known of a process goes at once, so that
        no sum of it is ever seen with a part missing.
        """
        last = time.monotonic() - seconds
        old = [
            snapshot for snapshot, at in zip(self._moved, self._moved_at, strict=True) if at < last
        ]
        if not old:
            return []
        del self._moved[: len(old)], self._moved_at[: len(old)]
        self._accounts -= sum(len(snapshot.accounts) for snapshot in old)
        self._swept_ends -= len(old)
        instances: list[int] = []
        for snapshot in old:
            instances += snapshot.processes["instance"].tolist()
        self.settled.forget_processes(instances)
        return instances

    def _processes(self) -> Any:
        import numpy as np

        return np.frombuffer(self._tracer.processes(), _abi.dtype("process"))

    def _move(self, rested: Any) -> None:
        import numpy as np

        from .snapshot import Rows, Snapshot

        slots = np.flatnonzero(rested)
        rows = Rows.take(self._tracer, self.settled.by_usage)
        snapshot = Snapshot.of(rows, slots)
        self._accounts += len(snapshot.accounts)
        if self._accounts > _MAX_ACCOUNTS:
            self._accounts -= len(snapshot.accounts)
            self._dropped += len(snapshot.accounts)
            snapshot = snapshot.without_accounts()
        snapshot = snapshot.with_stacks(self._ids_of)
        self._moved.append(snapshot)
        self._moved_at.append(time.monotonic())
        self._tracer.recycle(slots.tolist())
        self.settled.forget_usages(np.flatnonzero(np.isin(rows.usages["slot"], slots)))

    def _sweep(self, ended: int) -> None:
        """Live entries of ended processes and contexts can never match again."""
        import numpy as np

        usages = np.frombuffer(self._tracer.usages(), _abi.dtype("usage"))
        ends = ended + int((usages["ended"] != 0).sum()) + len(self._moved)
        if ends != self._swept_ends:
            self._swept_ends = ends
            self._tracer.sweep()


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
