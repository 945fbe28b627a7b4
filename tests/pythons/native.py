# SPDX-License-Identifier: Apache-2.0
"""C that calls back into Python, threads of Python and of C, hooks of the interpreter."""

from __future__ import annotations

import _thread
import concurrent.futures
import ctypes
import gc
import re
import signal
import sys
import threading
import weakref

import told
from told import P, done, held, shape, size, take

libc = ctypes.CDLL(None)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
CALL = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)
ARRAY = ctypes.c_int * 3


def compare(one, two):
    done(take(P, size()))
    return 0


class Sorter:
    def compare(self, one, two):
        done(take(P, size()))
        return 0


@shape
def callbacks():
    array = ARRAY(3, 1, 2)
    libc.qsort(array, 3, 4, COMPARE(compare))
    libc.qsort(array, 3, 4, COMPARE(Sorter().compare))
    libc.bsearch(array, array, 1, 4, COMPARE(lambda one, two: done(take(P, size())) or 0))
    CALL(lambda number: done(held(P, size())) or number)(1)


@shape
def nested_callbacks():
    def enter(depth):
        if depth:
            level = COMPARE(lambda one, two: enter(depth - 1))
            libc.bsearch(ARRAY(), ARRAY(), 1, 4, level)
        else:
            done(take(P, size()))
        return 0

    for depth in (1, 2, 10):
        enter(depth)


def foreign(argument):
    """The bottom of a thread that Python did not make."""
    told.join()
    done(take(P, size()))
    list(map(lambda number: done(take(P, size())), [1]))
    return None


@shape
def foreign_thread():
    thread, start = ctypes.c_ulong(), START(foreign)
    for _ in range(2):
        assert libc.pthread_create(ctypes.byref(thread), None, start, None) == 0
        assert libc.pthread_join(thread, None) == 0


class Worker(threading.Thread):
    def __init__(self, ready, count):
        super().__init__()
        self.ready, self.count = ready, count

    def run(self):
        told.join()
        self.ready.wait()
        for number in range(self.count):
            self.recurse(number % 5)

    def recurse(self, depth):
        if depth:
            self.recurse(depth - 1)
        else:
            done(take(P, size()))


@shape
def threads():
    ready = threading.Barrier(4)
    workers = [Worker(ready, 10) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@shape
def many_threads():
    """64 are alive; the first and the last of them sample, and so do we."""
    go, alive = threading.Event(), threading.Barrier(65)

    def wait(number):
        told.join()
        alive.wait()
        if number in (0, 1, 31, 63):
            done(take(P, size()))
        go.wait()
        if number in (0, 63):
            done(take(P, size()))

    workers = [threading.Thread(target=wait, args=(number,)) for number in range(64)]
    for worker in workers:
        worker.start()
    alive.wait()
    done(take(P, size()))
    go.set()
    for worker in workers:
        worker.join()


@shape
def bare_threads():
    finished = _thread.allocate_lock()
    finished.acquire()

    def run():
        told.join()
        done(take(P, size()))
        finished.release()

    _thread.start_new_thread(run, ())
    finished.acquire()
    timer = threading.Timer(0, lambda: told.join() or done(take(P, size())))
    timer.start()
    timer.join()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: told.join() or done(take(P, size())), range(3)))


@shape
def interrupted():
    """A signal's handler stands on what it interrupts."""

    def handler(number, frame):
        done(take(P, size()))

    before = signal.signal(signal.SIGUSR1, handler)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    re.sub("a", lambda match: signal.pthread_kill(threading.get_ident(), 10) or "", "aa")
    signal.signal(signal.SIGUSR1, before)


class Referred:
    pass


@shape
def garbage():
    referred = Referred()
    weakref.finalize(referred, lambda: done(take(P, size())))
    reference = weakref.ref(referred, lambda dead: done(take(P, size())))
    del referred
    assert reference() is None

    def collected(phase, info):
        done(take(P, size()))

    gc.callbacks.append(collected)
    gc.collect()
    gc.callbacks.remove(collected)


def traced(count):
    total = 0
    for _ in range(count):
        done(take(P, size()))
        total += 1
    return [done(take(P, size())) for _ in range(1)]


@shape
def tracing():
    """Traced code, and the function that traces it."""

    def trace(frame, event, argument):
        if frame.f_code is traced.__code__ and event in ("line", "return"):
            done(take(P, size()))
        return trace

    sys.settrace(trace)
    traced(2)
    sys.settrace(None)

    def profile(frame, event, argument):
        if frame.f_code is traced.__code__:
            sys.setprofile(None)
            done(take(P, size()))

    sys.setprofile(profile)
    traced(1)
    sys.setprofile(None)
    traced(1)


@shape
def monitored():
    """Monitoring rewrites the code that runs."""
    if sys.version_info < (3, 12):
        told.skip("sys.monitoring is there from 3.12 on")
        return
    monitoring, tool = sys.monitoring, 3
    events = monitoring.events

    def on_line(code, line):
        done(take(P, size()))

    monitoring.use_tool_id(tool, "shapes")
    monitoring.register_callback(tool, events.LINE, on_line)
    monitoring.register_callback(tool, events.INSTRUCTION, lambda code, offset: None)
    monitoring.set_local_events(tool, traced.__code__, events.LINE | events.INSTRUCTION)
    traced(2)
    monitoring.set_local_events(tool, traced.__code__, 0)
    monitoring.free_tool_id(tool)
    traced(1)
