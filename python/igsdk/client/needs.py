# SPDX-License-Identifier: Apache-2.0
"""What the slots of a row must be, for all its fields to have values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.client.schema import Field


@dataclass(frozen=True)
class Need:
    """What one slot must be.

    Attributes:
        number: the slot.
        least: how many bytes at least.
        exact: how many bytes exactly; 0: any number, -1: there is none that would do.
        unit: the bytes must be a multiple of it.
    """

    number: int
    least: int
    exact: int = 0
    unit: int = 1

    def fits(self, row: Sequence[bytes]) -> bool:
        return self.number < len(row) and self._good(len(row[self.number]))

    def all_fit(self, values: Sequence[bytes]) -> bool:
        anything = not self.least and not self.exact and self.unit == 1
        return anything or all(map(self._good, set(map(len, values))))

    def _good(self, length: int) -> bool:
        if self.exact and length != self.exact:
            return False
        return length >= self.least and length % self.unit == 0


def needs_of(fields: Sequence[Field]) -> dict[int, Need]:
    """By slot, in the order of their numbers."""
    needs: dict[int, Need] = {}
    for field in sorted(fields, key=lambda field: field.slot):
        old = needs.get(field.slot, Need(field.slot, 0))
        whole = field.kind.width if not field.size else 0
        exact = whole if field.kind.is_number else 0
        unit = whole if field.kind.array else 1
        if old.exact and exact and old.exact != exact:
            exact = -1  # two numbers of different widths can't both be all of it
        needs[field.slot] = Need(
            field.slot, max(old.least, field.end), exact or old.exact, max(old.unit, unit or 1)
        )
    return needs
