# SPDX-License-Identifier: Apache-2.0
"""The same story told with numba: arrays that stay, arrays that go, one too many.

igsdk record -o numba.pb.gz -- python examples/numba_arrays.py
"""

from __future__ import annotations

import numpy as np
from numba import cuda

MIB = 1 << 20


def make_table() -> object:
    """An array on the device that lives as long as the program."""
    return cuda.device_array(32 * MIB, dtype=np.uint8)


def transform(rounds: int) -> None:
    """Arrays that go away with their last reference."""
    for _ in range(rounds):
        cuda.device_array((4, MIB), dtype=np.float32)
    # numba collects frees before it hands them to the driver
    cuda.current_context().deallocations.clear()


def pin_batch() -> object:
    """Host memory that the device reads directly."""
    return cuda.pinned_array(2 * MIB, dtype=np.uint8)


def ask_for_too_much() -> str:
    """Asks for twice what the device has, and returns the error's name."""
    _, total = cuda.current_context().get_memory_info()
    try:
        cuda.device_array(2 * total, dtype=np.uint8)
    except cuda.cudadrv.driver.CudaAPIError as error:
        return str(error)
    return "no error"


def main() -> None:
    table, batch = make_table(), pin_batch()
    transform(rounds=5)
    print(f"holds {len((table, batch))} arrays; more memory: {ask_for_too_much()}")


if __name__ == "__main__":
    main()
