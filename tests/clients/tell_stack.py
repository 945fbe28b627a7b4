# SPDX-License-Identifier: Apache-2.0
"""Says its own stack, and waits there; once for each shape. For any CPython from 3.8 on."""

import contextlib
import functools
import json
import os
import sys
import threading

wide = "\u0444\u0443\u043d\u043a\u0446\u0438\u044f"  # two bytes a letter
accent = "caf\u00e9"  # one, and not ASCII
beyond = "\U00010400x"  # four


def stack():
    told, frame = [], sys._getframe(1)
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        told.append([name, code.co_filename, frame.f_lineno, code.co_firstlineno])
        frame = frame.f_back
    return told


def write(told):
    line = json.dumps({"tid": threading.get_native_id(), "frames": told}) + "\n"
    os.write(1, line.encode())


def stop():
    (write(stack()), os.read(0, 1))


class Outer:
    class Inner:
        def __init__(self, call=None):
            if call:
                call()

        def method(self):
            stop()

        @classmethod
        def made(cls):
            stop()

        @property
        def value(self):
            return stop()

        def __lt__(self, other):
            stop()
            return True


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return stop()


def generator():
    yield stop()
    yield from (stop() for _ in range(1))


def many_lines():
    functools.reduce(
        lambda a, b: stop(),
        [
            1,
            2,
        ],
    )


def handler():
    try:
        raise ValueError
    except ValueError:
        stop()
    finally:
        stop()


async def coroutine():
    await awaited()


async def awaited():
    stop()


def run_coroutine():
    with contextlib.suppress(StopIteration):
        coroutine().send(None)


def in_thread():
    thread = threading.Thread(target=recurse, args=(3,))
    thread.start()
    thread.join()


def far_apart():
    lines = ["def long():", *["    x = 1"] * 400, *[""] * 700, "    stop()", "long()"]
    exec(compile("\n".join(lines), "long.py", "exec"), {"stop": stop})


def named():
    text = "def %s():\n\n    stop()\n%s()\n"
    for name in (wide, accent, beyond):
        exec(compile(text % (name, name), name + ".py", "exec"), {"stop": stop})


SHAPES = (
    stop,
    lambda: stop(),
    Outer.Inner().method,
    Outer.Inner.made,
    lambda: Outer.Inner().value,
    lambda: sorted([Outer.Inner(), Outer.Inner()]),
    lambda: [Outer.Inner(call) for call in [stop] * 3],
    lambda: recurse(200),
    lambda: list(generator()),
    many_lines,
    far_apart,
    handler,
    run_coroutine,
    in_thread,
    named,
)

for shape in SHAPES:
    shape()
