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
    "python_fault",
    "stack_bytes",
    "stack_table",
    "rows",
)

EVENTS = {"none": 0, "failures": 1, "all": 2}
PID_TRACKED, PID_LATE = 1, 2
RECORD_STACK, RECORD_CODE, RECORD_CLASS = range(1, 4)  # of the captures ring
CAPTURE_NATIVE, CAPTURE_TEMPLATE, CAPTURE_PYTHON = 1 << 0, 1 << 1, 1 << 2
CAPTURE_PYTHON_CUT, CAPTURE_PYTHON_FAULT = 1 << 3, 1 << 4
CAPTURE_NO_ROOM, CAPTURE_STACK_END = 1 << 5, 1 << 6
KEY_BUSY = 2  # nothing was taken: no record of it comes
KEY_FRESH = 1 << 63  # of one call and no other
FRAME_ENTRY = 1
TEMPLATE_SEED = 0x7E3A9B1D5C2F4861
RECORD_ALLOC, RECORD_FREE, RECORD_FAILURE, RECORD_CONTEXT_END, RECORD_PROCESS_END = range(1, 6)
LIVE, ENDED_CONTEXT, ENDED_PROCESS = range(3)

ACCOUNT_KEY = [
    ("process", "<u8"),
    ("stack", "<u8"),
    ("context", "<u4"),
    ("kind", "u1"),
    ("host", "u1"),
    ("device", "<i2"),
]
_USAGE_KEY = [field for field in ACCOUNT_KEY if field[0] != "stack"]
_TOTALS = [
    (f"{what}_{unit}", "<u8") for what in ("alloc", "free", "fail") for unit in ("bytes", "calls")
]

_EVENT = [
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
]
_RECORD = [("size", "<u4"), ("record", "<u4")]
_STRING = [("object", "<u8"), ("length", "<u8"), ("kind", "<u4"), ("taken", "<u4")]
_PYTHON = [("runtime", "<u8"), ("flavour", "<u4")] + [
    (name, "<u2")
    for name in (
        "version",
        "lasti_scale",
        "interpreters_head",
        "tss_key",
        "tss_slots",
        "interp_next",
        "interp_threads",
        "thread_next",
        "thread_id",
        "thread_native_id",
        "thread_frame",
        "cframe_frame",
        "frame_size",
        "frame_previous",
        "frame_code",
        "frame_instruction",
        "frame_owner",
        "frame_is_entry",
        "frame_locals",
        "owner_shim",
        "code_size",
        "code_argcount",
        "code_first_line",
        "code_varnames",
        "code_file",
        "code_name",
        "code_table",
        "code_start",
        "code_first_traceable",
        "object_type",
        "tuple_items",
        "bytes_size",
        "bytes_data",
        "type_name",
        "type_flags",
        "string_length",
        "string_state",
        "string_ascii_data",
        "string_data",
        "string_kind_shift",
        "string_ascii_bit",
        "code_tag",
        "code_version",
        "reserved_1",
        "reserved_2",
        "reserved_3",
    )
]

LAYOUTS: dict[str, list[Any]] = {
    "account": [
        *ACCOUNT_KEY,
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
        ("pad", "V3"),
        ("sum", "<u4"),
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
    "event": _EVENT,
    # variable part behind it: n_python rows of "python_frame", then the stack
    "capture": [
        *_RECORD,
        ("process", "<u8"),
        ("key", "<u8"),
        ("template_id", "<u8"),
        ("place", "<u8"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("flags", "<u4"),
        ("space", "<u4"),
        ("n_python", "<u2"),
        ("n_returns", "<u2"),
        ("stack_bytes", "<u4"),
        ("registers", "<u8", (33,)),
        ("returns", "<u8", (8, 2)),
    ],
    "python_frame": [
        ("code", "<u8"),
        ("check", "<u8"),
        ("type", "<u8"),
        ("lasti", "<i4"),
        ("flags", "<u4"),
    ],
    "code": [
        *_RECORD,
        ("process", "<u8"),
        ("code", "<u8"),
        ("check", "<u8"),
        ("table", "<u8"),
        ("table_length", "<u8"),
        *((f"name_{field}", kind) for field, kind in _STRING),
        *((f"file_{field}", kind) for field, kind in _STRING),
        ("pid", "<u4"),
        ("first_line", "<i4"),
        ("table_taken", "<u4"),
        ("version", "<u4"),
        ("name_bytes", "V256"),
        ("file_bytes", "V512"),
        ("table_bytes", "V2048"),
    ],
    "class": [
        *_RECORD,
        ("process", "<u8"),
        ("type", "<u8"),
        ("name_address", "<u8"),
        ("pid", "<u4"),
        ("taken", "<u4"),
        ("name", "V256"),
    ],
    "python": _PYTHON,
    "space": [("generation", "<u4"), ("pad", "<u4"), *_PYTHON],
    "template_key": [("process", "<u8"), ("place", "<u8"), ("space", "<u4"), ("way", "<u4")],
    "template": [
        ("id", "<u8"),
        ("hash", "<u8"),
        ("n_slots", "<u4"),
        ("bytes", "<u4"),
        ("slots", "<u2", (512,)),
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
    # the reader's own, native/reader.h and replay.h
    "kept_event": [
        *_EVENT,
        *(("owner", kind) if name == "process" else (name, kind) for name, kind in ACCOUNT_KEY),
    ],
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
