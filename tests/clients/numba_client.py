# SPDX-License-Identifier: Apache-2.0
"""Uses numba-cuda as a program would: device, pinned and managed arrays, one refusal.

Prints one line of JSON like bindings_client.py.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numba import cuda

MIB = 1 << 20

Moved = tuple[int, int]
"""Bytes allocated, and bytes of them that stay."""


def device_arrays(kept: list[Any]) -> Moved:
    """Copied there and back, and one that goes away."""
    there = cuda.to_device(np.arange(MIB, dtype=np.uint32))
    assert there.copy_to_host()[-1] == MIB - 1
    kept.append(there)
    cuda.device_array(3 * MIB, dtype=np.uint8)
    cuda.current_context().deallocations.clear()  # numba frees in batches
    return 7 * MIB, 4 * MIB


def pinned(kept: list[Any]) -> Moved:
    """Host memory, filled and read."""
    array = cuda.pinned_array(MIB, dtype=np.uint8)
    array[:] = 7
    assert int(array.sum()) == 7 * MIB
    kept.append(array)
    return MIB, MIB


def managed(kept: list[Any]) -> Moved:
    """Memory that both sides see."""
    kept.append(cuda.managed_array(2 * MIB, dtype=np.uint8))
    return 2 * MIB, 2 * MIB


def refused() -> int:
    """Twice what the device has; returns the bytes asked for."""
    _, total = cuda.current_context().get_memory_info()
    try:
        cuda.device_array(2 * total, dtype=np.uint8)
    except Exception as error:  # its class has moved between versions
        if "OUT_OF_MEMORY" not in str(error):
            raise
        return 2 * int(total)
    raise AssertionError("twice the device's memory was given")


def main() -> None:
    kept: list[Any] = []
    moved = {"device": device_arrays(kept), "pinned": pinned(kept), "managed": managed(kept)}
    allocated = {kind: bytes_[0] for kind, bytes_ in moved.items()}
    held = {kind: bytes_[1] for kind, bytes_ in moved.items()}
    print(json.dumps({"allocated": allocated, "held": held, "refused": refused()}))


if __name__ == "__main__":
    main()
