# SPDX-License-Identifier: Apache-2.0
"""Tells the kernel part of each process with a Python where that keeps its frames."""

from __future__ import annotations

import itertools
import os
import platform
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..libraries import PREFIX, find_mapped, open_mapped
from ..mappings import read_maps
from .discover import PREFIXES, Interpreter, find_candidates, libc_of, read_interpreter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..mappings import Mapping

_MAX_FILES = 4096
_MAX_PROCESSES = 16384
_MAX_NOTES = 20
# A process is mapped before its exec is over, and at that end the kernel forgets what it
# was told of the process: tell it once more.
_AGAIN = 0.1  # seconds later


class Registers(Protocol):
    """What the kernel part is told: ``struct igsdk_python`` as bytes."""

    def set_python(self, pid: int, layout: bytes, /) -> None: ...
    def clear_python(self, pid: int, /) -> None: ...


@dataclass(frozen=True)
class _Known:
    """What a file turned out to be; `signature` tells that it is still that file."""

    signature: tuple[int, int]  # size, change time
    interpreter: Interpreter | None


class Files:
    """Interpreters by file, each read once; bounded, what was read first goes first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], _Known] = OrderedDict()

    def of(self, pid: int, mapping: Mapping, *, likely: bool) -> Interpreter | None:
        """What a process has mapped; None: no interpreter, or nobody can read it."""
        key = mapping.device, mapping.inode
        known = self._known.get(key)
        try:
            fd = open_mapped(pid, mapping)
        except OSError:
            return known.interpreter if known else None
        try:
            status = os.fstat(fd)
            signature = status.st_size, status.st_ctime_ns
            if known is None or known.signature != signature:
                known = _Known(signature, _read(fd, mapping.path, likely))
                self._keep(key, known)
        finally:
            os.close(fd)
        return known.interpreter

    def _keep(self, key: tuple[int, int], known: _Known) -> None:
        self._known[key] = known
        if len(self._known) > _MAX_FILES:
            self._known.popitem(last=False)


def _read(fd: int, path: str, likely: bool) -> Interpreter | None:
    with suppress(OSError, ValueError):  # it is no ELF file, or no whole one
        return read_interpreter(fd, path, likely=likely)
    return None


@dataclass(frozen=True)
class _Said:
    """Of a process: why its frames can't be read, or what to know of them."""

    reason: str = ""
    note: str = ""


_NOTHING = _Said()


class Pythons:
    """Registers processes; thread-safe. A process that nobody can read is none of ours.

    Args:
        tracer: is told of each process that has a Python.
    """

    def __init__(self, tracer: Registers) -> None:
        self._tracer = tracer
        self._files = Files()
        self._said: OrderedDict[int, _Said] = OrderedDict()
        self._again: OrderedDict[int, float] = OrderedDict()  # when, by process; oldest first
        self._lock = threading.Lock()

    def notes(self, pids: Iterable[int]) -> list[str]:
        """What a reader must know of the Pythons of these processes, in sentences."""
        with self._lock:
            found = (self._said.get(pid, _NOTHING).note for pid in pids)
            return sorted({note for note in found if note})[:_MAX_NOTES]

    def scan(self) -> None:
        """Registers the living processes that have a Python or the CUDA driver."""
        for pid in dict.fromkeys(pid for pid, _ in find_mapped(PREFIX, *PREFIXES)):
            self.see(pid)

    def see(self, pid: int) -> None:
        """Registers a process: now that it has mapped something, and once more soon."""
        with self._lock:
            self._see(pid)
            self._again[pid] = time.monotonic() + _AGAIN
            self._again.move_to_end(pid)

    def see_again(self) -> None:
        """Registers once more whom :meth:`see` was told of a moment ago."""
        with self._lock:
            now = time.monotonic()
            for pid in list(itertools.takewhile(lambda pid: self._again[pid] <= now, self._again)):
                del self._again[pid]
                self._see(pid)

    def reason(self, pid: int) -> str:
        """Why a process's Python frames can't be read, "" = they can or there are none.

        As in "Python 3.13t: free-threaded builds are not supported".
        """
        with self._lock:
            if pid not in self._said:  # as of a fork child
                self._see(pid)
            return self._said.get(pid, _NOTHING).reason

    def _see(self, pid: int) -> None:
        mapped = read_maps(pid)
        if not mapped:
            return
        said = _NOTHING
        for likely, mappings in find_candidates(pid, mapped):
            found = self._files.of(pid, mappings[0], likely=likely)
            if found is not None:
                said = self._register(pid, found, mappings, mapped)
                break
        else:  # an exec may have come between the last look and what was told after it
            self._tracer.clear_python(pid)
        self._said[pid] = said
        self._said.move_to_end(pid)
        if len(self._said) > _MAX_PROCESSES:
            self._said.popitem(last=False)

    def _register(
        self, pid: int, found: Interpreter, mappings: list[Mapping], mapped: list[Mapping]
    ) -> _Said:
        """Tells the kernel part, if there is something to tell."""
        if found.layout is None:
            self._tracer.clear_python(pid)
            return _Said(found.reason)
        runtime = found.runtime(mappings)
        if runtime is None:
            self._tracer.clear_python(pid)
            return _Said("Python: its address in the process can't be told")
        libc = libc_of(mapped, found.loader)
        try:
            self._tracer.set_python(pid, found.layout.pack(runtime, libc, platform.machine()))
        except OSError as error:
            return _Said(f"Python: the kernel's table takes no more ({error.strerror})")
        return _Said(note=found.layout.note)
