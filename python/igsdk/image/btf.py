# SPDX-License-Identifier: Apache-2.0
"""Reads BTF, the type information of BPF objects.

The format is the kernel's (Documentation/bpf/btf.rst): a header, one record for each
type, and a table of strings. Types are numbered from 1; 0 is void.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from igsdk._errors import GadgetInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST = range(1, 11)
RESTRICT, FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(11, 20)
WRAPPERS = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG)
SIGNED, CHAR, BOOL = 1, 2, 4
GLOBAL = 1

_MAGIC = 0xEB9F
_POINTER_BYTES = 8
_DEEPEST = 64
_EMPTY = struct.pack("<HBBIIIII", _MAGIC, 1, 0, 24, 0, 0, 0, 0)


class BtfError(GadgetInvalid):
    """These bytes are no BTF; says why."""

    def __init__(self, reason: str) -> None:
        cause = f"The types (BTF) of the program cannot be read: {reason}."
        super().__init__(cause, "Compile it again for BPF, with -g, which makes the BTF.")


@dataclass(frozen=True)
class Member:
    """A member of a struct or union, or an entry of a section.

    Attributes:
        offset: in bits for structs and unions, in bytes for sections.
        size: in bytes, for sections only.
    """

    name: str
    type: int
    offset: int
    size: int = 0
    bits: int = 0


@dataclass(frozen=True)
class Type:
    """One record; what does not apply is 0 or empty.

    Attributes:
        type: number of the type that this one refers to (the element of an array).
        size: in bytes, of integers, floats, enums, structs, unions and sections.
        count: elements of an array.
        encoding: of integers, a mix of SIGNED, CHAR and BOOL; of enums, SIGNED.
        linkage: of variables and functions: 0 static, 1 global, 2 extern.
        values: of enums.
    """

    number: int
    kind: int
    name: str
    type: int = 0
    size: int = 0
    count: int = 0
    encoding: int = 0
    linkage: int = 0
    members: tuple[Member, ...] = ()
    values: tuple[tuple[str, int], ...] = ()


class Btf:
    """All types of an object."""

    def __init__(self, data: bytes = _EMPTY) -> None:
        """Reads the content of a section `.BTF`; without one there is only void.

        Raises:
            BtfError: it is cut short, of another version, or of no known kind.
        """
        try:
            self.types = list(_records(data))
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise BtfError("it is cut short, or its lengths do not fit") from error

    def __getitem__(self, number: int) -> Type:
        """One type; raises BtfError for a number that no type has."""
        if not 0 <= number < len(self.types):
            raise BtfError(f"it refers to type {number}, which it does not have")
        return self.types[number]

    @cached_property
    def variables(self) -> dict[str, Type]:
        return {one.name: one for one in self.types if one.kind == VAR}

    @cached_property
    def structs(self) -> dict[str, Type]:
        return {one.name: one for one in self.types if one.kind == STRUCT and one.name}

    def section(self, name: str) -> dict[str, Member]:
        """The variables of a data section, by name."""
        found = (one for one in self.types if one.kind == DATASEC and one.name == name)
        return {self[entry.type].name: entry for one in found for entry in one.members}

    def peel(self, number: int) -> Type:
        """What is left without typedefs and qualifiers.

        Raises:
            BtfError: they go round in a circle.
        """
        one = self[number]
        for _ in range(_DEEPEST):
            if one.kind not in WRAPPERS:
                return one
            one = self[one.type]
        raise BtfError(f"type {number} refers to itself")

    def size(self, number: int) -> int:
        """Bytes that a type takes; 0 for functions and void."""
        count = 1
        for _ in range(_DEEPEST):
            one = self.peel(number)
            if one.kind != ARRAY:
                return count * (_POINTER_BYTES if one.kind == PTR else one.size)
            count, number = count * one.count, one.type
        raise BtfError(f"type {number} is nested too deeply")


def _records(data: bytes) -> Iterator[Type]:
    magic, version, _, header, types_at, types_size, strings_at, strings_size = struct.unpack_from(
        "<HBBIIIII", data
    )
    if magic != _MAGIC:
        raise BtfError("it does not begin as BTF does, or is of a big-endian machine")
    if version != 1:
        raise BtfError(f"it is of version {version}")
    strings = data[header + strings_at : header + strings_at + strings_size]
    at, end = header + types_at, header + types_at + types_size
    if end > len(data) or len(strings) != strings_size:
        raise BtfError("it is cut short")
    yield Type(0, 0, "void")
    number = 1
    while at < end:
        one, at = _record(data, at, number, strings)
        yield one
        number += 1


def _record(data: bytes, at: int, number: int, strings: bytes) -> tuple[Type, int]:
    """One type and where the next one starts."""
    name_at, info, word = struct.unpack_from("<III", data, at)
    kind, count, flag = info >> 24 & 0x1F, info & 0xFFFF, info >> 31
    name = _string(strings, name_at)
    at += 12
    if kind in (STRUCT, UNION):
        members = tuple(_members(data, at, count, bool(flag), strings))
        return Type(number, kind, name, size=word, members=members), at + 12 * count
    if kind in (ENUM, ENUM64):
        values = tuple(_values(data, at, count, kind == ENUM64, bool(flag), strings))
        step = 12 if kind == ENUM64 else 8
        made = Type(number, kind, name, size=word, encoding=int(flag), values=values)
        return made, at + step * count
    if kind == DATASEC:
        entries = tuple(
            Member("", one, offset, size)
            for one, offset, size in struct.iter_unpack("<III", data[at : at + 12 * count])
        )
        return Type(number, kind, name, size=word, members=entries), at + 12 * count
    return _plain_record(data, at, Type(number, kind, name, type=word), count)


def _plain_record(data: bytes, at: int, one: Type, count: int) -> tuple[Type, int]:
    """The kinds without lists that concern us."""
    number, kind, name, word = one.number, one.kind, one.name, one.type
    if kind == INT:
        (about,) = struct.unpack_from("<I", data, at)
        encoding = about >> 24 & 0xF
        return Type(number, kind, name, size=word, encoding=encoding), at + 4
    if kind == ARRAY:
        element, _, length = struct.unpack_from("<III", data, at)
        return Type(number, kind, name, type=element, count=length), at + 12
    if kind == VAR:
        (linkage,) = struct.unpack_from("<I", data, at)
        return Type(number, kind, name, type=word, linkage=linkage), at + 4
    if kind == FUNC_PROTO:
        return one, at + 8 * count
    if kind == DECL_TAG:
        return one, at + 4
    if kind == FLOAT:
        return Type(number, kind, name, size=word), at
    if kind == FUNC:
        return Type(number, kind, name, type=word, linkage=count), at
    if kind in (PTR, FWD, *WRAPPERS):
        return one, at
    raise BtfError(f"type {number} is of the unknown kind {kind}")


def _members(data: bytes, at: int, count: int, with_bits: bool, strings: bytes) -> Iterator[Member]:
    for i in range(count):
        name_at, one, offset = struct.unpack_from("<III", data, at + 12 * i)
        bits = offset >> 24 if with_bits else 0
        yield Member(
            _string(strings, name_at), one, offset & 0xFFFFFF if with_bits else offset, bits=bits
        )


def _values(
    data: bytes, at: int, count: int, wide: bool, signed: bool, strings: bytes
) -> Iterator[tuple[str, int]]:
    for i in range(count):
        if wide:
            name_at, low, high = struct.unpack_from("<III", data, at + 12 * i)
            value = high << 32 | low
        else:
            name_at, value = struct.unpack_from("<II", data, at + 8 * i)
        top = 1 << (63 if wide else 31)
        yield _string(strings, name_at), value - 2 * top if signed and value & top else value


def _string(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    if end < 0:
        raise BtfError("a name lies behind the end of the strings")
    return strings[at:end].decode()
