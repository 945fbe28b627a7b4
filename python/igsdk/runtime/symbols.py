# SPDX-License-Identifier: Apache-2.0
"""Names of native code: symbol tables by file, and calls by place in a file."""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from .._events import Frame, marker
from .mappings import plain_name
from .merge import NativeCall, Role
from .perf_maps import PerfMaps, is_trampoline

if TYPE_CHECKING:
    from .._native import MappedFile, SymbolTable

_MAX_FILES = 1024  # each has a descriptor; what symbol tables keep is bounded by them
_MAX_CALLS = 1 << 16

_EVAL = "_PyEval_EvalFrameDefault"
_INTERPRETER = re.compile(r"libpython\d[^/]*\.so[^/]*|python(\d[\w.]*)?(-dbg)?")
# Its own program may have the interpreter linked in under any name.
_LINKED_IN = (_EVAL, "Py_IsInitialized")
_C_LIBRARY = re.compile(r"(libc|libpthread|ld)[.-][^/]*|ld-[^/]*\.so[^/]*")
_START = frozenset(
    (
        *("_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main"),
        *("start_thread", "clone", "__clone", "clone3", "__clone3"),
        *("libc_start_main_stage2", "start", "start_c"),  # musl
    )
)
# Extension modules.
_BOUNDARIES = {
    "_greenlet": Role.GREENLET,
    "_xxsubinterpreters": Role.OLD_SUBINTERPRETER,  # up to 3.12
    "_interpreters": Role.SUBINTERPRETER,
}
_ANONYMOUS = marker("code of no file")
_FORGOTTEN = marker("code of a file that was not kept")
#: what stands where nobody can say which code runs
UNKNOWN = (_ANONYMOUS, _FORGOTTEN)


class Files(Protocol):
    """Files by number: a tracer, or a table of stacks without one."""

    def file(self, file_id: int, /) -> MappedFile | None: ...
    def close_unused_files(self) -> int: ...


class CodeFile:
    """One file with code, as a process has it.

    ``symbols`` is None where nothing could be read of it.
    """

    def __init__(self, mapped: MappedFile | None, pid: int) -> None:
        self.symbols = _open(mapped, f"/proc/{pid}/root")
        self.path = mapped.path if mapped else ""
        self.name = plain_name(self.path)
        self.build_id = self.symbols.build_id or None if self.symbols else None
        self.boundary = _BOUNDARIES.get(self.name.partition(".")[0])
        self.is_c_library = _C_LIBRARY.fullmatch(self.name) is not None
        self.is_interpreter = mapped is not None and _is_interpreter(self.name, mapped.fd)
        self._eval_pieces = _eval_pieces(mapped.fd) if mapped and self.is_interpreter else []

    def frames(self, offset: int) -> tuple[Frame, ...]:
        """The function at a file offset, and those inlined there, innermost first."""
        found = self.symbols.frames(offset) if self.symbols else []
        if not found:
            found = [(self._call_nameless(offset), None, 0)]
        return tuple(
            Frame(function, file or None, line, offset, self.path, self.build_id)
            for function, file, line in found
        )

    def _call_nameless(self, offset: int) -> str:
        """By its place, but for most of the interpreter's function, where strip took its name."""
        if any(start <= offset < end for start, end in self._eval_pieces):
            return f"{_EVAL}.cold"
        return f"{self.name}+{offset:#x}"

    def role_of(self, function: str) -> Role:
        """What a function of this file is to Python frames around it."""
        unnamed = function.startswith(f"{self.name}+0x")
        if self.is_interpreter:
            return _role_in_interpreter(function)
        if self.boundary:
            return self.boundary
        if function in _START or (self.is_c_library and unnamed):
            return Role.START
        return Role.CODE


def _role_in_interpreter(function: str) -> Role:
    base, _, suffix = function.partition(".")
    if base != _EVAL:
        return Role.INTERPRETER
    return Role.EVAL_PART if suffix.startswith("part") else Role.EVAL


def _eval_pieces(fd: int) -> list[tuple[int, int]]:
    from .._native import function_pieces

    with suppress(ValueError, OSError):
        return function_pieces(fd, _EVAL) if fd >= 0 else []
    return []


def _open(mapped: MappedFile | None, root: str) -> SymbolTable | None:
    from .._native import SymbolTable

    if mapped is None or mapped.fd < 0:
        return None
    with suppress(ValueError, OSError):
        return SymbolTable(mapped.fd, mapped.path, root)
    return None


def _is_interpreter(name: str, fd: int) -> bool:
    """By its name; a program of another name by what is in it. Libraries only by name."""
    if _INTERPRETER.fullmatch(name):
        return True
    if fd < 0 or ".so" in name or name.startswith("["):
        return False
    from .._native import elf_functions

    with suppress(ValueError, OSError):
        return {found[0] for found in elf_functions(fd, _LINKED_IN)} == set(_LINKED_IN)
    return False


class NativeCalls:
    """Calls by (file, offset), each resolved once; bounded. Code of no file each time.

    Attributes:
        nameless: the files that lack symbols of functions which stacks have.
    """

    def __init__(self, files: Files) -> None:
        self._source = files
        self._files: OrderedDict[int, CodeFile] = OrderedDict()
        self._calls: dict[tuple[int, int], NativeCall] = {}
        self._made = PerfMaps()
        self.nameless: set[str] = set()

    def meet(self, pid: int) -> None:
        """Keeps what a process says of the code that it makes, before its first call."""
        self._made.meet(pid)

    def of(self, file_id: int, offset: int, pid: int, process: int) -> NativeCall:
        """The call at an offset in a file, or at an address of a process where `file_id` is 0.

        Args:
            pid, process: of a process that has the file (instance: its pid may come again).
        """
        if not file_id:  # not kept: it may get its name later, or other code may come there
            return self._made_by(process, pid, offset)
        call = self._calls.get((file_id, offset))
        if call is None:
            if len(self._calls) >= _MAX_CALLS:
                self._calls.clear()
            call = self._calls[file_id, offset] = self._in_file(file_id, offset, pid)
        return call

    def close_unused(self, ended_seconds: float) -> None:
        """Closes files whose processes are gone for a while; names that were found stay.

        An open file keeps the file system below it, a container's or a volume's, from going
        away. All stacks that were taken must have their names.

        Args:
            ended_seconds: for how long maps of code without a file stay open.
        """
        self._source.close_unused_files()
        for file_id in list(self._files):
            if self._source.file(file_id) is None:
                del self._files[file_id]
        self._made.close_ended(ended_seconds)

    def close(self) -> None:
        """Closes the files that names of code without a file stand in."""
        self._made.close()

    def _made_by(self, process: int, pid: int, address: int) -> NativeCall:
        """Code that the process made itself: it may have said what it is."""
        name = self._made.lookup(process, pid, address)
        if name is None:
            return NativeCall.of([_ANONYMOUS], Role.UNKNOWN)
        role = Role.INTERPRETER if is_trampoline(name) else Role.CODE
        return NativeCall.of([Frame(name)], role)

    def _in_file(self, file_id: int, offset: int, pid: int) -> NativeCall:
        file = self._file(file_id, pid)
        if not file.path:
            return NativeCall.of([_FORGOTTEN])
        frames = file.frames(offset)
        # the last one is the function that the compiler made; others are inlined in it
        role = file.role_of(frames[-1].function)
        if role is Role.CODE and frames[0].function.startswith(f"{file.name}+0x"):
            self.nameless.add(file.name)
        return NativeCall.of(frames, role)

    def _file(self, file_id: int, pid: int) -> CodeFile:
        file = self._files.get(file_id)
        if file is None:
            file = self._files[file_id] = CodeFile(self._source.file(file_id), pid)
            if len(self._files) > _MAX_FILES:
                self._files.popitem(last=False)
        self._files.move_to_end(file_id)
        return file
