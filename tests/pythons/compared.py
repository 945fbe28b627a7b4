# SPDX-License-Identifier: Apache-2.0
"""Some shapes for other tools to look at: a signal ends the wait in each allocation.

usage: compared.py LIBRARY FILE-OF-TRUTHS FIRST-NUMBER
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys

import told
from told import P, done, size

library = ctypes.CDLL(sys.argv[1])
library.allocate_when_told.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
DRIVER = ctypes.cast(told.take, ctypes.c_void_p)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Outer:
    class Inner:
        def method(self):
            sorted([1], key=lambda value: done(library.allocate_when_told(DRIVER, P, size())))

    @classmethod
    def made(cls):
        return list(cls.numbers())

    @staticmethod
    def numbers():
        yield from (done(library.allocate_when_told(DRIVER, P, size())) for _ in range(1))


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return done(library.allocate_when_told(DRIVER, P, size()))


def compare(one, two):
    done(library.allocate_when_told(DRIVER, P, size()))
    return 0


async def waits():
    await asyncio.sleep(0)
    done(library.allocate_when_told(DRIVER, P, size()))


def main():
    Outer.Inner().method()
    Outer.made()
    recurse(30)
    array = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).bsearch(array, array, 1, 4, COMPARE(compare))
    asyncio.run(waits())


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    told.begin(sys.argv[2], int(sys.argv[3]), "compared")
    main()
