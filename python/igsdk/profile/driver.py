# SPDX-License-Identifier: Apache-2.0
"""Stacks without the frames at the leaf that are not the program's own.

Every allocation ends in ``cuMemAlloc`` or the like, so with those frames self is theirs
alone. Without them self is what people mean by it: what a function asked for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from igsdk.profile.stacks import Stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk._events import Frame
    from igsdk.ledger.columns import Column
    from igsdk.profile.table import Table

_LIBRARIES = ("libcuda.so", "libcudart.so", "libcudart-")


def is_driver(frame: Frame) -> bool:
    """Whether a frame is code of libcuda or libcudart."""
    return (frame.mapping or "").rsplit("/", 1)[-1].startswith(_LIBRARIES)


def asking(frames: Sequence[Frame]) -> int:
    """The place of the frame that asked, in one stack, leaf first.

    It is the innermost Python frame; without one the innermost that is not the driver's.
    """
    for place, frame in enumerate(frames):
        if frame.kind == "python":
            return place
    own = (place for place, frame in enumerate(frames) if not is_driver(frame))
    return next(own, max(0, len(frames) - 1))


def without_driver(table: Table) -> Table:
    """The table with the driver's frames cut off at the leaf; a stack keeps at least its root."""
    return _cut(table, _first(table.stacks, _own(table)))


def calling_frames(table: Table) -> Column:
    """Per stack the number of its leaf once the driver's frames are cut off."""
    frames: Column = table.stacks.members[_first(table.stacks, _own(table))]
    return frames


def _own(table: Table) -> Column:
    """Per frame, whether it is not the driver's."""
    return np.array([not is_driver(frame) for frame in table.frames], dtype=bool)


def asked(table: Table) -> Table:
    """The table with each stack cut down to the frame that asked, see :func:`asking`."""
    python = np.array([frame.kind == "python" for frame in table.frames], dtype=bool)
    stacks = table.stacks
    by_python = _first(stacks, python)
    is_python = python[stacks.members[by_python]]
    return _cut(table, np.where(is_python, by_python, _first(stacks, _own(table))))


def _first(stacks: Stacks, wanted: Column) -> Column:
    """Per stack the place of its first member that is wanted, or else of its last member."""
    if not len(stacks):
        return stacks.offsets[:0]
    places = np.arange(len(stacks.members))
    candidates = np.where(wanted[stacks.members], places, len(places))
    first = np.minimum.reduceat(candidates, stacks.offsets[:-1])
    last: Column = np.minimum(first, stacks.offsets[1:] - 1)
    return last


def _cut(table: Table, first: Column) -> Table:
    """The stacks from a member on; what differed only below it is one."""
    stacks = table.stacks
    keep = np.arange(len(stacks.members)) >= np.repeat(first, stacks.lengths)
    lengths = stacks.offsets[1:] - first
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return table.over(Stacks(offsets, stacks.members[keep]))
