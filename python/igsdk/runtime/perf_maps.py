# SPDX-License-Identifier: Apache-2.0
"""Names of code that a process makes while it runs: ``/tmp/perf-PID.map``.

A just-in-time compiler that is told to (node ``--perf-basic-prof``, CPython ``-X perf``,
Java's agents, .NET) writes a line for each function: address and size in hexadecimal,
name. The file lies in the process's own ``/tmp`` and has the pid that it sees itself; it
grows, and where an address comes twice the later line holds. What it says is the
process's own word: everything here is bounded, and a file that is no such map gives no
names.
"""

from __future__ import annotations

import functools
import os
import stat
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Lines of CPython's ``-X perf``: ``py::NAME:FILE``. The code is the interpreter's.
_TRAMPOLINE = "py::"
_MAX_PROCESSES = 64  # each has a descriptor
_MAX_FILE = 8 << 20  # bytes that are read of one file, some 120,000 functions
_MAX_TOTAL = 32 << 20  # of all files; what is made of them takes twice as much at most
_MAX_NAME = 512
_MAX_SIZE = 1 << 32  # of one function
_RECENT = 4096  # entries that are sorted anew with each growth
_OVERLAPS = 16  # entries below an address that are looked at
_RETRY = 0.1  # seconds until a file that was not there is looked for again

_ENTRY = [("start", "<u8"), ("end", "<u8"), ("line", "<u4"), ("name", "<u4"), ("name_end", "<u4")]
_HEAD = 40  # columns in which both numbers and the blanks behind them stand
_AT_ONCE = 1 << 20  # bytes of text that are parsed in one piece


def is_trampoline(name: str) -> bool:
    """Whether a name of such a map is CPython's own piece of code around a Python call."""
    return name.startswith(_TRAMPOLINE)


class PerfMaps:
    """The maps of all processes; the one asked least goes first where there are too many."""

    def __init__(self) -> None:
        self._maps: OrderedDict[int, _Map] = OrderedDict()
        self._missing: dict[int, float] = {}
        self._met: OrderedDict[int, _Met] = OrderedDict()  # by pid
        self._lock = threading.Lock()  # of what was met, by whoever sees it first

    def meet(self, pid: int) -> None:
        """Opens the map of a process whose first call is still to come, and may be its last."""
        fd = _open_map(pid)
        with self._lock:
            self._forget_met(pid)
            if fd is not None:
                self._met[pid] = _Met(fd, _Life(pid))
            if len(self._met) > _MAX_PROCESSES:
                self._forget_met(next(iter(self._met)))

    def _forget_met(self, pid: int) -> None:
        met = self._met.pop(pid, None)
        if met is not None:
            os.close(met.fd)

    def see(self, process: int, pid: int) -> None:
        """Opens the map of a process that lives or was met.

        Args:
            process: the instance (a pid may come again).
            pid: as this machine's kernel counts.
        """
        if process in self._maps:
            self._maps.move_to_end(process)
            return
        now = time.monotonic()
        if now < self._missing.get(process, 0):
            return
        with self._lock:
            met = self._met.pop(pid, None)
        if met is None and (fd := _open_map(pid)) is not None:
            met = _Met(fd, _Life(pid))
        if met is None:
            self._note_missing(process, now)
            return
        self._missing.pop(process, None)
        self._maps[process] = _Map(met.fd, met.life)
        self._make_room()

    def lookup(self, process: int, pid: int, address: int) -> str | None:
        """The name that a process gave to the code at an address; None: it gave none."""
        self.see(process, pid)
        known = self._maps.get(process)
        if known is None:
            return None
        name = known.lookup(address)
        self._make_room()
        return name

    def close_ended(self, seconds: float) -> None:
        """Closes the files of processes that have been gone for so long, and forgets them."""
        for process, known in list(self._maps.items()):
            if known.life.ended_for() >= seconds:
                del self._maps[process]
                known.close()
        with self._lock:
            for pid, met in list(self._met.items()):
                if met.life.ended_for() >= seconds:
                    self._forget_met(pid)

    def close(self) -> None:
        """Closes the files."""
        while self._maps:
            self._drop_oldest()
        while self._met:
            self._forget_met(next(iter(self._met)))

    def _note_missing(self, process: int, now: float) -> None:
        if len(self._missing) >= _MAX_PROCESSES * _MAX_PROCESSES:
            self._missing.clear()
        self._missing[process] = now + _RETRY

    def _make_room(self) -> None:
        while len(self._maps) > 1 and (
            len(self._maps) > _MAX_PROCESSES or self._bytes() > _MAX_TOTAL
        ):
            self._drop_oldest()

    def _bytes(self) -> int:
        return sum(known.taken for known in self._maps.values())

    def _drop_oldest(self) -> None:
        _, known = self._maps.popitem(last=False)
        known.close()


class _Life:
    """Until when a process lived, as far as it was asked."""

    def __init__(self, pid: int) -> None:
        self._pid, self._start = pid, _start_ticks(pid)
        self._seen = time.monotonic()

    def ended_for(self) -> float:
        """Seconds since it was last seen; 0 where it lives."""
        now = time.monotonic()
        if self._start is not None and _start_ticks(self._pid) == self._start:
            self._seen = now
        return now - self._seen


@dataclass(frozen=True)
class _Met:
    fd: int
    life: _Life


class _Map:
    """One file, read as far as it went the last time.

    Old entries are sorted; new ones are few, and are sorted by themselves until there are
    many of them: a program that compiles all the time costs little each time.
    """

    def __init__(self, fd: int, life: _Life) -> None:
        self._fd = fd
        self.life = life
        self._begin()

    def _begin(self) -> None:
        self._text = bytearray()
        self._parsed = self._lines = 0
        self._old, self._new = _no_entries(), _no_entries()

    @property
    def taken(self) -> int:
        """Bytes that were read, the measure of what this holds."""
        return len(self._text)

    def close(self) -> None:
        os.close(self._fd)

    def lookup(self, address: int) -> str | None:
        with suppress(OSError):
            self._read()
        covering = [*_at(self._old, address), *_at(self._new, address)]
        if not covering:
            return None
        latest = max(covering, key=lambda entry: int(entry["line"]))
        return _readable(bytes(self._text[int(latest["name"]) : int(latest["name_end"])]))

    def _read(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < len(self._text):  # the file was begun anew
            self._begin()
        wanted = min(size, _MAX_FILE) - len(self._text)
        if wanted > 0:
            self._text += os.pread(self._fd, wanted, len(self._text))
            self._parse()

    def _parse(self) -> None:
        pieces, end = [self._new], self._text.rfind(b"\n") + 1
        while self._parsed < end:
            stop = self._text.rfind(b"\n", self._parsed, self._parsed + _AT_ONCE) + 1
            if stop == 0:  # a line that is longer than that is no entry
                stop = self._text.find(b"\n", self._parsed) + 1
            entries = _parse_lines(self._text, self._parsed, stop)
            entries["line"] += self._lines
            self._lines += len(entries)
            self._parsed = stop
            pieces.append(entries)
        self._new = _by_start(pieces)
        if len(self._new) > _RECENT:
            self._old, self._new = _by_start([self._old, self._new]), _no_entries()


def _no_entries(count: int = 0) -> Any:
    import numpy as np

    return np.zeros(count, _ENTRY)


def _by_start(pieces: list[Any]) -> Any:
    import numpy as np

    entries = np.concatenate(pieces)
    return entries[entries["start"].argsort(kind="stable")]


def _at(entries: Any, address: int) -> Any:
    """Those that cover an address, among the nearest below it."""
    end = int(entries["start"].searchsorted(address, "right"))
    near = entries[max(0, end - _OVERLAPS) : end]
    return near[near["end"] > address]


# Parsing --------------------------------------------------------------------------------


def _parse_lines(text: bytearray, begin: int, end: int) -> Any:
    """The entries of whole lines, all at once; lines that are none are left out.

    8 MB of text take 0.2 s; line by line they took 2 s.
    """
    import numpy as np

    data = np.frombuffer(text, np.uint8)[begin:end]
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    columns = starts[:, None] + np.arange(_HEAD)
    heads = np.where(columns < ends[:, None], data[np.minimum(columns, len(data) - 1)], 0)
    first = (heads == ord(" ")).argmax(1)
    second = ((heads == ord(" ")) & (np.arange(_HEAD) > first[:, None])).argmax(1)
    address, address_is_good = _hexadecimal(heads, 0 * first, first)
    size, size_is_good = _hexadecimal(heads, first + 1, second)
    is_good = address_is_good & size_is_good & (size > 0) & (size < _MAX_SIZE)
    is_good &= address + size > address  # 64 bits go round
    entries = _no_entries(int(is_good.sum()))
    entries["start"] = address[is_good]
    entries["end"] = (address + size)[is_good]
    entries["line"] = np.arange(1, len(entries) + 1)
    entries["name"] = (begin + starts + second + 1)[is_good]
    entries["name_end"] = np.minimum(entries["name"] + _MAX_NAME, begin + ends[is_good])
    return entries


@functools.cache
def _digits() -> Any:
    """Value of each character as a hexadecimal digit; 16 for those that are none."""
    import numpy as np

    values = np.full(256, 16, np.uint64)
    for digit in "0123456789abcdefABCDEF":
        values[ord(digit)] = int(digit, 16)
    return values


def _hexadecimal(heads: Any, begin: Any, end: Any) -> tuple[Any, Any]:
    """The number in each row between two columns, and whether there is one."""
    import numpy as np

    rows, last = np.arange(len(heads)), _HEAD - 1
    has_prefix = (heads[rows, np.minimum(begin, last)] == ord("0")) & (
        heads[rows, np.minimum(begin + 1, last)] == ord("x")
    )
    begin = begin + 2 * has_prefix
    is_good = (end > begin) & (end - begin <= 16)
    value: Any = np.zeros(len(heads), np.uint64)
    for column in range(int(end.max(initial=0))):
        digit = _digits()[heads[:, column]]
        inside = (column >= begin) & (column < end)
        value = np.where(inside, (value << np.uint64(4)) | (digit & np.uint64(15)), value)
        is_good &= ~inside | (digit < 16)
    return value, is_good


def _readable(name: bytes) -> str | None:
    """As text that a terminal shows as it is; None where nothing is left."""
    text = name.decode("utf-8", "replace").strip()
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text) or None


# Finding the file -----------------------------------------------------------------------


def _open_map(pid: int) -> int | None:
    """The file of a living process: in its own root, a plain file, its own or root's.

    No link is followed on the way: in a root that somebody else made it could lead
    anywhere here.
    """
    own_pid, users = _status(pid)
    with suppress(OSError):
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _open_plain(root, own_pid, {0, *users}, _started(pid))
        finally:
            os.close(root)
    return None


def _open_plain(root: int, own_pid: int, users: set[int], started: float) -> int:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open("tmp", flags | os.O_DIRECTORY, dir_fd=root)
    try:
        handle = os.open(f"perf-{own_pid}.map", flags, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in users:
            raise FileNotFoundError(2, "no map of this process's")
        if status.st_mtime < started:  # left by an earlier process of that number
            raise FileNotFoundError(2, "older than the process")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _status(pid: int) -> tuple[int, set[int]]:
    """The pid as the process sees it itself, and its user ids as we see them."""
    own_pid, users = pid, set()
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
            name, _, values = line.partition(":")
            if name == "NSpid":
                own_pid = int(values.split()[-1])
            elif name == "Uid":
                users = {int(value) for value in values.split()}
    return own_pid, users


def _started(pid: int) -> float:
    """When it started, as files tell time, a little early; 0 where that can't be told."""
    ticks = _start_ticks(pid)
    if ticks is None:
        return 0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age - 1


def _start_ticks(pid: int) -> int | None:
    """When it started, by the boot clock; None: there is no such process."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[19])
    return None
