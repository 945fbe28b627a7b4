# SPDX-License-Identifier: Apache-2.0
"""All accounts of a run, and what they answer: in use, allocated, freed, peak, failed.

The dataclasses come without numpy; :class:`Ledger` loads it at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._events import AttachedLibrary, Event, Frame, ProcessInfo, Site, Stack, marker, stack_id

if TYPE_CHECKING:
    from igsdk.ledger.ledger import Ledger

__all__ = [
    "AttachedLibrary",
    "Event",
    "Frame",
    "Ledger",
    "ProcessInfo",
    "Site",
    "Stack",
    "marker",
    "stack_id",
]


def __getattr__(name: str) -> object:
    if name != "Ledger":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from igsdk.ledger.ledger import Ledger

    return Ledger
