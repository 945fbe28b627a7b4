# SPDX-License-Identifier: Apache-2.0
"""Which line an instruction is of: the line tables of CPython's code objects.

Three encodings: lnotab (to 3.9), ranges with signed deltas (3.10), location entries
(from 3.11). The tables come from other processes and may hold anything.
"""

from __future__ import annotations

_NO_LINE = -128  # of a range, 3.10
# Kinds of location entries; 0 to 9 have one byte more and stay on their line.
_ONE_LINE, _NO_COLUMNS, _LONG, _NONE = 10, 13, 14, 15
_MORE_BYTES = {10: 2, 11: 2, 12: 2}
_MOST_SHIFT = 30


def find_line(
    table: bytes, lasti: int, first_line: int, version: int, *, complete: bool = True
) -> int:
    """The line of the instruction at a byte offset; 0: it has none, or nobody knows.

    Args:
        table: ``co_lnotab`` or ``co_linetable``.
        lasti: byte offset of the instruction; negative: the code has not begun.
        version: 0x030d = 3.13.
        complete: whether the table is whole; a line is told only as far as it goes.
    """
    if lasti < 0:
        line = first_line
    elif version < 0x030A:
        line = _in_lnotab(table, lasti, first_line, complete)
    elif version == 0x030A:
        line = _in_ranges(table, lasti, first_line)
    else:
        line = _in_locations(table, lasti, first_line)
    return max(line, 0)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _in_lnotab(table: bytes, lasti: int, line: int, complete: bool) -> int:
    """Pairs of address and line deltas; the last line goes on to the end of the code."""
    address = 0
    for step, delta in zip(table[::2], table[1::2], strict=False):
        address += step
        if address > lasti:
            return line
        line += _signed(delta)
    return line if complete else 0


def _in_ranges(table: bytes, lasti: int, line: int) -> int:
    """Pairs of a range's length and of its line's distance from the one before."""
    end = 0
    for length, byte in zip(table[::2], table[1::2], strict=False):
        delta = _signed(byte)
        if delta != _NO_LINE:
            line += delta
        end += length
        if lasti < end:
            return 0 if delta == _NO_LINE else line
    return 0


def _in_locations(table: bytes, lasti: int, line: int) -> int:
    """Entries of a kind, a length in code units of 2 bytes, and what the kind asks for."""
    at = end = 0
    while at < len(table):
        kind, units = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        if kind >= _NO_COLUMNS and kind != _NONE:
            delta, at = _signed_varint(table, at)
            line += delta
            for _ in range(3 if kind == _LONG else 0):
                _, at = _varint(table, at)
        elif kind != _NONE:
            line += max(kind - _ONE_LINE, 0)
            at += _MORE_BYTES.get(kind, 1)
        end += 2 * units
        if lasti < end:
            return line if kind != _NONE and at <= len(table) else 0
    return 0


def _varint(table: bytes, at: int) -> tuple[int, int]:
    """A number of 6 bits a byte, least first; and where it ends, if the table holds it."""
    value = shift = 0
    while at < len(table):
        byte = table[at]
        value |= (byte & 63) << shift
        at += 1
        if not byte & 64:
            return value, at
        shift = min(shift + 6, _MOST_SHIFT)
    return 0, len(table) + 1


def _signed_varint(table: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(table, at)
    return (-(value >> 1) if value & 1 else value >> 1), at
