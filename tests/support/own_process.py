# SPDX-License-Identifier: Apache-2.0
"""Traces itself, as a notebook does: prints the bytes that it then holds, by its own run.

Arguments: the driver library.
"""

from __future__ import annotations

import ctypes
import os
import sys

import igsdk


def use_driver(path: str) -> None:
    driver = ctypes.CDLL(path)
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0


with igsdk.connect("local:") as gpu, gpu.profile_cuda_memory(pid=os.getpid()) as run:
    run._session.libraries.admit_path(sys.argv[1])
    use_driver(sys.argv[1])
print(run.profile().total("inuse_space"), len(run.attached), run.notes())
