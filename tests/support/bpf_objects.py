# SPDX-License-Identifier: Apache-2.0
"""Reads a BPF object with bpftool and pyelftools, so independently of ``igsdk.image``."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from .tiny import dumped

Type = dict[str, Any]

#: numbers of the kernel's enum bpf_map_type
MAP_TYPES = {
    1: "HASH",
    2: "ARRAY",
    3: "PROG_ARRAY",
    4: "PERF_EVENT_ARRAY",
    6: "PERCPU_ARRAY",
    7: "STACK_TRACE",
    9: "LRU_HASH",
    23: "STACK",
    27: "RINGBUF",
    29: "TASK_STORAGE",
}
_QUALIFIERS = ("CONST", "VOLATILE", "RESTRICT")


@dataclass(frozen=True)
class Member:
    """One of a struct; offset and size in bytes."""

    name: str
    type: Type
    offset: int
    size: int


@dataclass(frozen=True)
class Map:
    """As its definition says; entries are 0 where nobody says."""

    type: str
    key_size: int
    value_size: int
    entries: int
    flags: int
    key: Type | None
    value: Type | None


class BpfObject:
    """Types, variables, maps, programs and sections of one file."""

    def __init__(self, path: Path) -> None:
        types = json.loads(dumped(path))["types"]
        self.types: dict[int, Type] = {one["id"]: one for one in types}
        self.path = path
        with path.open("rb") as file:
            elf = ELFFile(file)
            self.header = dict(elf.header)
            self.sections = {s.name: (s["sh_flags"], s.data()) for s in elf.iter_sections()}
            (table,) = (s for s in elf.iter_sections() if isinstance(s, SymbolTableSection))
            symbols = list(table.iter_symbols())
            names = [section.name for section in elf.iter_sections()]
            self.symbols = {
                symbol.name: (names[symbol["st_shndx"]], symbol["st_value"], symbol["st_size"])
                for symbol in symbols
                if symbol.name and isinstance(symbol["st_shndx"], int)
            }
            self.functions = {s.name for s in symbols if s["st_info"]["type"] == "STT_FUNC"}
            #: section -> (offset, symbol) of what it refers to
            self.references = {
                names[section["sh_info"]]: [
                    (one["r_offset"], symbols[one["r_info_sym"]].name)
                    for one in section.iter_relocations()
                ]
                for section in elf.iter_sections()
                if isinstance(section, RelocationSection)
            }

    # Types

    def named(self, kind: str, name: str) -> Type:
        """The one type of a kind and name."""
        (found,) = (t for t in self.types.values() if (t["kind"], t["name"]) == (kind, name))
        return found

    def of_kind(self, kind: str) -> Iterator[Type]:
        return (one for one in self.types.values() if one["kind"] == kind)

    def target(self, one: Type) -> Type | None:
        """What a pointer, qualifier, typedef or variable is of; None for void."""
        return self.types.get(one["type_id"])

    def chain(self, one: Type) -> list[str]:
        """Kinds, with names where they have one, from a type down to what it is made of."""
        words = []
        found: Type | None = one
        while found is not None:
            name = "" if found["name"] == "(anon)" else " " + found["name"]
            words.append(found["kind"] + name)
            if "type_id" not in found:
                return words
            found = self.target(found)
        return [*words, "VOID"]

    def bare(self, one: Type) -> Type:
        """Without qualifiers and names that others were given."""
        while one["kind"] in (*_QUALIFIERS, "TYPEDEF"):
            one = self.types[one["type_id"]]
        return one

    def size(self, one: Type) -> int:
        """Bytes of a value."""
        one = self.bare(one)
        if one["kind"] == "ARRAY":
            return int(one["nr_elems"]) * self.size(self.types[one["type_id"]])
        if one["kind"] == "PTR":
            return 8
        return int(one["size"])

    def members(self, one: Type) -> list[Member]:
        """In the order of the source."""
        found = []
        for said in one["members"]:
            of = self.types[said["type_id"]]
            assert said["bits_offset"] % 8 == 0
            found.append(Member(said["name"], of, said["bits_offset"] // 8, self.size(of)))
        return found

    # Variables and maps

    @functools.cached_property
    def variables(self) -> dict[str, Type]:
        return {one["name"]: one for one in self.of_kind("VAR")}

    def section_of(self, variable: str) -> str:
        """Section of types that a variable belongs to."""
        number = self.variables[variable]["id"]
        (found,) = (
            section["name"]
            for section in self.of_kind("DATASEC")
            if any(one["type_id"] == number for one in section["vars"])
        )
        return str(found)

    def initial(self, variable: str) -> bytes:
        """The bytes that a variable has before anybody sets it."""
        section, offset, size = self.symbols[variable]
        return bytes(self.sections[section][1][offset : offset + size])

    @functools.cached_property
    def maps(self) -> dict[str, Map]:
        section = self.named("DATASEC", ".maps")
        found = (self.types[one["type_id"]] for one in section["vars"])
        return {one["name"]: self._map(one) for one in found}

    def _map(self, variable: Type) -> Map:
        said = {m.name: m.type for m in self.members(self.types[variable["type_id"]])}
        numbers = {name: self._number(said.get(name)) for name in ("type", "max_entries")}
        numbers["map_flags"] = self._number(said.get("map_flags"))
        key, value = (self._pointed(said.get(name)) for name in ("key", "value"))
        return Map(
            MAP_TYPES[numbers["type"]],
            self.size(key) if key else self._number(said.get("key_size")),
            self.size(value) if value else self._number(said.get("value_size")),
            numbers["max_entries"],
            numbers["map_flags"],
            key,
            value,
        )

    def _number(self, of: Type | None) -> int:
        """``int (*name)[N]`` says N."""
        pointed = self._pointed(of)
        return int(pointed["nr_elems"]) if pointed else 0

    def _pointed(self, of: Type | None) -> Type | None:
        return self.types[of["type_id"]] if of else None

    # Programs

    @functools.cached_property
    def programs(self) -> dict[str, str]:
        """Name of a program -> its section. What is in .text is only called by others."""
        executable = 4
        return {
            name: section
            for name, (section, *_) in self.symbols.items()
            if name in self.functions
            and self.sections[section][0] & executable
            and section != ".text"
        }
