# SPDX-License-Identifier: Apache-2.0
"""Packets of ``profile_cuda_memory``, as Inspektor Gadget and as our agent would send them.

Rows are dicts by full field name; what a row lacks is 0 or empty. Fields and kinds are
written down here again, from ``bpf/rows.h`` and what Inspektor Gadget adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.support import gadget_packets as gp
from tests.support.gadget_server import described

from igsdk._proto import gadget_pb2 as pb

Row = Mapping[str, Any]

FLOWS = tuple(
    f"{what}_{unit}"
    for what in ("alloc", "free", "implicit_free", "fail")
    for unit in ("bytes", "calls")
)
_PROC = {
    "proc.comm": (gp.CSTRING, 16),
    "proc.pid": (gp.UINT32, 4),
    "proc.tid": (gp.UINT32, 4),
    "proc.mntns_id": (gp.UINT64, 8),
    "proc.creds.uid": (gp.UINT32, 4),
    "proc.creds.gid": (gp.UINT32, 4),
}
_USTACK = {"ustack_raw.inode": (gp.UINT64, 8), "ustack_raw.stack_id": (gp.UINT32, 4)}
_U64 = (gp.UINT64, 8)
_SMALL = (gp.UINT8, 1)
_HEAP = {
    "row": _U64,
    **_PROC,
    **dict.fromkeys(("boot", "epoch", "process", "stack", "time_raw", "in_use_raw"), _U64),
    **{f"{prefix}_{flow}": _U64 for prefix in ("mem", "total") for flow in FLOWS},
    "untracked_bytes": _U64,
    "context": (gp.UINT32, 4),
    "device": (gp.INT16, 2),
    **dict.fromkeys(("kind_raw", "host_raw", "state_raw", "overflow"), _SMALL),
}
_PROCESSES = {
    "row": _U64,
    **_PROC,
    **dict.fromkeys(("boot", "epoch", "process", "time_raw", "started_raw"), _U64),
    **dict.fromkeys(("in_use_raw", "peak_raw"), _U64),
    **{f"{prefix}_{flow}": _U64 for prefix in ("mem", "total") for flow in FLOWS},
    **dict.fromkeys(("unknown_frees", "process_peak", "cgroup_id"), _U64),
    **dict.fromkeys(("ns_pid", "exec_id"), (gp.UINT32, 4)),
    "device": (gp.INT16, 2),
    **dict.fromkeys(("kind_raw", "host_raw", "state_raw", "late"), _SMALL),
}
_EVENTS = {
    "time_raw": _U64,
    **_PROC,
    **dict.fromkeys(("boot", "process", "row", "stack", "address", "bytes_raw"), _U64),
    **dict.fromkeys(("in_use_raw", "latency_raw"), _U64),
    **dict.fromkeys(("result_raw", "context"), (gp.UINT32, 4)),
    "device": (gp.INT16, 2),
    **dict.fromkeys(("kind_raw", "host_raw", "type_raw", "api_raw"), _SMALL),
}
_TEXT = (gp.STRING, 0)
_STACK_TEXTS = {f"ustack_raw.{name}": _TEXT for name in ("addresses", "buildid", "symbols")}
_K8S = {f"k8s.{name}": _TEXT for name in ("node", "namespace", "podName", "containerName")}
_LOSSES = {"boot": _U64, "epoch": _U64, "count": _U64}

#: fields by data source, as Inspektor Gadget describes them
GADGET = {
    "events": {**_EVENTS, **_USTACK, "api": _TEXT, **_K8S, **_STACK_TEXTS},
    "heap": {**_HEAP, "stack_state_raw": _SMALL, **_USTACK, **_K8S, **_STACK_TEXTS},
    "losses": {**_LOSSES, "cause": (gp.UINT32, 4), "cause_name": _TEXT},
    "processes": {**_PROCESSES, **_K8S},
}
#: the same of our agent
AGENT = {
    "events": {**_EVENTS, "epoch": _U64, "api": _TEXT},
    "heap": {**_HEAP, "peak_bytes": _U64, "peak_calls": _U64},
    "losses": {**_LOSSES, "cause": _TEXT},
    "processes": {
        **_PROCESSES,
        **dict.fromkeys(("cmdline", "container_id", "pod_uid", "device_name"), _TEXT),
        "nvml_bytes": _U64,
        "late_ns": _U64,
    },
    "report": {"json": _TEXT},
    "stacks": {"id": _U64, "how": _TEXT, "missing": _TEXT, "frames": _TEXT},
}
_SINGLE = ("events", "report", "stacks")
Fields = Mapping[str, Mapping[str, tuple[int, int]]]

PARAMETERS = tuple(
    f"operator.oci.ebpf.{name}"
    for name in ("events", "collect-ustack", "collect-build-id", "pid", "comm")
)


def _specs(fields: Mapping[str, tuple[int, int]]) -> list[gp.Spec]:
    return [gp.Spec(name, kind, size) for name, (kind, size) in fields.items()]


def gadget_info(parameters: Iterable[str] = PARAMETERS) -> pb.GadgetInfo:
    """What is said of the gadget before it runs."""
    info = pb.GadgetInfo(imageName="profile_cuda_memory")
    for name in parameters:
        prefix, _, key = name.rpartition(".")
        info.params.add(prefix=f"{prefix}.", key=key)
    return info


class Sender:
    """Makes the events of one stream, numbered."""

    def __init__(self, fields: Fields = GADGET) -> None:
        self._fields = fields
        self._specs = {name: _specs(one) for name, one in fields.items()}
        self._numbers = {name: number for number, name in enumerate(sorted(fields))}
        self._seq = 0

    def begin(self) -> pb.GadgetEvent:
        """The description that a stream begins with."""
        sources = (
            gp.source(name, self._specs[name], array=name not in _SINGLE)
            for name in sorted(self._fields)
        )
        return described(*sources)

    def send(self, source: str, *rows: Row) -> Iterator[pb.GadgetEvent]:
        """One packet of rows, or one for each where that is how the source sends."""
        elements = [self._element(source, row) for row in rows]
        single = source in _SINGLE
        for some in [[one] for one in elements] if single else [elements]:
            self._seq += 1
            yield gp.packet(some, self._seq, array=not single, number=self._numbers[source])

    def skip(self, packets: int) -> None:
        """As if so many had been lost on the way."""
        self._seq += packets

    def _element(self, source: str, row: Row) -> pb.DataElement:
        values = [row.get(one.name, _nothing(one)) for one in self._specs[source]]
        return gp.element(self._specs[source], values)


def _nothing(spec: gp.Spec) -> Any:
    return "" if spec.kind in (gp.STRING, gp.CSTRING) else 0


def flat(row: Row, before: str = "") -> dict[str, Any]:
    """Nested rows, as the gadget host tells them, by full names; addresses as texts."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        elif name == "addresses":
            found[before + name] = "".join(f"0x{one:016x}; " for one in value)
        else:
            found[before + name] = value
    return found
