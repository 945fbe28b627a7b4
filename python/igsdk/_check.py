# SPDX-License-Identifier: Apache-2.0
"""One thing that was looked at, on this machine or on a target: for ``igsdk doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is.
        state: whether it is well; "warn" is in nobody's way.
        detail: what was found.
        remedy: what to do; empty where all is well.
        code: the exit code of whoever needs it; 0 where it does not stand in the way.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""
    code: int = 0
