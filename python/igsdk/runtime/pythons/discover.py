# SPDX-License-Identifier: Apache-2.0
"""Which of a process's files is a Python interpreter, and what that file says of itself.

The files come from other users' containers and may be hostile: the extension's ELF
reader bounds what it reads, and what can't be read is no interpreter.
"""

from __future__ import annotations

import os
import platform
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..mappings import plain_name
from .offsets import COOKIE, DESCRIPTION_BYTES, Layout, Unsupported, layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..._native import ElfInfo
    from ..mappings import Mapping

#: How the names of files begin that are worth a look when they are mapped.
PREFIXES = ("python", "libpython")

_RUNTIME, _VERSION = "_PyRuntime", "Py_Version"
_REFERENCES = "_Py_PrintReferences"  # exists only where objects are chained to each other
_CHAINED_UNTIL = 0x030C  # later ones keep the chain elsewhere
_SECTION = ".PyRuntime"
_IN_NAME = re.compile(r"python([23])\.(\d{1,2})")
_IN_TEXT = re.compile(rb"python3\.(\d{1,2})[\0/]")
_FIRST_RUNTIME = 0x0307  # the first version that has one
_PIECE = 1 << 20
_MOST_SEARCHED = 64 << 20


@dataclass(frozen=True)
class Interpreter:
    """An interpreter's file. `address` is of ``_PyRuntime`` before any bias.

    Either `layout` is known or `reason` says why frames can't be read. `loader` is the
    dynamic loader that the file asks for, if it is a program. `code` are its code
    segments: (address, file offset, bytes).
    """

    layout: Layout | None
    reason: str
    address: int = 0
    loader: str = ""
    code: tuple[tuple[int, int, int], ...] = ()

    def runtime(self, mappings: Iterable[Mapping]) -> int | None:
        """Where ``_PyRuntime`` is in a process that has mapped this file so."""
        for mapping in mappings:
            for address, offset, size in self.code:
                page = offset - offset % os.sysconf("SC_PAGESIZE")
                if page <= mapping.offset < offset + size:
                    return self.address + mapping.start - mapping.offset - (address - offset)
        return None


def read_interpreter(fd: int, path: str, *, likely: bool) -> Interpreter | None:
    """Reads what a mapped file is; None: no interpreter.

    Args:
        fd: of the file, open for reading.
        path: its name may say the version where the file doesn't.
        likely: it is a program, or is called like an interpreter: worth a long search
            where it has no symbols.
    """
    from ..._native import elf_inspect

    info = elf_inspect(fd)
    if info.machine != platform.machine():
        return None
    named = _version_in_name(path)
    try:
        found = _find_runtime(fd, info, likely)
        if found is None:
            return _without_runtime(named) if likely else None
        address, symbols = found
        description = _description(fd, address)
        version = _version(fd, symbols, description, named)
        known = layout(version, info.machine, description)
    except Unsupported as unsupported:
        return Interpreter(None, str(unsupported))
    return Interpreter(known, "", address, info.interpreter, tuple(info.code))


def _version_in_name(path: str) -> int:
    found = _IN_NAME.search(plain_name(path))
    return int(found[1]) << 8 | int(found[2]) if found else 0


def _without_runtime(named: int) -> Interpreter | None:
    """Old ones have none, and neither have the programs that only call libpython."""
    if not 0 < named < _FIRST_RUNTIME:
        return None
    text = f"Python {named >> 8}.{named & 0xFF}: older than 3.8"
    return Interpreter(None, text)


def _find_runtime(fd: int, info: ElfInfo, likely: bool) -> tuple[int, dict[str, int]] | None:
    """The address of ``_PyRuntime``, and what else has a symbol."""
    from ..._native import elf_section, elf_symbols

    names = [_RUNTIME, _VERSION, _REFERENCES]
    symbols = {name: at for name, at, _ in elf_symbols(fd, names, exported=True)}
    if likely and _RUNTIME not in symbols:  # a program may keep it to itself
        symbols = {name: at for name, at, _ in elf_symbols(fd, names)}
    if _RUNTIME in symbols:
        return symbols[_RUNTIME], symbols
    section = elf_section(fd, _SECTION)
    if section and section[0]:
        return section[0], symbols
    cookie = _find_cookie(fd, info.data) if likely else None
    return None if cookie is None else (cookie, symbols)


def _find_cookie(fd: int, segments: Sequence[tuple[int, int, int]]) -> int | None:
    from ..._native import elf_read

    left = _MOST_SEARCHED
    for start, _, size in segments:
        for at in range(start, start + min(size, left), _PIECE):
            piece = elf_read(fd, at, _PIECE)
            left -= _PIECE
            where = piece.find(COOKIE)
            if where >= 0 and (at + where) % 8 == 0:
                return at + where
    return None


def _description(fd: int, address: int) -> bytes:
    from ..._native import elf_read

    return elf_read(fd, address, DESCRIPTION_BYTES)


def _version(fd: int, symbols: dict[str, int], description: bytes, named: int) -> int:
    """0x030d = 3.13, by what is surest; Unsupported where nothing tells."""
    from ..._native import elf_read

    said = elf_read(fd, symbols[_VERSION], 8) if _VERSION in symbols else b""
    if description.startswith(COOKIE) and not said:
        said = description[8:16]
    version = struct.unpack("<Q", said)[0] >> 16 if len(said) == 8 else 0
    version = version or named or _version_in_text(fd)
    if not 0x0300 <= version <= 0x03FF:
        raise Unsupported("Python: its version can't be told")
    if version <= _CHAINED_UNTIL and _REFERENCES in symbols:
        minor = version & 0xFF
        raise Unsupported(f"Python 3.{minor}: builds that trace references are not supported")
    return version


def _version_in_text(fd: int) -> int:
    """The folder of its library, which each interpreter has in its constants."""
    rest = b""
    for at in range(0, _MOST_SEARCHED, _PIECE):
        piece = os.pread(fd, _PIECE, at)
        found = _IN_TEXT.search(rest + piece)
        if found:
            return 0x0300 | int(found[1])
        if len(piece) < _PIECE:
            break
        rest = piece[-32:]
    return 0


def find_candidates(pid: int, mapped: Iterable[Mapping]) -> list[tuple[bool, list[Mapping]]]:
    """A process's files, the likeliest interpreter first: (is likely, its mappings).

    A program that has an interpreter built in uses that one, also where it has loaded
    a libpython besides. Of the others those come first that are called so.
    """
    files: dict[tuple[int, int], list[Mapping]] = {}
    for mapping in mapped:
        if mapping.inode:
            files.setdefault((mapping.device, mapping.inode), []).append(mapping)
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        program = ""

    def rank(mapping: Mapping) -> int:
        if mapping.path == program:
            return 0
        return 1 if mapping.name.startswith(PREFIXES) else 2

    ranked = sorted((rank(each[0]), number) for number, each in enumerate(files.values()))
    found = list(files.values())
    return [(rank < 2, found[number]) for rank, number in ranked]


def libc_of(mapped: Iterable[Mapping], loader: str) -> str:
    """Which C library a process has: "glibc", "musl" or "" where nobody knows."""
    for name in (*(mapping.name for mapping in mapped), plain_name(loader)):
        if name.startswith(("ld-musl-", "libc.musl-")):
            return "musl"
        if name.startswith(("libc.so.6", "libc-2.", "ld-linux", "ld-2.")):
            return "glibc"
    return ""
