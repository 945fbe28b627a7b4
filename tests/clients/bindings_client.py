# SPDX-License-Identifier: Apache-2.0
"""Uses cuda-bindings as a program would: every kind of memory that it reaches, one refusal.

Prints one line of JSON: bytes allocated and bytes that it means to hold at its end, by
kind, and the refused request.
"""

from __future__ import annotations

import json
from typing import Any

from cuda.bindings import driver

MIB = 1 << 20
GRANULARITY = 2 * MIB

Moved = tuple[int, int]
"""Bytes allocated, and bytes of them that stay."""


def check(answer: tuple[Any, ...]) -> Any:
    """What a call gave, without its result code; RuntimeError if that is not success."""
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(result.name)
    return values[0] if values else None


def plain() -> Moved:
    """Two allocations, one given back; a pitched one."""
    kept = 3 * MIB
    check(driver.cuMemAlloc(kept))
    check(driver.cuMemFree(check(driver.cuMemAlloc(5 * MIB))))
    _, pitch = driver.cuMemAllocPitch(1000, 100, 4)[1:]
    held = kept + int(pitch) * 100
    return held + 5 * MIB, held


def pinned() -> Moved:
    """Both host calls; one is given back."""
    check(driver.cuMemHostAlloc(MIB, 0))
    check(driver.cuMemFreeHost(check(driver.cuMemAllocHost(2 * MIB))))
    return 3 * MIB, MIB


def managed() -> Moved:
    """One that stays."""
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    check(driver.cuMemAllocManaged(4 * MIB, flags))
    return 4 * MIB, 4 * MIB


def pool() -> Moved:
    """Stream-ordered, one of two freed."""
    stream = driver.CUstream(0)
    check(driver.cuMemAllocAsync(MIB, stream))
    check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(6 * MIB, stream)), stream))
    return 7 * MIB, MIB


def virtual(device: int) -> Moved:
    """Created, mapped and released: the map keeps it."""
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    handle = check(driver.cuMemCreate(GRANULARITY, properties, 0))
    address = check(driver.cuMemAddressReserve(2 * GRANULARITY, 0, 0, 0))
    check(driver.cuMemMap(address, GRANULARITY, 0, handle, 0))
    check(driver.cuMemRelease(handle))
    return GRANULARITY, GRANULARITY


def array() -> Moved:
    """64 x 32 elements of two 32-bit channels."""
    descriptor = driver.CUDA_ARRAY_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.NumChannels = 64, 32, 2
    descriptor.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    check(driver.cuArrayCreate(descriptor))
    return 64 * 32 * 4 * 2, 64 * 32 * 4 * 2


def refused(device: int) -> int:
    """Twice what the device has; returns the bytes asked for."""
    wanted = 2 * int(check(driver.cuDeviceTotalMem(device)))
    result, _ = driver.cuMemAlloc(wanted)
    assert result == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, result
    return wanted


def main() -> None:
    check(driver.cuInit(0))
    device = int(check(driver.cuDeviceGet(0)))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    moved = {
        "device": plain(),
        "pinned": pinned(),
        "managed": managed(),
        "pool": pool(),
        "vmm": virtual(device),
        "array": array(),
    }
    allocated = {kind: bytes_[0] for kind, bytes_ in moved.items()}
    held = {kind: bytes_[1] for kind, bytes_ in moved.items()}
    print(json.dumps({"allocated": allocated, "held": held, "refused": refused(device)}))


if __name__ == "__main__":
    main()
