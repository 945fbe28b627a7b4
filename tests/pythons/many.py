# SPDX-License-Identifier: Apache-2.0
"""The same allocation very often.

usage: many.py LIBRARY FROM-C FROM-PYTHON     how often
"""

import ctypes
import os
import sys

import told
from told import take

driver = ctypes.CDLL("libcuda.so.1")
loop = ctypes.CDLL(sys.argv[1]).allocate_many
give_back = driver.cuMemFree_v2
give_back.argtypes = (ctypes.c_uint64,)


def from_c(times):
    assert loop(take, give_back, ctypes.c_long(times)) == 0


class FromPython:
    def work(self, times):
        address = ctypes.c_uint64()
        place = ctypes.byref(address)
        for _ in range(times):
            take(place, 4096)
            give_back(address.value)


told.begin(os.devnull, 1)
from_c(int(sys.argv[2]))
FromPython().work(int(sys.argv[3]))
