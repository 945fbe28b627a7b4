# SPDX-License-Identifier: Apache-2.0
"""Every libcuda on the machine, each real file once, and where its probes go."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import stat
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .. import _abi
from .._errors import LibraryUnusable
from .mappings import Mapping, plain_name, read_maps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from .._native import Held
    from .._native import Mapping as Seen

PREFIX = "libcuda.so"
ANYBODY = 0  # stands among the users of a file that was named or held for this run
# What our simulated driver exports and no real one does.
_SIMULATION = "simcudaTeardown"
# Of each library: how many of the processes that had it before its probes are named.
_MAX_EARLIER = 4096
_MAX_KEYS = 4096


class Attach(Protocol):
    """Puts the probes on the file at `path`; sites are (call, file offset)."""

    def __call__(self, path: str, sites: Sequence[tuple[int, int]], /) -> int: ...


class RealFiles(Protocol):
    """(start, end, device, inode) of each code mapping of a process, below any overlay."""

    def __call__(self, pid: int, /) -> Sequence[tuple[int, int, int, int]]: ...


@dataclass(frozen=True)
class Site:
    """One probe: `offset` in the file; `how` is "jump" (cheap) or "entry"."""

    symbol: str
    call: int
    offset: int
    how: str
    note: str = ""


@dataclass
class Library:
    """One real libcuda file with its probes.

    `earlier` has the processes that had it mapped before its probes were on, with the
    time of that mapping in boot-clock ns, or None where it was there before we watched.
    `users` are processes seen to open or map it.
    `fd` stays open: symbols need it when the file and its process are gone.
    """

    path: str
    device: int
    inode: int
    build_id: str
    fd: int
    sites: tuple[Site, ...]
    missing: tuple[str, ...]
    simulated: bool = False
    attached_ns: int = 0
    earlier: dict[int, int | None] = field(default_factory=dict)
    users: set[int] = field(default_factory=set)

    def late_ns(self, pid: int) -> int | None:
        """How long after its mapping the probes came; 0: in time, None: nobody knows."""
        mapped = self.earlier.get(pid, self.attached_ns)
        return None if mapped is None else self.attached_ns - mapped

    def describe(self) -> dict[str, object]:
        """What was attached, as it stands in results: plain values for JSON."""
        return {
            "path": self.path,
            "device": self.device,
            "inode": self.inode,
            "build_id": self.build_id,
            "sites": [[site.symbol, site.offset, site.how] for site in self.sites],
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class _Key:
    """What makes a file the same file; `real` is False where only stat could be asked."""

    device: int
    inode: int
    real: bool


class Libraries:
    """Finds libcuda files and attaches to each real file once.

    Args:
        attach: puts the probes on; its OSError becomes a `LibraryUnusable`.
        real_files: tells the real inodes of a process's mappings; without it two overlay
            mounts of one file look like two files.
    """

    def __init__(self, attach: Attach, real_files: RealFiles | None = None) -> None:
        self._attach = attach
        self._real_files = real_files
        self._known: dict[_Key, Library] = {}
        self._refused: dict[_Key, tuple[LibraryUnusable, set[int]]] = {}
        self._keys: dict[tuple[int, int, int], _Key] = {}
        self._seen: dict[tuple[int, int], _Key] = {}  # by what stat and mappings show
        self._lock = threading.RLock()
        self.unreadable: set[int] = set()  # processes that were gone before their file was open

    @property
    def attached(self) -> list[Library]:
        """All libraries that have probes, in the order in which they got them."""
        with self._lock:
            return list(self._known.values())

    @property
    def refused(self) -> list[LibraryUnusable]:
        """Why the others have none."""
        with self._lock:
            return [error for error, _ in self._refused.values()]

    def refused_to(self, pids: Set[int]) -> list[LibraryUnusable]:
        """The same for the files that one of these processes has."""
        with self._lock:
            return [error for error, users in self._refused.values() if users & pids]

    def scan(self) -> list[Library]:
        """Attaches to what living processes have mapped; returns the new libraries."""
        before = len(self.attached)
        for pid, mapping in find_mapped():
            self.admit_mapping(pid, mapping, None)
        return self.attached[before:]

    def admit_seen(self, seen: Seen) -> Library | None:
        """Attaches to a mapping that the watch has reported."""
        if seen.pid == os.getpid() and seen.end - seen.start <= mmap.PAGESIZE:
            return None  # our own look at a file's real inode; a notebook maps a library whole
        device = os.makedev(seen.major, seen.minor)
        mapping = Mapping(seen.start, seen.end, seen.offset, device, seen.inode, seen.path)
        return self.admit_mapping(seen.pid, mapping, seen.time_ns)

    def admit_mapping(self, pid: int, mapping: Mapping, mapped_ns: int | None) -> Library | None:
        """Attaches to the file behind a process's mapping; None: unusable or gone."""
        try:
            fd = open_mapped(pid, mapping)
        except OSError:
            library = self._recall(pid, mapping)
        else:
            with self._lock:
                where = (mapping.device, mapping.inode)
                key = self._mapped_key(pid, mapping, fd)
                if key not in self._known and self._leads_elsewhere(fd, key):
                    self._refused.setdefault(key, (_changed(mapping), set()))
                library = self._admit(fd, mapping.path, lambda: key, pid, where)
        if library is not None:
            self._note_earlier(library, pid, mapped_ns)
        return library

    def _recall(self, pid: int, mapping: Mapping) -> Library | None:
        """The process is gone, and its file may be one that we know."""
        with self._lock:
            key = self._seen.get((mapping.device, mapping.inode))
            if key is None:
                if len(self.unreadable) < _MAX_EARLIER:
                    self.unreadable.add(pid)
                return None
            return self._note_user(key, pid)

    def admit_open(self, held: Held) -> Library | None:
        """Attaches to a file whose open is being held; None: unusable."""
        fd = os.dup(held.fileno())
        with self._lock:
            where = (held.device, held.inode)
            return self._admit(fd, held.path, partial(self._own_key, fd), ANYBODY, where)

    def admit_path(self, path: str) -> Library | None:
        """Attaches to a file that nobody may have opened yet.

        Raises:
            LibraryUnusable: there is no such file.
        """
        try:
            fd = _open_regular(path)
        except OSError as error:
            raise LibraryUnusable(
                f"{path} can't be opened: {error.strerror}.", "Check the path."
            ) from error
        with self._lock:
            return self._admit(fd, path, partial(self._own_key, fd), ANYBODY)

    def close(self) -> None:
        """Closes the files; the probes are the caller's to take off. Results stay."""
        with self._lock:
            for library in self._known.values():
                if library.fd >= 0:
                    os.close(library.fd)
                library.fd = -1

    def _admit(
        self,
        fd: int,
        path: str,
        find_key: Callable[[], _Key],
        pid: int,
        where: tuple[int, int] | None = None,
    ) -> Library | None:
        """Owns `fd` from here on; `where` is the device and inode that processes see."""
        key = find_key()
        if key not in self._known and key not in self._refused:
            self._try_attach(fd, path, key)
        library = self._note_user(key, pid)
        if len(self._seen) < _MAX_KEYS:
            status = os.fstat(fd)
            self._seen[status.st_dev, status.st_ino] = key
            if where:
                self._seen[where] = key
        if library is None or library.fd != fd:
            os.close(fd)
        return library

    def _note_user(self, key: _Key, pid: int) -> Library | None:
        library = self._known.get(key)
        # neither known nor refused: the run ended meanwhile
        _, users = self._refused.get(key, (None, library.users if library else set()))
        if len(users) < _MAX_EARLIER:
            users.add(pid)
        return library

    def _try_attach(self, fd: int, path: str, key: _Key) -> None:
        try:
            library = read_library(fd, path, key.device, key.inode)
            probes = [(site.call, site.offset) for site in library.sites]
            self._attach(f"/proc/self/fd/{fd}", probes)
        except LibraryUnusable as error:
            self._refused[key] = error, set()
            return
        except OSError as error:
            if error.errno == errno.ECANCELED:  # the run ended meanwhile
                return
            refusal = LibraryUnusable(
                f"The kernel refused the probes on {path}: {os.strerror(error.errno or 0)}.",
                "Run `igsdk doctor`, which tells what this kernel allows.",
            )
            self._refused[key] = refusal, set()
            return
        library.attached_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._known[key] = library

    def _note_earlier(self, library: Library, pid: int, mapped_ns: int | None) -> None:
        is_earlier = mapped_ns is None or mapped_ns < library.attached_ns
        if is_earlier and len(library.earlier) < _MAX_EARLIER:
            library.earlier.setdefault(pid, mapped_ns)

    def _mapped_key(self, pid: int, mapping: Mapping, fd: int) -> _Key:
        return self._real_key(pid, mapping.start) or self._own_key(fd)

    def _leads_elsewhere(self, fd: int, key: _Key) -> bool:
        """Whether probes through this file would miss the one that is mapped.

        A file of a lower layer of an overlay that is written to is another one from then
        on. Who had mapped it before still has the old one, and no path leads there.
        """
        if not key.real or os.fstat(fd).st_dev == key.device:
            return False
        own = self._own_key(fd)
        return own.real and own != key

    def _own_key(self, fd: int) -> _Key:
        """For a file that is only open: map a page of it, and look at ourselves.

        Once for each file: another recorder sees our mapping and looks at the file in
        the same way, which we see in turn.
        """
        status = os.fstat(fd)
        signature = (status.st_dev, status.st_ino, status.st_ctime_ns)
        key = self._keys.get(signature)
        if key is None:
            key = self._ask_ourselves(fd) or _Key(status.st_dev, status.st_ino, real=False)
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            self._keys[signature] = key
        return key

    def _ask_ourselves(self, fd: int) -> _Key | None:
        if self._real_files is None:
            return None
        with _mapped_page(fd) as start:
            return self._real_key(os.getpid(), start) if start else None

    def _real_key(self, pid: int, address: int) -> _Key | None:
        if self._real_files is None:
            return None
        for start, end, device, inode in self._real_files(pid):
            if start <= address < end:
                return _Key(device, inode, real=True)
        return None


class _mapped_page:  # noqa: N801
    """A page of a file, mapped as code; the address is 0 where that is not allowed."""

    def __init__(self, fd: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        ]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        address = self._libc.mmap(None, mmap.PAGESIZE, protection, mmap.MAP_PRIVATE, fd, 0)
        failed = ctypes.c_void_p(-1).value
        self._start = 0 if address is None or address == failed else int(address)

    def __enter__(self) -> int:
        return self._start

    def __exit__(self, *_: object) -> None:
        if self._start:
            self._libc.munmap(self._start, mmap.PAGESIZE)


def find_mapped(*prefixes: str) -> Iterator[tuple[int, Mapping]]:
    """Each (pid, code mapping) of a file whose name starts so; of a libcuda by default."""
    prefixes = prefixes or (PREFIX,)
    wanted = [os.fsencode(prefix) for prefix in prefixes]
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            raw = Path(entry.path, "maps").read_bytes()
        except OSError:
            continue
        if not any(each in raw for each in wanted):
            continue
        for mapping in read_maps(int(entry.name)):
            if mapping.name.startswith(prefixes):
                yield int(entry.name), mapping


def _changed(mapping: Mapping) -> LibraryUnusable:
    return LibraryUnusable(
        f"{mapping.name} ({mapping.path}) was written to below processes that had it mapped: "
        "the probes can't reach the file that they have.",
        "Restart those processes, or start before the file is changed.",
    )


def open_mapped(pid: int, mapping: Mapping) -> int:
    """Opens the very file that a process has mapped, deleted or replaced ones too.

    Raises:
        OSError: the process is gone, and no longer has it, or we may not look.
    """
    link = f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"
    try:
        return _open_regular(link)
    except OSError:
        fd = _open_regular(f"/proc/{pid}/root{mapping.path}")
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) != (mapping.device, mapping.inode):
        os.close(fd)
        raise FileNotFoundError(2, os.strerror(2), mapping.path)
    return fd


def _open_regular(path: str) -> int:
    """Opening a device or a pipe by mistake would do something: look first."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FileNotFoundError(2, "not a regular file", path)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def read_library(fd: int, path: str, device: int = 0, inode: int = 0) -> Library:
    """Reads where the probes go in a libcuda.

    Raises:
        LibraryUnusable: not ELF, cut short, of another architecture, or without any of
            the functions.
    """
    from .._native import elf_functions, elf_inspect

    name = f"{plain_name(path)} ({path})"
    wanted = _abi.sites()
    try:
        info = elf_inspect(fd)
        found = elf_functions(fd, list(wanted))
    except ValueError as error:
        raise LibraryUnusable(
            f"{name} can't be used: {error}.", "Point the program at a whole NVIDIA driver library."
        ) from None
    if info.machine != platform.machine():
        raise LibraryUnusable(
            f"{name} is for {info.machine}, and this machine is {platform.machine()}.",
            "Programs that run emulated can't be traced: run them natively.",
        )
    sites = _sites(fd, found, wanted)
    if not sites:
        raise LibraryUnusable(
            f"{name} has none of the functions of the CUDA driver.",
            "Check that it is a driver library and no stub of another name.",
        )
    missing = tuple(sorted(set(wanted) - {symbol for symbol, *_ in found}))
    simulated = bool(elf_functions(fd, [_SIMULATION]))
    return Library(path, device, inode, info.build_id, fd, sites, missing, simulated)


def _sites(
    fd: int, found: list[tuple[str, int, int, int]], wanted: dict[str, int]
) -> tuple[Site, ...]:
    """Two names of one function get one probe, that of the name listed first."""
    from .._native import probe_site

    order = {symbol: number for number, symbol in enumerate(wanted)}
    sites: dict[int, Site] = {}
    for symbol, _, offset, size in sorted(found, key=lambda entry: order[entry[0]]):
        where, how, note = probe_site(fd, offset, size)
        sites.setdefault(where, Site(symbol, wanted[symbol], where, how, note))
    return tuple(sites.values())
