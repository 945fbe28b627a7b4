# SPDX-License-Identifier: Apache-2.0
"""What a daemon says of a gadget: what it takes and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from igsdk._errors import AnswerInvalid
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.parameters import Parameter, read_parameter
from igsdk.client.schema import DataSource, read_sources

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Gadget:
    """A gadget as a daemon describes it.

    Attributes:
        image: the image's name; what the daemon was asked for where it says none.
        sources: its data sources by name.
        parameters: what can be set for a run; empty in what a running gadget says of itself.
        metadata: the gadget.yaml of its image, as text.
        id, name: of an instance; empty otherwise.
    """

    image: str
    sources: Mapping[str, DataSource]
    parameters: tuple[Parameter, ...] = ()
    metadata: str = ""
    id: str = ""
    name: str = ""


# The largest known have some forty; objects of ours take more memory than bytes sent.
_MOST_PARAMETERS = 4096
_LARGEST = 8 << 20


def read_gadget(told: pb.GadgetInfo, image: str = "") -> Gadget:
    """Makes a gadget of its description.

    Raises:
        AnswerInvalid: the description contradicts itself.
    """
    if len(told.params) > _MOST_PARAMETERS:
        raise _unreadable(f"it has {len(told.params):,} parameters")
    return Gadget(
        image=told.imageName or image,
        sources=read_sources(told.dataSources),
        parameters=tuple(map(read_parameter, told.params)),
        metadata=told.metadata.decode("utf-8", "backslashreplace"),
        id=told.id,
        name=told.name,
    )


def parse_gadget(data: bytes, image: str = "") -> Gadget:
    """As `read_gadget`, from the bytes at the beginning of a stream."""
    if len(data) > _LARGEST:
        raise _unreadable(f"it has {len(data):,} bytes")
    try:
        return read_gadget(pb.GadgetInfo.FromString(data), image)
    except DecodeError as error:
        raise _unreadable("it is cut short, or something else") from error


def _unreadable(why: str) -> AnswerInvalid:
    return AnswerInvalid(
        f"What the daemon says of the gadget cannot be read: {why}.",
        "Look into the daemon's log, and check what serves this address.",
    )
