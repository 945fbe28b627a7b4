# SPDX-License-Identifier: Apache-2.0
"""Names of CUresult codes, as the driver's documentation spells them."""

from __future__ import annotations

OUT_OF_MEMORY = 2

_NAMES = {
    1: "INVALID_VALUE",
    2: "OUT_OF_MEMORY",
    3: "NOT_INITIALIZED",
    4: "DEINITIALIZED",
    34: "STUB_LIBRARY",
    46: "DEVICE_UNAVAILABLE",
    100: "NO_DEVICE",
    101: "INVALID_DEVICE",
    201: "INVALID_CONTEXT",
    205: "MAP_FAILED",
    206: "UNMAP_FAILED",
    208: "ALREADY_MAPPED",
    211: "NOT_MAPPED",
    214: "ECC_UNCORRECTABLE",
    400: "INVALID_HANDLE",
    401: "ILLEGAL_STATE",
    500: "NOT_FOUND",
    600: "NOT_READY",
    700: "ILLEGAL_ADDRESS",
    701: "LAUNCH_OUT_OF_RESOURCES",
    702: "LAUNCH_TIMEOUT",
    708: "PRIMARY_CONTEXT_ACTIVE",
    709: "CONTEXT_IS_DESTROYED",
    710: "ASSERT",
    712: "HOST_MEMORY_ALREADY_REGISTERED",
    713: "HOST_MEMORY_NOT_REGISTERED",
    714: "HARDWARE_STACK_ERROR",
    719: "LAUNCH_FAILED",
    800: "NOT_PERMITTED",
    801: "NOT_SUPPORTED",
    802: "SYSTEM_NOT_READY",
    803: "SYSTEM_DRIVER_MISMATCH",
    900: "STREAM_CAPTURE_UNSUPPORTED",
    901: "STREAM_CAPTURE_INVALIDATED",
    999: "UNKNOWN",
}


def result_name(code: int) -> str:
    """``CUDA_ERROR_OUT_OF_MEMORY`` for 2; a code without a known name says its number."""
    if code == 0:
        return "CUDA_SUCCESS"
    name = _NAMES.get(code)
    return f"CUDA_ERROR_{name}" if name else f"CUresult {code}"
