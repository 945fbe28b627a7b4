# SPDX-License-Identifier: Apache-2.0
"""Runs of the CUDA memory gadget on targets: the interface of a local run, over rows."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from igsdk._errors import AnswerInvalid, IgsdkError, UsageError
from igsdk._remote.collector import Collector
from igsdk._remote.profiles import attached_of, ledger_of, losses_of, metadata_of, notes_of
from igsdk._units import plural
from igsdk.client.cuda_rows import HEAP, PROCESSES, REPORT, check_sources
from igsdk.client.feed import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from igsdk._events import AttachedLibrary, Event, ProcessInfo, Stack
    from igsdk._remote.occurrences import Moment
    from igsdk._remote.selection import RemoteSelection
    from igsdk.client.columns import Columns
    from igsdk.client.feed import NodeState
    from igsdk.client.gadget import Gadget
    from igsdk.client.member import Where
    from igsdk.profile import Profile

_FIRST_ROWS = 3.0  # seconds that the agent's first rows may take, before a run is there
_LAST_ROWS = 3.0  # seconds that Inspektor Gadget's next rows may take, before a stop


class Stream(Protocol):
    """What a run needs of a FleetRun."""

    @property
    def gadget(self) -> Gadget: ...
    @property
    def error(self) -> IgsdkError | None: ...
    def batches(self, timeout: float | None = None) -> Iterator[Columns]: ...
    def losses(self) -> dict[str, int]: ...
    def nodes(self) -> list[NodeState]: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *_: Any) -> None: ...


class RemoteRun:
    """One run, from ``with`` to its end, and what is known of it afterwards.

    What it says while it goes on is as new as the last rows that came: one interval old, a
    second as a rule. After :meth:`stop` it has everything.

    Args:
        start: makes the stream of rows.
        target: for the profile's header.
        image: the gadget that was asked for.
        where: who is behind a container, if somebody knows.
        alone: whether the target is one daemon.
    """

    #: commands are started by `local:` only
    command = None
    #: probes are others' here
    detaching = False

    def __init__(
        self,
        start: Callable[[], Stream],
        selection: RemoteSelection,
        events: str,
        target: str,
        image: str,
        where: Where | None = None,
        alone: bool = False,
    ) -> None:
        self._start = start
        self._target = target
        self._image = image
        self._where = where
        self._collector = Collector(selection, events, where.pod_of if where else None, alone)
        self._stream: Stream | None = None
        self._changed = threading.Condition()
        self._error: IgsdkError | None = None
        self._refused: dict[str, IgsdkError] = {}  # why rows could not be taken, by node
        self._over = self._stopped = False
        self._began_wall = self._began = self._ended = 0
        self._reader: threading.Thread | None = None

    def __enter__(self) -> RemoteRun:
        if self._stream is not None:
            raise UsageError("A run starts only once.", "Make another one.")
        self._began_wall, self._began = time.time_ns(), time.monotonic_ns()
        stream = self._start()
        stream.__enter__()
        self._stream = stream
        try:
            check_sources(stream.gadget.sources, self._image)
            self._reader = threading.Thread(target=self._read, name="igsdk rows", daemon=True)
            self._reader.start()
            if REPORT in stream.gadget.sources:
                self._wait(lambda: bool(self._collector.reports), _FIRST_ROWS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def attached(self) -> list[AttachedLibrary]:
        """The libcuda files with probes, of all nodes; Inspektor Gadget does not say them."""
        with self._changed:
            return list(attached_of(self._collector))

    @property
    def earlier(self) -> list[tuple[int, str]]:
        """(pid, name) of processes that had the driver before the probes came, as told."""
        with self._changed:
            reports = list(self._collector.reports.values())
        return sorted({(int(p), str(n)) for r in reports for p, n in r.get("earlier", ())})

    @property
    def error(self) -> IgsdkError | None:
        """What ended the rows before their time; None while they come or ended well."""
        return self._error or (self._stream.error if self._stream else None)

    def nodes(self) -> list[NodeState]:
        """How each node is, those that failed or left too; with the gaps in its rows."""
        return self._stream.nodes() if self._stream else []

    def stop(self) -> None:
        """Ends tracing and keeps what was collected. A second call does nothing."""
        if self._stopped or self._stream is None:
            return
        self._stopped = True
        try:
            self._await_last_rows()
        finally:  # also where ctrl-C ends the waiting: the reader ends with the stream
            self._end()

    def _end(self) -> None:
        assert self._stream is not None
        try:
            self._stream.stop()
        finally:
            self._ended = time.monotonic_ns()
            if self._reader is not None:
                self._reader.join()
            with self._changed:
                self._collector.decide()
                self._over = True
                self._changed.notify_all()

    def close(self) -> None:
        """As :meth:`stop`: nothing else is held."""
        self.stop()

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come, until the run is stopped.

        Args:
            timeout: end after so many seconds without an event.

        Raises:
            IgsdkError: the rows ended before their time; all events before that were given.
        """
        while True:
            with self._changed:
                self._changed.wait_for(self._has_event, timeout)
                waiting = self._collector.events.waiting
                if not waiting:
                    if self._over and not self._stopped and self.error is not None:
                        raise self.error
                    return
                event = self._collector.told(waiting.popleft())
            yield event

    def _has_event(self) -> bool:
        return self._over or bool(self._collector.events.waiting)

    def processes(self) -> list[ProcessInfo]:
        """Every process that called the driver, those that have ended included."""
        with self._changed:
            found = {
                (books.boot, info.instance): info
                for books in self._collector.counted()
                for info in self._collector.infos(books)
            }
        return list(found.values())

    def wall_minus_boot(self, event: Event) -> int | None:
        """What to add to an event's time for ns since 1970; None where nobody can say."""
        with self._changed:
            return self._collector.wall_minus_boot(event.boot)

    def stacks(self) -> dict[int, Stack]:
        """All different stacks so far, each once, by the id that events and profiles' rows have."""
        with self._changed:
            return dict(self._collector.stacks)

    def losses(self) -> dict[str, int]:
        """What was not seen, not booked or lost on the way, by cause; all zero on a good day."""
        with self._changed:
            lost = losses_of(self._collector.counted())
            lost["events_unread"] = lost.get("events_unread", 0) + self._collector.events.unread
        for cause, count in (self._stream.losses() if self._stream else {}).items():
            lost[cause] = lost.get(cause, 0) + int(count)
        return lost

    def notes(self) -> list[str]:
        """What a reader should know of this run, in sentences."""
        with self._changed:
            notes = notes_of(self._collector)
        return notes + self._own_notes()

    def profile(self) -> Profile:
        """Everything booked so far; in use now is what it shows first."""
        return self._profile(None)

    def peak(self) -> Profile:
        """What stood at the highest moment: the agent's own, or the highest of the intervals."""
        return self.profile().peak()

    def at(self, event: Event) -> Profile:
        """What stood in the last rows before a failure, as the peak values of a profile.

        Raises:
            UsageError: the event is not a failure, or one of too many to be kept.
        """
        with self._changed:
            moment = self._collector.events.moment(event)
        if moment is None:
            raise UsageError(
                "The state at this event was not kept.",
                "Ask for one of the first 64 failures of this run.",
            )
        return self._profile(moment, event.time_ns).peak()

    def _profile(self, moment: Moment | None, time_ns: int = 0) -> Profile:
        from igsdk.profile import Profile

        with self._changed:
            ledger = ledger_of(self._collector, moment)
            metadata = metadata_of(self._collector, self._target, self._image)
        ledger.update_losses({}, self._own_notes())
        profile = Profile.from_ledger(
            ledger,
            replace(
                metadata,
                time_ns=self._began_wall,
                duration_ns=(self._ended or time.monotonic_ns()) - self._began,
                peak=metadata.peak if moment is None else "interval",
                peak_ns=metadata.peak_ns if moment is None else time_ns,
            ),
        )
        lost = {cause: count for cause, count in self.losses().items() if count}
        losses = {**profile.metadata.losses, **lost}
        profile.metadata = replace(profile.metadata, losses=losses)
        return profile

    def _own_notes(self) -> list[str]:
        """Of the streams: what broke, and for how long; and of pods that have no name."""
        notes = [f"{self._error}"] if self._error else []
        if not self._error:
            notes += [f"{name}: {why}" for name, why in self._refused.items()]
        for node in self.nodes():
            if node.error is not None and not node.gaps:
                notes.append(f"{node.name}: {node.error}")
            if node.gaps:
                seconds = sum(gap.seconds for gap in node.gaps)
                times = plural(len(node.gaps), "time")
                notes.append(
                    f"{node.name}: its rows were missing {times}, {seconds:.1f} s together"
                    f"{f' ({node.error.cause})' if node.error else ''}."
                )
        return notes + (list(self._where.notes) if self._where else [])

    def _await_last_rows(self) -> None:
        """Inspektor Gadget may lose the last rows of a run that it stops; so the next ones
        are waited for, which have what happened until now."""
        with self._changed:
            came = dict(self._collector.came)
            nodes = {node for node, _ in came if (node, REPORT) not in came}
        if self._reader is None or not nodes:
            return

        def next_came() -> bool:
            return self._over or all(
                self._collector.came[node, source] > came.get((node, source), 0)
                for node in nodes
                for source in (HEAP, PROCESSES)
            )

        self._wait(next_came, _LAST_ROWS)

    def _wait(self, until: Callable[[], bool], seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: until() or self._over, seconds)

    def _read(self) -> None:
        """The thread that takes rows in, until they end."""
        assert self._stream is not None
        try:
            for columns in self._stream.batches():
                with self._changed:
                    self._take(columns)
                    self._changed.notify_all()
        except IgsdkError as error:
            self._error = error
        except Exception as error:
            self._error = _beyond(self._target, error)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _take(self, columns: Columns) -> None:
        """Takes some rows in; a node whose rows make no sense stops no other."""
        try:
            self._collector.take(columns, columns.node)
        except Exception as error:
            why = error if isinstance(error, IgsdkError) else _beyond(columns.node, error)
            self._refused.setdefault(columns.node, why)
            if {node.name for node in self.nodes() if node.state != FAILED} <= set(self._refused):
                raise why from error


def _beyond(whose: str, error: Exception) -> AnswerInvalid:
    return AnswerInvalid(f"The rows of {whose} are beyond igsdk: {error!r}.", "Report it.")
