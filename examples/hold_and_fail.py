# SPDX-License-Identifier: Apache-2.0
"""A small CUDA program that holds some memory, frees some, and asks for too much.

It needs cuda-bindings only, no kernel is started, and it does not know igsdk:

    igsdk record -- python examples/hold_and_fail.py
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

MIB = 1 << 20


def check(answer: tuple[Any, ...]) -> Any:
    """Returns what a driver call gave, without its result code.

    Raises:
        RuntimeError: the call failed.
    """
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(result.name)
    return values[0] if values else None


def load_weights(layers: int) -> list[Any]:
    """Allocates the layers of a model; they stay until the program ends."""
    return [check(driver.cuMemAlloc(16 * MIB)) for _ in range(layers)]


def run_step(batch: int) -> None:
    """Allocates what one step needs and gives it back: this makes the peak."""
    activations = [check(driver.cuMemAlloc(8 * MIB)) for _ in range(batch)]
    for block in activations:
        check(driver.cuMemFree(block))


def stage_input() -> Any:
    """Allocates host memory that the device can read, which is of another kind."""
    return check(driver.cuMemAllocHost(4 * MIB))


def grow_cache(total: int) -> str:
    """Asks for twice what the device has, and returns what the driver said."""
    result, _ = driver.cuMemAlloc(2 * total)
    return str(result.name)


def main() -> None:
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))

    weights = load_weights(layers=4)
    staging = stage_input()
    for _ in range(3):
        run_step(batch=6)
    said = grow_cache(check(driver.cuDeviceTotalMem(device)))
    print(f"holds {len(weights)} layers and a buffer at {int(staging):#x}; more memory: {said}")


if __name__ == "__main__":
    main()
