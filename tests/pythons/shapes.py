# SPDX-License-Identifier: Apache-2.0
"""Runs every shape of Python stack, twice, and ends by its last allocation.

usage: shapes.py FILE-OF-TRUTHS FIRST-NUMBER [SHAPE...]
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys

import told
from told import P, done, size, take

sys.setrecursionlimit(5000)


def main(names):
    for module in ("calls", "classes", "generators", "generated", "native", "processes"):
        importlib.import_module(module)
    for function in told.SHAPES:
        if not names or function.__name__ in names:
            for before in (False, True):
                told.choose(function.__name__, before)
                function()


def ending():
    done(take(P, size()))
    os._exit(0)


if __name__ == "__main__":
    told.begin(sys.argv[1], int(sys.argv[2]), "main", before=False)
    done(take(P, size()))
    main(sys.argv[3:])
    told.choose("atexit", True)
    done(take(P, size()))
    atexit.register(ending)
