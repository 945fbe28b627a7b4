# SPDX-License-Identifier: Apache-2.0
"""Compares gadget.yaml with the compiled program: what does not exist is an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from igsdk.image import fields, vocabulary
from igsdk.image.document import flat, meant
from igsdk.image.inspection import targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from igsdk.image.document import Document, Value
    from igsdk.image.elf import Object
    from igsdk.image.sources import Declared, Parameter, Source
    from igsdk.image.vocabulary import Check


@dataclass(frozen=True)
class Problem:
    """Something in gadget.yaml that has no effect or breaks the gadget."""

    line: int
    text: str


@dataclass
class _Checked:
    document: Document
    program: Object
    declared: Declared
    problems: list[Problem] = field(default_factory=list)

    def tell(self, value: Value, text: str) -> None:
        self.problems.append(Problem(value.line, text))


def check(document: Document, program: Object, declared: Declared) -> list[Problem]:
    """What is wrong with gadget.yaml, in the order of its lines."""
    about = _Checked(document, program, declared)
    root = document.root
    _known_keys(about, root, vocabulary.TOP_LEVEL, "the top level")
    if not document.text("name"):
        about.tell(root, "the gadget has no name")
    for name, source in _items(root, "datasources"):
        _datasource(about, name, source)
    for name, operator in _items(root, "params"):
        _parameters(about, name, operator)
    for name, value in _items(root, "ebpfParams"):
        _parameter(about, name, value)
    for name, value in _items(root, "programs"):
        _program(about, name, value)
    for name, value in _items(root, "operator"):
        known = vocabulary.EMITTING.get(name.lower())
        if known is None:
            about.tell(value, _no("operator", name, vocabulary.EMITTING))
        else:
            _known_keys(about, value, known, f"operator {name}")
    _defaults(about)
    return sorted(about.problems, key=lambda problem: problem.line)


def _items(value: Value, key: str) -> Iterator[tuple[str, Value]]:
    found = value.get(key)
    yield from found.items() if found else ()


def _no(what: str, name: str, known: Iterable[str], where: str = "") -> str:
    return f"there is no {what} {name!r}{where}{meant(name, list(known))}"


def _known_keys(about: _Checked, value: Value, known: Iterable[str], where: str) -> None:
    words = list(known)
    allowed = {word.lower() for word in words}
    for name, each in value.items():
        if name.lower() not in allowed:
            about.tell(each, _no("key", name, words, f" in {where}"))


def _datasource(about: _Checked, name: str, said: Value) -> None:
    source = _find(about.declared.sources, name)
    if source is None:
        if not _is_operators(about, name):
            about.tell(said, _no("data source", name, about.declared.sources, " in the program"))
        return
    _known_keys(about, said, ("annotations", "tags", "fields"), f"data source {name}")
    known = fields_of(about.program, source, said)
    for key, value in flat(said.get("annotations")):
        _source_annotation(about, key, value, known)
    for field_name, value in _items(said, "fields"):
        one = known.get(field_name.lower())
        if one is None:
            names = [each.name for each in known.values()]
            about.tell(value, _no("field", field_name, names, f" in data source {source.name}"))
            continue
        _known_keys(about, value, ("annotations", "tags"), f"field {one.name}")
        _field_annotations(about, one, value, known)


def _is_operators(about: _Checked, name: str) -> bool:
    """Whether Inspektor Gadget makes that data source because gadget.yaml asks for it."""
    asked = {key.lower() for key in about.document.texts("annotations")}
    by_annotation = name.lower() == "containers" and "enable-containers-datasource" in asked
    return by_annotation or about.document.root.get("operator") is not None


def _find(known: Mapping[str, Source], name: str) -> Source | None:
    return next((one for one in known.values() if one.name.lower() == name.lower()), None)


def fields_of(program: Object, source: Source, said: Value | None) -> dict[str, fields.Field]:
    """All fields of a data source, by their names in lower case."""
    added = fields.added(program.btf, source.fields, targets(said))
    rest = said.get("annotations") if said else None
    named = rest.get("ebpf.rest.name") if rest else None
    if named:
        added.append(fields.Field(named.text(), "bytes"))
    return {one.name.lower(): one for one in (*source.fields, *added)}


def _source_annotation(
    about: _Checked, key: str, value: Value, known: Mapping[str, fields.Field]
) -> None:
    if key.lower().startswith(vocabulary.ENVIRONMENT):
        wrong = vocabulary.field_named(key[len(vocabulary.ENVIRONMENT) :], known)
        if wrong:
            about.tell(value, f"annotation {key} {wrong}")
        return
    _annotation(about, key, value, vocabulary.OF_SOURCES, known)


def _field_annotations(
    about: _Checked, one: fields.Field, said: Value, known: Mapping[str, fields.Field]
) -> None:
    for key, value in flat(said.get("annotations")):
        _annotation(about, key, value, vocabulary.OF_FIELDS, known)
        is_number = one.is_integer or one.kind.startswith("float")
        if key.lower() == "metrics.type" and value.text() in ("counter", "gauge") and not is_number:
            about.tell(value, f"field {one.name} is of type {one.kind} and can't be counted")


def _annotation(
    about: _Checked,
    key: str,
    value: Value,
    known: Mapping[str, Check],
    names: Mapping[str, fields.Field],
) -> None:
    if key.lower().startswith(vocabulary.FOREIGN):
        return
    check_value = known.get(key.lower())
    if check_value is None:
        about.tell(value, _no("annotation", key, known))
        return
    wrong = check_value(value.text(), names)
    if wrong:
        about.tell(value, f"annotation {key} {wrong}")


def _parameters(about: _Checked, operator: str, said: Value) -> None:
    """Those of one operator; only the program's own can be compared with anything."""
    if operator.lower() == "ebpf":
        for name, value in said.items():
            _parameter(about, name, value)
    elif operator.lower() in ("wasm", "custom"):
        known = vocabulary.OF_PARAMETERS if operator.lower() == "wasm" else vocabulary.OF_CUSTOM
        for name, value in said.items():
            _known_keys(about, value, known, f"parameter {name}")
    else:
        about.tell(said, _no("kind of parameters", operator, ("ebpf", "wasm", "custom")))


def _parameter(about: _Checked, name: str, said: Value) -> None:
    known = about.declared.parameters
    one = next((each for each in known.values() if each.variable.lower() == name.lower()), None)
    if one is None:
        about.tell(said, _no("parameter", name, known, " in the program"))
        return
    _known_keys(about, said, vocabulary.OF_PARAMETERS, f"parameter {name}")
    key, default = said.get("key"), said.get("defaultValue")
    if key is None or not key.text():
        about.tell(key or said, f"parameter {name} needs a key, its name on the command line")
    if default is not None:
        wrong = _wrong_default(one, default.text())
        if wrong:
            about.tell(default, f"parameter {name}: the default {default.text()!r} {wrong}")


def _wrong_default(one: Parameter, text: str) -> str:
    if one.kind == "bool":
        return "" if text.lower() in ("true", "false") else "is neither true nor false"
    if not one.kind.startswith(("int", "uint")):
        return ""
    try:
        number = int(text)
    except ValueError:
        return "is no whole number"
    bits = int(one.kind.lstrip("uint"))
    low, high = (0, 1 << bits) if one.kind[0] == "u" else (-1 << bits - 1, 1 << bits - 1)
    return "" if low <= number < high else f"does not fit into {one.kind}"


def _program(about: _Checked, name: str, said: Value) -> None:
    names = [one.name for one in about.program.programs]
    if name.lower() not in map(str.lower, names):
        about.tell(said, _no("program", name, names, " in the object"))
        return
    known = {key.lower() for key in vocabulary.OF_PROGRAMS}
    for key, value in flat(said):
        if key.lower() not in known:
            about.tell(value, _no("key", key, vocabulary.OF_PROGRAMS, f" in program {name}"))
        wanted = vocabulary.SAMPLING.get(key.lower())
        if wanted and value.text() != wanted:
            about.tell(value, f"{key} of program {name} has to be {wanted}")


def _defaults(about: _Checked) -> None:
    """`paramDefaults` of the program's own parameters."""
    prefix = "operator.oci.ebpf."
    said = dict(flat(about.document.root.get("paramDefaults")))
    keys = {"trace-pipe", "map-fetch-interval", "map-fetch-count", "iface"}
    keys |= {one.key for one in about.declared.parameters.values()}
    for variable, value in _all_parameters(about):
        key = value.get("key")
        if key and variable.lower() in map(str.lower, about.declared.parameters):
            keys.add(key.text())
    for name, value in said.items():
        rest = name[len(prefix) :].lower()
        if name.lower().startswith(prefix) and rest not in map(str.lower, keys):
            about.tell(value, _no("parameter", name[len(prefix) :], keys, " in the program"))


def _all_parameters(about: _Checked) -> Iterator[tuple[str, Value]]:
    root = about.document.root
    yield from _items(root, "ebpfParams")
    for operator, said in _items(root, "params"):
        if operator.lower() == "ebpf":
            yield from said.items()
