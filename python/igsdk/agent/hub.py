# SPDX-License-Identifier: Apache-2.0
"""The one run of this machine that all clients share, and who is told of its events."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi, _run
from igsdk.agent.frame import Frame, Where, make_frame
from igsdk.runtime.session import Options, Selection, Session

if TYPE_CHECKING:
    from igsdk._events import ProcessInfo
    from igsdk.agent.wanted import Wanted
    from igsdk.runtime.session import Reading

Array = Any

#: events of one client that wait for it, 80 bytes each
MOST_WAITING = 50_000
#: seconds for which ended processes are told of: some times the resend, any interval
KEEP_ENDED = 120.0
_FORGET_EVERY = 10.0
_PATIENCE = 0.1  # seconds for which the kernel's events may lie
_NVML_EVERY = 10.0
_CLOCK_STEP_NS = 10_000_000
_RECORDS = {
    "all": (_abi.RECORD_ALLOC, _abi.RECORD_FREE, _abi.RECORD_FAILURE),
    "failures": (_abi.RECORD_FAILURE,),
    "none": (),
}


class Subscriber:
    """One client's events, as many as there is room for; or the last ones, to be kept.

    Attributes:
        skipped: how many found no room, as far as what was taken goes: their numbers are
            left out in the stream.
    """

    def __init__(self, wanted: Wanted, keep_last: int = 0) -> None:
        self.skipped = self._lost = 0
        self._records = _RECORDS[wanted.events]
        self._wanted = wanted
        self._keep_last = keep_last
        self._waiting: deque[Array] = deque()
        self._rows = 0
        self._condition = threading.Condition()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the run is over."""
        return self._stopped

    def stop(self) -> None:
        """Ends the run; may be called by any thread, and again."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def offer(self, events: Array, frame: Frame | None) -> None:
        """Takes in what is wanted of rows of dtype ``kept_event``."""
        events = events[np.isin(events["record"], self._records)]
        if len(events) and not self._wanted.everything and frame:
            chosen = frame.processes[self._wanted.chosen(frame.processes)]
            events = events[np.isin(events["owner"], chosen["instance"])]
        if not len(events):
            return
        with self._condition:
            if self._keep_last:
                self._keep(events)
            elif self._rows + len(events) > MOST_WAITING:
                self._lost += len(events)
                return
            else:
                self._waiting.append(events)
                self._rows += len(events)
            self._condition.notify_all()

    def _keep(self, events: Array) -> None:
        """The newest only: whole batches, as long as the others are enough."""
        self._waiting.append(events[-self._keep_last :])
        self._rows += len(self._waiting[-1])
        while self._rows - len(self._waiting[0]) >= self._keep_last:
            self._rows -= len(self._waiting.popleft())

    def begin(self, events: list[Array]) -> None:
        """Has these wait for the client, before all others."""
        self._waiting.extend(events)
        self._rows += sum(map(len, events))

    def kept(self) -> list[Array]:
        """What is kept, for somebody who comes now."""
        with self._condition:
            kept, beyond = list(self._waiting), self._rows - self._keep_last
        if beyond > 0:
            kept[0] = kept[0][beyond:]
        return kept

    def take(self, timeout: float) -> list[Array]:
        """What came; waits until there is something or the run ends."""
        with self._condition:
            self._condition.wait_for(
                lambda: bool(self._waiting or self._lost or self._stopped), max(timeout, 0)
            )
            taken = list(self._waiting)
            self._waiting.clear()
            self.skipped += self._lost
            self._rows = self._lost = 0
        return taken


class Hub:
    """The session, what was read of it last, and the clients.

    Args:
        stacks: whether to take stacks.
        live_entries: how many live allocations can be told apart.

    Raises:
        KernelUnsupported, PermissionMissing, ExtensionMissing: as `igsdk.connect("local:")`.
    """

    def __init__(self, stacks: bool = True, live_entries: int | None = None) -> None:
        options = Options(wanted="all", stacks=stacks, live_entries=live_entries)
        self.session = Session(Selection(), options)
        self.node = os.environ.get("NODE_NAME") or platform.node()
        self._reading = threading.Lock()
        self._pumping = threading.Lock()
        self._frame: Frame | None = None
        self._infos: dict[int, ProcessInfo] = {}
        self._offset = 0
        self._forget_at = 0.0
        self._mistake = ""
        self._nvml: dict[int, tuple[float, int | None]] = {}
        self._subscribers: tuple[Subscriber, ...] = ()
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="igsdk-events", daemon=True)

    def start(self) -> None:
        """Attaches to all there is; raises as `Session.start`."""
        self.session.start()
        self._thread.start()

    def close(self) -> None:
        """Ends tracing and gives everything back."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        self.session.close()

    def subscribe(
        self, wanted: Wanted, keep_last: int = 0, after: Subscriber | None = None
    ) -> Subscriber:
        """Who is told of events from now on; first of those that another one keeps."""
        subscriber = Subscriber(wanted, keep_last)
        with self._changing:  # in which nobody is told: so none is missing, and none twice
            if after is not None:
                subscriber.begin(after.kept())
            self._subscribers = (*self._subscribers, subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Ends that."""
        subscriber.stop()
        with self._changing:
            self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)

    def frame(self, newer_than: float) -> Frame:
        """All rows, as they are or were not before a moment of the monotonic clock."""
        frame = self._frame
        if frame and frame.taken >= newer_than:
            return frame
        with self._reading:
            frame = self._frame
            if frame is None or frame.taken < newer_than:
                taken = time.monotonic()
                reading = self.session.reading()
                infos = self._describe(reading)
                where = Where(self.node, self._wall_minus_boot())
                frame = make_frame(self.session, reading, infos, where, taken)
                self._frame = frame
        return frame

    def settle(self) -> None:
        """Tells everybody of the events that the kernel has by now."""
        self.session.settle()
        self._pump(0)

    def _describe(self, reading: Reading) -> dict[int, ProcessInfo]:
        """Each process once: what is known of one that has ended changes no more."""
        rows = reading.snapshot.processes
        known = self._infos
        self._infos = {}
        for row in rows:
            info = known.get(int(row["instance"]))
            if info is None or info.ended_ns is None or info.cmdline is None:
                info = self.session.table.info(row, self.session.late_ns, self._nvml_bytes)
            self._infos[info.instance] = info
        return self._infos

    def _wall_minus_boot(self) -> int:
        """The same number as long as it is nearly right: each other one is news to clients."""
        offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if abs(offset - self._offset) > _CLOCK_STEP_NS:
            self._offset = offset
        return self._offset

    def _nvml_bytes(self, pid: int) -> int | None:
        """Not each second: it asks the driver."""
        at, used = self._nvml.get(pid, (-_NVML_EVERY, None))
        if time.monotonic() - at >= _NVML_EVERY:
            if len(self._nvml) > len(self._infos) + 1000:
                self._nvml.clear()
            used = _run.nvml_bytes(pid)
            self._nvml[pid] = (time.monotonic(), used)
        return used

    def _serve(self) -> None:
        while not self._closed.is_set():
            self._serve_once()

    def _serve_once(self) -> None:
        """What goes wrong here must not end all events until somebody restarts the agent."""
        try:
            self._pump(_PATIENCE)
            if time.monotonic() >= self._forget_at:
                self._forget_at = time.monotonic() + _FORGET_EVERY
                self.session.forget_ended(KEEP_ENDED)
        except Exception as error:
            if repr(error) != self._mistake:  # one that stays would fill the log
                self._mistake = repr(error)
                logging.getLogger("igsdk.agent").exception("a mistake in igsdk; the agent goes on")
            self._closed.wait(_PATIENCE)

    def _pump(self, timeout: float) -> None:
        with self._pumping:
            events = self.session.take_events(timeout)
            if len(events) == 0 or not self._subscribers:
                return
            frame = self._frame_for(events)
            with self._changing:
                for subscriber in self._subscribers:
                    subscriber.offer(events, frame)

    def _frame_for(self, events: Array) -> Frame:
        """One that knows whose events these are, as far as anybody does."""
        frame = self.frame(0.0)
        if np.isin(events["owner"], frame.processes["instance"]).all():
            return frame
        return self.frame(time.monotonic())
