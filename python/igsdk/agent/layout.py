# SPDX-License-Identifier: Apache-2.0
"""What the agent's data sources look like: fields as clients see them, rows as numpy types.

A row's numbers and short texts lie one behind the other in its first slot, so that rows of
one source have one length and a whole packet is made by array work; texts of any length
have slots of their own behind it. Fields have the names and kinds of ``bpf/rows.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._proto import gadget_pb2 as pb
from igsdk.agent.packets import field_head

if TYPE_CHECKING:
    from collections.abc import Sequence

_EMPTY, _HIDDEN, _HAS_PARENT, _STATIC = 1, 4, 8, 16
_ONE_ROW, _ARRAY = 1, 2
_KINDS = {
    "i1": pb.Int8,
    "i2": pb.Int16,
    "i4": pb.Int32,
    "i8": pb.Int64,
    "u1": pb.Uint8,
    "u2": pb.Uint16,
    "u4": pb.Uint32,
    "u8": pb.Uint64,
}
_GROUPS = ("proc", "proc.creds")


@dataclass(frozen=True)
class Column:
    """One field.

    Attributes:
        name: full, with dots.
        type: numpy's: ``u8``, ``i2``, ``S16``; ``text`` for one in a slot of its own.
        about: what it means, for people.
        shown: whether a table shows it by itself.
        same: the field whose bytes it shows again, under another name.
    """

    name: str
    type: str
    about: str
    shown: bool = False
    same: str = ""


@dataclass(frozen=True)
class Source:
    """One data source: its number, whether a packet is an array of rows, and its fields."""

    number: int
    name: str
    array: bool
    columns: tuple[Column, ...]

    @cached_property
    def fixed(self) -> np.dtype[Any]:
        """The first slot of a row."""
        return np.dtype([(c.name, self._type(c)) for c in self.columns if self._in_row(c)])

    @cached_property
    def framed(self) -> np.dtype[Any]:
        """A whole row in an array's packet, where it has no other slots: bytes, then the slot."""
        head = len(self.heads)
        return np.dtype([("head", f"V{head}"), ("row", self.fixed)])

    @cached_property
    def heads(self) -> bytes:
        """What stands before each row of an array's packet, or a packet's only row."""
        slot = field_head(1, self.fixed.itemsize)
        number = 3  # of dataArray in GadgetDataArray, and of data in GadgetData
        return field_head(number, len(slot) + self.fixed.itemsize) + slot

    @property
    def texts(self) -> tuple[str, ...]:
        """The fields with slots of their own, in their order."""
        return tuple(column.name for column in self.columns if column.type == "text")

    def describe(self, interval: float = 1.0) -> pb.DataSource:
        """As the service says it, for packets each so many seconds.

        Inspektor Gadget's clients take a source without an interval for one with a single
        packet, and hang at the second.
        """
        kind = _ARRAY if self.array else _ONE_ROW
        told = pb.DataSource(id=self.number, name=self.name, type=kind)
        if self.array:
            told.annotations["fetch-interval"] = f"{round(interval * 1000)}ms"
            told.annotations["fetch-count"] = "0"
        for column in self.columns:
            self._describe_field(told, column)
        return told

    def _describe_field(self, told: pb.DataSource, column: Column) -> None:
        groups = [name for name in _GROUPS if column.name.startswith(f"{name}.")]
        for group in groups:
            if all(one.fullName != group for one in told.fields):
                one = _add(told, group, _EMPTY | _HIDDEN)
                one.order = one.index
        one = _add(told, column.name, 0 if column.shown else _HIDDEN)
        one.order = one.index
        one.annotations["description"] = column.about
        if not column.shown:
            one.annotations["columns.hidden"] = "true"
        if column.type == "text":
            one.annotations["columns.width"] = "40"
            one.kind = pb.String
            one.payloadIndex = 1 + self.texts.index(column.name) if self.fixed.names else 0
            return
        type_, at = self._place(column)
        one.flags |= _STATIC
        one.kind = _KINDS.get(type_.str[1:], pb.CString)
        one.offs, one.size = at, type_.itemsize
        one.annotations["columns.width"] = str(
            max(12, type_.itemsize if one.kind == pb.CString else 0)
        )

    def _place(self, column: Column) -> tuple[np.dtype[Any], int]:
        fields = self.fixed.fields
        assert fields is not None
        type_, at = fields[column.same or column.name][:2]
        return type_, int(at)

    @staticmethod
    def _in_row(column: Column) -> bool:
        return column.type != "text" and not column.same

    @staticmethod
    def _type(column: Column) -> str:
        return column.type if column.type.startswith("S") else f"<{column.type}"


def _add(told: pb.DataSource, name: str, flags: int) -> pb.Field:
    head, _, last = name.rpartition(".")
    index = len(told.fields)
    one = told.fields.add(name=last, fullName=name, index=index, flags=flags)
    if head:
        parents = [field.index for field in told.fields if field.fullName == head]
        one.parent = parents[0]
        one.flags |= _HAS_PARENT
    return one


def _flows(prefix: str, when: str) -> list[Column]:
    words = {
        "alloc": "allocated",
        "free": "freed by calls",
        "implicit_free": "given back by the end of a context or of the process",
        "fail": "asked for in vain",
    }
    return [
        Column(f"{prefix}_{what}_{unit}", "u8", f"{unit.capitalize()} {about} {when}")
        for what, about in words.items()
        for unit in ("bytes", "calls")
    ]


_CHANGES = _flows("mem", "since the packet before")
_TOTALS = _flows("total", "since the agent's first call (epoch)")
_COMM = Column("proc.comm", "S16", "Name of the process", shown=True)
_PID = Column("proc.pid", "u4", "Process ID, in the node's own PID namespace", shown=True)
_TID = Column("proc.tid", "u4", "Thread ID")
_BOOT = Column("boot", "u8", "The machine's run since it was started, the same for every tool")
_EPOCH = Column("epoch", "u8", "When the agent saw its first call, boot clock in ns")
_PROCESS = Column("process", "u8", "The process by a number that no other has; a new one at exec")
_ROW = Column(
    "row", "u8", "Number of the row: totals of a later row with this number replace these"
)
_TIME = Column("time_raw", "u8", "When the row was made, boot clock in ns")
_CONTEXT = Column("context", "u4", "Generation of the context, 0 = not known")
_DEVICE = Column("device", "i2", "Device by its number in the process's own view", shown=True)
_STACK = Column("stack", "u8", "Which of `stacks`, 0 = none was taken")
_KIND_RAW = Column("kind_raw", "u1", "What sort of memory it is, as a number")
_KIND = Column("kind", "S16", "What sort of memory it is", shown=True)
_HOST_RAW = Column("host_raw", "u1", "Whose memory it is, as a number; 0 is of devices, and own")
_HOST = Column("host", "S16", "Whose memory it is")
_STATE_RAW = Column("state_raw", "u1", "Whether the context or process still lives, as a number")
_STATE = Column("state", "S16", "Whether the context or process still lives", shown=True)

EVENTS = Source(
    0,
    "events",
    False,
    (
        Column("time_raw", "u8", "When the call returned, boot clock in ns"),
        _COMM,
        _PID,
        _TID,
        *(_BOOT, _EPOCH, _PROCESS, _ROW, _STACK),
        Column("address", "u8", "Address of the memory"),
        Column("bytes_raw", "u8", "Bytes allocated, freed, or asked for in vain", shown=True),
        Column("in_use_raw", "u8", "What the process had in use after it, of devices", shown=True),
        Column("latency_raw", "u8", "How long the call took, ns"),
        Column("latency_ns", "u8", "How long the call took, ns", same="latency_raw"),
        Column("result_raw", "u4", "The call's result, as a number"),
        _CONTEXT,
        _DEVICE,
        *(_KIND_RAW, _HOST_RAW),
        Column("type_raw", "u1", "What happened, as a number"),
        Column("api_raw", "u1", "The driver's function, as a number"),
        _KIND,
        Column("type", "S12", "What happened", shown=True),
        Column("api", "S40", "The driver's function", shown=True),
        Column("result", "S44", "The call's result", shown=True),
    ),
)

HEAP = Source(
    1,
    "heap",
    True,
    (
        *(_ROW, _COMM, _PID, _TID, _BOOT, _EPOCH, _PROCESS, _STACK, _TIME),
        Column("in_use_raw", "u8", "Bytes allocated, and neither freed nor given back", shown=True),
        *_CHANGES,
        *_TOTALS,
        Column("untracked_bytes", "u8", "Allocated while the table of live memory was full"),
        Column("peak_bytes", "u8", "In use when the whole machine's devices held most"),
        Column("peak_calls", "u8", "Allocations in use at that moment"),
        _CONTEXT,
        _DEVICE,
        *(_KIND_RAW, _HOST_RAW, _STATE_RAW),
        Column("overflow", "u1", "1 = the account for what found none of its own"),
        *(_KIND, _HOST, _STATE),
    ),
)

PROCESSES = Source(
    3,
    "processes",
    True,
    (
        *(_ROW, _COMM, _PID, _TID),
        Column("proc.mntns_id", "u8", "Mount namespace"),
        Column("proc.creds.uid", "u4", "User ID"),
        Column("proc.creds.gid", "u4", "Group ID"),
        *(_BOOT, _EPOCH, _PROCESS, _TIME),
        Column("started_raw", "u8", "When the process was started, boot clock in ns"),
        Column("in_use_raw", "u8", "Bytes in use, at its end where it has ended", shown=True),
        Column("peak_raw", "u8", "The most that was in use of this kind and device", shown=True),
        *_CHANGES,
        *_TOTALS,
        Column("unknown_frees", "u8", "Frees of memory whose allocation nobody saw"),
        Column("process_peak", "u8", "The most of own device memory that the process had in use"),
        Column("cgroup_id", "u8", "Control group"),
        Column("late_ns", "u8", "How long its driver was mapped before the probes came, ns"),
        Column("nvml_bytes", "u8", "What NVML says that it has, 0 = nobody can say"),
        Column("ns_pid", "u4", "Process ID as its container sees it"),
        Column("exec_id", "u4", "The kernel's count of exec"),
        _DEVICE,
        *(_KIND_RAW, _HOST_RAW, _STATE_RAW),
        Column("late", "u1", "1 = it ran before the agent did"),
        *(_KIND, _HOST, _STATE),
        Column("cmdline", "text", "Command line"),
        Column("container_id", "text", "Container, 64 hexadecimal digits"),
        Column("pod_uid", "text", "Pod, by its UID"),
        Column("device_name", "text", "Device, by a name that all processes share"),
    ),
)

STACKS = Source(
    5,
    "stacks",
    False,
    (
        Column("id", "u8", "Hash of the content, the same on every node", shown=True),
        Column("how", "text", "How it was taken", shown=True),
        Column("missing", "text", "What it lacks, and why", shown=True),
        Column("frames", "text", "JSON: [function, file, line, address, mapping, build_id, kind]"),
    ),
)

LOSSES = Source(
    2,
    "losses",
    True,
    (
        *(_BOOT, _EPOCH),
        Column("count", "u8", "How often, since the agent's start", shown=True),
        Column("cause", "S32", "What could not be seen, booked or told", shown=True),
    ),
)

REPORT = Source(
    4,
    "report",
    False,
    (Column("json", "text", "What the agent is attached to, notes and the peak", shown=True),),
)

#: sorted by name, as clients number them
SOURCES: Sequence[Source] = (EVENTS, HEAP, LOSSES, PROCESSES, REPORT, STACKS)
