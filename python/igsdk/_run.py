# SPDX-License-Identifier: Apache-2.0
"""Runs of the CUDA memory gadget on this machine: what users hold in their hands."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from . import _abi
from ._errors import TargetUnavailable, UsageError
from ._events import AttachedLibrary, Event, ProcessInfo, Site
from ._results import result_name
from ._units import plural
from .runtime.program import Program, architecture
from .runtime.session import Options, Selection, Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from ._events import Stack
    from .ledger import Ledger
    from .profile import Profile
    from .profile.metadata import Metadata
    from .runtime.launch import Command
    from .runtime.libraries import Library
    from .runtime.session import Reading

_MAX_OWNERS = 4096
# With these the replay lacks an event, or what was freed stays in use.
_PEAK_SPOILERS = ("events", "live_full", "contexts_full", "usage_full", "threads", "abandoned")
_RECORDS: dict[int, Any] = {
    _abi.RECORD_ALLOC: "alloc",
    _abi.RECORD_FREE: "free",
    _abi.RECORD_FAILURE: "failure",
}


class LocalRuntime:
    """This machine's kernel, in this process. Needs root; see ``igsdk doctor``."""

    target = "local:"

    def __init__(self) -> None:
        from .runtime import kernel

        kernel.require()

    def __enter__(self) -> LocalRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def profile_cuda_memory(
        self,
        *,
        argv: Sequence[str] | None = None,
        user: str | None = None,
        pid: int | Sequence[int] | None = None,
        command: str | None = None,
        mount_ns: int | None = None,
        namespace: str | None = None,
        pod: str | None = None,
        events: str = "failures",
        stacks: bool = True,
        live_entries: int | None = None,
        gadget: str | PathLike[str] | None = None,
        plain_http: bool = False,
        settings: dict[str, int] | None = None,
    ) -> Run:
        """Makes a run, to be used as a context manager; nothing is traced before it is entered.

        Args:
            argv: a command to start and trace with its descendants, from its first
                allocation on.
            user: whom to run the command as; under sudo the caller, else us.
            pid: one or several processes that run already.
            command: only processes of this name (15 bytes, as the kernel keeps it).
            mount_ns: only processes in this mount namespace (inode number).
            namespace, pod: of a cluster; this machine knows neither.
            events: which of them :meth:`Run.events` gives: "all", "failures" or "none".
            stacks: whether to take stacks.
            live_entries: how many live allocations can be told apart (default 262,144, at
                most 2^26, about 112 bytes of kernel memory each).
            gadget: the image whose program traces, instead of the package's own: a file or
                folder (`igsdk gadget build`), or a name in a registry, which is asked now.
            plain_http: ask that registry without TLS.
            settings: other numbers of the program, for tests and benchmarks.

        Raises:
            UsageError: ``events`` is none of its words, a limit is no positive number, or
                the selection needs a cluster.
            ImageUnreadable, RegistryRefused, TargetUnavailable: the image can't be had, or
                has nothing for this machine's architecture.
            GadgetInvalid: the image has no BPF program.
        """
        if events not in _abi.EVENTS:
            raise UsageError(f"{events!r} is no choice of events.", "Use all, failures or none.")
        if namespace or pod:
            raise UsageError(
                "This machine alone knows no namespaces and pods.",
                "Select by pid, command or mount_ns.",
            )
        if live_entries is not None and not 1 <= live_entries <= _abi.MOST_LIVE_ENTRIES:
            raise UsageError(
                f"The table of live allocations can't have {live_entries} entries.",
                f"Use 1 to {_abi.MOST_LIVE_ENTRIES}.",
            )
        pids = (pid,) if isinstance(pid, int) else tuple(pid or ())
        selection = Selection(tuple(argv or ()), user, pids, command, mount_ns)
        options = Options(
            wanted=events,
            stacks=stacks,
            live_entries=live_entries,
            settings=settings or {},
            program=None if gadget is None else _program(fspath(gadget), plain_http),
        )
        return Run(selection, options)

    def describe(self, *_: object, **__: object) -> NoReturn:
        """A daemon's, see `connect`: this machine's kernel has igsdk's own program only."""
        raise TargetUnavailable(
            "The target local: runs no gadgets but igsdk's own program.",
            "Connect to a daemon, such as `ig daemon`, at unix:///PATH or tcp://HOST:PORT.",
        )

    run = create = instances = attach = remove = describe


class Run:
    """One run: from ``with`` to its end, and what is known of it afterwards."""

    def __init__(self, selection: Selection, options: Options) -> None:
        self._selection = selection
        self._session = Session(selection, options)
        self._owners: dict[int, _Owner] = {}  # by process instance
        self._rows: Iterator[Any] = iter(())  # events that were taken and not given yet

    def __enter__(self) -> Run:
        self._session.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def command(self) -> Command | None:
        """The command that was started, None where none was asked for."""
        return self._session.command

    @property
    def attached(self) -> list[AttachedLibrary]:
        """The libcuda files with probes, and where they sit.

        All of the machine, or those that the chosen processes use.
        """
        return self._attached(self._session.reading())

    def _attached(self, reading: Reading) -> list[AttachedLibrary]:
        return attached_libraries(self._session, reading)

    @property
    def earlier(self) -> list[tuple[int, str]]:
        """(pid, name) of the chosen processes that had the driver before the probes came."""
        return sorted(self._session.selected_earlier(self._session.reading()))

    @property
    def detaching(self) -> bool:
        """Whether the kernel is still removing probes after :meth:`stop`.

        It goes on without us: this process may end meanwhile.
        """
        return self._session.detaching

    def stop(self) -> None:
        """Ends tracing and keeps what was collected. A second call does nothing."""
        self._session.stop()

    def close(self) -> None:
        """Gives the kernel's and our memory back.

        Waits until the last probe is removed, except on kernels without uprobe-multi links
        (before 6.6): those take seconds, with nobody waiting; :attr:`detaching` says so.
        """
        self._session.close()

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come, until the run is stopped.

        Args:
            timeout: end after so many seconds without an event.
        """
        while True:
            for row in self._rows:  # who stops in between goes on here the next time
                event = self._event(row)
                if event is not None:
                    yield event
            batch = self._session.take_events(timeout)
            if len(batch) == 0:
                return
            self._rows = iter(batch)

    def processes(self) -> list[ProcessInfo]:
        """Every process that called the driver, those that have ended included."""
        return self._infos(self._session.reading().snapshot.processes)

    def stacks(self) -> dict[int, Stack]:
        """All different stacks so far, each once, by the id that events and profiles' rows have.

        An id is a hash of the content: the same on every machine and in every run.
        """
        self._session.reading()  # takes in what waits
        return dict(self._session.stacks.stacks)

    def losses(self) -> dict[str, int]:
        """What was not seen or not booked, by cause; all zero on a good day."""
        return self._session.reading().losses

    def notes(self) -> list[str]:
        """What a reader should know of this run, in sentences."""
        return self._notes(self._session.reading())

    def _notes(self, reading: Reading) -> list[str]:
        return [*self._session.notes, *attach_notes(self._session, reading)]

    def profile(self) -> Profile:
        """Everything booked so far; in use now is what it shows first."""
        from .profile import Profile

        reading = self._session.reading()
        ledger = self._ledger(reading, _held(reading.peak["held"]))
        return Profile.from_ledger(ledger, self._metadata(reading))

    def peak(self) -> Profile:
        """What stood at the moment when the sum over all processes was highest."""
        return self.profile().peak()

    def at(self, event: Event) -> Profile:
        """What stood at the moment of a failure, as the peak values of a profile.

        Raises:
            UsageError: the event is not a failure, or one of too many to be kept.
        """
        from .profile import Profile

        held = self._session.tracer.state_at(event.time_ns, event.tid)
        if held is None:
            raise UsageError(
                "The state at this event was not kept.",
                "Ask for one of the first 64 failures of a run that was not closed.",
            )
        reading = self._session.reading()
        ledger = self._ledger(reading, _held(held))
        profile = Profile.from_ledger(ledger, self._metadata(reading))
        return profile.peak()

    def _ledger(self, reading: Reading, held: Any) -> Ledger:
        import numpy as np

        from .ledger import Ledger
        from .runtime.snapshot import HEAP_KEY, heap_batch, merge_rows, process_batch

        stacks = self._session.stacks
        where = (reading.boot, reading.epoch)
        groups = np.frombuffer(reading.peak["groups"], _abi.dtype("group_peak"))
        ledger = Ledger(prefer_epoch=reading.epoch)
        batch = heap_batch(reading.snapshot, *where, held)
        ledger.update_heap(merge_rows(batch, HEAP_KEY))
        ledger.update_processes(process_batch(reading.snapshot, *where, groups))
        ledger.update_process_info(self._infos(reading.snapshot.processes), reading.boot)
        ledger.update_stacks(list(stacks.stacks.values()))  # a copy: more may come meanwhile
        ledger.update_devices(self._session.device_names(reading), reading.boot)
        notes = [*self._notes(reading), *stacks.notes()]
        ledger.update_losses(reading.losses, notes, *where)
        ledger.update_failures(self._session.failures(self._event))
        return ledger

    def _metadata(self, reading: Reading) -> Metadata:
        from ._version import __version__
        from .profile.metadata import Metadata

        session = self._session
        attached = self._attached(reading)
        return Metadata(
            version=__version__,
            target="local:",
            command=" ".join(self._selection.argv),
            selection=self._selection.describe(),
            driver=driver_kind(attached),
            time_ns=session.began_wall_ns,
            duration_ns=session.duration_ns,
            boots=(reading.boot,),
            peak=peak_precision(session, reading),
            peak_ns=int(reading.peak["time"]),
            attached=tuple(attached),
            gadget=session.options.program.origin if session.options.program else "",
        )

    def _infos(self, rows: Any) -> list[ProcessInfo]:
        return [self._session.table.info(row, self._session.late_ns, nvml_bytes) for row in rows]

    def _event(self, row: Any) -> Event | None:
        """None for records that only the replay needs."""
        kind = _RECORDS.get(int(row["record"]))
        if kind is None:
            return None
        owner = self._owner(int(row["owner"]))
        return Event(
            type=kind,
            time_ns=int(row["time"]),
            process=owner.process,
            tid=int(row["tid"]),
            api=_abi.call_name(int(row["call"])),
            kind=_abi.KINDS[int(row["kind"])],
            device=int(row["device"]),
            address=int(row["address"]),
            bytes=int(row["bytes"]),
            result=int(row["result"]),
            result_name=result_name(int(row["result"])),
            latency_ns=int(row["latency_ns"]),
            in_use=int(row["in_use"]),
            stack=self._session.stacks.stacks.get(int(row["stack"])),
            boot=owner.boot,
        )

    def _owner(self, instance: int) -> _Owner:
        """Of a process: rows are read again only when a new one shows up."""
        if instance not in self._owners:
            if len(self._owners) >= _MAX_OWNERS:
                self._owners.clear()
            self._owners[instance] = self._find_owner(instance)
        return self._owners[instance]

    def _find_owner(self, instance: int) -> _Owner:
        reading = self._session.reading()
        rows = reading.snapshot.processes
        infos = self._infos(rows[rows["instance"] == instance])
        process = infos[0] if infos else ProcessInfo(instance=instance, pid=0)
        return _Owner(process, reading.boot)


@dataclass(frozen=True, slots=True)
class _Owner:
    """What the events of one process have in common."""

    process: ProcessInfo
    boot: int


def _program(gadget: str, plain_http: bool) -> Program:
    """The program of an image: the one place where the runtime meets images."""
    from .image import places
    from .image.machine import identity, program_for

    machine = architecture()
    image = places.read(gadget, plain_http, architecture=machine)
    return Program(program_for(image, machine), identity(image))


def _held(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, _abi.dtype("held"))


def attached_libraries(session: Session, reading: Reading) -> list[AttachedLibrary]:
    """The libraries with probes that processes of the run use, for people and profiles."""
    mode = session.tracer.mode
    return [_attached(library, mode) for library in session.used_libraries(reading)]


def _attached(library: Library, mode: str) -> AttachedLibrary:
    return AttachedLibrary(
        path=library.path,
        sites=tuple(
            Site(site.symbol, site.offset, "jump" if site.how == "jump" else "entry")
            for site in library.sites
        ),
        missing=library.missing,
        build_id=library.build_id or None,
        inode=f"{library.device:#x}:{library.inode}",
        late_ns=max((library.late_ns(pid) or 0 for pid in library.earlier), default=0),
        how=f"uprobe-{mode}",
        simulated=library.simulated,
    )


def peak_precision(session: Session, reading: Reading) -> Literal["exact", "inexact", "none"]:
    """What the highest moment that the replay found is worth."""
    if any(reading.losses[cause] for cause in _PEAK_SPOILERS):
        return "inexact"
    return "exact" if session.options.events == "all" else "none"


def driver_kind(attached: list[AttachedLibrary]) -> Any:
    """Whose driver it is: the simulated one says so itself."""
    if not attached:
        return ""
    return "simulated" if any(library.simulated for library in attached) else "real"


def nvml_bytes(pid: int) -> int | None:
    """What NVML says that a process has, all devices together."""
    from .runtime import nvml

    with suppress(OSError):
        used = nvml.used_bytes(pid)
        known = [value for value in (used or {}).values() if value is not None]
        return sum(known) if known else None
    return None


def _no_library(gone: int) -> str:
    """Why there is nothing; ``gone``: processes of this machine that ended too early to ask."""
    if gone == 0:
        return "No process opened a CUDA driver library (libcuda.so) during this run."
    return (
        "No process of this run was seen with a CUDA driver library (libcuda.so), but "
        f"{plural(gone, 'process')} of this machine had one and ended before it could be opened."
    )


def attach_notes(session: Session, reading: Reading) -> list[str]:
    """What could not be attached, or not in time, in sentences."""
    notes = [f"{error}" for error in session.refused_libraries(reading)]
    if not session.used_libraries(reading):
        notes.append(_no_library(len(session.libraries.unreadable)))
    elif not len(reading.snapshot.processes):
        notes.append("None of the chosen processes called the CUDA driver during this run.")
    notes += session.unheld(reading)
    notes += session.pythons.notes(reading.snapshot.processes["pid"].tolist())
    earlier = sorted(session.selected_earlier(reading))
    if earlier:
        names = ", ".join(f"{pid} ({name})" if name else str(pid) for pid, name in earlier[:10])
        more = f" and {len(earlier) - 10} more" if len(earlier) > 10 else ""
        notes.append(
            f"These processes had the driver mapped before and did not call it since: "
            f"{names}{more}. What they hold is not in the figures."
        )
    return notes
