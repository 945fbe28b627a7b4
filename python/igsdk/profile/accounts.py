# SPDX-License-Identifier: Apache-2.0
"""From the ledger's accounts to a profile's rows and its process table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi
from igsdk._events import Event, Frame, ProcessInfo, event_record, marker
from igsdk.ledger.columns import Column, Columns, length
from igsdk.ledger.groups import Groups, group
from igsdk.ledger.ledger import ACCOUNTS_FULL, NOT_ATTRIBUTED
from igsdk.profile.metadata import KEPT_FAILURES, Metadata, ProcessRow
from igsdk.profile.names import HOSTS, LABELS, NUMBERS, device_label
from igsdk.profile.table import Table, build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from igsdk.ledger import Ledger

_MEASURES = (
    "in_use_bytes",
    "in_use_calls",
    "alloc_bytes",
    "alloc_calls",
    "peak_bytes",
    "peak_calls",
    "fail_bytes",
    "fail_calls",
)
_LARGEST = np.uint64(2**63 - 1)
_WHERE = ("boot", "process", "kind", "host", "device")


def from_ledger(ledger: Ledger, metadata: Metadata) -> tuple[Table, Metadata]:
    """The table of a profile and its metadata with what the ledger knows."""
    rows = ledger.rows()
    stacks, stack = _stacks(ledger, rows)
    labels, label_set = _labels(ledger, rows)
    table = build(stacks, labels, stack, _values(rows), label_set)
    return table, _described(ledger, metadata)


def _values(rows: Columns) -> Column:
    """The eight values as int64. A sum that does not fit is cut off, not turned negative."""
    columns = [np.minimum(rows[name], _LARGEST).astype(np.int64) for name in _MEASURES]
    return np.stack(columns, axis=1)


def _stacks(ledger: Ledger, rows: Columns) -> tuple[list[tuple[Frame, ...]], Column]:
    """The distinct stacks that the rows stand under, and each row's number in them."""
    groups = group([rows["marker"], rows["stack"]], length(rows))
    first = groups.first
    pairs = zip(rows["marker"][first].tolist(), rows["stack"][first].tolist(), strict=True)
    return [_frames(ledger, reason, stack) for reason, stack in pairs], groups.inverse


def _frames(ledger: Ledger, reason: int, stack: int) -> tuple[Frame, ...]:
    """A stack's frames; where there are none, the reason."""
    if reason == NOT_ATTRIBUTED:
        return (marker("not attributed"),)
    if reason == ACCOUNTS_FULL:
        return (marker("accounts full"),)
    if stack == 0:
        return (marker("stacks are off"),)
    known = ledger.stack(stack)
    if known is None:
        return (marker("stack not received"),)
    return known.frames or (marker(known.missing or "empty stack"),)


def _labels(ledger: Ledger, rows: Columns) -> tuple[dict[str, list[Any]], Column]:
    """Labels per process x kind x device, and for every row which of them it has."""
    groups = group([rows[name] for name in _WHERE], length(rows))
    first = groups.first
    places = zip(*(rows[name][first].tolist() for name in _WHERE), strict=True)
    sets = [_label_set(ledger, *place) for place in places]
    names = (*LABELS, *NUMBERS)
    return {name: [labels[name] for labels in sets] for name in names}, groups.inverse


def _label_set(
    ledger: Ledger, boot: int, process: int, kind: int, host: int, device: int
) -> dict[str, Any]:
    name = ledger.device_name(boot, process, device)
    return {
        **_who(ledger.info(process, boot), process),
        "kind": _abi.KINDS[kind] if kind < len(_abi.KINDS) else f"kind {kind}",
        "device": device_label(host, name),
        "host": HOSTS[host] if host < len(HOSTS) else f"host {host}",
    }


def _who(info: ProcessInfo | None, process: int) -> dict[str, Any]:
    """The labels that name a process."""
    if info is None:
        # Instance 0 is the one row for all processes that the full table had no room for.
        unknown = "[process unknown]" if process else "[process table full]"
        info = ProcessInfo(instance=process, pid=0, comm=unknown)
    return {
        "process": info.name,
        "pid": info.pid,
        "start_ns": info.start_ns,
        "node": info.node or "",
        "namespace": info.namespace or "",
        "pod": info.pod or "",
        "container": info.container or "",
    }


def _described(ledger: Ledger, metadata: Metadata) -> Metadata:
    rows = ledger.rows()
    used = {ledger.stack(stack) for stack in np.unique(rows["stack"]).tolist()}
    failures = tuple(_failure(ledger, event) for event in ledger.failures)
    return replace(
        metadata,
        boots=tuple(np.unique(rows["boot"]).tolist()) or metadata.boots,
        stacks=tuple(sorted({stack.how for stack in used if stack and stack.how})),
        losses={**metadata.losses, **ledger.losses()},
        notes=tuple(dict.fromkeys([*metadata.notes, *ledger.notes])),
        failures=failures[-KEPT_FAILURES:],
        processes=tuple(_process_rows(ledger)),
    )


def _failure(ledger: Ledger, event: Event) -> dict[str, Any]:
    """The event with its device named as in the labels; empty where the device is unknown."""
    known = event.device >= 0
    name = ledger.device_name(event.boot, event.process.instance, event.device) if known else ""
    return {**event_record(event), "device_name": name}


def _process_rows(ledger: Ledger) -> list[ProcessRow]:
    """The process table, those that hold most first."""
    sums = ledger.totals(by=("boot", "process", "host"))
    groups = group([sums["boot"], sums["process"]], length(sums))
    peaks = _peaks(ledger.processes())
    rows = [_process_row(ledger, sums, members, peaks) for members in _members(groups)]
    return sorted(rows, key=lambda row: (-row.own("in_use"), -row.peak, row.pid, row.start_ns))


def _members(groups: Groups) -> list[Column]:
    parts = np.split(groups.order, groups.starts[1:])
    return [part for part in parts if len(part)]


def _process_row(
    ledger: Ledger, sums: Columns, members: Column, peaks: Mapping[tuple[int, int], int]
) -> ProcessRow:
    first = members[0]
    boot, process = int(sums["boot"][first]), int(sums["process"][first])
    info = ledger.info(process, boot)
    classes = {
        _class_name(int(sums["host"][row])): _figures(sums, int(row)) for row in members.tolist()
    }
    known = info or ProcessInfo(instance=process, pid=0)
    return ProcessRow(
        **_who(info, process),
        command=known.cmdline or known.comm,
        ns_pid=known.ns_pid,
        state="live" if known.ended_ns is None else "ended",
        peak=known.peak or peaks.get((boot, process), 0),
        classes=classes,
        unknown_frees=known.unknown_frees,
        before_us=known.before_us,
        late_ns=known.late_ns,
        nvml_bytes=known.nvml_bytes,
    )


def _class_name(host: int) -> str:
    return HOSTS[host] if host < len(HOSTS) else f"host {host}"


def _figures(sums: Columns, row: int) -> dict[str, int]:
    allocated, in_use = int(sums["alloc_bytes"][row]), int(sums["in_use_bytes"][row])
    return {
        "in_use": in_use,
        "allocated": allocated,
        "freed": allocated - in_use,
        "failed_bytes": int(sums["fail_bytes"][row]),
        "failed_calls": int(sums["fail_calls"][row]),
    }


def _peaks(processes: Columns) -> dict[tuple[int, int], int]:
    """Peaks by boot and process where only their rows tell: known exactly if it is one row."""
    peaks: dict[tuple[int, int], int] = {}
    own = np.flatnonzero(processes["host"] == 0)
    told = (processes[name][own].tolist() for name in ("boot", "process", "peak"))
    for boot, process, peak in zip(*told, strict=True):
        peaks[boot, process] = max(peak, peaks.get((boot, process), 0))
    return peaks
