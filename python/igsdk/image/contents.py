# SPDX-License-Identifier: Apache-2.0
"""What a gadget is and shows, from its metadata and its program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from igsdk.image import document, elf, fields, parameters, programs, sources, vocabulary
from igsdk.image.findings import targets, under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.image.sources import Source

#: keys of gadget.yaml that say where to read more
LINKS = ("homepageURL", "documentationURL", "sourceURL")


def describe(metadata: bytes, data: bytes, is_open: bool) -> dict[str, Any]:
    """The gadget's part of an inspected image; the keys are stable.

    Args:
        data: the program, empty where there is none.
        is_open: something else makes data sources and fields too.

    Raises:
        GadgetInvalid: its program or its metadata cannot be read.
    """
    described = document.load(metadata, "gadget.yaml")
    program = elf.read(data, "the program") if data else elf.Object()
    found = sources.declared(program)
    shown = [_source(described, program, one, is_open) for one in found.sources.values()]
    return {
        "metadata": metadata.decode("utf-8", "replace"),
        "title": described.text("name"),
        "description": described.text("description"),
        "links": {key: text for key in LINKS if (text := described.text(key))},
        "defaults": document.texts(described.root.get("paramDefaults")),
        "programs": [_program(described, one) for one in program.programs],
        "maps": [_map(one) for one in program.maps.values()],
        "license": program.license,
        "parameters": list(_parameters(described, found)),
        "datasources": [*shown, *(_others(described, found) if is_open else ())],
        "problems": found.problems,
    }


def _program(described: document.Document, one: elf.Program) -> dict[str, str]:
    return {
        "name": one.name,
        "section": one.section,
        "attach_to": programs.attached_to(described, one.name),
        "frequency": programs.frequency(described, one),
    }


def _map(one: elf.Map) -> dict[str, Any]:
    sizes = {"key_size": one.key_size, "value_size": one.value_size}
    return {
        "name": one.name,
        "type": one.type,
        **sizes,
        "max_entries": one.max_entries,
        "programs": list(one.programs),
    }


def _parameters(described: document.Document, found: sources.Declared) -> Iterator[dict[str, str]]:
    """Those of the program, then those that a module or gadget.yaml alone has."""
    for one in found.parameters.values():
        said = parameters.said_of(described, one)
        yield {
            "key": _text(said, "key") or one.key,
            "type": one.kind,
            "default": one.default or _text(said, "defaultValue"),
            "description": _text(said, "description"),
            "variable": one.variable,
        }
    for kind in ("wasm", "custom"):
        listed = under(described.root, "params", kind)
        for name, said in listed.items() if listed else ():
            yield {
                "key": _text(said, "key") or name,
                "type": _text(said, "typeHint") or _text(said, "type"),
                "default": _text(said, "defaultValue"),
                "description": _text(said, "description"),
                "variable": "",
            }


def _text(said: document.Value | None, key: str) -> str:
    value = said.get(key) if said else None
    return value.text() if value else ""


def _source(
    described: document.Document, program: elf.Object, one: Source, is_open: bool
) -> dict[str, Any]:
    said = under(described.root, "datasources", one.name)
    listed = said.get("fields") if said else None
    known = [*one.fields, *fields.added(program.btf, one.fields, targets(said))]
    hidden = fields.hidden(program.btf, one.fields, targets(said))
    more = _only_said(listed, {each.name.lower() for each in known}) if is_open else ()
    return {
        "name": one.name,
        "shape": "array" if one.array else "single",
        "filled_by": one.how,
        "annotations": document.texts(said.get("annotations") if said else None),
        "fields": [_field(each, listed, each.name in hidden) for each in (*known, *more)],
    }


def _others(described: document.Document, found: sources.Declared) -> Iterator[dict[str, Any]]:
    """Data sources of which gadget.yaml alone tells."""
    known = {name.lower() for name in found.sources}
    listed = described.root.get("datasources")
    for name, said in listed.items() if listed else ():
        if name.lower() not in known:
            names = said.get("fields")
            yield {
                "name": name,
                "shape": "",
                "filled_by": "other",
                "annotations": document.texts(said.get("annotations")),
                "fields": [_field(each, names) for each in _only_said(names, set())],
            }


def _only_said(listed: document.Value | None, known: set[str]) -> Iterator[fields.Field]:
    """Fields of which gadget.yaml alone tells."""
    for name, _ in listed.items() if listed else ():
        if name.lower() not in known:
            yield fields.Field(name, "")


def _field(
    one: fields.Field, listed: document.Value | None, hidden: bool = False
) -> dict[str, Any]:
    said = listed.get(one.name) if listed else None
    notes = document.texts(said.get("annotations") if said else None)
    return {
        "name": one.name,
        "kind": one.kind,
        "types": list(one.types),
        "offset": one.offset,
        "size": one.size,
        "part": one.part,
        "description": notes.get("description", ""),
        "hidden": hidden or _is_hidden(one, notes),
        "annotations": notes,
    }


def _is_hidden(one: fields.Field, notes: dict[str, str]) -> bool:
    """Whether it is no column until a user asks for it; it is sent all the same."""
    said = notes.get("columns.hidden")
    by_template = notes.get("template") in vocabulary.HIDING
    by_type = any(f"gadget_{name}" in one.types for name in vocabulary.HIDING)
    return said == "true" if said else by_template or by_type
