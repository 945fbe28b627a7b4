# SPDX-License-Identifier: Apache-2.0
"""Which frames a view shows. Files have them all; what is hidden is chosen when reading."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from igsdk._events import FrameKind, frame_record, marker
from igsdk.profile.stacks import Stacks

if TYPE_CHECKING:
    from igsdk.ledger.columns import Column
    from igsdk.profile.table import Table

View = Literal["default", "native", "python", "full"]
#: the kinds of frames that each view has
VIEWS: dict[View, tuple[FrameKind, ...]] = {
    "default": ("python", "native", "marker"),
    "native": ("native", "interpreter", "marker"),
    "python": ("python", "marker"),
    "full": ("python", "native", "interpreter", "marker"),
}
#: what stands where a view leaves nothing of a stack
_NOTHING: dict[View, str] = {
    "default": "only frames of the interpreter",
    "native": "no native frames",
    "python": "no Python frames",
    "full": "no frames",
}


def shown(table: Table, view: View) -> Table:
    """The table with the frames of a view; stacks that are alike then are one."""
    wanted = np.array([frame.kind in VIEWS[view] for frame in table.frames], dtype=bool)
    if wanted.all():
        return table
    frames = (*table.frames, marker(_NOTHING[view]))
    stacks = _of_frames(table.stacks, wanted, len(table.frames))
    return replace(table, frames=frames).over(stacks)


def _of_frames(stacks: Stacks, wanted: Column, instead: int) -> Stacks:
    """The members that are wanted; a stack of which none is left has `instead`."""
    keep = wanted[stacks.members]
    kept = np.bincount(stacks.owners[keep], minlength=len(stacks))
    offsets = np.concatenate([[0], np.cumsum(np.maximum(kept, 1))]).astype(np.int64)
    members = np.full(offsets[-1], instead, dtype=np.int64)
    members[np.repeat(kept > 0, np.maximum(kept, 1))] = stacks.members[keep]
    return Stacks(offsets, members)


def shown_failure(failure: dict[str, Any], view: View) -> dict[str, Any]:
    """A failure as metadata has it, with the frames of a view."""
    stack = failure.get("stack")
    if not stack:
        return failure
    kept = [frame for frame in stack if frame.get("kind", "native") in VIEWS[view]]
    return {**failure, "stack": kept or [frame_record(marker(_NOTHING[view]))]}
