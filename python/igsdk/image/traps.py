# SPDX-License-Identifier: Apache-2.0
"""What Inspektor Gadget does not take of an object, or takes and then does wrong.

It finds much of this when a gadget starts, far from who built it, and some of it not
at all: a probe that is never attached, a filter that lets nothing through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk.image import fields as f
from igsdk.image import parameters, programs
from igsdk.image.findings import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.image.document import Document
    from igsdk.image.elf import Map, Object
    from igsdk.image.sources import Declared, Source

#: names with a meaning -> type, size of key, size of value, entries; None: any
_SHAPES = {
    programs.FILTER: ("HASH", 8, 4, 1024),
    "ig_kstack": ("STACK_TRACE", 4, 127 * 8, None),
    "ig_ustack": ("STACK_TRACE", 4, 127 * 8, None),
    "ig_build_id": ("HASH", 4, 127 * 32, None),
    "otel_generic_params": ("PERCPU_ARRAY", 4, 8, 1),
    "otel_tc_kprobe": ("PROG_ARRAY", 4, 4, 1),
    "otel_tc_perf": ("PROG_ARRAY", 4, 4, 1),
}
_STACK_MEMBERS = (
    *("major", "minor", "inode", "mtime_sec", "mtime_nsec", "base_addr_hash", "stack_id"),
    *("tgid_level0", "pid_level0", "pidns_level0", "pid_level1", "pidns_level1"),
)
_GPL = (
    "GPL",
    "GPL v2",
    "GPL and additional rights",
    "Dual BSD/GPL",
    "Dual MIT/GPL",
    "Dual MPL/GPL",
)


def check(document: Document, program: Object, declared: Declared) -> list[str]:
    """What is wrong with the object, each in a sentence without its full stop."""
    return [
        *programs.traps(document, program, declared),
        *(text for one in program.maps.values() for text in _map(program, one)),
        *_stacks(program, declared),
        *_names(document, program, declared),
    ]


def _map(program: Object, one: Map) -> Iterator[str]:
    if "___" in one.name:
        yield f"map {one.name}: a name can't have three underscores in a row"
    wanted = _SHAPES.get(one.name)
    if wanted is None:
        return
    has = (one.type, one.key_size, one.value_size, one.max_entries)
    if any(want is not None and want != got for want, got in zip(wanted, has, strict=True)):
        words = ", ".join(str(want) for want in wanted if want is not None)
        yield f"map {one.name} has to be {words} (type, bytes of key and value, entries)"
    if one.name == programs.FILTER and one.flags:
        yield f"map {one.name} must have no flags"
    counted = one.max_entries or "ig_build_id_max_entries" in program.btf.variables
    if one.name == "ig_build_id" and not counted:
        yield "map ig_build_id has no entries and no variable ig_build_id_max_entries"


def _stacks(program: Object, declared: Declared) -> Iterator[str]:
    for source in declared.sources.values():
        for one in source.fields:
            if "gadget_kernel_stack" in one.types and "ig_kstack" not in program.maps:
                yield f"field {one.name} is a kernel stack, for which a map ig_kstack is needed"
            if "gadget_user_stack" in one.types:
                yield from _user_stack(program, source, one)
    if "ig_ustack" in program.maps and "ig_build_id" not in program.maps:
        yield "there is a map ig_ustack and no ig_build_id, at which Inspektor Gadget crashes"


def _user_stack(program: Object, source: Source, one: f.Field) -> Iterator[str]:
    if "ig_ustack" not in program.maps:
        yield f"field {one.name} is a user stack, for which a map ig_ustack is needed"
    has = {each.short for each in source.fields if each.parent == one.name}
    missing = [name for name in _STACK_MEMBERS if name not in has]
    if missing:
        yield f"field {one.name}: struct gadget_user_stack lacks {', '.join(missing)}"


def _names(document: Document, program: Object, declared: Declared) -> Iterator[str]:
    """Names that meet one another, and those with a meaning that nobody would want."""
    for name in program.btf.variables:
        if name.startswith("gadget_var_"):
            yield f"variable {name}: a gadget with such a name does not start"
    said = document.root.get("datasources")
    for source in declared.sources.values():
        known = {one.name for one in source.fields}
        keys = {one.name for one in source.fields if one.part == "key"}
        for one in source.fields:
            # A member's short name is looked for among the full names of the key.
            if one.part == "value" and one.short in keys:
                yield f"data source {source.name}: {one.name} meets the key's {one.short}"
        named = targets(said.get(source.name) if said else None)
        for one in f.added(program.btf, source.fields, named):
            if one.name in known:
                yield (
                    f"data source {source.name}: Inspektor Gadget adds a field {one.name}, "
                    "and there is one already"
                )
            known.add(one.name)


def warnings(document: Document, program: Object, declared: Declared) -> list[str]:
    """What may be meant."""
    found = [] if program.license in _GPL else [_license(program.license)]
    for source in declared.sources.values():
        found += [
            f"data source {source.name}: {name} becomes no field, a struct behind a typedef, "
            "a pointer and a member without a name never do"
            for name in source.passed_over
        ]
    found += programs.doubts(document, program)
    found += parameters.doubts(document, declared)
    return found


def _license(said: str) -> str:
    what = f"the license {said!r} is not" if said else "there is no section `license` with"
    return f"{what} one that the kernel takes for GPL-only helpers, which most are"
