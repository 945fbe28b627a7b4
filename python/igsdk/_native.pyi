# SPDX-License-Identifier: Apache-2.0
"""The native extension, built from python/native/."""

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Mapping_
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

def elf_symbols(
    fd: int, names: Sequence[str], exported: bool = False
) -> list[tuple[str, int, int]]:
    """(name, address, size) of the functions and objects with these names.

    `exported`: only of those that others can link to, which takes no look at all symbols.
    """

def function_pieces(fd: int, name: str) -> list[tuple[int, int]]:
    """(start, end) in the file of what the compiler cut out of a function, `name.cold`.

    Told by jumps and unwind tables, whether or not the pieces have symbols.
    """

def elf_section(fd: int, name: str) -> tuple[int, int] | None:
    """(address, size) of a section that has bytes in the file."""

def elf_read(fd: int, address: int, size: int) -> bytes:
    """What the file puts at an address; shorter at the end of a segment, b"" outside."""

def probe_site(fd: int, offset: int, size: int = 0) -> tuple[int, str, str]:
    """(file offset, "jump" or "entry", what is probed: jump, push, nop, stepped, unreadable)."""

# symbols.cpp

class SymbolTable:
    """The functions of one file. Keeps its own descriptor; safe to use from threads.

    ``path`` is the file's name as its process sees it and ``root`` the folder which that
    process sees as "/" ("" = ours): separate debug files are looked for there too.
    All tables together keep 192 MiB at most; what was used longest ago is read anew.
    """

    def __init__(self, fd: int, path: str = "", root: str = "") -> None: ...
    def lookup(self, file_offset: int) -> tuple[str, int] | None: ...
    def lookup_address(self, address: int) -> tuple[str, int] | None: ...
    def frames(self, file_offset: int) -> list[tuple[str, str | None, int]]:
        """(function, file, line), innermost first: inlined functions, then the one that
        holds them; of a caller, pass the offset of the call. Without debug information one
        entry with None and 0; [] where not even a symbol is known."""

    def forget(self) -> bool: ...  # gives its memory back; False: another thread uses it
    @property
    def build_id(self) -> str: ...
    @property
    def complete(self) -> bool: ...
    @property
    def debug(self) -> str: ...  # where lines come from: own, separate, too large, none
    @property
    def memory(self) -> int: ...  # bytes kept now
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
    def counts(self) -> dict[str, int]: ...  # lost untaken forgotten processes mappings
    @property
    def lost(self) -> int: ...
    def close(self) -> None: ...

# unwinding.cpp

class Spaces:
    """The code that processes have mapped, its files open; unwinds stacks through it.

    With a watch, processes that map one of its libraries are known from that moment on,
    and stay known for a minute after their end.
    """

    def __init__(self, watch: MapWatch | None = None) -> None: ...
    def admit(self, pid: int) -> None: ...
    def generation(self, pid: int) -> int: ...  # of its code; goes up when that changes
    def reread(self, pid: int) -> bool: ...  # whether /proc told of something new
    def regions(self, pid: int) -> list[tuple[int, int, int, str, int]]:
        """(start, end, offset in the file, name, number of the file or 0), by address."""

    @property
    def files(self) -> int: ...  # open
    def unwind(
        self,
        pid: int,
        registers: bytes,
        stack: bytes,
        returns: Sequence[tuple[int, int]] = (),
        all: bool = False,  # noqa: A002
    ) -> tuple[list[tuple[int, str, int, int, bool]], str]:
        """(pc, path, offset in the file, slot, guessed) of each frame, innermost first,
        and why it ends there ("" = at the outermost function). ``registers``: as in
        struct igsdk_capture; ``stack``: the bytes from the stack pointer up; ``returns``:
        (where, address) of return probes; ``all``: nothing lies above those bytes."""

    def unwind_cost(self, pid: int, registers: bytes, stack: bytes, times: int) -> float:
        """Nanoseconds that it takes, on the average of so many times."""

# selftest.cpp

def return_probe_passes(refused: int) -> bool | None:
    """Whether a process lives on whose filter kills it at that system call when a
    function with a return probe returns; None where it can't be tried."""

# stack_bindings.cpp: the stack table between the captures ring and Python

class RawStack:
    """A distinct stack before it has names; several capture keys may mean one.

    Attributes:
        number: dense, from 1 on, never used twice in a run; 0 is never a stack.
        pid, process: of the process that it was first seen in (id, instance).
        how: "unwind tables", "Python frames only" or "not taken".
        end: why the native frames end where they do: "" = at the start of the thread,
            "cut" = the copied part of the stack ends, "unreadable" = readable memory ends,
            "no rules" = a frame without unwind tables, "not code" = a return address that
            is no code, "loop", "too long" = more frames than are looked at, "no room" = the
            ring was full: only Python frames were taken, "busy" = nothing was taken,
            "lost" = the frames were known and dropped.
        native: (file id, 0 = no file; offset in the file of the call itself, without a file
            its address; address where it goes on: the instruction pointer, then return
            addresses), leaf first. Addresses are those of the first process.
        python: (code number, byte offset of the instruction, class number, whether the
            frame is the outermost of its interpreter call), leaf first; numbers may be 0:
            no class, or a code object that there was no room for.
        flags: _abi.CAPTURE_PYTHON, _PYTHON_CUT, _PYTHON_FAULT, _NO_ROOM.
    """

    @property
    def number(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def process(self) -> int: ...
    @property
    def how(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def native(self) -> list[tuple[int, int, int]]: ...
    @property
    def python(self) -> list[tuple[int, int, int, bool]]: ...
    @property
    def flags(self) -> int: ...

class Code:
    """What a code object said of itself. `complete`: name, file and table are whole.

    `version` is 0x030b for 3.11, 0 = not known; `table` is the line table as that version
    lays it out.
    """

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def first_line(self) -> int: ...
    @property
    def table(self) -> bytes: ...
    @property
    def version(self) -> int: ...
    @property
    def complete(self) -> bool: ...

class MappedFile:
    """A file that code was mapped from. `fd` stays open for as long as this object lives."""

    @property
    def path(self) -> str: ...  # as the process named it
    @property
    def fd(self) -> int: ...  # -1: could not be opened; not to be closed
    @property
    def device(self) -> int: ...  # as os.makedev gives it
    @property
    def inode(self) -> int: ...

class StackTable:
    """The table without a loaded program, fed by hand: for tests and benchmarks."""

    def __init__(self, watch: MapWatch | None = None, limits: Mapping_[str, int] = ...) -> None:
        """Makes BPF maps of its own. Limits: stacks, keys, key_seconds, pending, codes, places,
        text_bytes, again, keep_ended_ms, keep_files_ms."""

    def take(self, record: bytes, /) -> None: ...  # one record of the captures ring
    def admit(self, pid: int, /) -> None:
        """From now on code that this process maps is opened as soon as it appears."""

    def set_python(self, pid: int, layout: bytes, /) -> None:
        """Says where the interpreter keeps what (dtype ``python``); ValueError: wrong size."""

    def clear_python(self, pid: int, /) -> None:
        """Says that no interpreter is there, whatever was said before."""

    def take_stacks(self) -> list[RawStack]:
        """The distinct stacks since the last call, each once in a run."""

    def code(self, number: int, /) -> Code:
        """KeyError where it was never told or its process was forgotten."""

    def class_name(self, number: int, /) -> str:
        """Empty where it could not be read; KeyError as with code()."""

    def file(self, file_id: int, /) -> MappedFile | None:
        """None where the file was dropped: there were too many, or it was closed."""

    def close_unused_files(self) -> int:
        """Closes files that no process has had for a while; how many it were.

        A process's are kept for a minute after its end, and a minute more (limits
        keep_ended_ms, keep_files_ms).
        """

    def stack_numbers(self, processes: bytes, keys: bytes, /) -> bytes:
        """u64 instances and u64 capture keys to u32 numbers; 0 = not known, or lost.

        Of _abi.KEY_BUSY no record comes, so it has no number.
        """

    def forget_keys(self, processes: bytes, keys: bytes, /) -> None:
        """Keys that no account has any more."""

    def keep_fresh_keys(self, live: bytes, /) -> None:
        """All keys of single calls (u64) that accounts have; others that are old may go."""

    def forget_process(self, process: int, /) -> None:
        """Drops what is kept of a process whose rows were recycled; numbers stay."""

    def stack_counts(self) -> dict[str, int]:
        """Records by sort, what is kept, and as `lost_*` what found no room or was no record."""

    # the mark by which the kernel knows what it has sent, with a key of no single call
    def mark_sent(self, process: int, key: int, /) -> None: ...
    def is_sent(self, process: int, key: int, /) -> bool: ...
    def templates(self) -> list[tuple[bytes, bytes]]: ...  # key and value, of the kernel's map
    def space(self, pid: int, /) -> bytes: ...  # dtype ``space``, b"" = none

# object_bindings.cpp

class FileMappings:
    """Asks the kernel, by a program of its own, for the real files that processes map."""

    def __init__(self, object: bytes) -> None: ...  # noqa: A002
    def of(self, pid: int, /) -> bytes: ...  # rows of dtype ``mapping``, code only
    def close(self) -> None: ...  # when nobody asks any more

def compare_objects(own: bytes, other: bytes) -> tuple[list[str], list[str], list[str]]:
    """Whether the runtime of one BPF object can run another one.

    Returns names of programs and maps that the other lacks, of maps and types that are
    different in it, and of maps that only the other one has. Raises ProgramError where one
    is no BPF object.
    """

# packet_bindings.cpp: packets of the gadget service, for igsdk.client

class ColumnBytes:
    """Memory that numpy and others take as it is."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

class PacketReader:
    """Reads packets of one data source.

    A packet is odd when it is in no usual encoding, or none at all; protobuf knows which.
    """

    def __init__(
        self,
        array: bool,  # a packet has an array of rows
        big_endian: bool,
        needs: Sequence[tuple[int, int, int, int]],
        fields: Sequence[tuple[int, int, int, int, str, bool]],
        names: tuple[str, ...],
        blank: Callable[[], dict[str, Any]],
    ) -> None:
        """``needs``, by slot: its number, bytes at least, bytes exactly (0 = any number, -1 =
        none would do), of what they are a multiple. ``fields``: place of their need, offset
        and size there (0 = all of the slot), width of a number or of each in an array (0 =
        none), sort (? = bool, i, u, f, s = text, c = text up to a zero byte, b = bytes),
        whether it is an array. ``blank`` makes a row to be filled. ValueError: they
        contradict each other."""

    def columns(
        self, packets: Sequence[bytes]
    ) -> tuple[list[tuple[ColumnBytes, ColumnBytes]], int, int, list[int]]:
        """For each field its values, and int64 where each one begins and the last one ends,
        nothing where all are as long as each other; how many rows; how many did not fit;
        and which packets are odd, of which nothing is taken."""

    def rows(self, packet: bytes) -> tuple[list[dict[str, Any]], int] | None:
        """The rows, and how many did not fit; None: the packet is odd."""

def text_list(data: memoryview, starts: memoryview) -> list[str]:
    """The texts that lie in bytes one after the other; int64 where each one begins and the
    last one ends. Equal ones may be one object. ValueError: something lies outside."""

# tracer.cpp: rows travel as bytes, to be read with the dtypes of igsdk._abi

class ProgramError(OSError): ...

class Tracer:
    def __init__(
        self,
        object: bytes,  # noqa: A002
        settings: Mapping_[str, int],
        texts: Mapping_[str, str] = ...,
        watch: MapWatch | None = None,  # kept; without it maps are read from /proc
        idle: Sequence[str] = ...,  # maps that are not used: as small as can be
    ) -> None: ...
    @property
    def mode(self) -> str: ...  # which sort of link attaches
    @property
    def boot(self) -> int: ...
    @property
    def epoch(self) -> int: ...  # boot clock at the first event, 0 before it
    @property
    def fresh_stacks(self) -> int: ...  # that no template fitted
    @property
    def detaching(self) -> bool: ...
    @property
    def account_slots(self) -> int: ...  # size of the table
    @property
    def swept(self) -> int: ...  # stale live entries removed so far
    def attach(self, path: str, sites: Sequence[tuple[int, int]]) -> int: ...
    def detach_all(self) -> None: ...  # goes on in the background
    # waits for probes whose removal takes milliseconds, not for those that take seconds
    def close(self) -> None: ...
    def set_pid(self, pid: int, flags: int, /) -> None: ...
    def keep_mount_namespace(self, inode: int, /) -> None: ...
    def recycle(self, slots: Sequence[int], /) -> None: ...
    # u64 slot << 32 | generation of accounts; one byte each: whether it was given back
    def recycle_accounts(self, accounts: bytes, /) -> bytes: ...
    # whether it held something at the peak or at a failure
    def remembers(self, accounts: bytes, /) -> bytes: ...
    def sweep(self) -> None: ...
    def fileno(self) -> int: ...  # readable when there are events
    def flush(self) -> None: ...
    def take_events(self) -> bytes: ...  # dtype kept_event
    # From here to stack_counts: see StackTable, which has the same.
    def admit(self, pid: int, /) -> None: ...
    def set_python(self, pid: int, layout: bytes, /) -> None: ...
    def clear_python(self, pid: int, /) -> None: ...
    def take_stacks(self) -> list[RawStack]: ...  # call it behind take_events: see reader.h
    def code(self, number: int, /) -> Code: ...
    def class_name(self, number: int, /) -> str: ...
    def file(self, file_id: int, /) -> MappedFile | None: ...
    def close_unused_files(self) -> int: ...
    def stack_numbers(self, processes: bytes, keys: bytes, /) -> bytes: ...
    def forget_keys(self, processes: bytes, keys: bytes, /) -> None: ...
    def keep_fresh_keys(self, live: bytes, /) -> None: ...
    def stack_counts(self) -> dict[str, int]: ...
    def accounts(self) -> bytes: ...
    def usages(self) -> bytes: ...
    def processes(self) -> bytes: ...
    def losses(self) -> list[int]: ...  # by cause, as _abi.LOSSES
    def reader_losses(self) -> tuple[int, int]: ...  # events, captures
    def peak(self) -> dict[str, Any]: ...  # bytes, time, held, groups
    def state_at(self, time: int, tid: int) -> bytes | None: ...
    def devices(self) -> bytes: ...

def layouts() -> dict[str, int]: ...
