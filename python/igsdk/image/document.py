# SPDX-License-Identifier: Apache-2.0
"""YAML with line numbers.

Inspektor Gadget compares keys without case, so do we; what a file says twice it says
once too often, since only one of the two would count.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from igsdk._errors import ExtensionMissing, GadgetInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LARGEST = 1 << 20
_MOST_VALUES = 100_000
_DEEPEST = 40
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Value:
    """A place in the file: a mapping, a list or a text, and where it stands.

    Attributes:
        content: `{key: Value}` with keys as they are written, `[Value]`, or the text.
        line: of its key, counted from 1.
    """

    content: Any
    line: int

    def items(self) -> Iterator[tuple[str, Value]]:
        """Keys and values; nothing where it is no mapping."""
        if isinstance(self.content, dict):
            yield from self.content.items()

    def get(self, key: str) -> Value | None:
        """What stands under a key, in any case."""
        wanted = key.lower()
        return next((value for name, value in self.items() if name.lower() == wanted), None)

    def text(self) -> str:
        """A scalar as Inspektor Gadget turns it into text; nothing for others."""
        return self.content if isinstance(self.content, str) else ""


@dataclass(frozen=True)
class Document:
    """One file."""

    root: Value
    where: str

    def text(self, key: str) -> str:
        """The text under a key of the top level, or nothing."""
        found = self.root.get(key)
        return found.text() if found else ""

    def texts(self, key: str) -> dict[str, str]:
        """The mapping of texts under a key of the top level."""
        found = self.root.get(key)
        return {name: value.text() for name, value in found.items()} if found else {}

    def check_keys(self, known: Iterable[str]) -> list[str]:
        """The known keys that the top level has.

        Raises:
            GadgetInvalid: it has others.
        """
        allowed = {key.lower(): key for key in known}
        for name, value in self.root.items():
            if name.lower() not in allowed:
                raise GadgetInvalid(
                    f"{self.where}:{value.line}: there is no key {name!r}{meant(name, known)}.",
                    f"The keys are {', '.join(known)}.",
                )
        return [allowed[name.lower()] for name, _ in self.root.items()]


def flat(value: Value | None, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Keys with dots and what they stand for, from a mapping of mappings."""
    for name, each in value.items() if value else ():
        if isinstance(each.content, dict):
            yield from flat(each, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", each


def texts(value: Value | None) -> dict[str, str]:
    """A mapping of texts; names in lower case, as they are compared."""
    return {name.lower(): each.text() for name, each in flat(value)}


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?` where a known word is close."""
    lowered = {other.lower(): other for other in known}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f" (did you mean {lowered[close[0]]!r}?)" if close else ""


def load(data: bytes, where: str) -> Document:
    """Reads a file whose top level is a mapping.

    Raises:
        GadgetInvalid: it is no YAML, no mapping, or has a key twice.
        ExtensionMissing: the package that reads YAML is not installed.
    """
    if len(data) > _LARGEST:
        raise GadgetInvalid(f"{where} has {len(data)} bytes.", "Take a smaller file.")
    try:
        import yaml
    except ImportError as error:
        raise extra_missing("PyYAML") from error
    try:
        node = yaml.compose(data, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or "it is not UTF-8 text"
        raise GadgetInvalid(f"{where}{line}: this is no YAML: {reason}.", "Mend it.") from error
    root = _Reader(where).value(node, 1) if node else Value({}, 1)
    if not isinstance(root.content, dict):
        raise GadgetInvalid(f"{where}:1: the top level is no mapping.", "Write `key: value` lines.")
    return Document(root, where)


def extra_missing(package: str) -> ExtensionMissing:
    """What to say where a package of the extra is not there."""
    return ExtensionMissing(
        f"The Python package {package} is not installed.",
        "Install what `igsdk gadget` needs: pip install 'igsdk[gadget]'.",
    )


class _Reader:
    """Turns nodes into values; aliases may make a small file stand for a huge one."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._left = _MOST_VALUES

    def value(self, node: Any, line: int, depth: int = 0) -> Value:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise GadgetInvalid(f"{self._where}:{line}: this is nested too deeply.", "Mend it.")
        if node.id == "scalar":
            return Value(_text(node), line)
        if node.id == "sequence":
            items = [self.value(one, one.start_mark.line + 1, depth + 1) for one in node.value]
            return Value(items, line)
        return Value(self._mapping(node, depth), line)

    def _mapping(self, node: Any, depth: int) -> dict[str, Value]:
        content: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        own = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                cause = f"{self._where}:{line}: a key has to be a text."
                raise GadgetInvalid(cause, "Mend it.")
            made = self.value(value, line, depth + 1)
            if key.tag == _MERGE:
                merged = self._merged(made) | merged
                continue
            if key.value.lower() in own:
                cause = f"{self._where}:{line}: {key.value!r} stands here twice."
                raise GadgetInvalid(cause, "Keep one of them.")
            own.add(key.value.lower())
            content[key.value] = made
        return content | {key: one for key, one in merged.items() if key.lower() not in own}

    def _merged(self, value: Value) -> dict[str, Value]:
        """What `<<: *name` or a list of such brings in; the first of a list wins."""
        listed = value.content if isinstance(value.content, list) else [value]
        if not all(isinstance(one.content, dict) for one in listed):
            cause = f"{self._where}:{value.line}: `<<` takes a mapping or a list of them."
            raise GadgetInvalid(cause, "Mend it.")
        return {key: each for one in reversed(listed) for key, each in one.items()}


def _text(node: Any) -> str:
    """A scalar as the text that Inspektor Gadget makes of it: `True` is true, `0x10` is 16.

    What is quoted stays as it is.
    """
    kind, text = node.tag.rpartition(":")[2], str(node.value)
    plain = text.replace("_", "").lower()
    try:
        if kind == "int":
            return str(int(plain, 0))
        if kind == "float":
            number = float(plain)
            return str(int(number)) if number.is_integer() else repr(number)
    except ValueError:
        return text
    if kind == "null":
        return ""
    return plain if kind == "bool" and plain in ("true", "false") else text
