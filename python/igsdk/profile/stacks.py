# SPDX-License-Identifier: Apache-2.0
"""Stacks as columns: all frame numbers in one array, and where each stack begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from igsdk.ledger.groups import Groups, group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from igsdk.ledger.columns import Column


@dataclass(frozen=True, slots=True)
class Stacks:
    """Stacks of frame numbers, leaf first; none is empty.

    ``members`` holds all of them in a row, stack s is
    ``members[offsets[s]:offsets[s + 1]]``.
    """

    offsets: Column
    members: Column

    @classmethod
    def of(cls, stacks: Sequence[Sequence[int]]) -> Stacks:
        lengths = [len(stack) for stack in stacks]
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        flat = (frame for stack in stacks for frame in stack)
        return cls(offsets, np.fromiter(flat, dtype=np.int64, count=int(offsets[-1])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Column:
        return np.diff(self.offsets)

    @property
    def owners(self) -> Column:
        """For each member the stack that it belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def frames(self, stack: int) -> list[int]:
        """The frame numbers of one stack."""
        members: list[int] = self.members[self.offsets[stack] : self.offsets[stack + 1]].tolist()
        return members

    def equal_to(self, frames: Column) -> Column:
        """Per stack, whether it is made of exactly these frame numbers."""
        same: Column = self.lengths == len(frames)
        starts = self.offsets[:-1][same]
        members = self.members[starts[:, None] + np.arange(len(frames))]
        same[same] = (members == frames).all(axis=1)
        return same

    def renumbered(self, frames: Column) -> Stacks:
        """The same stacks over another numbering: ``frames[old] = new``."""
        return Stacks(self.offsets, frames[self.members])

    def taken(self, chosen: Column) -> Stacks:
        """The stacks of the given numbers, in that order."""
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Stacks(offsets, self.members[np.repeat(self.offsets[chosen], lengths) + within])


def joined(parts: Iterable[Stacks]) -> Stacks:
    """All stacks of several tables behind one another; frame numbers must already agree."""
    kept = list(parts)
    lengths = np.concatenate([part.lengths for part in kept])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Stacks(offsets, np.concatenate([part.members for part in kept]))


def unique(stacks: Stacks) -> Groups:
    """Bring equal stacks together.

    A 64-bit hash proposes and a comparison of every member decides, all of it as array
    work: a million stacks need no million Python objects.
    """
    proposal = group([stacks.lengths, _hashes(stacks)], len(stacks))
    return proposal if _holds(stacks, proposal) else _by_content(stacks)


def _hashes(stacks: Stacks) -> Column:
    """One number per stack from its frames and their places."""
    if not len(stacks):
        return np.zeros(0, dtype=np.uint64)
    within = np.arange(len(stacks.members)) - np.repeat(stacks.offsets[:-1], stacks.lengths)
    mixed = stacks.members.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += within.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.add.reduceat(mixed ^ (mixed >> np.uint64(31)), stacks.offsets[:-1])


def _holds(stacks: Stacks, proposal: Groups) -> bool:
    """Whether every stack equals the first of its group."""
    first = proposal.first[proposal.inverse]
    return bool(np.array_equal(stacks.members, stacks.taken(first).members))


def _by_content(stacks: Stacks) -> Groups:
    numbers: dict[bytes, int] = {}
    contents = (
        stacks.members[start:end].tobytes()
        for start, end in zip(stacks.offsets[:-1], stacks.offsets[1:], strict=True)
    )
    codes = [numbers.setdefault(content, len(numbers)) for content in contents]
    return group([np.array(codes, dtype=np.int64)], len(stacks))
