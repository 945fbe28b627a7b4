# SPDX-License-Identifier: Apache-2.0
"""A compiled BPF program: its programs, maps, variables and types."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from igsdk._errors import GadgetInvalid
from igsdk.image.btf import ARRAY, PTR, Btf, Type
from igsdk.image.document import extra_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

EM_BPF = 247
_SHF_EXECINSTR = 4
#: what pyelftools comes to with numbers that make no sense
_DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    TypeError,
    ValueError,
)
_BUILD_AGAIN = "Compile it again for BPF, with -g, which makes the BTF."

#: the map types that gadgets have to do with, by their numbers in the kernel
MAP_TYPES = {
    1: "HASH",
    2: "ARRAY",
    3: "PROG_ARRAY",
    4: "PERF_EVENT_ARRAY",
    5: "PERCPU_HASH",
    6: "PERCPU_ARRAY",
    7: "STACK_TRACE",
    9: "LRU_HASH",
    10: "LRU_PERCPU_HASH",
    11: "LPM_TRIE",
    12: "ARRAY_OF_MAPS",
    13: "HASH_OF_MAPS",
    15: "SOCKMAP",
    18: "SOCKHASH",
    22: "QUEUE",
    23: "STACK",
    24: "SK_STORAGE",
    27: "RINGBUF",
    28: "INODE_STORAGE",
    29: "TASK_STORAGE",
    30: "BLOOM_FILTER",
    32: "CGRP_STORAGE",
    33: "ARENA",
}


@dataclass(frozen=True)
class Map:
    """A map's definition; key and value are numbers of types, 0 where only sizes are given.

    Attributes:
        programs: functions that it is filled with when it is loaded, for tail calls.
    """

    name: str
    type: str
    key: int = 0
    value: int = 0
    key_size: int = 0
    value_size: int = 0
    max_entries: int = 0
    flags: int = 0
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function that the kernel calls, and the section that says when."""

    name: str
    section: str


@dataclass
class Object:
    """What the checks need to know of an object."""

    btf: Btf = field(default_factory=Btf)
    where: str = "the program"
    programs: list[Program] = field(default_factory=list)
    maps: dict[str, Map] = field(default_factory=dict)
    license: str = ""
    constants: dict[str, bytes] = field(default_factory=dict)


def read(data: bytes, where: str) -> Object:
    """Reads an object file.

    Args:
        where: how to call it in errors.

    Raises:
        GadgetInvalid: it is no BPF object, or has no types.
        ExtensionMissing: the package that reads ELF is not installed.
    """
    try:
        from elftools.common.exceptions import ELFError
        from elftools.construct.core import ConstructError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise extra_missing("pyelftools") from error
    try:
        return _object(ELFFile(io.BytesIO(data)), where)
    except (ELFError, ConstructError) as error:
        raise GadgetInvalid(f"{where} cannot be read: {error}.", _BUILD_AGAIN) from error
    except _DAMAGED as error:
        raise GadgetInvalid(f"{where} is a damaged ELF file.", _BUILD_AGAIN) from error


def _object(file: Any, where: str) -> Object:
    if file.header["e_machine"] not in (EM_BPF, "EM_BPF") or not file.little_endian:
        raise GadgetInvalid(f"{where} is no little-endian BPF object.", _BUILD_AGAIN)
    types = file.get_section_by_name(".BTF")
    if types is None:
        raise GadgetInvalid(f"{where} has no BTF, so nothing in it can be named.", _BUILD_AGAIN)
    made = Object(Btf(types.data()), where, list(_programs(file)))
    filled = _filled(file)
    made.maps = {
        name: _map(made.btf, name, at.type, filled.get(name, ()))
        for name, at in made.btf.section(".maps").items()
    }
    made.license = _content(file, "license").split(b"\0")[0].decode("latin-1")
    made.constants = dict(_constants(file))
    return made


def _content(file: Any, name: str) -> bytes:
    section = file.get_section_by_name(name)
    return bytes(section.data()) if section is not None else b""


def _programs(file: Any) -> Iterator[Program]:
    """Global functions in sections of their own; `.text` holds what they call."""
    symbols = file.get_section_by_name(".symtab")
    for symbol in symbols.iter_symbols() if symbols else ():
        place = symbol["st_shndx"]
        if symbol["st_info"]["type"] != "STT_FUNC" or not isinstance(place, int):
            continue
        section = file.get_section(place)
        if section["sh_flags"] & _SHF_EXECINSTR and section.name != ".text":
            yield Program(symbol.name, section.name)


def _constants(file: Any) -> Iterator[tuple[str, bytes]]:
    """Variables in .rodata and their bytes; BTF has no offsets before the object is loaded."""
    data, symbols = _content(file, ".rodata"), file.get_section_by_name(".symtab")
    for symbol in symbols.iter_symbols() if symbols else ():
        place, at = symbol["st_shndx"], symbol["st_value"]
        if isinstance(place, int) and file.get_section(place).name == ".rodata":
            yield symbol.name, data[at : at + symbol["st_size"]]


def _filled(file: Any) -> dict[str, tuple[str, ...]]:
    """Maps with values in the source, and the symbols that these are."""
    symbols, section = file.get_section_by_name(".symtab"), file.get_section_by_name(".rel.maps")
    if section is None or symbols is None:
        return {}
    starts = sorted(
        (symbol["st_value"], symbol.name)
        for symbol in symbols.iter_symbols()
        if isinstance(symbol["st_shndx"], int)
        and file.get_section(symbol["st_shndx"]).name == ".maps"
        and symbol.name
    )
    found: dict[str, tuple[str, ...]] = {}
    for one in section.iter_relocations():
        owner = max(((at, name) for at, name in starts if at <= one["r_offset"]), default=None)
        if owner:
            value = symbols.get_symbol(one["r_info_sym"]).name
            found[owner[1]] = (*found.get(owner[1], ()), value)
    return found


def _map(btf: Btf, name: str, number: int, programs: tuple[str, ...]) -> Map:
    """A definition in libbpf's style: each member's type is what it says."""
    members = {member.name: member.type for member in btf.peel(btf[number].type).members}

    def length(member: str) -> int:
        return _pointed(btf, members[member]).count if member in members else 0

    key, value = (btf.peel(members[m]).type if m in members else 0 for m in ("key", "value"))
    kind = length("type")
    return Map(
        name,
        MAP_TYPES.get(kind, f"number {kind}"),
        key,
        value,
        btf.size(key) if key else length("key_size"),
        btf.size(value) if value else length("value_size"),
        length("max_entries"),
        length("map_flags"),
        programs,
    )


def _pointed(btf: Btf, number: int) -> Type:
    """The array behind a pointer; its length is the number that is meant."""
    pointer = btf.peel(number)
    array = btf.peel(pointer.type) if pointer.kind == PTR else pointer
    return array if array.kind == ARRAY else btf[0]
