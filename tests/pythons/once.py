# SPDX-License-Identifier: Apache-2.0
"""One allocation by a method; then the process is gone at once, or stays a while.

usage: once.py gone|stays
"""

import os
import sys
import time

import told
from told import P, take


class Worker:
    def allocate(self, bytes_):
        self.result = take(P, bytes_)
        self.then()

    def then(self):
        if sys.argv[1] == "stays":
            time.sleep(0.5)
        os._exit(self.result)


told.begin(os.devnull, 1)
Worker().allocate(4096)
