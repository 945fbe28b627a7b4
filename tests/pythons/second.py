# SPDX-License-Identifier: Apache-2.0
"""Another program; it ends right after its last allocation."""

import os
import sys

import told
from told import P, done, size, take


class Second:
    def last(self):
        done(take(P, size()))
        os._exit(0)


if __name__ == "__main__":
    path, first, name, before = sys.argv[1:]
    told.begin(path, int(first), name, before == "before")
    done(take(P, size()))
    Second().last()
