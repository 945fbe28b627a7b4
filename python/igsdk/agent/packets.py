# SPDX-License-Identifier: Apache-2.0
"""Rows as the bytes of packets.

Written by hand where rows are many: protobuf's own messages cost more than the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._proto import gadget_pb2 as pb
from igsdk.profile.wire import varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from igsdk.agent.layout import Source

#: of an array's packet: clients take 4 MiB by default, and a row has some 400 bytes
MOST_ROWS = 5000
INFO, WARNING = 4, 3
_DESCRIPTION = 4


def field_head(number: int, length: int) -> bytes:
    """What stands before so many bytes of a field."""
    return bytes([number << 3 | 2]) + varint(length)


def array_packets(source: Source, rows: Any, texts: Sequence[Any] = ()) -> Iterator[bytes]:
    """GadgetDataArray messages of rows of dtype ``source.fixed``.

    ``texts``: for each row its texts in the source's order, where it has such fields.
    """
    for first in range(0, len(rows), MOST_ROWS):
        part = rows[first : first + MOST_ROWS]
        if source.texts:
            yield _with_texts(part, texts[first : first + MOST_ROWS])
            continue
        framed = np.empty(len(part), source.framed)
        framed["head"] = np.frombuffer(source.heads, framed.dtype["head"])
        framed["row"] = part
        yield framed.tobytes()


def _with_texts(rows: Any, texts: Sequence[Sequence[str]]) -> bytes:
    message = pb.GadgetDataArray()
    size, data = rows.dtype.itemsize, rows.tobytes()
    for place, words in enumerate(texts):
        slots = message.dataArray.add().payload
        slots.append(data[place * size : (place + 1) * size])
        slots.extend(map(_encode, words))
    return message.SerializeToString()


def row_packets(source: Source, rows: Any) -> Iterator[bytes]:
    """GadgetData messages, one a row, of rows of dtype ``source.fixed``."""
    head, size = source.heads, rows.dtype.itemsize
    data = rows.tobytes()
    for at in range(0, len(data), size):
        yield head + data[at : at + size]


def text_packet(number: bytes, *texts: str) -> bytes:
    """A GadgetData message of one row: the first slot, unless empty, then texts."""
    slots = [number] if number else []
    element = pb.DataElement(payload=[*slots, *map(_encode, texts)])
    return pb.GadgetData(data=element).SerializeToString()


def packet(seq: int, source: Source, payload: bytes) -> bytes:
    """The event with a packet."""
    head = b"\x10" + varint(seq) + field_head(3, len(payload))
    return head + payload + (b"\x20" + varint(source.number) if source.number else b"")


def description(info: pb.GadgetInfo) -> bytes:
    """The event that a stream begins with."""
    event = pb.GadgetEvent(type=_DESCRIPTION, payload=info.SerializeToString())
    return event.SerializeToString()


def log(level: int, text: str) -> bytes:
    """The event with a line of the log."""
    return pb.GadgetEvent(type=level << 16, payload=_encode(text)).SerializeToString()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
