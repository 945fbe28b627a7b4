# SPDX-License-Identifier: Apache-2.0
"""Makes descriptions and packets, as a daemon does: the other direction of the client's code.

It shares nothing with that code: widths, offsets and bytes are worked out here again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from igsdk._proto import gadget_pb2 as pb

ARRAY = 0x10000000
EMPTY, HIDDEN, HAS_PARENT, STATIC, UNREFERENCED = 1, 4, 8, 16, 32
BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64 = range(1, 10)
FLOAT32, FLOAT64, STRING, CSTRING, BYTES = range(10, 15)
WIDTHS = {
    BOOL: 1,
    INT8: 1,
    UINT8: 1,
    INT16: 2,
    UINT16: 2,
    INT32: 4,
    UINT32: 4,
    FLOAT32: 4,
    INT64: 8,
    UINT64: 8,
    FLOAT64: 8,
}


@dataclass(frozen=True)
class Spec:
    """A field to make.

    Attributes:
        kind: a kind's number, with ARRAY for arrays.
        size: for what lies in the struct; 0: in a slot of its own.
        gap: bytes of padding before it in the struct.
    """

    name: str
    kind: int
    size: int = 0
    gap: int = 0
    flags: int = 0


def encode(spec: Spec, value: Any, big: bool) -> bytes:
    """A value's bytes."""
    if spec.kind & ARRAY:
        one = Spec("", spec.kind & ~ARRAY)
        return b"".join(encode(one, item, big) for item in value)
    order: Literal["big", "little"] = "big" if big else "little"
    if spec.kind in (FLOAT32, FLOAT64):
        return struct.pack(f"{'>' if big else '<'}{'f' if spec.kind == FLOAT32 else 'd'}", value)
    if spec.kind in WIDTHS:
        return int(value).to_bytes(WIDTHS[spec.kind], order, signed=INT8 <= spec.kind <= INT64)
    data = value if isinstance(value, bytes) else value.encode()
    return data.ljust(spec.size, b"\0")


def source(
    name: str, specs: Sequence[Spec], *, array: bool = True, big: bool = False, number: int = 0
) -> pb.DataSource:
    """Describes fields: those with a size in slot 0, one behind the other; the others each
    in a slot of its own."""
    made = pb.DataSource(id=number, name=name, type=2 if array else 1, flags=int(big))
    at, slot = 0, 1 if any(spec.size for spec in specs) else 0
    for index, spec in enumerate(specs):
        one = made.fields.add(name=spec.name, fullName=spec.name, index=index, kind=spec.kind)
        one.flags = spec.flags | (STATIC if spec.size else 0)
        if spec.flags & EMPTY:
            continue
        if spec.size:
            one.offs, one.size = at + spec.gap, spec.size
            at = one.offs + one.size
        else:
            one.payloadIndex, slot = slot, slot + 1
    return made


def element(specs: Sequence[Spec], values: Sequence[Any], big: bool = False) -> pb.DataElement:
    """One row, for what `source` described."""
    body, slots = b"", []
    for spec, value in zip(specs, values, strict=True):
        if spec.flags & EMPTY:
            continue
        data = encode(spec, value, big)
        if spec.size:
            body += b"\xee" * spec.gap + data
        else:
            slots.append(data)
    head = [body] if any(spec.size for spec in specs) else []
    return pb.DataElement(payload=head + slots)


def packet(
    elements: Sequence[pb.DataElement], seq: int, *, array: bool = True, number: int = 0
) -> pb.GadgetEvent:
    """An event with rows."""
    if array:
        payload = pb.GadgetDataArray(dataArray=elements).SerializeToString()
    else:
        payload = pb.GadgetData(data=elements[0]).SerializeToString()
    return pb.GadgetEvent(type=0, seq=seq, payload=payload, dataSourceID=number)
