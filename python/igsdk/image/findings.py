# SPDX-License-Identifier: Apache-2.0
"""What the checks of gadget.yaml share: the things that are compared, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from igsdk.image.document import meant, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from igsdk.image.document import Document, Value
    from igsdk.image.elf import Object
    from igsdk.image.sources import Declared


@dataclass(frozen=True)
class Problem:
    """Something in gadget.yaml that has no effect or breaks the gadget."""

    line: int
    text: str


@dataclass
class Checked:
    """Metadata beside a program.

    Attributes:
        is_open: there are data sources and fields that the program does not tell of.
    """

    document: Document
    program: Object
    declared: Declared
    is_open: bool = False
    problems: list[Problem] = field(default_factory=list)

    def tell(self, value: Value, text: str) -> None:
        self.problems.append(Problem(value.line, text))

    def items(self, *keys: str) -> Iterator[tuple[str, Value]]:
        """Keys and values of a mapping somewhere below the top level."""
        found = under(self.document.root, *keys)
        yield from found.items() if found else ()

    def check_keys(self, value: Value, known: Iterable[str], where: str) -> None:
        words = list(known)
        allowed = {word.lower() for word in words}
        for name, each in value.items():
            if name.lower() not in allowed:
                self.tell(each, no("key", name, words, f" in {where}"))


def under(value: Value, *keys: str) -> Value | None:
    """What stands below some keys, or nothing."""
    found: Value | None = value
    for key in keys:
        found = found.get(key) if found else None
    return found


def targets(source: Value | None) -> dict[tuple[str, str], str]:
    """The names that gadget.yaml gives to texts beside fields, by (field, annotation)."""
    listed = source.get("fields") if source else None
    return {
        (name, key): text
        for name, value in (listed.items() if listed else ())
        for key, text in texts(value.get("annotations")).items()
    }


def no(what: str, name: str, known: Iterable[str], where: str = "") -> str:
    """The sentence for a name that stands for nothing."""
    return f"there is no {what} {name!r}{where}{meant(name, list(known))}"
