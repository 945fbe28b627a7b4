# SPDX-License-Identifier: Apache-2.0
"""The native extension, built from python/native/."""

from collections.abc import Mapping as Mapping_
from collections.abc import Sequence
from typing import Any

# elf.cpp: all take an open descriptor, read with pread, leave its position alone, and
# raise ValueError with a clause ("it is not an ELF file") for a file that is of no use.

class ElfInfo:
    @property
    def machine(self) -> str: ...  # "x86_64", "aarch64", ...
    @property
    def type(self) -> str: ...  # "shared" or "program"
    @property
    def build_id(self) -> str: ...  # hex, "" = none
    @property
    def interpreter(self) -> str: ...  # the dynamic loader that a program asks for, "" = none
    @property
    def code(self) -> list[tuple[int, int, int]]: ...  # address, file offset, bytes
    @property
    def data(self) -> list[tuple[int, int, int]]: ...  # the same of what is writable

def elf_inspect(fd: int) -> ElfInfo: ...
def elf_functions(fd: int, names: Sequence[str]) -> list[tuple[str, int, int, int]]:
    """(name, address, file offset, size) of the functions with these names."""

def elf_symbols(fd: int, names: Sequence[str]) -> list[tuple[str, int, int]]:
    """(name, address, size) of the functions and objects with these names."""

def elf_section(fd: int, name: str) -> tuple[int, int] | None:
    """(address, size) of a section that has bytes in the file."""

def elf_read(fd: int, address: int, size: int) -> bytes:
    """What the file puts at an address; shorter at the end of a segment, b"" outside."""

def probe_site(fd: int, offset: int, size: int = 0) -> tuple[int, str, str]:
    """(file offset, "jump" or "entry", what is probed: jump, push, nop, stepped, unreadable)."""

# symbols.cpp

class SymbolTable:
    def __init__(self, fd: int) -> None: ...
    def lookup(self, file_offset: int) -> tuple[str, int] | None: ...
    def lookup_address(self, address: int) -> tuple[str, int] | None: ...
    @property
    def build_id(self) -> str: ...
    @property
    def complete(self) -> bool: ...
    def __len__(self) -> int: ...

def demangle(name: str) -> str: ...

# launch.cpp

def spawn_held(
    candidates: Sequence[bytes],
    arguments: Sequence[bytes],
    environment: Sequence[bytes],
    identity: tuple[int, int, Sequence[int]] | None,
    new_mounts: bool,
    restored_signals: Sequence[int],
) -> tuple[int, int, int]:
    """(pid, descriptor whose closing lets it go, descriptor of its reports)."""

# hold.cpp

class Held:
    @property
    def token(self) -> int: ...
    @property
    def path(self) -> str: ...  # as our namespace names it; for messages only
    @property
    def device(self) -> int: ...
    @property
    def inode(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def time_ns(self) -> int: ...  # boot clock
    def fileno(self) -> int: ...  # the file itself, open for reading as long as this lives

class OpenHold:
    def __init__(self, pid: int, prefixes: Sequence[str] = ..., deadline: float = 2.0) -> None: ...
    def fileno(self) -> int: ...  # readable when take() has something
    def take(self) -> list[Held]: ...
    def release(self, token: int) -> bool: ...  # False: the deadline came first
    def allow_known(self, device: int, inode: int) -> None: ...
    def counts(self) -> dict[str, int]: ...  # opens held late full waiting marked
    def unmarked(self) -> list[tuple[str, str]]: ...  # mount point, type or error
    def close(self) -> None: ...

# watch.cpp

class Mapping:  # of code, in a process
    @property
    def pid(self) -> int: ...
    @property
    def tid(self) -> int: ...
    @property
    def time_ns(self) -> int: ...  # boot clock
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def protection(self) -> int: ...
    @property
    def major(self) -> int: ...
    @property
    def minor(self) -> int: ...
    @property
    def inode(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def path(self) -> str: ...

class MapWatch:
    def __init__(
        self, prefixes: Sequence[str] = ..., processes: int = 8192, keep_ended: float = 30.0
    ) -> None: ...
    def fileno(self) -> int: ...  # readable when take_libraries() has something
    def take_libraries(self) -> list[Mapping]: ...
    def mappings(self, pid: int) -> list[Mapping]: ...  # by address, disjoint
    def complete(self, pid: int) -> bool: ...  # all its mappings were seen
    def counts(self) -> dict[str, int]: ...  # lost forgotten processes mappings
    @property
    def lost(self) -> int: ...
    def close(self) -> None: ...

# selftest.cpp

def return_probe_passes(refused: int) -> bool | None:
    """Whether a process lives on whose filter kills it at that system call when a
    function with a return probe returns; None where it can't be tried."""

# tracer.cpp: rows travel as bytes, to be read with the dtypes of igsdk._abi

class ProgramError(OSError): ...

class Tracer:
    def __init__(
        self,
        object: bytes,  # noqa: A002
        settings: Mapping_[str, int],
        texts: Mapping_[str, str] = ...,
    ) -> None: ...
    @property
    def mode(self) -> str: ...  # which sort of link attaches
    @property
    def boot(self) -> int: ...
    @property
    def epoch(self) -> int: ...  # boot clock at the first event, 0 before it
    @property
    def detaching(self) -> bool: ...
    @property
    def swept(self) -> int: ...  # stale live entries removed so far
    def attach(self, path: str, sites: Sequence[tuple[int, int]]) -> int: ...
    def detach_all(self) -> None: ...  # goes on in the background
    # waits for probes whose removal takes milliseconds, not for those that take seconds
    def close(self) -> None: ...
    def set_pid(self, pid: int, flags: int, /) -> None: ...
    def keep_mount_namespace(self, inode: int, /) -> None: ...
    def recycle(self, slots: Sequence[int], /) -> None: ...
    def sweep(self) -> None: ...
    def fileno(self) -> int: ...  # readable when there are events
    def flush(self) -> None: ...
    def take_events(self) -> bytes: ...
    def take_captures(self) -> bytes: ...
    def accounts(self) -> bytes: ...
    def usages(self) -> bytes: ...
    def processes(self) -> bytes: ...
    def losses(self) -> list[int]: ...  # by cause, as _abi.LOSSES
    def reader_losses(self) -> tuple[int, int]: ...  # events, captures
    def peak(self) -> dict[str, Any]: ...  # bytes, time, held, groups
    def state_at(self, time: int, tid: int) -> bytes | None: ...
    def devices(self) -> bytes: ...
    def mappings(self, pid: int, /) -> bytes: ...

def layouts() -> dict[str, int]: ...
