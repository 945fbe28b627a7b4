# SPDX-License-Identifier: Apache-2.0
"""The data sources of ``profile_cuda_memory`` as columns with the names that a ledger has.

Fields are those of ``bpf/rows.h``, from Inspektor Gadget and from `igsdk agent`. What only
one of the two sends is in the batch where it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from igsdk._errors import AnswerInvalid
from igsdk.client.columns import Packed
from igsdk.client.rows import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from igsdk.client.columns import Array, Columns
    from igsdk.client.schema import DataSource

Batch = dict[str, "Array"]

EVENTS, HEAP, PROCESSES, STACKS, LOSSES, REPORT = (
    *("events", "heap", "processes", "stacks", "losses", "report"),
)

_TOTALS = {
    f"{what}_{unit}": f"total_{said}_{unit}"
    for what, said in (
        *(("alloc", "alloc"), ("free", "free")),
        *(("implicit", "implicit_free"), ("fail", "fail")),
    )
    for unit in ("bytes", "calls")
}
_WHERE = {
    **{name: name for name in ("row", "boot", "epoch", "process", "device")},
    "kind": "kind_raw",
    "host": "host_raw",
    "time": "time_raw",
    "ended": "state_raw",
}
_OF_HEAP = {**_WHERE, **_TOTALS, "context": "context", "key": "stack"}
_MAY_HEAP = {
    **{name: name for name in ("overflow", "untracked_bytes", "peak_bytes", "peak_calls")},
    "stack_state": "stack_state_raw",
}
_OF_PROCESSES = {**_WHERE, **_TOTALS, "in_use": "in_use_raw", "peak": "peak_raw"}
_MAY_PROCESSES = {
    name: name for name in ("process_peak", "unknown_frees", "late", "late_ns", "nvml_bytes")
}
_TEXTS = (
    *("proc.comm", "cmdline", "container_id", "pod_uid", "device_name"),
    *("k8s.node", "k8s.namespace", "k8s.podName", "k8s.containerName"),
    *("runtime.containerName", "node", "namespace", "pod"),
)

_TOTAL_TYPES = dict.fromkeys(_TOTALS, "u8")
_PLACE_TYPES = {
    **dict.fromkeys(("row", "process", "time"), "u8"),
    **dict.fromkeys(("kind", "host", "ended"), "u1"),
    "device": "i2",
}
#: numpy types of the columns of a heap batch; `boot` and `epoch` are the same in all rows
HEAP_TYPES = {
    **_PLACE_TYPES,
    **_TOTAL_TYPES,
    **dict.fromkeys(("key", "untracked_bytes", "peak_bytes", "peak_calls"), "u8"),
    **dict.fromkeys(("overflow", "stack_state"), "u1"),
    "context": "u4",
}
#: numpy types of the columns of a processes batch
PROCESS_TYPES = {
    **_PLACE_TYPES,
    **_TOTAL_TYPES,
    **dict.fromkeys(("in_use", "peak", "process_peak", "unknown_frees"), "u8"),
    **dict.fromkeys(("late_ns", "nvml_bytes"), "u8"),
    "late": "u1",
}

_NEEDED = {HEAP: set(_OF_HEAP.values()), PROCESSES: set(_OF_PROCESSES.values())}


def check_sources(sources: Mapping[str, DataSource], image: str) -> None:
    """Whether a gadget's rows can be booked at all.

    Raises:
        AnswerInvalid: a data source or a field of it is not there.
    """
    for name, needed in _NEEDED.items():
        there = {field.name for field in sources[name].fields} if name in sources else set()
        if lacks := sorted(needed - there):
            what = f"no {name}.{lacks[0]}" if there else f"no data source {name}"
            raise AnswerInvalid(
                f"The gadget {image} has {what}, which a profile of CUDA memory is made of.",
                "Name another image: the gadget of this version of igsdk, or the agent's own.",
            )


def heap_rows(columns: Columns) -> Batch:
    """The rows of ``heap``; ``key`` is the stack as the sender numbers it."""
    return _renamed(columns, _OF_HEAP, _MAY_HEAP)


def process_rows(columns: Columns) -> Batch:
    """The rows of ``processes``; ``text_size`` says how long their texts are together."""
    batch = _renamed(columns, _OF_PROCESSES, _MAY_PROCESSES)
    sizes = np.zeros(columns.rows, np.int64)
    for name in _TEXTS:
        sizes += lengths(columns, name)
    batch["text_size"] = sizes
    return batch


def _renamed(columns: Columns, needed: Mapping[str, str], more: Mapping[str, str]) -> Batch:
    batch = {name: columns[field] for name, field in needed.items()}
    batch.update({name: columns[field] for name, field in more.items() if field in columns})
    return batch


def runs(columns: Columns) -> list[tuple[int, int, Array]]:
    """(boot, epoch, rows) of each gadget's run that sent some of the rows; as a rule one."""
    boots, epochs = columns["boot"], columns["epoch"]
    if not columns.rows:
        return []
    same = (boots == boots[0]) & (epochs == epochs[0])
    if same.all():
        return [(int(boots[0]), int(epochs[0]), np.arange(columns.rows))]
    pairs = sorted(set(zip(boots.tolist(), epochs.tolist(), strict=True)))
    return [
        (boot, epoch, np.flatnonzero((boots == boot) & (epochs == epoch))) for boot, epoch in pairs
    ]


def taken(batch: Batch, rows: Array) -> Batch:
    """Some rows of a batch."""
    if len(rows) == len(batch["row"]):
        return batch
    return {name: column[rows] for name, column in batch.items()}


def loss_counts(columns: Columns) -> dict[tuple[int, int], dict[str, int]]:
    """Counts by cause, in the runtime's own names for them, by (boot, epoch)."""
    name = "cause_name" if "cause_name" in columns else "cause"
    found: dict[tuple[int, int], dict[str, int]] = {}
    rows = zip(*(columns[one].tolist() for one in ("boot", "epoch", name, "count")), strict=True)
    for boot, epoch, cause, count in rows:
        known = found.setdefault((boot, epoch), {})
        cause = str(cause).removeprefix("lost_")
        known[cause] = max(known.get(cause, 0), count)
    return found


def number(columns: Columns, name: str, row: int, default: int = 0) -> int:
    """One number of one row; what the sender does not have is the default."""
    return int(columns[name][row]) if name in columns else default


def word(columns: Columns, name: str, row: int) -> str:
    """One text of one row; empty where the sender does not have it."""
    if name not in columns:
        return ""
    column = columns.column(name)
    if not isinstance(column, Packed):
        return str(column[row])
    begin, end = column.starts[row : row + 2].tolist()
    return text(column.data[begin:end].tobytes())


def lengths(columns: Columns, name: str) -> Array:
    """How many bytes each row's text has; zeros where the sender does not have it."""
    column = columns.column(name) if name in columns else None
    if not isinstance(column, Packed):
        return np.zeros(columns.rows, np.int64)
    return np.diff(column.starts)
