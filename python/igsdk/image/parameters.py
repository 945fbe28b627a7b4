# SPDX-License-Identifier: Apache-2.0
"""Parameters: what gadget.yaml says of those that the program declares, and of others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from igsdk.image import findings, vocabulary
from igsdk.image.document import flat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.image.document import Document, Value
    from igsdk.image.findings import Checked
    from igsdk.image.sources import Declared, Parameter

_NUMBERS = {"u": re.compile("[0-9]+"), "i": re.compile("[+-]?[0-9]+")}
_OF_PROGRAM = "operator.oci.ebpf."


def check_said(about: Checked) -> None:
    """What gadget.yaml says below `params`, the old `ebpfParams` and `paramDefaults`."""
    for operator, said in about.items("params"):
        _operator(about, operator, said)
    for name, value in about.items("ebpfParams"):
        _parameter(about, name, value)
    for name, value in flat(about.document.root.get("paramDefaults")):
        _default(about, name, value)


def _operator(about: Checked, operator: str, said: Value) -> None:
    """Those of one operator; only the program's own can be compared with anything."""
    if operator.lower() == "ebpf":
        for name, value in said.items():
            _parameter(about, name, value)
    elif operator.lower() in ("wasm", "custom"):
        known = vocabulary.OF_PARAMETERS if operator.lower() == "wasm" else vocabulary.OF_CUSTOM
        for name, value in said.items():
            about.check_keys(value, known, f"parameter {name}")
    else:
        kinds = ("ebpf", "wasm", "custom")
        about.tell(said, findings.no("kind of parameters", operator, kinds))


def _parameter(about: Checked, name: str, said: Value) -> None:
    known = about.declared.parameters
    one = next((each for each in known.values() if each.variable.lower() == name.lower()), None)
    if one is None:
        about.tell(said, findings.no("parameter", name, known, " in the program"))
        return
    about.check_keys(said, vocabulary.OF_PARAMETERS, f"parameter {name}")
    key, default = said.get("key"), said.get("defaultValue")
    if key is None or not key.text():
        about.tell(key or said, f"parameter {name} needs a key, its name on the command line")
    wrong = wrong_value(one, default.text()) if default else ""
    if default and wrong:
        about.tell(default, f"parameter {name}: the default {default.text()!r} {wrong}")


def wrong_value(one: Parameter, text: str) -> str:
    """Why a parameter cannot have a value; an empty one is as good as none."""
    if not text:
        return ""
    if one.kind == "bool":
        return "" if text.lower() in ("true", "false") else "is neither true nor false"
    if one.kind.startswith("float"):
        return vocabulary.wrong_number(text)
    if one.kind == "string":
        size = len(text.encode())
        return "" if size <= one.size else f"has {size} bytes, there is room for {one.size}"
    if not one.kind.startswith(("int", "uint")):
        return ""
    if not _NUMBERS[one.kind[0]].fullmatch(text):
        return "is no whole number" if "-" not in text else f"does not fit into {one.kind}"
    bits = int(one.kind.lstrip("uint"))
    low, high = (0, 1 << bits) if one.kind[0] == "u" else (-1 << bits - 1, 1 << bits - 1)
    return "" if low <= int(text) < high else f"does not fit into {one.kind}"


def _default(about: Checked, name: str, said: Value) -> None:
    """One of `paramDefaults`, which are the defaults that users are shown."""
    if name.lower().startswith(_OF_PROGRAM):
        _default_of_program(about, name[len(_OF_PROGRAM) :], said)
        return
    kind, _, rest = name.lower().partition(".")
    operator = rest.partition(".")[0]
    if kind != "custom" and not (kind == "operator" and operator in vocabulary.OPERATORS):
        known = [f"operator.{one}" for one in vocabulary.OPERATORS]
        about.tell(said, findings.no("operator with parameters", f"{kind}.{operator}", known))


def _default_of_program(about: Checked, key: str, said: Value) -> None:
    known = by_key(about.document, about.declared)
    one = known.get(key.lower())
    if one is None and key.lower() not in vocabulary.OF_EBPF:
        keys = (*known, *vocabulary.OF_EBPF)
        about.tell(said, findings.no("parameter", key, keys, " in the program"))
    wrong = wrong_value(one, said.text()) if one else ""
    if wrong:
        about.tell(said, f"parameter {key}: the default {said.text()!r} {wrong}")


def by_key(document: Document, declared: Declared) -> dict[str, Parameter]:
    """The program's parameters by the names that users give, in lower case."""
    found = {}
    for one in declared.parameters.values():
        said = said_of(document, one)
        key = said.get("key") if said else None
        found[(key.text() if key and key.text() else one.key).lower()] = one
    return found


def said_of(document: Document, one: Parameter) -> Value | None:
    """What gadget.yaml says of a parameter of the program."""
    found = findings.under(document.root, "params", "ebpf", one.variable)
    return found or findings.under(document.root, "ebpfParams", one.variable)


def doubts(document: Document, declared: Declared) -> Iterator[str]:
    """Defaults that do not come to be: the program's numbers count, and only those."""
    for one in declared.parameters.values():
        said = said_of(document, one)
        default = said.get("defaultValue") if said else None
        text = default.text() if default else ""
        if one.default and text and text.lower() != one.default:
            yield (
                f"parameter {one.variable}: the default {text!r} in gadget.yaml has no effect, "
                f"Inspektor Gadget takes the program's, {one.default}"
            )
        if one.is_lost and not (text and one.kind == "string"):
            yield (
                f"parameter {one.variable}: the program's own value is lost, Inspektor Gadget "
                f"starts with {'an empty text' if one.kind == 'string' else '0'}"
                f"{' where gadget.yaml has no default' if one.kind == 'string' else ''}"
            )
