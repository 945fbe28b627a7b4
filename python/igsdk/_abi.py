# SPDX-License-Identifier: Apache-2.0
"""The layouts and names of ``bpf/abi.h``, for Python.

A test compares every size and offset with what the extension was compiled with.
Names only, no numpy, so that importing this module costs nothing; the dtypes are
made on first use.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

KINDS = (
    "none",
    "device",
    "managed",
    "pinned",
    "registered",
    "pool",
    "vmm",
    "array",
    "imported",
)
HOSTS = ("own", "pinned", "registered", "imported", "managed")

# The kernel makes no larger table of 104 bytes an entry.
MOST_LIVE_ENTRIES = 1 << 26

# (symbol, call) pairs: several symbols may mean one call. The order of `call`
# names is enum igsdk_call; the first symbol of a call is its name in events.
CALLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NONE", ()),
    ("MEM_ALLOC", ("cuMemAlloc_v2",)),
    ("MEM_ALLOC_V1", ("cuMemAlloc",)),
    ("MEM_ALLOC_PITCH", ("cuMemAllocPitch_v2",)),
    ("MEM_ALLOC_PITCH_V1", ("cuMemAllocPitch",)),
    ("MEM_ALLOC_MANAGED", ("cuMemAllocManaged",)),
    ("MEM_ALLOC_HOST", ("cuMemAllocHost_v2",)),
    ("MEM_ALLOC_HOST_V1", ("cuMemAllocHost",)),
    ("MEM_HOST_ALLOC", ("cuMemHostAlloc",)),
    ("MEM_HOST_REGISTER", ("cuMemHostRegister_v2", "cuMemHostRegister")),
    ("MEM_HOST_UNREGISTER", ("cuMemHostUnregister",)),
    ("MEM_FREE", ("cuMemFree_v2",)),
    ("MEM_FREE_V1", ("cuMemFree",)),
    ("MEM_FREE_HOST", ("cuMemFreeHost",)),
    ("MEM_ALLOC_ASYNC", ("cuMemAllocAsync", "cuMemAllocAsync_ptsz")),
    (
        "MEM_ALLOC_FROM_POOL_ASYNC",
        ("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"),
    ),
    ("MEM_FREE_ASYNC", ("cuMemFreeAsync", "cuMemFreeAsync_ptsz")),
    ("MEM_POOL_CREATE", ("cuMemPoolCreate",)),
    ("MEM_POOL_DESTROY", ("cuMemPoolDestroy",)),
    ("DEVICE_GET_MEM_POOL", ("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")),
    ("MEM_GET_MEM_POOL", ("cuMemGetDefaultMemPool", "cuMemGetMemPool")),
    ("MEM_POOL_EXPORT_POINTER", ("cuMemPoolExportPointer",)),
    ("MEM_POOL_IMPORT_POINTER", ("cuMemPoolImportPointer",)),
    ("MEM_CREATE", ("cuMemCreate",)),
    ("MEM_RELEASE", ("cuMemRelease",)),
    ("MEM_MAP", ("cuMemMap",)),
    ("MEM_UNMAP", ("cuMemUnmap",)),
    ("MEM_RETAIN_HANDLE", ("cuMemRetainAllocationHandle",)),
    ("MEM_IMPORT_HANDLE", ("cuMemImportFromShareableHandle",)),
    ("ARRAY_CREATE", ("cuArrayCreate_v2",)),
    ("ARRAY_3D_CREATE", ("cuArray3DCreate_v2",)),
    ("MIPMAPPED_ARRAY_CREATE", ("cuMipmappedArrayCreate",)),
    ("ARRAY_DESTROY", ("cuArrayDestroy",)),
    ("MIPMAPPED_ARRAY_DESTROY", ("cuMipmappedArrayDestroy",)),
    ("IPC_GET_MEM_HANDLE", ("cuIpcGetMemHandle",)),
    ("IPC_OPEN_MEM_HANDLE", ("cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle")),
    ("IPC_CLOSE_MEM_HANDLE", ("cuIpcCloseMemHandle",)),
    ("CTX_CREATE", ("cuCtxCreate_v2", "cuCtxCreate")),
    ("CTX_CREATE_V3", ("cuCtxCreate_v3",)),
    ("CTX_CREATE_V4", ("cuCtxCreate_v4",)),
    ("CTX_DESTROY", ("cuCtxDestroy_v2", "cuCtxDestroy", "cuCtxDetach")),
    ("CTX_SET_CURRENT", ("cuCtxSetCurrent",)),
    ("CTX_PUSH_CURRENT", ("cuCtxPushCurrent_v2", "cuCtxPushCurrent")),
    ("CTX_POP_CURRENT", ("cuCtxPopCurrent_v2", "cuCtxPopCurrent")),
    ("PRIMARY_CTX_RETAIN", ("cuDevicePrimaryCtxRetain",)),
    (
        "PRIMARY_CTX_RELEASE",
        ("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"),
    ),
    ("PRIMARY_CTX_RESET", ("cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset")),
    ("GRAPH_ADD_MEM_ALLOC_NODE", ("cuGraphAddMemAllocNode",)),
    ("IMPORT_EXTERNAL_MEMORY", ("cuImportExternalMemory",)),
    ("MEM_MAP_ARRAY_ASYNC", ("cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz")),
    ("ARRAY_CREATE_V1", ("cuArrayCreate",)),
    ("ARRAY_3D_CREATE_V1", ("cuArray3DCreate",)),
    ("GRAPH_ADD_NODE", ("cuGraphAddNode",)),
    ("GRAPH_ADD_NODE_V2", ("cuGraphAddNode_v2",)),
    ("DEVICE_GET_UUID", ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")),
)

LOSSES = (
    "events",
    "captures",
    "processes_full",
    "usage_full",
    "accounts_full",
    "live_full",
    "threads",
    "contexts_full",
    "read_fault",
    "stack_failed",
    "nested",
    "abandoned",
    "unknown_free",
    "missed_free",
    "not_booked_graph",
    "not_booked_external",
    "not_booked_sparse",
    "size_unknown",
    "format_unknown",
    "unmap_partial",
    "seccomp",
)

EVENTS = {"none": 0, "failures": 1, "all": 2}
PID_TRACKED, PID_LATE = 1, 2
CAPTURE_TRUNCATED, CAPTURE_FAILED = 1 << 4, 1 << 5
RECORD_ALLOC, RECORD_FREE, RECORD_FAILURE, RECORD_CONTEXT_END, RECORD_PROCESS_END = range(1, 6)
LIVE, ENDED_CONTEXT, ENDED_PROCESS = range(3)

_KEY = [
    ("process", "<u8"),
    ("stack", "<u8"),
    ("context", "<u4"),
    ("kind", "u1"),
    ("host", "u1"),
    ("device", "<i2"),
]
_USAGE_KEY = [field for field in _KEY if field[0] != "stack"]
_TOTALS = [
    (f"{what}_{unit}", "<u8") for what in ("alloc", "free", "fail") for unit in ("bytes", "calls")
]

LAYOUTS: dict[str, list[tuple[str, str]]] = {
    "account": [
        *_KEY,
        *_TOTALS,
        ("untracked_bytes", "<u8"),
        ("generation", "<u4"),
        ("usage", "<u4"),
        ("overflow", "u1"),
        ("captured", "u1"),
        ("pad", "<u2"),
        ("slot", "<u4"),
    ],
    "usage": [
        *_USAGE_KEY,
        *_TOTALS,
        ("in_use", "<u8"),
        ("ended_at", "<u8"),
        ("generation", "<u4"),
        ("slot", "<u4"),
        ("next", "<u4"),
        ("overflow", "<u4"),
        ("ended", "u1"),
        ("pad", "V7"),
    ],
    "process": [
        ("instance", "<u8"),
        ("start_ns", "<u8"),
        ("mntns_id", "<u8"),
        ("first_ns", "<u8"),
        ("ended_at", "<u8"),
        ("in_use", "<u8"),
        ("peak", "<u8"),
        ("unknown_frees", "<u8"),
        ("cgroup_id", "<u8"),
        ("generation", "<u4"),
        ("pid", "<u4"),
        ("ns_pid", "<u4"),
        ("exec_id", "<u4"),
        ("uid", "<u4"),
        ("gid", "<u4"),
        ("usages", "<u4"),
        ("number", "<u4"),
        ("context", "<u4"),
        ("ended", "u1"),
        ("late", "u1"),
        ("pad", "V2"),
        ("comm", "S16"),
    ],
    "event": [
        ("time", "<u8"),
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("in_use", "<u8"),
        ("account", "<u4"),
        ("generation", "<u4"),
        ("tid", "<u4"),
        ("latency_ns", "<u4"),
        ("process", "<u4"),
        ("result", "<u2"),
        ("record", "u1"),
        ("call", "u1"),
    ],
    "capture": [
        ("process", "<u8"),
        ("key", "<u8"),
        ("time", "<u8"),
        ("ip", "<u8"),
        ("sp", "<u8"),
        ("fp", "<u8"),
        ("size", "<u4"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("flags", "<u4"),
        ("n_frames", "<u2"),
        ("n_python", "<u2"),
        ("stack_bytes", "<u4"),
        ("error", "<i4"),
        ("pad", "<u4"),
    ],
    "device": [("ordinal", "<u8"), ("process", "<u4"), ("pad", "<u4"), ("uuid", "V16")],
    "mapping": [
        ("start", "<u8"),
        ("end", "<u8"),
        ("offset", "<u8"),
        ("inode", "<u8"),
        ("device", "<u4"),
        ("pid", "<u4"),
    ],
    # the reader's own, native/replay.h
    "held": [("account", "<u4"), ("generation", "<u4"), ("bytes", "<u8"), ("calls", "<u8")],
    "group_peak": [
        ("process", "<u8"),
        ("in_use", "<u8"),
        ("peak", "<u8"),
        ("kind", "u1"),
        ("host", "u1"),
        ("device", "<i2"),
        ("pad", "<u4"),
    ],
}


@cache
def dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of one structure of ``bpf/abi.h``, by its name without prefix."""
    import numpy as np

    return np.dtype(LAYOUTS[name])


def call_name(call: int) -> str:
    """The driver function that a call number stands for, as events show it."""
    symbols = CALLS[call][1] if call < len(CALLS) else ()
    return symbols[0] if symbols else f"call {call}"


def sites() -> dict[str, int]:
    """Every symbol to look for in a libcuda, with the call number that is its cookie."""
    return {symbol: call for call, (_, symbols) in enumerate(CALLS) for symbol in symbols}
