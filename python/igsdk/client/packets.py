# SPDX-License-Identifier: Apache-2.0
"""The rows inside of a packet, as lists of byte slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from igsdk._proto import gadget_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from igsdk.client.schema import DataSource


def slots_of(source: DataSource, payload: bytes) -> list[Sequence[bytes]] | None:
    """One list of slots for each row of a packet; None where the bytes are no packet.

    Rows with fewer slots than the fields need, which nobody can read, have none at all: a
    packet of nothing else would take fifty times its size.
    """
    try:
        if source.array:
            rows = pb.GadgetDataArray.FromString(payload).dataArray
            # As lists: protobuf's own containers take twice the time to go through.
            needed = source.slots
            return [slots if len(slots := row.payload[:]) >= needed else () for row in rows]
        return [pb.GadgetData.FromString(payload).data.payload[:]]
    except DecodeError:
        return None


def tidied(source: DataSource, payloads: Sequence[bytes], odd: Iterable[int]) -> list[bytes]:
    """The packets, those at the places `odd` in the usual encoding; without what is none.

    The native reader knows no other encoding.
    """
    told: list[bytes | None] = list(payloads)
    for place in odd:
        told[place] = _plain(source, payloads[place])
    return [payload for payload in told if payload is not None]


def _plain(source: DataSource, payload: bytes) -> bytes | None:
    """The same rows with nothing beside them; None where the bytes are no packet."""
    kind = pb.GadgetDataArray if source.array else pb.GadgetData
    try:
        packet = kind.FromString(payload)
    except DecodeError:
        return None
    packet.DiscardUnknownFields()
    packet.ClearField("node")
    return packet.SerializeToString()
