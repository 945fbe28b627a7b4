# SPDX-License-Identifier: Apache-2.0
"""What a profile says about itself: sources, losses, exactness, processes, failures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from igsdk._events import AttachedLibrary, Site

if TYPE_CHECKING:
    from collections.abc import Iterable

#: how many failures travel in a profile
KEPT_FAILURES = 20
Peak = Literal["none", "exact", "inexact", "interval", "summed"]
Driver = Literal["", "real", "simulated"]


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One line of the process table.

    ``classes`` has, by host class, exact ``in_use``, ``allocated``, ``freed``,
    ``failed_bytes`` and ``failed_calls``. Freed is what calls gave back and what the end
    of a context did, so allocated - freed = in use; for an ended process in use is what it
    held at its end. ``peak`` is the process's own, memory of devices only.
    """

    process: str
    pid: int
    start_ns: int
    command: str = ""
    ns_pid: int = 0
    state: Literal["live", "ended"] = "live"
    peak: int = 0
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    unknown_frees: int = 0
    before_us: bool = False
    late_ns: int = 0
    nvml_bytes: int | None = None
    node: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""

    def own(self, what: str) -> int:
        """A figure of the process's own device memory."""
        return self.classes.get("own", {}).get(what, 0)

    def failed_calls(self) -> int:
        """Failed calls of all classes: a refused call allocated nothing, wherever it aimed."""
        return sum(figures.get("failed_calls", 0) for figures in self.classes.values())


@dataclass(frozen=True, slots=True)
class Metadata:
    """A profile's own account of how it came about.

    Attributes:
        time_ns: wall clock, start of the interval, for show. ``duration_ns`` long.
        boots: the runs of machines that the times of the boot clock belong to.
        peak: how exact the peak columns are. ``exact``: every event was seen;
            ``inexact``: some were lost, or memory stayed in use after its free;
            ``interval``: highest of the intervals' ends; ``summed``: several
            profiles' peaks, each at a moment of its own.
        peak_ns: boot clock, the moment of the peak.
        stacks: how stacks were taken.
        losses: counts by cause; ``notes``: sentences for people.
        failures: the latest failures as JSON objects (``igsdk events --json``), each with
            ``device_name``, the device as labels have it.
        foreign: another tool wrote the file. ``lacks``: the values that it does not have.
        driver: whether the numbers come from a real GPU.
        gadget: the image whose program traced, ``name@digest``; empty: igsdk's own did.
    """

    version: str = ""
    target: str = ""
    command: str = ""
    selection: str = ""
    driver: Driver = ""
    time_ns: int = 0
    duration_ns: int = 0
    boots: tuple[int, ...] = ()
    peak: Peak = "none"
    peak_ns: int = 0
    stacks: tuple[str, ...] = ()
    attached: tuple[AttachedLibrary, ...] = ()
    losses: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failures: tuple[dict[str, Any], ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    foreign: bool = False
    lacks: tuple[str, ...] = ()
    gadget: str = ""

    def to_json(self) -> dict[str, Any]:
        """The metadata as a JSON object; fields that say nothing are left out."""
        empty = asdict(Metadata())
        return {name: value for name, value in asdict(self).items() if value != empty[name]}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Metadata:
        """Read what :meth:`to_json` wrote; what a later version added is passed over.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: the record is not one of ours.
        """
        known = _known(cls, record)
        known["attached"] = tuple(_library(item) for item in known.get("attached", ()))
        known["processes"] = tuple(
            ProcessRow(**_known(ProcessRow, item)) for item in known.get("processes", ())
        )
        for name in ("boots", "stacks", "notes", "failures", "lacks"):
            known[name] = tuple(known.get(name, ()))
        return cls(**known)


def _known(kind: type, record: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in record.items() if name in names}


def _library(record: dict[str, Any]) -> AttachedLibrary:
    known = _known(AttachedLibrary, record)
    known["sites"] = tuple(Site(**_known(Site, item)) for item in known.get("sites", ()))
    known["missing"] = tuple(known.get("missing", ()))
    return AttachedLibrary(**known)


def merged(parts: Iterable[Metadata]) -> Metadata:
    """One account for profiles added up; the order of brackets does not matter."""
    kept = list(parts)
    if not kept:
        return Metadata()
    if len(kept) == 1:
        return kept[0]
    start, duration = _span(kept)
    # Two peaks are two moments: their sum is an upper bound, no moment of its own.
    peaks = [part.peak for part in kept if part.peak != "none"]
    peak: Peak = "none" if not peaks else peaks[0] if len(peaks) == 1 else "summed"
    moments = [part.peak_ns for part in kept if part.peak != "none"]
    return Metadata(
        version=_same(part.version for part in kept),
        target=_same(part.target for part in kept),
        command=_same(part.command for part in kept),
        selection=_same(part.selection for part in kept),
        driver=_driver([part.driver for part in kept]),
        time_ns=start,
        duration_ns=duration,
        boots=tuple(sorted({boot for part in kept for boot in part.boots})),
        peak=peak,
        peak_ns=moments[0] if len(moments) == 1 else 0,
        stacks=tuple(sorted({how for part in kept for how in part.stacks})),
        attached=_once(item for part in kept for item in part.attached),
        losses=_added(part.losses for part in kept),
        notes=_once(note for part in kept for note in part.notes),
        failures=_latest(failure for part in kept for failure in part.failures),
        processes=_once(row for part in kept for row in part.processes),
        foreign=any(part.foreign for part in kept),
        lacks=tuple(n for n in kept[0].lacks if all(n in part.lacks for part in kept)),
        gadget=_same(part.gadget for part in kept),
    )


def _driver(drivers: list[Driver]) -> Driver:
    """Numbers of which some are simulated are not real ones."""
    return max(drivers, key=("", "real", "simulated").index)


def _span(parts: list[Metadata]) -> tuple[int, int]:
    timed = [part for part in parts if part.time_ns]
    if not timed:
        return 0, max(part.duration_ns for part in parts)
    start = min(part.time_ns for part in timed)
    return start, max(part.time_ns + part.duration_ns for part in timed) - start


def _same(texts: Iterable[str]) -> str:
    """The texts that are there, each once, as one."""
    pieces = (piece for text in texts for piece in text.split(" + ") if piece)
    return " + ".join(_once(pieces))


def _once(items: Iterable[Any]) -> tuple[Any, ...]:
    """Each different item once, where it first stood."""
    found: dict[str, Any] = {}
    for item in items:
        found.setdefault(repr(item), item)
    return tuple(found.values())


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in counts:
        for cause, count in part.items():
            total[cause] = total.get(cause, 0) + count
    return total


def _latest(failures: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The latest failures of all, each once, oldest first."""
    ordered = sorted(
        _once(failures), key=lambda f: (f.get("boot", 0), f.get("time_ns", 0), repr(f))
    )
    return tuple(ordered[-KEPT_FAILURES:])


def noted(metadata: Metadata, note: str) -> Metadata:
    """The same with one more sentence."""
    return replace(metadata, notes=_once([*metadata.notes, note]))
