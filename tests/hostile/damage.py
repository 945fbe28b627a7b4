# SPDX-License-Identifier: Apache-2.0
"""A Python that damages its own structures while it calls the driver.

    python damage.py SEED ROUNDS LIBRARY THREAD_FRAME CFRAME_FRAME FRAME_SIZE

LIBRARY has ``damaged``, which writes the damage, calls the driver and puts everything
back before Python goes on. The numbers say where this version keeps its frames (-1: no
such thing). Runs on CPython 3.8 and later.
"""

import ctypes
import random
import struct
import sys
import time

seed, rounds = int(sys.argv[1]), int(sys.argv[2])
thread_frame, cframe_frame, frame_size = map(int, sys.argv[4:7])
generator = random.Random(seed)
library, keeping = ctypes.CDLL(sys.argv[3]), ctypes.PyDLL(sys.argv[3])
for each in (library, keeping):
    each.damaged.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
ctypes.pythonapi.PyThreadState_Get.restype = ctypes.c_void_p


def word_at(address):
    return struct.unpack("<Q", ctypes.string_at(address, 8))[0]


def interpreter_frame():
    """Where the running frame's own data are, and how many bytes."""
    where = word_at(ctypes.pythonapi.PyThreadState_Get() + thread_frame)
    if cframe_frame >= 0:
        where = word_at(where + cframe_frame)
    return where, frame_size


def targets(me):
    frame = sys._getframe(1)
    code = frame.f_code
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    thread = ctypes.pythonapi.PyThreadState_Get()
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    found = [
        (id(frame), 56),
        (id(code), 128),
        (id(code.co_name), 56),
        (id(code.co_filename), 56),
        (id(table), 33 + len(table)),
        (thread, 200),
        (runtime, 4096),
        (runtime, 1024),
        (id(type(me)), 200),
        interpreter_frame(),
        interpreter_frame(),
    ]
    if hasattr(code, "co_qualname"):
        found.append((id(code.co_qualname), 56))
    return found


def bad_word(good, where, size):
    kind = generator.randrange(9)
    if kind == 0:
        return generator.getrandbits(64)
    if kind == 1:
        return 0
    if kind == 2:
        return where + generator.randrange(size)  # itself
    if kind == 3:
        return good ^ 1 << generator.randrange(64)
    if kind == 4:
        return (good + generator.choice((-64, -8, -1, 1, 8, 64, 4096))) & (1 << 64) - 1
    if kind == 5:
        return 0xFFFF800000000000 | generator.getrandbits(40)
    if kind == 6:
        return generator.getrandbits(47)
    if kind == 7:
        return id(generator.choice((sys, None, int, seed, random, targets)))
    return (1 << 63) - generator.randrange(3)


def damage_of(where, size):
    data = bytearray(ctypes.string_at(where, size))
    share = generator.choice((0.02, 0.1, 0.5, 1.0))
    if generator.random() < 0.1:
        return bytes(generator.getrandbits(8) for _ in range(size))
    for at in range(0, size - 7, 8):
        if generator.random() < share or (size == 8):
            good = struct.unpack_from("<Q", data, at)[0]
            struct.pack_into("<Q", data, at, bad_word(good, where, size))
    return bytes(data)


class Model:
    def load(self, how):
        return next(self.one(how) for _ in range(1))

    def one(self, how):
        where, size = generator.choice(targets(self))
        damage = damage_of(where, size)
        return (lambda: how.damaged(where, damage, size, 4096))()

    def honest(self):
        return library.damaged(None, None, 0, 1 << 20)


model = Model()
time.sleep(0.5)  # as long as a driver takes to start; until then its Python is found
assert model.honest() == 0
for _ in range(rounds):
    assert model.load(generator.choice((library, keeping))) == 0
assert model.honest() == 0
