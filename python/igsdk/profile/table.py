# SPDX-License-Identifier: Apache-2.0
"""The columns of a profile, and the array work that joins, groups and orders them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from igsdk._events import Frame, marker
from igsdk.ledger.groups import group
from igsdk.profile.names import LABELS, NUMBERS, VALUES
from igsdk.profile.stacks import Stacks, joined, unique

if TYPE_CHECKING:
    from igsdk.ledger.columns import Column, Columns

Item = TypeVar("Item", bound=Hashable)
KEYS = (*LABELS, *NUMBERS)


@dataclass(frozen=True, slots=True)
class Table:
    """Interned frames, stacks and strings, and one row per stack and label set.

    Attributes:
        labels: by name of ``LABELS`` the number of a string, by ``NUMBERS`` an int64.
        stack: the row's stack.
        values: int64, rows x 8, in the order of ``VALUES``.
    """

    frames: tuple[Frame, ...]
    stacks: Stacks
    strings: tuple[str, ...]
    labels: Columns
    stack: Column
    values: Column

    def __len__(self) -> int:
        return len(self.stack)

    @property
    def keys(self) -> list[Column]:
        return [self.stack, *(self.labels[name] for name in KEYS)]

    def text(self, name: str) -> list[str]:
        """A string label's value for every row."""
        return [self.strings[code] for code in self.labels[name].tolist()]

    def taken(self, rows: Column) -> Table:
        """The rows that an index or a mask names."""
        labels = {name: column[rows] for name, column in self.labels.items()}
        return replace(self, labels=labels, stack=self.stack[rows], values=self.values[rows])

    def of_stack(self, frames: Sequence[Frame]) -> Table:
        """The rows that stand under exactly these frames."""
        numbers = {frame: number for number, frame in enumerate(self.frames)}
        wanted = np.array([numbers.get(frame, -1) for frame in frames], dtype=np.int64)
        same = self.stacks.equal_to(wanted)
        return self.taken(np.flatnonzero(same[self.stack]))

    def over(self, stacks: Stacks) -> Table:
        """The rows over other stacks, number for number; those that are alike are one then."""
        same = unique(stacks)
        stack = same.inverse[self.stack] if len(self) else self.stack
        return replace(self, stacks=stacks.taken(same.first), stack=stack).grouped()

    def grouped(self) -> Table:
        """Rows with the same stack and labels added up; rows of nothing but zeros dropped."""
        groups = group(self.keys, len(self))
        kept = self.taken(groups.first)
        table = replace(kept, values=_summed(self.values, groups.order, groups.starts))
        return table.taken(np.flatnonzero(table.values.any(axis=1)))

    def canonical(self) -> Table:
        """The one form of this content: unused entries gone, everything sorted."""
        table = self.grouped()
        table = _with_frames_sorted(_with_strings_sorted(table))
        table = _with_stacks_sorted(table)
        return table.taken(np.lexsort(tuple(reversed(table.keys))))


def _summed(values: Column, order: Column, starts: Column) -> Column:
    if not len(starts):
        return values[:0]
    summed: Column = np.add.reduceat(values[order], starts, axis=0)
    return summed


def build(
    stacks: Sequence[tuple[Frame, ...]],
    labels: Mapping[str, Sequence[Any]],
    stack: Sequence[int] | Column,
    values: Column,
    label_set: Column | None = None,
) -> Table:
    """A table from Python lists: frames per stack, labels per row or per label set.

    Args:
        stack: per row the number of its stack. One without frames gets the marker
            ``[no stack]``: every byte stands somewhere.
        values: rows x 8.
        label_set: per row its place in the lists of ``labels``; the row's own if not given.
    """
    frames: dict[Frame, int] = {}
    numbered = [
        [frames.setdefault(frame, len(frames)) for frame in item or (marker("no stack"),)]
        for item in stacks
    ]
    rows = len(stack)
    strings, columns = _label_columns(labels, rows)
    if label_set is not None:
        columns = {
            name: column[label_set] if name in labels else column
            for name, column in columns.items()
        }
    return Table(
        frames=tuple(frames),
        stacks=Stacks.of(numbered),
        strings=strings,
        labels=columns,
        stack=np.asarray(stack, dtype=np.int64),
        values=np.asarray(values, dtype=np.int64).reshape(rows, len(VALUES)),
    ).grouped()


def _label_columns(
    labels: Mapping[str, Sequence[Any]], rows: int
) -> tuple[tuple[str, ...], Columns]:
    """Interned strings and a column for every label; zeros for those that are not given."""
    strings = {"": 0}
    columns: Columns = {}
    for name in LABELS:
        codes = [strings.setdefault(text, len(strings)) for text in labels.get(name, ())]
        columns[name] = np.array(codes, dtype=np.int64)
    for name in NUMBERS:
        columns[name] = np.array(labels.get(name, ()), dtype=np.int64)
    for name in KEYS:
        if name not in labels:
            columns[name] = np.zeros(rows, dtype=np.int64)
    return tuple(strings), columns


def combine(tables: Iterable[Table]) -> Table:
    """All rows of several tables in one, equal ones added up."""
    kept = list(tables)
    if not kept:
        return build([], {}, [], np.zeros((0, len(VALUES))))
    if len(kept) == 1:
        return kept[0]
    frames, frame_maps = _interned([table.frames for table in kept])
    strings, string_maps = _interned([table.strings for table in kept])
    parts = zip(kept, frame_maps, strict=True)
    stacks = joined(table.stacks.renumbered(numbers) for table, numbers in parts)
    shifts = np.cumsum([0, *(len(table.stacks) for table in kept)])
    stack = np.concatenate([t.stack + shift for t, shift in zip(kept, shifts, strict=False)])
    same = unique(stacks)
    return Table(
        frames=frames,
        stacks=stacks.taken(same.first),
        strings=strings,
        labels=_joined_labels(kept, string_maps),
        stack=same.inverse[stack] if len(stack) else stack,
        values=np.concatenate([table.values for table in kept]),
    ).grouped()


def without_addresses(table: Table) -> Table:
    """The table with stacks that read alike brought together.

    A frame without a name keeps its address, which is what is shown of it.
    """
    frames, (numbers,) = _interned([tuple(_legible(frame) for frame in table.frames)])
    return replace(table, frames=frames).over(table.stacks.renumbered(numbers))


def _legible(frame: Frame) -> Frame:
    return replace(frame, address=0 if frame.function else frame.address, build_id=None)


def _joined_labels(tables: list[Table], string_maps: list[Column]) -> Columns:
    pairs = list(zip(tables, string_maps, strict=True))
    labels = {
        name: np.concatenate([numbers[table.labels[name]] for table, numbers in pairs])
        for name in LABELS
    }
    for name in NUMBERS:
        labels[name] = np.concatenate([table.labels[name] for table in tables])
    return labels


def _interned(groups: Sequence[tuple[Item, ...]]) -> tuple[tuple[Item, ...], list[Column]]:
    """One numbering for the items of all groups, and each group's way into it."""
    numbers: dict[Item, int] = {}
    maps = [
        np.array([numbers.setdefault(item, len(numbers)) for item in items], dtype=np.int64)
        for items in groups
    ]
    return tuple(numbers), maps


def frame_key(frame: Frame) -> tuple[str, str, int, int, str, str, str]:
    """What frames are ordered by."""
    return (
        frame.function,
        frame.file or "",
        frame.line,
        frame.address,
        frame.mapping or "",
        frame.build_id or "",
        frame.kind,
    )


def _sorted(
    items: tuple[Item, ...], used: Column, key: Callable[[Item], Any]
) -> tuple[tuple[Item, ...], Column]:
    """The used items in order, and the way from old numbers to new ones."""
    order = sorted(used.tolist(), key=lambda number: key(items[number]))
    numbers = np.zeros(len(items), dtype=np.int64)
    numbers[order] = np.arange(len(order))
    return tuple(items[number] for number in order), numbers


def _with_strings_sorted(table: Table) -> Table:
    # The empty string is always there, and sorts first.
    used = np.unique(np.concatenate([[0], *(table.labels[name] for name in LABELS)]))
    strings, numbers = _sorted(table.strings, used.astype(np.int64), lambda text: text)
    labels = {name: numbers[table.labels[name]] for name in LABELS}
    return replace(table, strings=strings, labels={**table.labels, **labels})


def _with_frames_sorted(table: Table) -> Table:
    chosen, inverse = np.unique(table.stack, return_inverse=True)
    stacks = table.stacks.taken(chosen)
    frames, numbers = _sorted(table.frames, np.unique(stacks.members), frame_key)
    return replace(
        table, frames=frames, stacks=stacks.renumbered(numbers), stack=inverse.reshape(-1)
    )


def _with_stacks_sorted(table: Table) -> Table:
    stacks = table.stacks
    order = np.array(sorted(range(len(stacks)), key=stacks.frames), dtype=np.int64)
    numbers = np.zeros(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order))
    return replace(table, stacks=stacks.taken(order), stack=numbers[table.stack])
