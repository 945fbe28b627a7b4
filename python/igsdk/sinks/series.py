# SPDX-License-Identifier: Apache-2.0
"""From a profile's rows to series: one set of labels each, and pprof without labels.

Labels stand on the series and none on samples, since a server makes a series of every
combination that it finds on samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from igsdk.ledger.groups import group
from igsdk.profile.names import ALLOCATED, VALUES
from igsdk.profile.pprof_write import encode_series
from igsdk.profile.table import KEYS
from igsdk.sinks.labels import Labels, finished

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from igsdk._events import Frame
    from igsdk.ledger.columns import Column, Columns
    from igsdk.profile.stacks import Stacks
    from igsdk.profile.table import Table

#: in-use and alloc, bytes and blocks: what is pushed
COLUMNS = 4
#: what tells one series from another
BY = ("process", "kind", "device", "node", "namespace", "pod", "container")
# A server takes 16,000 samples and 4 MiB in one pprof, but lets no more than 2 MB through at
# once; frames that it would cut off at the leaf, we cut off at the root.
_MOST_SAMPLES, _LARGEST, _DEEPEST = 16_000, 1_500_000, 1_000


@dataclass(frozen=True, slots=True)
class Series:
    """Rows with the same labels.

    Attributes:
        name: of the profile type.
        labels: sorted, without the private ones.
        rows: with all of their keys, so that it can be told later what was sent.
    """

    name: str
    labels: Labels
    rows: Table

    def total(self, value: str) -> int:
        """A value added up."""
        return int(self.rows.values[:, VALUES.index(value)].sum())

    def pprof(self, time_ns: int, duration_ns: int) -> bytes:
        """The rows as pprof, not compressed: wall clock, start of the interval, its length."""
        return encode_series(_merged(self.rows), COLUMNS, time_ns, duration_ns)


def split(table: Table, name: str, given: Mapping[str, str], by: Sequence[str]) -> list[Series]:
    """All rows as series.

    What is registered or imported gets a profile type of its own, ``NAME_registered``,
    so that no query adds it to what processes allocated.

    Args:
        given: labels for every series; they win over the rows' own.
        by: the rows' labels that the series have.

    Raises:
        UsageError: too many labels.
    """
    groups = group([table.labels[label] for label in (*by, "host")], len(table))
    sets: dict[tuple[str, Labels], list[int]] = {}
    for number, first in enumerate(groups.first.tolist()):
        labels = _labels(table, first, given, by)
        host = table.strings[table.labels["host"][first]]
        kind = name if host in ALLOCATED else f"{name}_{host}"
        sets.setdefault((kind, labels), []).append(number)
    parts = ((key, np.isin(groups.inverse, numbers)) for key, numbers in sets.items())
    return [Series(*key, table.taken(np.flatnonzero(mask))) for key, mask in parts]


def _labels(table: Table, row: int, given: Mapping[str, str], by: Sequence[str]) -> Labels:
    own = {label: _value(table, label, row) for label in by}
    service = _value(table, "container", row) or _value(table, "process", row) or "igsdk"
    return finished({"service_name": service, **own, **given})


def _value(table: Table, label: str, row: int) -> str:
    """A label's text; numbers as people write them, 0 as nothing."""
    code = int(table.labels[label][row])
    return table.strings[code] if label not in ("pid", "start_ns") else str(code or "")


def pieces(
    series: Series, time_ns: int, duration_ns: int, limited: bool
) -> Iterator[tuple[Series, bytes]]:
    """The series in parts that a server takes, each with its pprof.

    Args:
        limited: whether the server has limits at all.
    """
    content = series.pprof(time_ns, duration_ns)
    rows = len(series.rows)
    fits = rows <= _MOST_SAMPLES and len(content) <= _LARGEST
    if fits or rows == 1 or not limited:
        yield series, content
        return
    for some in (np.arange(rows // 2), np.arange(rows // 2, rows)):
        part = replace(series, rows=series.rows.taken(some))
        yield from pieces(part, time_ns, duration_ns, limited)


def _merged(table: Table) -> Table:
    """The rows by stack alone, without frames that none of them has."""
    labels: Columns = {label: np.zeros(len(table), dtype=np.int64) for label in KEYS}
    return replace(table, labels=labels, strings=("",)).canonical()


def named(table: Table, lines: bool) -> Table:
    """The table with frames that read alike as one, and a name for each.

    A flame graph tells frames apart by their names alone, and a frame without one would be
    dropped with all that stands above it.

    Args:
        lines: whether names have file and line, so that two lines of a function are two boxes.
    """
    shown = [_shown(frame, lines) for frame in table.frames]
    numbers: dict[Frame, int] = {}
    codes = np.array([numbers.setdefault(f, len(numbers)) for f in shown], dtype=np.int64)
    table = replace(table, stacks=_cut(table), frames=tuple(numbers))
    return table.over(table.stacks.renumbered(codes))


def _shown(frame: Frame, lines: bool) -> Frame:
    name = frame.shown_name
    mapping = (frame.mapping or "").rsplit("/", 1)[-1]
    if not frame.function and mapping:
        name = f"{mapping}+{frame.address:#x}"
    if lines and frame.file and frame.kind != "marker":
        name = f"{name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})"
    return replace(frame, function=name, address=0, build_id=None)


def _cut(table: Table) -> Stacks:
    """The stacks with no more frames than servers keep, the leaf's side of them."""
    stacks = table.stacks
    if not len(stacks) or int(stacks.lengths.max()) <= _DEEPEST:
        return stacks
    kept: Column = np.arange(len(stacks.members)) - np.repeat(stacks.offsets[:-1], stacks.lengths)
    offsets = np.concatenate([[0], np.cumsum(np.minimum(stacks.lengths, _DEEPEST))])
    return replace(stacks, offsets=offsets, members=stacks.members[kept < _DEEPEST])
