# SPDX-License-Identifier: Apache-2.0
"""What a cause of loss means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Figures = Literal["exact", "too low", "too high", "incomplete"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """Of one cause; ``{n}`` stands for the count.

    ``figures``: what it does to bytes in use and at the peak. ``lost``: it is a loss at all.
    """

    what: str
    effect: str
    remedy: str
    figures: Figures = "exact"
    lost: bool = True

    @property
    def bytes_exact(self) -> bool:
        """Whether totals are exact all the same."""
        return self.figures == "exact"
