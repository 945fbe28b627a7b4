# SPDX-License-Identifier: Apache-2.0
"""Pieces of the interpreter's function that the compiler put elsewhere, found without symbols.

Builds with profile feedback (Debian's from 3.13 on, those of many container images) keep
the hot hundreds of bytes of ``_PyEval_EvalFrameDefault`` under its name, and the rest of
it, where nearly all return addresses are, far away under a local name, which ``strip``
removes. What tells: a function is entered at its start only, by others; so what the named
part jumps into at several places is its own. Where functions start is in the search table
of ``.eh_frame``, one entry for each part of a function.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise

EVAL = "_PyEval_EvalFrameDefault"

_HEADER = struct.Struct("<4Bii")  # version, three encodings, .eh_frame, number of rows
_ENCODINGS = (1, 0x1B, 0x03, 0x3B)  # what every linker writes: relative to the section
_ROW = struct.Struct("<ii")  # start of a function, its entry in .eh_frame
_MOST_TABLE = 64 << 20
_MOST_CODE = 1 << 20
_JUMP, _TWO_BYTES, _CONDITIONAL = 0xE9, 0x0F, range(0x80, 0x90)
# Bytes that look like a jump are somewhere in any code; they do not agree.
_FEWEST_JUMPS = 3


def find_pieces(fd: int) -> list[range]:
    """File offsets of those pieces in an interpreter's file; x86-64 only.

    Raises:
        OSError, ValueError: the file can't be read, or is no ELF file.
    """
    from ..._native import elf_functions, elf_inspect, elf_read

    found = elf_functions(fd, [EVAL]) if elf_inspect(fd).machine == "x86_64" else []
    if not found:
        return []
    _, address, offset, size = found[0]
    starts = _starts(fd)
    jumps = defaultdict(set)
    for target in _jumps(elf_read(fd, address, min(size, _MOST_CODE)), address):
        place = bisect_right(starts, target)
        if not address <= target < address + size and 0 < place < len(starts):
            jumps[place - 1].add(target)
    return [
        range(starts[place] + offset - address, starts[place + 1] + offset - address)
        for place, targets in sorted(jumps.items())
        if len(targets) >= _FEWEST_JUMPS
    ]


def _starts(fd: int) -> list[int]:
    """Addresses at which parts of functions start, in order."""
    from ..._native import elf_read, elf_section

    section = elf_section(fd, ".eh_frame_hdr")
    if section is None or not _HEADER.size <= section[1] <= _MOST_TABLE:
        return []
    table = elf_read(fd, *section)
    if len(table) < _HEADER.size or tuple(table[:4]) != _ENCODINGS:
        return []
    *_, count = _HEADER.unpack_from(table)
    rows = table[_HEADER.size : _HEADER.size + max(count, 0) * _ROW.size]
    whole = len(rows) - len(rows) % _ROW.size
    starts = [section[0] + start for start, _ in _ROW.iter_unpack(rows[:whole])]
    return starts if all(one < other for one, other in pairwise(starts)) else []


def _jumps(code: bytes, address: int) -> list[int]:
    """Where it may jump to by a distance of 32 bits."""
    targets = []
    for at, byte in enumerate(code[:-5]):
        size = 5 if byte == _JUMP else 6
        if size == 6 and (byte != _TWO_BYTES or code[at + 1] not in _CONDITIONAL):
            continue
        distance = int.from_bytes(code[at + size - 4 : at + size], "little", signed=True)
        targets.append(address + at + size + distance)
    return targets
