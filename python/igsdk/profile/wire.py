# SPDX-License-Identifier: Apache-2.0
"""Samples of a pprof in the protobuf wire format, without a Python object per sample.

A profile may have a million samples and few label sets and stacks: those are encoded
once each, the values as array work, and a row is three pieces joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from igsdk.ledger.columns import Column

# Tags: field number << 3 | wire type (0 varint, 2 length-delimited).
_PROFILE_SAMPLE = b"\x12"
_SAMPLE_LOCATION, _SAMPLE_VALUE, _SAMPLE_LABEL = b"\x0a", b"\x12", b"\x1a"
_LABEL_KEY, _LABEL_STR, _LABEL_NUM = b"\x08", b"\x10", b"\x18"


def varint(number: int) -> bytes:
    """A number's wire form; a negative one as its 64-bit two's complement."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


def locations(ids: Sequence[int]) -> bytes:
    """The field of a sample's location ids, leaf first."""
    return _field(_SAMPLE_LOCATION, b"".join(map(varint, ids)))


def text_label(key: int, text: int) -> bytes:
    """The field of one string label; both are numbers in the string table."""
    return _field(_SAMPLE_LABEL, _LABEL_KEY + varint(key) + _LABEL_STR + varint(text))


def number_label(key: int, number: int) -> bytes:
    """The field of one numeric label."""
    return _field(_SAMPLE_LABEL, _LABEL_KEY + varint(key) + _LABEL_NUM + varint(number))


def samples(
    stacks: Sequence[bytes], stack: Column, values: Column, labels: Sequence[bytes], label: Column
) -> bytes:
    """All samples as fields of the profile message.

    Args:
        stacks, labels: encoded once each; ``stack`` and ``label`` say which a row has.
        values: int64, rows x columns.
    """
    rows = zip(stack.tolist(), _rows(values), label.tolist(), strict=True)
    return b"".join(
        _field(_PROFILE_SAMPLE, stacks[s] + _field(_SAMPLE_VALUE, packed) + labels[which])
        for s, packed, which in rows
    )


def _rows(values: Column) -> Iterator[bytes]:
    """Each row's numbers as packed varints."""
    if not len(values):
        return
    flat = values.reshape(-1).view(np.uint64)
    sizes = _sizes(flat)
    ends = np.cumsum(sizes)
    packed = _packed(flat, sizes, ends - sizes)
    start = 0
    for end in ends[values.shape[1] - 1 :: values.shape[1]].tolist():
        yield packed[start:end]
        start = end


def _sizes(numbers: Column) -> Column:
    """How many bytes each number takes: one per seven bits."""
    sizes = np.ones(len(numbers), dtype=np.int64)
    for bits in range(7, 64, 7):
        sizes += numbers >= np.uint64(1 << bits)
    return sizes


def _packed(numbers: Column, sizes: Column, starts: Column) -> bytes:
    out = np.zeros(int(sizes.sum()), dtype=np.uint8)
    for place in range(int(sizes.max())):
        some = sizes > place
        seven = (numbers[some] >> np.uint64(7 * place)) & np.uint64(0x7F)
        more = np.where(sizes[some] > place + 1, 0x80, 0).astype(np.uint64)
        out[starts[some] + place] = seven | more
    return out.tobytes()
