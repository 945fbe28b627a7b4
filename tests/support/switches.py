# SPDX-License-Identifier: Apache-2.0
"""Which settings of a BPF object change what the verifier sees, and the fewest that show it all.

A setting in .rodata is a constant to the verifier, which cuts out what it makes
unreachable. It looks at a global function by itself, so only settings that one function
reads, with the static functions that it calls, act together: it is enough that each such
group takes on all its combinations, whatever the others are at that time.
"""

from __future__ import annotations

import functools
import io
import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elftools.elf.elffile import ELFFile

Value = int | str
Switches = dict[str, Value]

_LOAD, _CALL, _CALL_OF_OURS = 0x18, 0x85, 1
_MOVE, _ADD, _FRAME = 0xBF, 0x07, 10  # the register that points at the frame's end
_MEMORY = frozenset({1, 2, 3})  # classes of instructions that load and store
_BYTES = 8  # of an instruction
_KERNEL = -1  # the section of functions that the kernel has


#: section and value of a symbol, and whether it is the section's own
_Target = tuple[int, int, bool]


@dataclass(frozen=True)
class _Places:
    """Sections by number, and what stands where in .rodata."""

    rodata: int
    text: int
    named: Mapping[int, str]


@dataclass
class _Function:
    name: str
    section: int
    start: int
    end: int
    is_global: bool
    frame: int = 0  # bytes of stack
    reads: set[str] = field(default_factory=set)
    calls: set[tuple[int, int]] = field(default_factory=set)  # section and start


@functools.lru_cache(maxsize=16)
def variables(data: bytes) -> dict[str, tuple[int, int]]:
    """Offset and size of each variable in .rodata, by the symbols of the object."""
    file: Any = ELFFile(io.BytesIO(data))
    place = file.get_section_index(".rodata")
    return {
        symbol.name: (symbol["st_value"], symbol["st_size"])
        for symbol in file.get_section_by_name(".symtab").iter_symbols()
        if symbol["st_shndx"] == place and symbol.name
    }


def groups(data: bytes) -> dict[str, frozenset[str]]:
    """Global functions and programs, and the variables that each is verified with."""
    functions = {(one.section, one.start): one for one in _functions(data)}

    def read_by(one: _Function, seen: set[str]) -> set[str]:
        if one.name in seen:
            return set()
        seen.add(one.name)
        found = set(one.reads)
        for called in one.calls:
            if not functions[called].is_global:
                found |= read_by(functions[called], seen)
        return found

    return {one.name: frozenset(read_by(one, set())) for one in functions.values() if one.is_global}


def deepest(data: bytes, unit: int) -> tuple[int, list[str]]:
    """The largest stack that calls within the object add up to, and by which functions.

    Args:
        unit: to whose multiples the kernel rounds each function's part up.
    """
    functions = {(one.section, one.start): one for one in _functions(data)}

    @functools.cache
    def below(at: tuple[int, int]) -> tuple[int, list[str]]:
        one = functions[at]
        rest = max((below(called) for called in one.calls), default=(0, []))
        own = -(-max(one.frame, 1) // unit) * unit
        return own + rest[0], [f"{one.name} {one.frame}", *rest[1]]

    return max(below(at) for at in functions)


@functools.lru_cache(maxsize=16)
def _functions(data: bytes) -> list[_Function]:
    file: Any = ELFFile(io.BytesIO(data))
    places = _Places(
        file.get_section_index(".rodata"),
        file.get_section_index(".text"),
        {at: name for name, (at, _) in variables(data).items()},
    )
    made = []
    for symbol in file.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_info"]["type"] == "STT_FUNC":
            start, bound = symbol["st_value"], symbol["st_info"]["bind"]
            end = start + symbol["st_size"]
            made.append(
                _Function(symbol.name, symbol["st_shndx"], start, end, bound == "STB_GLOBAL")
            )
    for number in {one.section for one in made}:
        section = file.get_section(number)
        code, targets = section.data(), _relocations(file, section.name)
        for one in made:
            if one.section == number:
                _look_at(one, code, targets, places)
    return made


def _look_at(one: _Function, code: bytes, targets: Mapping[int, _Target], places: _Places) -> None:
    """Fills in what a function reads and calls, and how much stack it takes."""
    pointers: set[int] = set()
    for at in range(one.start, one.end, _BYTES):
        operation, registers, offset, number = struct.unpack_from("<BBhi", code, at)
        into, source = registers & 15, registers >> 4
        if operation & 7 in _MEMORY and _FRAME in (into, source):
            one.frame = max(one.frame, -offset)
        elif operation == _ADD and into in pointers:
            one.frame = max(one.frame, -number)
        pointers -= {into}
        pointers |= {into} if operation == _MOVE and source == _FRAME else set()
        place, value, is_section = targets.get(at, (one.section, at, True))
        if operation == _LOAD and place == places.rodata:
            one.reads.add(places.named[value + number])
        elif operation == _LOAD and at in targets and place == places.text:
            one.calls.add((place, value + number))
        elif operation == _CALL and source == _CALL_OF_OURS and place != _KERNEL:
            one.calls.add((place, value + (_BYTES * (1 + number) if is_section else 0)))


def _relocations(file: Any, name: str) -> dict[int, _Target]:
    section, symbols = file.get_section_by_name(f".rel{name}"), file.get_section_by_name(".symtab")
    found = {}
    for one in section.iter_relocations() if section else ():
        symbol = symbols.get_symbol(one["r_info_sym"])
        place = symbol["st_shndx"] if isinstance(symbol["st_shndx"], int) else _KERNEL
        of_section = symbol["st_info"]["type"] == "STT_SECTION"
        found[one["r_offset"]] = place, symbol["st_value"], of_section
    return found


def covering(
    together: Sequence[frozenset[str]], values: Mapping[str, Sequence[Value]]
) -> list[Switches]:
    """Few settings in which each group of variables takes on all its combinations.

    Args:
        together: groups; what has no values is left as it is.
        values: those of a variable that make different code.
    """
    wanted: list[Switches] = []
    for group in sorted(together, key=lambda one: (-_count(one, values), sorted(one))):
        names = sorted(group & values.keys())
        for combination in itertools.product(*(values[name] for name in names)):
            _add(wanted, dict(zip(names, combination, strict=True)))
    filling = {name: choices[0] for name, choices in values.items()}
    return [filling | one for one in wanted]


def _count(group: frozenset[str], values: Mapping[str, Sequence[Value]]) -> int:
    count = 1
    for name in group & values.keys():
        count *= len(values[name])
    return count


def _add(wanted: list[Switches], fresh: Switches) -> None:
    """Into the first setting that says nothing else."""
    if any(fresh.items() <= one.items() for one in wanted):
        return
    for one in wanted:
        if all(one.get(name, value) == value for name, value in fresh.items()):
            one.update(fresh)
            return
    wanted.append(fresh)
