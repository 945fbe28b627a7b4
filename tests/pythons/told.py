# SPDX-License-Identifier: Apache-2.0
"""One sample: an allocation whose size is its number, and its true stack.

    done(take(P, size()))

`size` gives the number and, where the truth is told before, writes it down; `done` writes
it where it is told after. Told after, no frame object exists yet at the allocation, as
in programs that nobody looks into. The three calls stand in one line, which is that of
the allocation. One line of JSON a sample; they are appended, by several processes too.
Runs on CPython 3.8 and later with the standard library alone.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import threading
from types import FrameType

_driver = ctypes.CDLL("libcuda.so.1")
take = _driver.cuMemAlloc_v2  # lets other threads run meanwhile
held = ctypes.PyDLL("libcuda.so.1").cuMemAlloc_v2  # keeps the interpreter's lock
for _function in (take, held):
    _function.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

QUALIFIED = sys.version_info >= (3, 11)
SHAPES = []

_numbers = itertools.count()
_block = 1000
_out = -1
_path = ""
_before = False
_shape = ""
_context = ctypes.c_void_p()
_waiting = threading.local()


class _Address:
    """Where the driver writes the address to: another place for each thread."""

    @property
    def _as_parameter_(self):
        try:
            return _waiting.address
        except AttributeError:
            _waiting.address = ctypes.byref(ctypes.c_uint64())
            return _waiting.address


P = _Address()


def shape(function):
    """Decorator: one of the shapes that the program runs."""
    SHAPES.append(function)
    return function


def begin(path, first, name="", before=True):
    """Opens the file of truths; numbers count from `first`. The driver is started."""
    global _out, _path
    _path, _out = path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    restart(first)
    choose(name, before)


def restart(first):
    """What a process does that has no driver state yet."""
    global _numbers
    _numbers = itertools.count(first)
    assert _driver.cuInit(0) == 0
    assert _driver.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0) == 0
    join()


def forked(first):
    """What a fork does; its own children have smaller blocks, which lie within its own."""
    global _block
    _block //= 10
    restart(first)


def join():
    """What a thread does before its first sample."""
    assert _driver.cuCtxSetCurrent(_context) == 0


def choose(name, before):
    """The shape that samples belong to from now on, and when they are told."""
    global _shape, _before
    _shape, _before = name, before


def place():
    """Where truths go, and which shape's: for other interpreters and programs."""
    return _path, _shape, _before


def block():
    """The first of a block of numbers, for another process."""
    first = next(_numbers)
    for _ in range(_block - 1):
        next(_numbers)
    return first


def skip(why):
    """Says why the present shape was not run."""
    _write({"shape": _shape, "skipped": why})


def size():
    """The next number, as bytes to allocate."""
    number = next(_numbers)
    if _before:
        _tell(number, sys._getframe(1))
    else:
        _stack().append(number)
    return number


def done(result):
    """The end of a sample; it must have worked."""
    if result:
        raise RuntimeError("cuMemAlloc_v2 gave %d" % result)
    if not _before:
        _tell(_stack().pop(), sys._getframe(1))


def _stack():
    try:
        return _waiting.numbers
    except AttributeError:
        _waiting.numbers = []
        return _waiting.numbers


def _tell(number, frame):
    _write({"number": number, "shape": _shape, "pid": os.getpid(), "frames": list(_walk(frame))})


def _write(record):
    line = json.dumps(record).encode() + b"\n"
    assert os.write(_out, line) == len(line)


def _walk(frame: FrameType | None):
    """Name, qualified name, class of the first argument, file, line, first line; leaf first."""
    while frame is not None:
        code = frame.f_code
        qualified = code.co_qualname if QUALIFIED else None
        of = None if QUALIFIED else _class(frame)
        line = frame.f_lineno
        yield code.co_name, qualified, of, code.co_filename, line, code.co_firstlineno
        frame = frame.f_back


def _class(frame):
    """The class that a method is called on; "?" where only the compiler knows where it is."""
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] not in ("self", "cls"):
        return None
    name = code.co_varnames[0]
    if name in code.co_cellvars:
        return "?"
    try:
        value = frame.f_locals[name]
    except KeyError:
        return None
    if name == "self":
        return type(value).__name__
    return value.__name__ if isinstance(value, type) else None
