# SPDX-License-Identifier: Apache-2.0
"""The column batches that a ledger is fed with: their names, types and checks.

A batch is a dict of equally long one-dimensional numpy arrays, one row per account
(``HeapBatch``) or per process x kind x host x device (``ProcessBatch``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Column = npt.NDArray[Any]
Columns = dict[str, Column]

TOTALS = tuple(
    f"{what}_{unit}"
    for what in ("alloc", "free", "implicit", "fail")
    for unit in ("bytes", "calls")
)


@dataclass(frozen=True, slots=True)
class Schema:
    """Names and numpy types of a batch's columns.

    ``key`` columns tell rows apart, ``required`` ones must be there as well,
    ``optional`` ones are zero where a runtime does not send them.
    """

    key: dict[str, str]
    required: dict[str, str]
    optional: dict[str, str]

    @property
    def types(self) -> dict[str, str]:
        return {**self.key, **self.required, **self.optional}

    def check(self, batch: Mapping[str, Any]) -> Columns:
        """The batch's columns in the schema's types.

        Raises:
            ValueError: a column is missing, or the columns are not equally long.
        """
        missing = [name for name in (*self.key, *self.required) if name not in batch]
        if missing:
            raise ValueError(f"batch lacks the columns {', '.join(missing)}")
        length = len(batch[next(iter(self.key))])
        columns = {
            name: np.asarray(batch[name], dtype=kind)
            if name in batch
            else np.zeros(length, dtype=kind)
            for name, kind in self.types.items()
        }
        if any(column.shape != (length,) for column in columns.values()):
            raise ValueError("the columns of a batch must be equally long and one-dimensional")
        return columns

    def empty(self) -> Columns:
        return {name: np.zeros(0, dtype=kind) for name, kind in self.types.items()}


_WHERE = {"boot": "u8", "epoch": "u8", "process": "u8"}
_WHAT = {"kind": "u1", "host": "u1", "device": "i2"}
_SUMS = dict.fromkeys(TOTALS, "u8")

HEAP = Schema(
    key={**_WHERE, "context": "u4", **_WHAT, "stack": "u8"},
    required=_SUMS,
    optional={
        "ended": "u1",
        "overflow": "u1",
        "untracked_bytes": "u8",
        "peak_bytes": "u8",
        "peak_calls": "u8",
    },
)
PROCESSES = Schema(
    key={**_WHERE, **_WHAT},
    required={**_SUMS, "in_use": "u8"},
    optional={"peak": "u8"},
)


def concatenate(parts: Iterable[Columns]) -> Columns:
    """One batch out of several with the same columns."""
    kept = list(parts)
    if len(kept) == 1:
        return kept[0]
    return {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}


def take(columns: Columns, rows: Column) -> Columns:
    """The rows that an index or a mask names."""
    return {name: column[rows] for name, column in columns.items()}


def length(columns: Columns) -> int:
    return len(next(iter(columns.values())))
