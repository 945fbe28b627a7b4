# SPDX-License-Identifier: Apache-2.0
"""Other processes and interpreters, and samples as the very last thing that a process does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import told
from told import P, done, shape, size, take

HERE = os.path.dirname(os.path.abspath(__file__))


def in_child(work):
    """Runs it in a fork that ends at once; waits for that end."""
    first = told.block()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            told.forked(first)
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status


def last():
    done(take(P, size()))
    os._exit(0)


@shape
def forked():
    in_child(last)

    def grandchild():
        done(take(P, size()))
        in_child(last)
        done(take(P, size()))
        os._exit(0)

    in_child(grandchild)


@shape
def forked_by_thread():
    thread = threading.Thread(target=in_child, args=(last,))
    thread.start()
    thread.join()


def second_words():
    path, name, before = told.place()
    second = os.path.join(HERE, "second.py")
    return [sys.executable, second, path, str(told.block()), name, "before" if before else ""]


@shape
def second_program():
    words = second_words()
    in_child(lambda: os.execv(words[0], words))
    subprocess.run(second_words(), check=True)


SUB = """
import sys
sys.path.insert(0, {here!r})
import told
from told import P, done, size, take
told.begin({path!r}, {first}, {name!r}, {before})

def inner(depth):
    if depth:
        inner(depth - 1)
    else:
        done(take(P, size()))

done(take(P, size()))
inner(3)
"""


def sub_interpreter():
    """Returns (make, run, end) of this version, None where it has none."""
    try:
        import _interpreters as sub  # 3.13
    except ImportError:
        try:
            import _xxsubinterpreters as sub
        except ImportError:
            return None
    make = sub.create
    if sys.version_info[:2] == (3, 12):  # its ctypes refuses to be isolated
        make = lambda: sub.create(isolated=False)  # noqa: E731
    return make, getattr(sub, "exec", None) or sub.run_string, sub.destroy


@shape
def subinterpreters():
    functions = sub_interpreter()
    if functions is None:
        told.skip("this build has no subinterpreters")
        return
    make, run, end = functions
    path, name, before = told.place()

    def work():
        code = SUB.format(here=HERE, path=path, first=told.block(), name=name, before=before)
        failed = run(interpreter, code)
        assert failed is None, failed

    interpreter = make()
    work()
    done(take(P, size()))
    thread = threading.Thread(target=lambda: told.join() or work())
    thread.start()
    thread.join()
    end(interpreter)
    done(take(P, size()))
