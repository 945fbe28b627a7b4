# SPDX-License-Identifier: Apache-2.0
"""From what was collected to a ledger, and what a profile of it says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._units import plural
from igsdk.ledger import Ledger
from igsdk.ledger.columns import concatenate, length
from igsdk.ledger.groups import group
from igsdk.profile.metadata import Metadata
from igsdk.runtime.snapshot import HEAP_KEY, merge_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from igsdk._events import AttachedLibrary
    from igsdk._remote.books import Books
    from igsdk._remote.collector import Collector
    from igsdk._remote.feeds import Chain
    from igsdk._remote.occurrences import Moment
    from igsdk.ledger.columns import Columns
    from igsdk.profile.metadata import Driver, Peak

_PROCESS_KEY = ("boot", "epoch", "process", "kind", "host", "device")
_THEIRS = ("exact", "inexact")


@dataclass(frozen=True)
class PeakOf:
    """Whose peak a profile has: the agent's own or that of our sums, and how exact it is."""

    quality: Peak
    time_ns: int

    @property
    def is_theirs(self) -> bool:
        return self.quality in _THEIRS


def peak_of(collector: Collector) -> PeakOf:
    """The agent's where it is of the same processes: all of one machine, of one epoch."""
    chains = list(collector.feeds.chosen().values())
    if not chains:
        return PeakOf("none", 0)
    if len(chains) == 1 and chains[0].ours and len(chains[0].epochs) == 1:
        report = report_of(collector, chains[0])
        if not collector.selection and report.get("peak") in _THEIRS:
            return PeakOf(report["peak"], int(report.get("peak_ns", 0)))
    return PeakOf("interval", collector.highest.time_ns)


def ledger_of(collector: Collector, moment: Moment | None = None) -> Ledger:
    """Everything that counts.

    Args:
        moment: what the columns of the peak shall have; the highest moment if not given.
    """
    collector.highest.settle()
    exact = peak_of(collector).is_theirs
    ledger = Ledger()
    for boot, chain in collector.feeds.chosen().items():
        books = [collector.books[boot, epoch] for epoch in chain.epochs]
        _book(collector, ledger, books, moment, exact)
        lost = {**losses_of(books), "restarts": len(books) - 1}
        ledger.update_losses(lost, boot=boot, epoch=chain.epochs[0])
    ledger.update_stacks(collector.stacks.values())
    ledger.update_losses({}, notes_of(collector))
    ledger.update_failures(collector.failures())
    return ledger


def _book(
    collector: Collector, ledger: Ledger, books: list[Books], moment: Moment | None, exact: bool
) -> None:
    boot, epoch = books[0].boot, books[0].epoch
    ended = set().union(*(one.ended() for one in books))
    held = [moment.at(boot, one.epoch) if moment else None for one in books]
    heap = [one.heap_batch(epoch, at, exact) for one, at in zip(books, held, strict=True)]
    ledger.update_heap(merge_rows(concatenate(heap), HEAP_KEY))
    processes = concatenate(one.process_batch(epoch, ended) for one in books)
    ledger.update_processes(_merged(processes))
    for one in books:
        ledger.update_process_info(collector.infos(one), boot)
        ledger.update_devices(one.devices, boot)


def _merged(processes: Columns) -> Columns:
    """Sums by place; a peak is no sum: of several epochs the highest counts."""
    if not length(processes):
        return processes
    merged = merge_rows(processes, _PROCESS_KEY)
    # The order of merge_rows: by the last name first.
    groups = group([processes[name] for name in reversed(_PROCESS_KEY)], length(processes))
    merged["peak"] = np.maximum.reduceat(processes["peak"][groups.order], groups.starts)
    return merged


def losses_of(books: Iterable[Books]) -> dict[str, int]:
    """Counts by cause, of all epochs of a machine together."""
    sums: dict[str, int] = {}
    for one in books:
        if dropped := one.heap.dropped + one.processes.dropped:
            sums["attic_full"] = sums.get("attic_full", 0) + dropped
        for cause, count in one.losses.items():
            sums[cause] = sums.get(cause, 0) + count
    return sums


def metadata_of(collector: Collector, target: str, gadget: str) -> Metadata:
    """What a profile says of its runtimes; the ledger adds the rest."""
    from igsdk._version import __version__

    peak = peak_of(collector)
    attached = attached_of(collector)
    origins = {str(report.get("gadget") or "") for report in _counted_reports(collector)}
    origins = {"" if origin == gadget else origin for origin in origins}  # the agent's own
    return Metadata(
        version=__version__,
        target=target,
        selection=collector.selection.describe(),
        driver=_driver(attached),
        peak=peak.quality,
        peak_ns=peak.time_ns,
        attached=attached,
        gadget=" + ".join(sorted(origins - {""})) if origins else gadget,
    )


def attached_of(collector: Collector) -> tuple[AttachedLibrary, ...]:
    """The libraries with probes, where an agent says them: Inspektor Gadget does not."""
    found = [
        library
        for report in _counted_reports(collector)
        for library in Metadata.from_json({"attached": report.get("attached", ())}).attached
    ]
    return tuple(dict.fromkeys(found))


def _driver(attached: tuple[AttachedLibrary, ...]) -> Driver:
    if not attached:
        return ""
    return "simulated" if any(library.simulated for library in attached) else "real"


def report_of(collector: Collector, chain: Chain) -> dict[str, Any]:
    """What the agent of a chain said last; empty where it is Inspektor Gadget."""
    found = [collector.reports[node] for node in sorted(chain.nodes) if node in collector.reports]
    return found[0] if found else {}


def _counted_reports(collector: Collector) -> list[dict[str, Any]]:
    """Of the machines that are booked, and of those where nothing happened yet."""
    chosen = list(collector.feeds.chosen().values())
    booked = {node for chain in collector.feeds.all() for node in chain.nodes}
    idle = [report for node, report in collector.reports.items() if node not in booked]
    return [report for chain in chosen if (report := report_of(collector, chain))] + idle


def notes_of(collector: Collector) -> list[str]:
    """Sentences about runtimes, with the machine's name where there are several."""
    chosen = collector.feeds.chosen()
    several = len(chosen) > 1
    notes = []
    for boot, chain in chosen.items():
        said = list(report_of(collector, chain).get("notes", ()))
        said += _broken(chain)
        said += _lost([collector.books[boot, epoch] for epoch in chain.epochs]) if several else []
        name = _name(collector, chain)
        notes += [f"{name}: {note}" if several and name else note for note in said]
    return notes + _left_out(collector)


def _name(collector: Collector, chain: Chain) -> str:
    return str(report_of(collector, chain).get("node") or ", ".join(sorted(chain.nodes)))


def _broken(chain: Chain) -> list[str]:
    """What a reader must know where the gadget began anew."""
    if len(chain.epochs) == 1:
        return []
    times = plural(len(chain.epochs) - 1, "time")
    note = (
        f"The gadget was started anew {times} during this run. What it had told before is in "
        "the figures; of that, what was freed since and what ended in between still counts as "
        "in use."
    )
    return [note]


def _lost(books: list[Books]) -> list[str]:
    lost = [f"{cause} {count}" for cause, count in losses_of(books).items() if count]
    return ["lost: " + ", ".join(lost) + "."] if lost else []


def _left_out(collector: Collector) -> list[str]:
    notes = []
    for chain, counted in collector.feeds.left_out():
        theirs = ", ".join(sorted(chain.nodes))
        whose = _name(collector, counted)
        notes.append(
            f"{theirs or 'One target'} is the same machine as {whose or 'another target'}, "
            "which saw the same calls: it is not counted twice."
        )
    return notes
