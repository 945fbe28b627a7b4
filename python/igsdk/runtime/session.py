# SPDX-License-Identifier: Apache-2.0
"""One run on this machine: program, libraries, command and the thread that serves them."""

from __future__ import annotations

import os
import platform
import select
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _abi
from .._errors import KernelUnsupported
from .._units import plural
from . import kernel
from .attic import Attic
from .libraries import ANYBODY, PREFIX, Libraries, find_mapped
from .mappings import plain_name
from .processes import ProcessTable, read_comm
from .program import load_mappings, load_tracer
from .pythons.discover import PREFIXES as PYTHON_PREFIXES
from .pythons.registry import Pythons
from .stacks import StackResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._errors import LibraryUnusable
    from .._events import Event
    from .._native import FileMappings, Tracer
    from .hold import Gate
    from .launch import Command
    from .libraries import Library
    from .program import Program
    from .snapshot import Rows, Snapshot

# File systems whose opens can't be held and that may well have libraries.
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "virtiofs", "ceph", "lustre"})
_KEPT_FAILURES = 100
_MAX_WAITING = 1 << 20  # events that nobody has asked for yet, 80 bytes each
_TICK = 0.2  # seconds between looks at what no descriptor tells
_CLOSE_FILES = 10.0  # seconds between looks for files that nobody needs any more
_MAX_NOTES = 20


@dataclass(frozen=True)
class Selection:
    """Which processes a run is about; everything where nothing is named.

    Attributes:
        argv: a command to start; it and its descendants are traced.
        pids: processes that run already, and their later descendants.
        command: only processes of this name (at most 15 bytes, as the kernel keeps it).
        mount_ns: only processes in this mount namespace (inode number).
    """

    argv: tuple[str, ...] = ()
    user: str | None = None
    pids: tuple[int, ...] = ()
    command: str | None = None
    mount_ns: int | None = None

    def describe(self) -> str:
        """For the profile's header."""
        parts = [f"pid {pid}" for pid in self.pids]
        parts += [f"command {self.command}"] if self.command else []
        parts += [f"mount namespace {self.mount_ns}"] if self.mount_ns else []
        return ", ".join(parts)


@dataclass
class Options:
    """How to trace: which events leave the kernel, which the caller wants, sizes of tables.

    The peak needs all events from the kernel; what is not wanted goes no further. Without a
    program it is the package's own that traces.
    """

    events: str = "all"
    wanted: str = "failures"
    stacks: bool = True
    live_entries: int | None = None
    settings: dict[str, int] = field(default_factory=dict)
    program: Program | None = None

    def as_settings(self, selection: Selection) -> dict[str, int]:
        """The numbers that the tracer writes into the program and its maps."""
        settings = {
            "events_mode": _abi.EVENTS[self.events],
            "keep_events": max(_abi.EVENTS[self.wanted], _abi.EVENTS["failures"]),
            "collect_ustack": int(self.stacks),
            "filter_tracked": int(bool(selection.argv or selection.pids)),
            "gadget_filter_by_mntns": int(selection.mount_ns is not None),
        }
        if self.live_entries is not None:
            settings["live_max"] = self.live_entries
        return settings | self.settings


@dataclass(frozen=True)
class Reading:
    """What was known at one moment: rows by slot, and all that was booked so far.

    The snapshot has the processes that have left the kernel's tables too. For the peak
    see ``Tracer.peak``; losses are counts by cause, ``devices`` rows of dtype ``device``.
    """

    rows: Rows
    snapshot: Snapshot
    peak: dict[str, Any]
    losses: dict[str, int]
    devices: bytes
    boot: int
    epoch: int


class Session:
    """A run from its start to its stop.

    A thread of its own attaches to new libraries and makes names of stacks, which may take
    its time; another lets held opens go on. Everything else is asked for by the caller.
    """

    def __init__(self, selection: Selection, options: Options) -> None:
        kernel.require()
        self.selection = selection
        self.options = options
        self.command: Command | None = None
        self.tracer: Tracer
        self.mappings: FileMappings
        self.libraries: Libraries
        self.pythons: Pythons
        self.stacks: StackResolver
        self.started_ns = self.stopped_ns = 0
        self.began_wall_ns = 0
        self.notes: list[str] = []
        self.table = ProcessTable(platform.node())
        self._gate: Gate | None = None
        self._events = bytearray()
        self._unread = 0
        self._close_files_at = time.monotonic() + _CLOSE_FILES
        self._failures: deque[Any] = deque(maxlen=_KEPT_FAILURES)
        self._condition = threading.Condition()
        self._stopping = threading.Event()
        self._over = False  # nothing will be added to the events any more
        self._resources = ExitStack()
        self._wake = -1
        self._final: Reading | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Attaches to all there is, then starts the command if there is one.

        Raises:
            StartFailed and its kinds: the command could not be started.
            KernelUnsupported, ExtensionMissing, GadgetInvalid: see :func:`load_tracer`.
        """
        from .._native import MapWatch

        self.began_wall_ns = time.time_ns()
        self._watch = MapWatch([PREFIX, *(PYTHON_PREFIXES if self.options.stacks else ())])
        self._resources.callback(self._watch.close)
        try:
            self.mappings = load_mappings()
            self._resources.callback(self.mappings.close)
            self.tracer = load_tracer(self.options, self.selection, self._watch)
        except BaseException:
            self._resources.close()
            raise
        try:
            self._begin()
        except BaseException:
            if self.command:
                self.command.close()  # else it would start when we are gone
            self.close()
            raise

    def _begin(self) -> None:
        self.pythons = Pythons(self.tracer)
        self.stacks = StackResolver(self.tracer, self.pythons.reason)
        self._resources.callback(self.stacks.close)
        self.libraries = Libraries(self.tracer.attach, self._real_files)
        self._resources.callback(self.libraries.close)
        self._attic = Attic(self.tracer, self.stacks.ids_of)
        self._choose_processes()
        self._prepare_command()
        self._note_earlier()
        if self.options.stacks:
            self.pythons.scan()
        self.libraries.scan()
        self.started_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._resources.callback(os.close, self._wake)
        self._serve("session", self._serve_once, self.tracer.fileno(), self._watch.fileno())
        if self._gate:
            self._serve("hold", self._gate.serve, self._gate.fileno())
        if self.command:
            self.command.go()

    def _choose_processes(self) -> None:
        if (self.selection.argv or self.selection.pids) and not kernel.is_initial_pid_namespace():
            raise KernelUnsupported(
                "Process ids mean something else here than to the kernel: this is a PID namespace.",
                "Run igsdk on the machine itself, or in a container with the host's (--pid=host).",
            )
        for pid in self.selection.pids:
            self.tracer.set_pid(pid, _abi.PID_TRACKED)
        if self.selection.mount_ns is not None:
            self.tracer.keep_mount_namespace(self.selection.mount_ns)

    def _prepare_command(self) -> None:
        if not self.selection.argv:
            return
        from .hold import Gate
        from .launch import Command

        self.command = Command(self.selection.argv, self.selection.user)
        pid = self.command.prepare()
        self.table = ProcessTable(platform.node(), (pid, " ".join(self.selection.argv)))
        self.tracer.set_pid(pid, _abi.PID_TRACKED)
        self._gate = Gate(pid, self.libraries, meet=self._meet_held)

    def _meet_held(self, pid: int) -> None:
        """It is about to map a libcuda, and may call it at once and end."""
        self.table.meet(pid)
        self.stacks.meet(pid)
        self.tracer.admit(pid)
        self._meet_python(pid)

    def _meet_python(self, pid: int) -> None:
        """Its frames can be read from the next call on."""
        if self.options.stacks:
            self.pythons.see(pid)

    def _note_earlier(self) -> None:
        """Tells the program who used CUDA before it could look."""
        for pid in {pid for pid, _ in find_mapped()}:
            self.table.meet(pid)
            self.stacks.meet(pid)
            self.tracer.admit(pid)
            self.tracer.set_pid(pid, _abi.PID_LATE)

    def _real_files(self, pid: int) -> Sequence[tuple[int, int, int, int]]:
        """Asks the kernel for the files below any overlay; device numbers as stat has them."""
        import numpy as np

        with suppress(OSError):
            rows = np.frombuffer(self.mappings.of(pid), _abi.dtype("mapping"))
            return [
                (
                    int(row["start"]),
                    int(row["end"]),
                    _user_device(int(row["device"])),
                    int(row["inode"]),
                )
                for row in rows
            ]
        return ()

    def _serve(self, name: str, once: Callable[[], object], *descriptors: int) -> None:
        """Starts a thread that does this whenever a descriptor is ready, and each tick."""
        thread = threading.Thread(
            target=self._keep_serving, args=(once, descriptors), name=f"igsdk-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _keep_serving(self, once: Callable[[], object], descriptors: Sequence[int]) -> None:
        poller = select.poll()
        for descriptor in (self._wake, *descriptors):
            poller.register(descriptor, select.POLLIN)
        while not self._stopping.is_set():
            poller.poll(_TICK * 1000)
            try:
                once()
            except Exception as error:
                self._note_mistake(error)

    def _note_mistake(self, error: Exception) -> None:
        """What goes wrong here must not end the service, and the reader must know."""
        first = str(error).partition("\n")[0]
        note = f"While tracing: {type(error).__name__}: {first}. Something may be missing."
        if note not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(note)
        self._stopping.wait(_TICK)  # what failed may fail again at once

    def _serve_once(self) -> None:
        for seen in self._watch.take_libraries():
            self._meet_python(seen.pid)
            if not plain_name(seen.path).startswith(PREFIX):
                continue
            library = self.libraries.admit_seen(seen)
            self.table.meet(seen.pid)
            self.stacks.meet(seen.pid)
            self.tracer.admit(seen.pid)
            if library and seen.pid in library.earlier:
                self.tracer.set_pid(seen.pid, _abi.PID_LATE)
        self.pythons.see_again()
        self._take()
        self._close_unused_files()
        if self._attic.due():
            with self._condition:
                self._attic.visit()

    def _take(self) -> None:
        """Names stacks first: an event must find its stack, whoever takes it.

        The stacks of the events that were taken are in the table or in its ring by now, and
        to take stacks empties the ring.
        """
        with self._condition:
            events = self.tracer.take_events()
            self.stacks.take(self.table.see)
            if events:
                self._keep(events)
                self._condition.notify_all()

    def _close_unused_files(self) -> None:
        """Now and then, when all stacks have their names: nobody's file system must wait."""
        now = time.monotonic()
        if now < self._close_files_at:
            return
        self._close_files_at = now + _CLOSE_FILES
        with self._condition:
            self.stacks.close_unused()

    def _keep(self, events: bytes) -> None:
        """For whoever asks for events, as far as there is room, and for the profile."""
        import numpy as np

        rows = np.frombuffer(events, _abi.dtype("kept_event")).copy()
        # while the keys mean something: their accounts may be gone when somebody asks
        rows["stack"] = self.stacks.ids_of(rows["owner"], rows["stack"])
        self._failures.extend(rows[rows["record"] == _abi.RECORD_FAILURE][-_KEPT_FAILURES:])
        if self.options.wanted == "none":
            return
        if len(self._events) + rows.nbytes > _MAX_WAITING * rows.itemsize:
            self._unread += len(rows)
            return
        self._events += rows.tobytes()

    def take_events(self, timeout: float | None) -> Any:
        """Waits for events; an array, empty at the end or after `timeout`.

        Its dtype is ``kept_event``, with the id of the stack for its key.
        """
        import numpy as np

        with self._condition:
            self._condition.wait_for(lambda: self._events or self._over, timeout)
            taken = bytes(self._events)
            self._events.clear()
        return np.frombuffer(taken, _abi.dtype("kept_event"))

    def forget_ended(self, seconds: float) -> None:
        """Lets go of processes that ended longer ago than this, for a run without an end."""
        with self._condition:
            self.table.forget(self._attic.forget(seconds))

    def settle(self) -> None:
        """Takes in all that the kernel has handed up by now."""
        self.tracer.flush()
        self._take()

    @property
    def detaching(self) -> bool:
        """Whether the kernel is still removing probes."""
        return self.tracer.detaching

    @property
    def duration_ns(self) -> int:
        """How long tracing has gone on, or went on, in ns."""
        end = self.stopped_ns or time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return end - self.started_ns

    def device_names(self, reading: Reading) -> dict[tuple[int | None, int], str]:
        """(process instance, ordinal) -> UUID of the device, or what is inferred of it."""
        from .devices import device_names

        return device_names(reading.devices, reading.snapshot.processes, self.table.device_files)

    def chosen_pids(self, reading: Reading) -> set[int] | None:
        """The processes of this run, as far as known; None: all of the machine."""
        if not (self.selection.argv or self.selection.pids or self.selection.command):
            return None
        traced = set(reading.snapshot.processes["pid"].tolist())
        started = {self.command.pid} if self.command else set()
        named = self.table.met_as(self.selection.command) if self.selection.command else set()
        return traced | started | named | {*self.selection.pids, ANYBODY}

    def used_libraries(self, reading: Reading) -> list[Library]:
        """The attached libraries that processes of this run have opened or mapped."""
        pids = self.chosen_pids(reading)
        attached = self.libraries.attached
        return attached if pids is None else [each for each in attached if each.users & pids]

    def refused_libraries(self, reading: Reading) -> list[LibraryUnusable]:
        """Why other libraries of theirs have no probes."""
        pids = self.chosen_pids(reading)
        return self.libraries.refused if pids is None else self.libraries.refused_to(pids)

    def unheld(self, reading: Reading) -> list[str]:
        """What could not be attached in time, in sentences."""
        sentences = []
        # A file that is another one to each container may be the one that has probes.
        unread = self.libraries.unreadable - set(reading.snapshot.processes["pid"].tolist())
        pids = self.chosen_pids(reading)
        if unread := unread if pids is None else unread & pids:
            sentences.append(
                f"{plural(len(unread), 'process')} ended before the driver library there could "
                "be opened: unless others use the same file, those calls are not in here."
            )
        remote = {kind for _, kind in (self._gate.unmarked if self._gate else ())} & _REMOTE
        if remote:
            sentences.append(
                f"Files on {', '.join(sorted(remote))} can't be held: what the command allocated "
                "from a driver library there before its probes were on is not in here."
            )
        return sentences

    def selected_earlier(self, reading: Reading) -> list[tuple[int, str]]:
        """(pid, name) of the processes of this run that may hold memory from before it.

        They had a libcuda before its probes and did not call it since: who did stands in
        the process table.
        """
        if self.selection.argv:
            return []
        known = {pid for library in self.libraries.attached for pid in list(library.earlier)}
        known -= set(reading.snapshot.processes["pid"].tolist())
        names = {pid: read_comm(pid) for pid in known}
        if self.selection.pids:
            names = {pid: name for pid, name in names.items() if pid in self.selection.pids}
        if self.selection.command:
            names = {pid: name for pid, name in names.items() if name == self.selection.command}
        return list(names.items())

    def late_ns(self, pid: int) -> int:
        """How long a process had its library mapped before the probes came, as far as known."""
        return max((library.late_ns(pid) or 0 for library in self.libraries.attached), default=0)

    def failures(self, make: Callable[[Any], Event | None]) -> list[Event]:
        """The failures of the run as events, those already taken included."""
        with self._condition:
            rows = list(self._failures)
        return [event for event in map(make, rows) if event is not None]

    def stop(self) -> None:
        """Ends tracing; the kernel removes the probes in the background."""
        if self._stopping.is_set():
            return
        self.stopped_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if self._gate:
            self._gate.close()
        self.tracer.detach_all()
        self._stopping.set()
        try:
            if self._threads:
                self._join()
                self._final = self._read()
        finally:
            with self._condition:
                self._over = True
                self._condition.notify_all()

    def _join(self) -> None:
        if self._threads:
            os.eventfd_write(self._wake, 1)
        for thread in self._threads:
            thread.join()

    def reading(self) -> Reading:
        """All rows and the peak: now, or as they were when the run was stopped."""
        return self._final or self._read()

    def _read(self) -> Reading:
        from .snapshot import Rows, Snapshot

        with self._condition:
            rows = Rows.take(self.tracer, self._attic.settled.by_usage)
            self.settle()  # rows may be of stacks that came a moment ago
            snapshot = Snapshot.of(rows).with_stacks(self.stacks.ids_of)
            snapshot = snapshot.joined(self._attic.moved)
        reader_events, reader_captures = self.tracer.reader_losses()
        losses = dict(zip(_abi.LOSSES, self.tracer.losses(), strict=True))
        losses["events"] += reader_events
        losses["captures"] += reader_captures
        losses |= self.stacks.losses()
        losses["mappings"] = self._watch.lost
        losses["events_unread"] = self._unread
        losses["late_opens"] = self._gate.late if self._gate else 0
        losses["attic_full"] = self._attic.dropped
        tracer = self.tracer
        return Reading(
            rows, snapshot, tracer.peak(), losses, tracer.devices(), tracer.boot, tracer.epoch
        )

    def close(self) -> None:
        """Gives everything back.

        Waits for the last probe, unless the kernel takes seconds for them: see `detaching`.
        """
        self.stop()
        self._join()  # a signal may have cut the stop short
        self._threads.clear()
        self.tracer.close()
        self._resources.close()
        if self.command and self.command.poll() is not None:
            self.command.close()


def _user_device(kernel_device: int) -> int:
    """The kernel keeps 20 bits of minor number below the major one."""
    return os.makedev(kernel_device >> 20, kernel_device & 0xFFFFF)
