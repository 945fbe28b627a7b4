# SPDX-License-Identifier: Apache-2.0
"""A client with many Python frames over many native ones; runs on any CPython from 3.8.

Arguments: the driver, the helper library (deep.c). Lines of standard input are
``COUNT PYTHON NATIVE PAUSE_US``; each is answered with the ns of COUNT allocations.
"""

import ctypes
import sys

driver = ctypes.CDLL(sys.argv[1])
helper = ctypes.CDLL(sys.argv[2])


# As long as the median function of the standard library.
BODY = """
def call_{level}(a, b, c):
    total = a + b
    if c:
        total += len(str(c))
    for number in range(2):
        total -= number
    return call_{next}(a, b, c)
"""


def measure(count, native, pause):
    took = (ctypes.c_uint64 * count)()
    helper.deep(
        native, driver.cuMemAlloc_v2, driver.cuMemFree_v2, took, ctypes.c_size_t(count), pause
    )
    return list(took)


def chain(depth):
    """As many functions as frames: code objects that differ, as those of a service do."""
    names = {"call_0": measure}
    for level in range(1, depth):
        source = BODY.format(level=level, next=level - 1)
        exec(compile(source, f"level_{level}.py", "exec"), names)
    return names[f"call_{depth - 1}"]


print("ready", flush=True)
for line in sys.stdin:
    count, python, native, pause = map(int, line.split())
    print(*chain(python - 1)(count, native, pause), flush=True)
