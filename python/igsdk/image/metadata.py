# SPDX-License-Identifier: Apache-2.0
"""Compares gadget.yaml with the compiled program: what does not exist is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk.image import fields, findings, parameters, programs, views, vocabulary
from igsdk.image.document import flat
from igsdk.image.findings import Checked, targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from igsdk.image.document import Document, Value
    from igsdk.image.elf import Object
    from igsdk.image.findings import Problem
    from igsdk.image.sources import Declared, Source
    from igsdk.image.vocabulary import Check, Known


def check(
    document: Document, program: Object, declared: Declared, is_open: bool = False
) -> list[Problem]:
    """What is wrong with gadget.yaml, in the order of its lines.

    Args:
        is_open: there are data sources and fields that the program does not tell of.
    """
    about = Checked(document, program, declared, is_open)
    about.check_keys(document.root, vocabulary.TOP_LEVEL, "the top level")
    if not document.text("name"):
        about.tell(document.root, "the gadget has no name")
    for name, source in about.items("datasources"):
        _datasource(about, name, source)
    parameters.check_said(about)
    if not is_open:
        views.check_said(about, _all_fields(about))
    programs.check_said(about)
    for name, value in about.items("operator"):
        known = vocabulary.EMITTING.get(name.lower())
        if known is None:
            about.tell(value, findings.no("operator", name, vocabulary.EMITTING))
        else:
            about.check_keys(value, known, f"operator {name}")
    return sorted(about.problems, key=lambda problem: problem.line)


def _datasource(about: Checked, name: str, said: Value) -> None:
    source = _find(about.declared.sources, name)
    if source is None and not about.is_open and not _is_operators(about, name):
        known = about.declared.sources
        about.tell(said, findings.no("data source", name, known, " in the program"))
        return
    about.check_keys(said, ("annotations", "tags", "fields"), f"data source {name}")
    fields_known = fields_of(about.program, source, said) if source else {}
    listed: Known = None if about.is_open or source is None else fields_known
    for key, value in flat(said.get("annotations")):
        _source_annotation(about, key, value, listed)
    _default_mode(about, said)
    for field_name, value in about.items("datasources", name, "fields"):
        one = fields_known.get(field_name.lower())
        if one is None and listed is not None:
            names = [each.name for each in listed.values()]
            where = f" in data source {name}"
            about.tell(value, findings.no("field", field_name, names, where))
            continue
        about.check_keys(value, ("annotations", "tags"), f"field {field_name}")
        _field_annotations(about, one, value, listed)


def _default_mode(about: Checked, said: Value) -> None:
    """The way to show rows that counts where a user names none has to be one of them."""
    notes = {key.lower(): value for key, value in flat(said.get("annotations"))}
    default, all_modes = (
        notes.get("cli.default-output-mode"),
        notes.get("cli.supported-output-modes"),
    )
    words = all_modes.text().split(",") if all_modes else list(vocabulary.USUAL_MODES)
    if default and default.text() not in words:
        about.tell(default, f"cli.default-output-mode has to be one of {', '.join(words)}")


def _is_operators(about: Checked, name: str) -> bool:
    """Whether Inspektor Gadget makes that data source because gadget.yaml asks for it."""
    asked = {key.lower() for key in about.document.texts("annotations")}
    by_annotation = name.lower() == "containers" and vocabulary.CONTAINERS in asked
    return by_annotation or about.document.root.get("operator") is not None


def _find(known: Mapping[str, Source], name: str) -> Source | None:
    return next((one for one in known.values() if one.name.lower() == name.lower()), None)


def _all_fields(about: Checked) -> dict[str, dict[str, fields.Field]]:
    said = about.document.root.get("datasources")
    return {
        name: fields_of(about.program, source, said.get(name) if said else None)
        for name, source in about.declared.sources.items()
    }


def fields_of(program: Object, source: Source, said: Value | None) -> dict[str, fields.Field]:
    """All fields of a data source, by their names in lower case."""
    added = fields.added(program.btf, source.fields, targets(said))
    rest = said.get("annotations") if said else None
    named = rest.get("ebpf.rest.name") if rest else None
    if named:
        added.append(fields.Field(named.text(), "bytes"))
    return {one.name.lower(): one for one in (*source.fields, *added)}


def _source_annotation(about: Checked, key: str, value: Value, listed: Known) -> None:
    if key.lower().startswith(vocabulary.ENVIRONMENT):
        one = key[len(vocabulary.ENVIRONMENT) :]
        if listed is not None and one.lower() not in listed:
            names = [each.name for each in listed.values()]
            about.tell(value, findings.no("field", one, names, f" for the annotation {key}"))
        return
    _annotation(about, key, value, vocabulary.OF_SOURCES, listed)


def _field_annotations(
    about: Checked, one: fields.Field | None, said: Value, listed: Known
) -> None:
    for key, value in flat(said.get("annotations")):
        _annotation(about, key, value, vocabulary.OF_FIELDS, listed)
        is_number = one is None or one.is_integer or one.kind.startswith("float")
        if key.lower() == "metrics.type" and value.text() in ("counter", "gauge") and not is_number:
            kind = one.kind if one else ""
            about.tell(value, f"a field of type {kind} can't be a {value.text()}")


def _annotation(
    about: Checked, key: str, value: Value, known: Mapping[str, Check], listed: Known
) -> None:
    if key.lower().startswith(vocabulary.FOREIGN):
        return
    check_value = known.get(key.lower())
    if check_value is None:
        about.tell(value, findings.no("annotation", key, known))
        return
    wrong = check_value(value.text(), listed)
    if wrong:
        about.tell(value, f"annotation {key} {wrong}")
