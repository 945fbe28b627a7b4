# SPDX-License-Identifier: Apache-2.0
"""What the names of variables in a BPF object declare: data sources and parameters.

Inspektor Gadget takes `const void *gadget_tracer_opens___events___opened;` for: the
data source `opens` has rows of `struct opened` and comes through the map `events`. A
name that says so and is declared otherwise is passed over there without a word; here
it is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from igsdk.image import btf as b
from igsdk.image import fields as f

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk.image.btf import Btf, Type
    from igsdk.image.elf import Object

_TRACER, _MAPITER = "gadget_tracer_", "gadget_mapiter_"
_ITERS = ("gadget_iter_", "gadget_snapshotter_")
_BUFFER, _PARAM = "gadget_map_tracer_", "gadget_param_"
_TARGETS = ("gadget_mapelem_iter_target_", "gadget_sk_prog_target_")
_BUFFERS = ("RINGBUF", "PERF_EVENT_ARRAY")


@dataclass
class Source:
    """A data source: what fills it, and the fields of its structs."""

    name: str
    how: str
    map: str = ""
    array: bool = False
    structs: list[str] = field(default_factory=list)
    fields: list[f.Field] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Parameter:
    """A constant that can be set before the program is loaded.

    Attributes:
        kind: what it takes, in Inspektor Gadget's words.
        default: of numbers and booleans, as the program has it; else nothing.
        key: the name that users see where gadget.yaml gives none.
        size: in bytes.
        is_lost: it has a value in the program that is not read.
    """

    variable: str
    kind: str
    default: str
    key: str
    size: int = 0
    is_lost: bool = False


@dataclass
class Declared:
    """All that an object declares, and what is wrong with it."""

    sources: dict[str, Source] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def declared(program: Object) -> Declared:
    """Reads the names."""
    found = Declared()
    readers: dict[str, Callable[[Object, str, Declared], None]] = {
        _TRACER: _tracer,
        _MAPITER: _mapiter,
        _BUFFER: _buffer,
        _PARAM: _parameter,
        **dict.fromkeys(_ITERS, _iterator),
        **dict.fromkeys(_TARGETS, _target),
    }
    for variable in program.btf.variables.values():
        prefix = next((start for start in readers if variable.name.startswith(start)), None)
        if prefix is None:
            continue
        if _is_marker(program.btf, variable):
            readers[prefix](program, variable.name.removeprefix(prefix), found)
        else:
            found.problems.append(
                f"{variable.name} has no effect: it has to be a global `const void *` at file scope"
            )
    return found


def _is_marker(types: Btf, variable: Type) -> bool:
    pointer = types[variable.type]
    target = types[pointer.type]
    return (
        variable.linkage == b.GLOBAL
        and pointer.kind == b.PTR
        and target.kind == b.CONST
        and target.type == 0
    )


def _tracer(program: Object, name: str, found: Declared) -> None:
    parts = name.split("___")
    if len(parts) != 3 or not all(parts):
        found.problems.append(f"{_TRACER}{name} is not NAME___MAP___STRUCT")
        return
    source = Source(parts[0], "events", parts[1])
    definition = program.maps.get(parts[1])
    if definition is None:
        found.problems.append(f"data source {parts[0]}: there is no map {parts[1]}")
    elif definition.type not in _BUFFERS:
        found.problems.append(
            f"data source {parts[0]}: map {parts[1]} is of type {definition.type}, "
            f"events come through {' or '.join(_BUFFERS)}"
        )
    _add(program, source, [("event", parts[2])], found)


def _mapiter(program: Object, name: str, found: Declared) -> None:
    parts = name.split("___")
    if len(parts) != 2 or not all(parts):
        found.problems.append(f"{_MAPITER}{name} is not NAME___MAP")
        return
    definition = program.maps.get(parts[1])
    if definition is None:
        found.problems.append(f"data source {parts[0]}: there is no map {parts[1]}")
        return
    if definition.type != "HASH":
        found.problems.append(
            f"data source {parts[0]}: map {parts[1]} is of type {definition.type}, it must be HASH"
        )
    structs = []
    for part, number in (("key", definition.key), ("value", definition.value)):
        one = program.btf[number]
        if one.kind != b.STRUCT or not one.name:
            found.problems.append(f"map {parts[1]}: its {part} is no struct with a name")
            return
        structs.append((part, one.name))
    _add(program, Source(parts[0], "map", parts[1], array=True), structs, found)


def _iterator(program: Object, name: str, found: Declared) -> None:
    parts = name.split("___")
    if len(parts) < 3 or not all(parts):
        found.problems.append(f"{_ITERS[0]}{name} is not NAME___STRUCT___PROGRAM")
        return
    sections = {one.name: one.section for one in program.programs}
    for function in parts[2:]:
        if not sections.get(function, "").startswith("iter/"):
            found.problems.append(f"data source {parts[0]}: {function} is no iterator program")
    _add(program, Source(parts[0], "iterator", array=True), [("value", parts[1])], found)


def _target(program: Object, name: str, found: Declared) -> None:
    parts = name.split("___")
    if len(parts) != 2 or parts[1] not in program.maps:
        found.problems.append(
            f"the iterator target {name} is not PROGRAM___MAP of a map that exists"
        )


def _buffer(program: Object, name: str, found: Declared) -> None:
    if name not in program.maps:
        found.problems.append(f"{_BUFFER}{name}: there is no map {name}")


def _add(program: Object, source: Source, structs: list[tuple[str, str]], found: Declared) -> None:
    if source.name in found.sources:
        found.problems.append(f"data source {source.name} is declared twice")
        return
    for part, name in structs:
        struct = program.btf.structs.get(name)
        if struct is None:
            found.problems.append(
                f"data source {source.name}: there is no struct {name} in the BTF; "
                f"a global `const struct {name} *` keeps it there"
            )
            continue
        shape = f.of_struct(program.btf, struct, part)
        source.structs.append(name)
        source.fields += shape.fields
        source.passed_over += shape.passed_over
    found.sources[source.name] = source


def _parameter(program: Object, name: str, found: Declared) -> None:
    variable = program.btf.variables.get(name)
    raw = program.constants.get(name)
    if variable is None:
        found.problems.append(f"{_PARAM}{name}: there is no variable {name}")
        return
    if raw is None:
        found.problems.append(f"parameter {name} has to be `const volatile`, in .rodata")
        return
    kind = parameter_kind(program.btf, variable.type)
    if not kind:
        found.problems.append(f"parameter {name} is of a type that Inspektor Gadget can't set")
        return
    default = _default(kind, raw)
    is_lost = not default and any(raw)
    key = _key(program.btf, variable)
    found.parameters[name] = Parameter(name, kind, default, key, len(raw), is_lost)


def _default(kind: str, raw: bytes) -> str:
    if kind == "bool":
        return str(any(raw)).lower()
    if not kind.startswith(("int", "uint")):
        return ""
    return str(int.from_bytes(raw, "little", signed=kind.startswith("int")))


def parameter_kind(types: Btf, number: int) -> str:
    """What a parameter takes, in Inspektor Gadget's words; empty for what it cannot say."""
    inner = types.peel(number)
    if inner.kind == b.ARRAY and "char" in f.type_names(types, inner.type):
        return "string"
    if inner.kind == b.STRUCT and inner.name == "gadget_l3endpoint_t":
        return "ip"
    return f.scalar_kind(inner) or "" if inner.kind in (b.INT, b.FLOAT) else ""


_USUAL_KEYS = {
    "targ_pid": ("gadget_pid", "pid"),
    "targ_tid": ("gadget_tid", "tid"),
    "targ_uid": ("gadget_uid", "uid"),
    "targ_gid": ("gadget_gid", "gid"),
    "targ_comm": ("gadget_comm", "comm"),
}
_STACK_KEYS = ("collect_ustack", "collect_build_id", "collect_otel_stack")


def _key(types: Btf, variable: Type) -> str:
    """The name that users see where gadget.yaml gives none."""
    if variable.name in _STACK_KEYS:
        return variable.name.replace("_", "-")
    wanted, key = _USUAL_KEYS.get(variable.name, ("", variable.name))
    return key if wanted in f.type_names(types, variable.type) else variable.name
