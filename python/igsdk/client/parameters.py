# SPDX-License-Identifier: Apache-2.0
"""The parameters of a gadget: found by name, and values checked before the run.

A daemon takes any key without a word and fails late, or never, on a bad value; so here
unknown names and values of the wrong type are errors at once.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._errors import UsageError
from igsdk.client.values import as_text, wrong_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from igsdk._proto import gadget_pb2 as pb

#: needed before the daemon can say what there is: it has to get the image first
_OF_IMAGES = {name: f"operator.oci.{name}" for name in ("pull", "annotate", "validate-metadata")}


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Attributes:
        key: its full name, which no other has: ``operator.oci.ebpf.pid``.
        name: the short one: ``pid``.
        type: bool, int … uint64, float64, duration, ip, []string, string, bytes; empty: text.
        default: what holds when nothing is given, as text.
        allowed: the only values that it takes; empty: any.
        required: whether a value must be given.
        title, description: for people.
        alias, alternative: other short names for it.
        hint: what sort of thing a value names: ``k8s:pod``.
        tags: as the daemon says them.
    """

    key: str
    name: str
    type: str = ""
    default: str = ""
    allowed: tuple[str, ...] = ()
    required: bool = False
    title: str = ""
    description: str = ""
    alias: str = ""
    alternative: str = ""
    hint: str = ""
    tags: tuple[str, ...] = ()


def read_parameter(told: pb.Param) -> Parameter:
    """Makes a parameter of its description."""
    return Parameter(
        key=told.prefix + told.key,
        name=told.key,
        type=told.typeHint,
        default=told.defaultValue,
        allowed=tuple(told.possibleValues),
        required=told.isMandatory,
        title=told.title,
        description=told.description,
        alias=told.alias,
        alternative=told.alternativeKey,
        hint=told.valueHint,
        tags=tuple(told.tags),
    )


def needed_to_describe(given: Mapping[str, Any]) -> dict[str, str]:
    """Those of the given values that a daemon wants before it can describe a gadget."""
    full = {_OF_IMAGES.get(name, name): value for name, value in given.items()}
    return {key: as_text(value, "") for key, value in full.items() if key in _OF_IMAGES.values()}


def settle(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> dict[str, str]:
    """What to send for the values given, by full name.

    Args:
        given: values by full or short name: text as the daemon reads it, or Python's own
            (bool, numbers, seconds for a duration, a list where there may be several).

    Raises:
        UsageError: a name that is unknown or has two meanings, a value that does not fit,
            or a required one that is missing.
    """
    values: dict[str, str] = {}
    for name, value in given.items():
        parameter = find(parameters, name)
        if parameter.key in values:
            raise UsageError(f"{parameter.key} is given twice.", "Leave one of the two away.")
        values[parameter.key] = _checked(parameter, name, value)
    for parameter in parameters:
        if parameter.required and not parameter.default and parameter.key not in values:
            raise UsageError(
                f"The gadget wants a value for {parameter.name}.",
                f"Give one: {parameter.description or parameter.title or parameter.key}.",
            )
    return values


def find(parameters: Sequence[Parameter], name: str) -> Parameter:
    """The parameter of this full name, short name or alias; raises like `settle`."""
    for names in (lambda p: (p.key,), lambda p: (p.name,), _other_names):
        found = {p.key: p for p in parameters if name in names(p)}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise UsageError(
                f"{name!r} may be any of {', '.join(found)}.", "Give one of these full names."
            )
    raise _unknown(parameters, name)


def _other_names(parameter: Parameter) -> tuple[str, ...]:
    prefix = parameter.key.removesuffix(parameter.name)
    other = parameter.alternative
    return tuple(filter(None, (parameter.alias, other, prefix + other if other else "")))


def _unknown(parameters: Sequence[Parameter], name: str) -> UsageError:
    names = sorted({p.name for p in parameters} | {p.key for p in parameters if "." in name})
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"Did you mean {near[0]}?" if near else f"There are: {_some(names)}."
    return UsageError(f"The gadget has no parameter {name!r}.", remedy)


def _some(names: Sequence[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def _checked(parameter: Parameter, name: str, value: Any) -> str:
    text = as_text(value, parameter.type)
    if parameter.allowed and text not in parameter.allowed:
        wrong = f"has to be one of {_some(parameter.allowed)}"
    else:
        wrong = wrong_with(text, parameter.type)
    if wrong:
        raise UsageError(f"{name}={text!r}: the value {wrong}.", "Correct it.")
    return text
