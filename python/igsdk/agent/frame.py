# SPDX-License-Identifier: Apache-2.0
"""All rows of the machine at one moment, made once for however many clients."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk import _abi, _run
from igsdk._version import __version__
from igsdk.agent.layout import HEAP, LOSSES, PROCESSES
from igsdk.runtime.snapshot import HEAP_KEY, heap_batch, merge_rows, process_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from igsdk._events import ProcessInfo
    from igsdk.runtime.session import Reading, Session

Array = Any

#: as bpf/rows.h has them, by number
KINDS = np.array(["unknown", *_abi.KINDS[1:]], dtype="S16")
HOSTS = np.array(
    ["own", "pinned_host", "registered_host", "other_process", "anywhere"], dtype="S16"
)
STATES = np.array(["live", "context_ended", "process_ended"], dtype="S16")

_FLOWS = {
    f"total_{said}_{unit}": f"{what}_{unit}"
    for what, said in (
        *(("alloc", "alloc"), ("free", "free")),
        *(("implicit", "implicit_free"), ("fail", "fail")),
    )
    for unit in ("bytes", "calls")
}
TOTALS = tuple(_FLOWS)
CHANGES = tuple(name.replace("total_", "mem_", 1) for name in TOTALS)
_PLACE = ("kind", "host", "device")
_PROCESS_KEY = ("boot", "epoch", "process", *_PLACE)
_HEAP_STATE = (*TOTALS, "peak_bytes", "peak_calls", "state_raw")
_PROCESS_STATE = (
    *TOTALS,
    *("in_use_raw", "peak_raw", "process_peak", "unknown_frees", "state_raw"),
    *("late_ns", "nvml_bytes"),
)


@dataclass(frozen=True)
class Table:
    """The rows of one array source, sorted by their number.

    Attributes:
        rows: of the source's fixed dtype; changes are 0.
        state: what a row is sent for again when it differs, u64 (rows x columns), the
            totals first.
        texts: for each row, of a source that has texts; else empty.
    """

    rows: Array
    state: Array
    texts: tuple[tuple[str, ...], ...] = ()

    @property
    def numbers(self) -> Array:
        return self.rows["row"]


@dataclass(frozen=True)
class Where:
    """The machine: its name, and what to add to the boot clock's ns for those since 1970."""

    node: str
    wall_minus_boot_ns: int


@dataclass(frozen=True)
class Frame:
    """What there is at one moment.

    Attributes:
        taken: when, by the monotonic clock.
        processes: rows of dtype ``process``, for filters.
        heap, table: the sources `heap` and `processes`.
        losses: by cause.
        report: JSON, without what changes by itself.
    """

    taken: float
    boot: int
    epoch: int
    processes: Array
    heap: Table
    table: Table
    losses: Mapping[str, int]
    report: str


def loss_rows(frame: Frame, causes: Mapping[str, int]) -> Array:
    """Rows of `losses` for some causes."""
    rows = np.zeros(len(causes), dtype=LOSSES.fixed)
    rows["boot"], rows["epoch"] = frame.boot, frame.epoch
    rows["cause"] = np.array([*causes], dtype="S32")
    rows["count"] = np.fromiter(causes.values(), dtype=np.uint64, count=len(causes))
    return rows


def mixed(columns: list[Array]) -> Array:
    """One u64 of several columns of numbers, the same wherever it is worked out."""
    mix = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mix ^= column.astype(np.int64).view(np.uint64) + np.uint64(0x9E37_79B9_7F4A_7C15)
        mix ^= mix >> np.uint64(30)
        mix *= np.uint64(0xBF58_476D_1CE4_E5B9)
        mix ^= mix >> np.uint64(27)
        mix *= np.uint64(0x94D0_49BB_1331_11EB)
        mix ^= mix >> np.uint64(31)
    return mix


def heap_numbers(columns: Mapping[str, Array]) -> Array:
    """The numbers of heap rows, of the columns of an account's key."""
    return mixed([columns[name] for name in HEAP_KEY])


def make_frame(
    session: Session, reading: Reading, infos: Mapping[int, ProcessInfo], where: Where, taken: float
) -> Frame:
    """Makes the rows of a reading.

    Args:
        infos: of all its processes, by instance.
        where: this machine.
        taken: when the reading was asked for.
    """
    processes = reading.snapshot.processes
    return Frame(
        taken,
        reading.boot,
        reading.epoch,
        processes,
        _heap(reading, infos),
        _processes(session, reading, infos),
        reading.losses,
        json.dumps(_report(session, reading, where), separators=(",", ":")),
    )


def _heap(reading: Reading, infos: Mapping[int, ProcessInfo]) -> Table:
    held = np.frombuffer(reading.peak["held"], _abi.dtype("held"))
    batch = heap_batch(reading.snapshot, reading.boot, reading.epoch, held)
    batch = merge_rows(batch, HEAP_KEY)
    rows = _placed(HEAP.fixed, batch, heap_numbers(batch), infos)
    for name in ("stack", "context", "untracked_bytes", "overflow", "peak_bytes", "peak_calls"):
        rows[name] = batch[name]
    given_back = batch["free_bytes"] + batch["implicit_bytes"]
    rows["in_use_raw"] = batch["alloc_bytes"] - given_back
    rows["state_raw"], rows["state"] = batch["ended"], STATES[batch["ended"]]
    rows = rows[np.argsort(rows["row"])]
    return Table(rows, _state(rows, _HEAP_STATE))


def _placed(dtype: Any, batch: Any, numbers: Array, infos: Mapping[int, ProcessInfo]) -> Array:
    """What rows of both sources have."""
    rows = np.zeros(len(numbers), dtype=dtype)
    rows["row"] = numbers
    for name in ("boot", "epoch", "process", "device"):
        rows[name] = batch[name]
    for name in ("kind", "host"):
        rows[f"{name}_raw"] = batch[name]
    rows["kind"], rows["host"] = KINDS[batch["kind"]], HOSTS[batch["host"]]
    for total, name in _FLOWS.items():
        rows[total] = batch[name]
    rows["time_raw"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    _with_owners(rows, infos)
    return rows


def _with_owners(rows: Array, infos: Mapping[int, ProcessInfo]) -> None:
    instances, of = np.unique(rows["process"], return_inverse=True)
    known = [infos.get(instance) for instance in instances.tolist()]
    pids = np.array([info.pid if info else 0 for info in known], dtype=np.uint32)
    names = [info.comm.encode("utf-8", "replace")[:15] if info else b"" for info in known]
    rows["proc.pid"] = rows["proc.tid"] = pids[of] if len(rows) else 0
    rows["proc.comm"] = np.array(names, dtype="S16")[of] if len(rows) else b""


def _state(rows: Array, names: tuple[str, ...], *more: Array) -> Array:
    return np.column_stack([rows[name].astype(np.uint64) for name in names] + list(more))


def _processes(session: Session, reading: Reading, infos: Mapping[int, ProcessInfo]) -> Table:
    groups = np.frombuffer(reading.peak["groups"], _abi.dtype("group_peak"))
    batch = process_batch(reading.snapshot, reading.boot, reading.epoch, groups)
    batch = _with_idle(batch, reading)
    numbers = mixed([batch[name] for name in _PROCESS_KEY])
    rows = _placed(PROCESSES.fixed, batch, numbers, infos)
    rows["in_use_raw"], rows["peak_raw"] = batch["in_use"], batch["peak"]
    _describe(rows, reading.snapshot.processes)
    _explain(rows, infos)
    _end(rows, reading)
    rows = rows[np.argsort(rows["row"])]
    texts = _texts(rows, infos, session.device_names(reading))
    hashes = np.fromiter((hash(text) & (2**64 - 1) for text in texts), np.uint64, len(texts))
    return Table(rows, _state(rows, _PROCESS_STATE, hashes), texts)


def _with_idle(batch: Any, reading: Reading) -> Any:
    """A row without figures for each process that called the driver and has no other row."""
    instances = reading.snapshot.processes["instance"]
    idle = instances[~np.isin(instances, batch["process"])]
    if not len(idle):
        return batch
    rows = {name: np.zeros(len(idle), column.dtype) for name, column in batch.items()}
    rows["process"] = idle
    rows["boot"][:], rows["epoch"][:], rows["device"][:] = reading.boot, reading.epoch, -1
    return {name: np.concatenate([column, rows[name]]) for name, column in batch.items()}


def _describe(rows: Array, processes: Array) -> None:
    """What the kernel knows of each row's process."""
    order = np.argsort(processes["instance"])
    instances = processes["instance"][order]
    at = np.searchsorted(instances, rows["process"])
    found = at < len(instances)
    found[found] = instances[at[found]] == rows["process"][found]
    owners = processes[order[at[found]]]
    for field, name in (
        *(("proc.mntns_id", "mntns_id"), ("proc.creds.uid", "uid"), ("proc.creds.gid", "gid")),
        *(("started_raw", "start_ns"), ("unknown_frees", "unknown_frees"), ("late", "late")),
        *(("process_peak", "peak"), ("cgroup_id", "cgroup_id"), ("ns_pid", "ns_pid")),
        ("exec_id", "exec_id"),
    ):
        rows[field][found] = owners[name]


def _explain(rows: Array, infos: Mapping[int, ProcessInfo]) -> None:
    """What only user space knows; few processes have any of it."""
    late = {i: info.late_ns for i, info in infos.items() if info.late_ns}
    nvml = {i: info.nvml_bytes for i, info in infos.items() if info.nvml_bytes}
    for field, values in (("late_ns", late), ("nvml_bytes", nvml)):
        for instance, value in values.items():
            rows[field][rows["process"] == instance] = value


def _end(rows: Array, reading: Reading) -> None:
    """How each row ended: its process's end last, all contexts' ends of its place before."""
    snapshot = reading.snapshot
    ended = snapshot.processes[snapshot.processes["ended"] != 0]
    gone = np.isin(rows["process"], ended["instance"])
    rows["state_raw"][gone] = _abi.ENDED_PROCESS
    at = dict(zip(ended["instance"].tolist(), ended["ended_at"].tolist(), strict=True))
    for place in np.flatnonzero(gone).tolist():
        rows["time_raw"][place] = at[int(rows["process"][place])] or rows["time_raw"][place]
    rows["state"] = STATES[rows["state_raw"]]


def _texts(
    rows: Array, infos: Mapping[int, ProcessInfo], devices: Mapping[tuple[int | None, int], str]
) -> tuple[tuple[str, ...], ...]:
    found = []
    for instance, device in zip(rows["process"].tolist(), rows["device"].tolist(), strict=True):
        info = infos.get(instance)
        name = devices.get((instance, device)) or devices.get((None, device)) or ""
        words = (info.cmdline, info.container, info.pod_uid) if info else ("", "", "")
        found.append((*(word or "" for word in words), name))
    return tuple(found)


def _report(session: Session, reading: Reading, where: Where) -> dict[str, Any]:
    attached = _run.attached_libraries(session, reading)
    program = session.options.program
    return {
        "version": __version__,
        "node": where.node,
        "boot": reading.boot,
        "epoch": reading.epoch,
        "mode": session.tracer.mode,
        "driver": _run.driver_kind(attached),
        "attached": [asdict(library) for library in attached],
        "earlier": sorted(session.selected_earlier(reading)),
        "notes": [
            *session.notes,
            *_run.attach_notes(session, reading),
            *session.stacks.notes(),
        ],
        "peak": _run.peak_precision(session, reading),
        "peak_ns": int(reading.peak["time"]),
        "began_wall_ns": session.began_wall_ns,
        "wall_minus_boot_ns": where.wall_minus_boot_ns,
        "gadget": program.origin if program else "",
    }
