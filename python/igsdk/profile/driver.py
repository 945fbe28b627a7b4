# SPDX-License-Identifier: Apache-2.0
"""Stacks without the driver's and the runtime's own frames at the leaf.

Every allocation ends in ``cuMemAlloc`` or the like, so with those frames self is theirs
alone. Without them self is what people mean by it: what a function asked for itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from igsdk.profile.stacks import Stacks

if TYPE_CHECKING:
    from igsdk._events import Frame
    from igsdk.profile.table import Table

_LIBRARIES = ("libcuda.so", "libcudart.so", "libcudart-")


def is_driver(frame: Frame) -> bool:
    """Whether a frame is code of libcuda or libcudart."""
    return (frame.mapping or "").rsplit("/", 1)[-1].startswith(_LIBRARIES)


def without_driver(table: Table) -> Table:
    """The table with such frames cut off at the leaf; a stack keeps at least its root."""
    stacks = table.stacks
    driver = np.array([is_driver(frame) for frame in table.frames], dtype=bool)
    if not driver.any():
        return table
    places = np.arange(len(stacks.members))
    # The first member of a stack that is not the driver's, or else its last member.
    candidates = np.where(driver[stacks.members], len(places), places)
    first = np.minimum.reduceat(candidates, stacks.offsets[:-1])
    first = np.minimum(first, stacks.offsets[1:] - 1)
    keep = places >= np.repeat(first, stacks.lengths)
    lengths = stacks.offsets[1:] - first
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return replace(table, stacks=Stacks(offsets, stacks.members[keep]))
