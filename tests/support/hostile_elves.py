# SPDX-License-Identifier: Apache-2.0
"""A library with one function, and copies of it in which all but that function is damaged."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from igsdk._native import elf_functions

from .elves import compile_c

_FUNCTION = """
#include <stddef.h>
int helper(int x) { return x * 3; }
__attribute__((aligned(4096))) int
through(int (*allocate)(void *, size_t), void *pointer, size_t bytes)
{ volatile int result = allocate(pointer, bytes); return result; }
__attribute__((aligned(4096))) int after(int x) { return helper(x) + 1; }
"""
_PAGE = 4096
# Bytes of the file that stay: the function's page.
_WORDS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 63,
    (1 << 64) - 1,
)


def through_library(folder: Path) -> tuple[Path, int]:
    """The library and the offset of its function in the file, at the start of a page."""
    path = compile_c(_FUNCTION, folder / "good.so", "-O2", "-g", "-gz=zlib", "-Wl,--build-id")
    with path.open("rb") as file:
        ((_, _, offset, _),) = elf_functions(file.fileno(), ["through"])
    assert offset % _PAGE == 0
    return path, offset


def damaged_elf(good: bytes, kept: int, generator: random.Random) -> bytes:
    """A copy with damage; the page at `kept` is as it was."""
    data = bytearray(good)
    how = generator.choice((_headers, _sections, _tables, _anywhere, _all, _cut, _grown))
    how(data, generator)
    if len(data) < kept + _PAGE:
        data += bytes(kept + _PAGE - len(data))
    data[kept : kept + _PAGE] = good[kept : kept + _PAGE]
    return bytes(data)


def _put(data: bytearray, at: int, generator: random.Random) -> None:
    size = generator.choice((1, 2, 4, 8))
    at = min(at, len(data) - 8)
    word = generator.choice((*_WORDS, generator.getrandbits(64), at, len(data), len(data) - 1))
    if generator.random() < 0.3:
        word = int.from_bytes(data[at : at + 8], "little") + generator.choice((-8, -1, 1, 8, 4096))
    data[at : at + size] = struct.pack("<Q", word & (1 << 64) - 1)[:size]


def _headers(data: bytearray, generator: random.Random) -> None:
    """In the file's header and its program headers."""
    for _ in range(generator.randrange(1, 12)):
        _put(data, generator.randrange(16, 64 + 56 * 11), generator)


def _section_table(data: bytearray) -> tuple[int, int]:
    start = struct.unpack_from("<Q", data, 0x28)[0]
    return start, struct.unpack_from("<H", data, 0x3C)[0]


def _sections(data: bytearray, generator: random.Random) -> None:
    start, count = _section_table(data)
    for _ in range(generator.randrange(1, 40)):
        _put(data, start + generator.randrange(64 * count), generator)


def _tables(data: bytearray, generator: random.Random) -> None:
    """In one section: unwind tables, symbols, notes, debug information."""
    start, count = _section_table(data)
    number = generator.randrange(1, count)
    offset, size = struct.unpack_from("<QQ", data, start + 64 * number + 24)
    if offset + size > len(data) or size < 8:
        offset, size = 0, len(data)
    for _ in range(generator.randrange(1, 60)):
        _put(data, offset + generator.randrange(size), generator)


def _anywhere(data: bytearray, generator: random.Random) -> None:
    for _ in range(generator.randrange(1, 2000)):
        _put(data, generator.randrange(len(data)), generator)


def _all(data: bytearray, generator: random.Random) -> None:
    begin = generator.choice((0, 0, 4, 64))
    data[begin:] = generator.randbytes(len(data) - begin)


def _cut(data: bytearray, generator: random.Random) -> None:
    del data[generator.randrange(len(data)) :]


def _grown(data: bytearray, generator: random.Random) -> None:
    """Sections that say that they are larger than any file."""
    start, count = _section_table(data)
    for number in range(1, count):
        if generator.random() < 0.3:
            size = generator.choice((1 << 40, 1 << 62, (1 << 64) - 1, 0x7FFFFFFF, len(data)))
            struct.pack_into("<Q", data, start + 64 * number + 32, size)
