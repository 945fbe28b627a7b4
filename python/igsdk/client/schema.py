# SPDX-License-Identifier: Apache-2.0
"""Data sources and their fields, as a daemon describes them, checked before anything is read.

A description comes from outside: what makes no sense in it is an error here, so that the
readers of rows and columns need not ask again. What depends on the row, such as a slot that
is shorter than its fields, is theirs to count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from igsdk._errors import AnswerInvalid
from igsdk.client.kinds import Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from igsdk._proto import gadget_pb2 as pb

_EMPTY, _HIDDEN, _HAS_PARENT, _UNREFERENCED = 1, 4, 8, 32
_BIG_ENDIAN = 1
_ONE_ROW, _ARRAY = 1, 2
_MOST_SOURCES, _MOST_FIELDS = 256, 4096
#: a row of a few bytes would take as many times as much in memory
_MOST_FOR_ONE_BYTE = 16
#: no packet is larger, so no field lies further in
_FURTHEST = 64 << 20
_REMEDY = "Report it to whoever made the gadget or the daemon; another version may be right."


@dataclass(frozen=True)
class Field:
    """One field with values.

    Attributes:
        name: full, with dots: ``proc.comm``.
        kind: what its values are.
        slot: which of a row's slots it lies in.
        offset, size: where in the slot, in bytes; size 0: all of the slot.
        hidden: whether the gadget does not want it shown unless asked for.
        order: where it stands among others when shown.
        tags, annotations: as the daemon says them.
    """

    name: str
    kind: Kind
    slot: int
    offset: int = 0
    size: int = 0
    hidden: bool = False
    order: int = 0
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, str] | None = None

    @property
    def description(self) -> str:
        return (self.annotations or {}).get("description", "")

    @property
    def end(self) -> int:
        """How long the slot has to be at least; 0 where the field is all of it."""
        return self.offset + self.size if self.size else 0


@dataclass(frozen=True)
class DataSource:
    """One output of a gadget.

    Attributes:
        id: which packets of the stream are its own; 0 outside of a stream.
        name: as in gadget.yaml.
        array: whether a packet is an array of rows, made each interval, or one row.
        fields: those with values, in the daemon's order. Left out: fields that only
            group others, structs whose members are fields, and unreferenced ones.
        big_endian: the byte order of its numbers.
        tags, annotations: as the daemon says them.
    """

    id: int
    name: str
    array: bool
    fields: tuple[Field, ...]
    big_endian: bool = False
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, str] | None = None

    @cached_property
    def slots(self) -> int:
        """How many slots a row has at least."""
        return max((field.slot + 1 for field in self.fields), default=0)

    @property
    def shown(self) -> tuple[Field, ...]:
        """The fields that are not hidden, in the order in which to show them."""
        seen = [field for field in self.fields if not field.hidden]
        return tuple(sorted(seen, key=lambda field: field.order))


def read_source(told: pb.DataSource) -> DataSource:
    """Makes a data source of its description.

    Raises:
        AnswerInvalid: the description contradicts itself.
    """
    if told.type not in (_ONE_ROW, _ARRAY):
        raise _wrong(told, f"is of type {told.type}, and there are 1 and 2")
    if len(told.fields) > _MOST_FIELDS:
        raise _wrong(told, f"has {len(told.fields)} fields, and {_MOST_FIELDS} is the most")
    parents = _parents(told)
    fields = [
        _read_field(told, one)
        for place, one in enumerate(told.fields)
        if place not in parents and not one.flags & (_EMPTY | _UNREFERENCED)
    ]
    _no_name_twice(told, fields)
    _no_byte_for_all(told, fields)
    return DataSource(
        id=told.id,
        name=told.name,
        array=told.type == _ARRAY,
        fields=tuple(fields),
        big_endian=bool(told.flags & _BIG_ENDIAN),
        tags=tuple(told.tags),
        annotations=dict(told.annotations),
    )


def read_sources(told: Sequence[pb.DataSource]) -> dict[str, DataSource]:
    """All data sources of a gadget, by name; raises like `read_source`."""
    if len(told) > _MOST_SOURCES:
        raise AnswerInvalid(f"The daemon's gadget has {len(told):,} data sources.", _REMEDY)
    sources: dict[str, DataSource] = {}
    for one in told:
        if one.name in sources:
            raise _wrong(one, "is there twice")
        sources[one.name] = read_source(one)
    return sources


def _parents(told: pb.DataSource) -> set[int]:
    """The places of fields that have others below them."""
    parents = {one.parent for one in told.fields if one.flags & _HAS_PARENT}
    beyond = max(parents, default=0)
    if parents and beyond >= len(told.fields):
        raise _wrong(told, f"has a field below number {beyond}, which does not exist")
    return parents


def _read_field(told: pb.DataSource, one: pb.Field) -> Field:
    kind = kind_of(one.kind)
    name = one.fullName or one.name
    if one.size and one.offs + one.size > _FURTHEST:
        raise _wrong(told, f"has {name} at {one.offs} to {one.offs + one.size}, in no packet")
    if one.size and kind.is_number and one.size < kind.width:
        raise _wrong(told, f"gives {name} {one.size} bytes, and {kind} takes {kind.width}")
    if one.size and kind.array and one.size % kind.width:
        raise _wrong(told, f"gives {name} {one.size} bytes, no whole number of {kind.name}")
    return Field(
        name=name,
        kind=kind,
        slot=one.payloadIndex,
        offset=one.offs if one.size else 0,
        # A number may have more room than it takes.
        size=kind.width if one.size and kind.is_number else one.size,
        hidden=bool(one.flags & _HIDDEN),
        order=one.order,
        tags=tuple(one.tags),
        annotations=dict(one.annotations),
    )


def _no_name_twice(told: pb.DataSource, fields: list[Field]) -> None:
    seen: set[str] = set()
    for one in fields:
        if one.name in seen:
            raise _wrong(told, f"has two fields called {one.name!r}")
        seen.add(one.name)


def _no_byte_for_all(told: pb.DataSource, fields: list[Field]) -> None:
    slots: dict[int, list[Field]] = {}
    for one in fields:
        slots.setdefault(one.slot, []).append(one)
    for slot, some in slots.items():
        whole = sum(not one.size for one in some)
        in_parts = sum(one.size for one in some)
        furthest = max(one.end for one in some)
        if whole > _MOST_FOR_ONE_BYTE or in_parts > _MOST_FOR_ONE_BYTE * furthest:
            raise _wrong(told, f"has too many fields of the same bytes, in slot {slot}")


def _wrong(told: pb.DataSource, what: str) -> AnswerInvalid:
    return AnswerInvalid(f"The daemon's data source {told.name!r} {what}.", _REMEDY)
