# SPDX-License-Identifier: Apache-2.0
"""Events of ``profile_cuda_memory`` as they come from a runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from igsdk import _abi
from igsdk._events import Event
from igsdk._results import result_name
from igsdk.client.cuda_rows import number, word

if TYPE_CHECKING:
    from igsdk._events import ProcessInfo, Stack
    from igsdk.client.columns import Columns

_TYPES: dict[int, Any] = {
    _abi.RECORD_ALLOC: "alloc",
    _abi.RECORD_FREE: "free",
    _abi.RECORD_FAILURE: "failure",
}


def event_of(columns: Columns, row: int, process: ProcessInfo, stack: Stack | None) -> Event | None:
    """The event of one row; None where it is of a type that this version does not know."""
    kind = _TYPES.get(number(columns, "type_raw", row))
    if kind is None:
        return None
    result = number(columns, "result_raw", row)
    return Event(
        type=kind,
        time_ns=number(columns, "boot_ns", row) or number(columns, "time_raw", row),
        process=process,
        tid=number(columns, "proc.tid", row),
        api=word(columns, "api", row) or _abi.call_name(number(columns, "api_raw", row)),
        kind=_kind(number(columns, "kind_raw", row)),
        device=number(columns, "device", row),
        address=number(columns, "address", row),
        bytes=number(columns, "bytes_raw", row),
        result=result,
        result_name=result_name(result),
        latency_ns=number(columns, "latency_raw", row),
        in_use=number(columns, "in_use_raw", row),
        stack=stack,
        boot=number(columns, "boot", row),
    )


def _kind(kind: int) -> str:
    return _abi.KINDS[kind] if kind < len(_abi.KINDS) else f"kind {kind}"
