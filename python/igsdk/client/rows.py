# SPDX-License-Identifier: Apache-2.0
"""From the slots of a packet to rows of Python values.

A row is a list of byte slots. Members of a C struct share one slot, at offsets of their
own; every other field has a slot to itself.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from igsdk.client.native import native_reader
from igsdk.client.packets import slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from igsdk.client.schema import DataSource, Field

    Change = Callable[[Any], Any]


class Row(dict[str, Any]):
    """One row: values by the full names of their fields, in the description's order.

    Numbers are int or float, texts str (bytes that are no UTF-8 as ``\\xff``), bytes bytes,
    arrays tuples of numbers.

    Attributes:
        source: name of the data source that it came from.
    """

    __slots__ = ("_node", "source")

    source: str
    _node: str

    @property
    def node(self) -> str:
        """Name of the fleet's member that sent it; empty where there is one daemon only."""
        return getattr(self, "_node", "")

    @node.setter
    def node(self, name: str) -> None:
        self._node = name

    def __repr__(self) -> str:
        return f"<{getattr(self, 'source', 'row')} {super().__repr__()}>"

    def nested(self) -> dict[str, Any]:
        """The same with a dictionary for each dot: ``{"proc": {"comm": ...}}``.

        A field that is called as others begin has its value under ``""`` beside theirs.
        """
        whole: dict[str, Any] = {}
        for name, value in self.items():
            *above, last = name.split(".")
            place = whole
            for one in above:
                place = _group(place, one)
            if isinstance(place.get(last), dict):
                place[last][""] = value
            else:
                place[last] = value
        return whole


def _group(place: dict[str, Any], name: str) -> dict[str, Any]:
    below = place.get(name, {})
    place[name] = below if isinstance(below, dict) else {"": below}
    group: dict[str, Any] = place[name]
    return group


class RowReader:
    """Reads rows of one data source.

    Args:
        native: whether the extension may do it, where it is there.
    """

    def __init__(self, source: DataSource, native: bool = True) -> None:
        self._source = source
        self._names = tuple(field.name for field in source.fields)
        self._nothing = dict.fromkeys(self._names)
        mark = ">" if source.big_endian else "<"
        # Most fields of a gadget are texts in slots of their own: those go the short way.
        texts = [field for field in source.fields if _is_whole_text(field)]
        others = [field for field in source.fields if not _is_whole_text(field)]
        plan = [step for slot in _by_slot(others) for step in _steps(slot, mark)]
        self._steps = [(slot, unpack) for slot, unpack, _ in plan]
        self._texts = [field.slot for field in texts]
        order = [*(field for _, _, fields in plan for field in fields), *texts]
        self._changes = [
            (place, change)
            for place, field in enumerate(order[: len(others)])
            if (change := change_for(field, mark)) is not None
        ]
        places = {field.name: place for place, field in enumerate(order)}
        self._arrange = _arranger([places[name] for name in self._names])
        self._native = native_reader(source, self._blank) if native else None

    def packet(self, payload: bytes) -> tuple[list[Row], int] | None:
        """The rows of a packet that can be read, and how many can't; None: it is no packet."""
        if self._native is not None:
            rows = self._native.rows(payload)
            if rows is not None:
                return cast("tuple[list[Row], int]", rows)
        slots = slots_of(self._source, payload)
        if slots is None:
            return None
        read = [row for one in slots if (row := self.read(one)) is not None]
        return read, len(slots) - len(read)

    def read(self, slots: Sequence[bytes]) -> Row | None:
        """One row; None where the slots are too few or too short for the fields."""
        values: list[Any] = []
        try:
            for slot, unpack in self._steps:
                values += unpack(slots[slot])
            for place, change in self._changes:
                values[place] = change(values[place])
            values += [slots[slot].decode("utf-8", "backslashreplace") for slot in self._texts]
        except (IndexError, struct.error):
            return None
        row = Row(zip(self._names, self._arrange(values), strict=True))
        row.source = self._source.name
        return row

    def _blank(self) -> Row:
        row = Row(self._nothing)
        row.source = self._source.name
        return row


def _is_whole_text(field: Field) -> bool:
    return field.kind.name == "string" and not field.size


def _by_slot(fields: Sequence[Field]) -> list[list[Field]]:
    slots: dict[int, list[Field]] = {}
    for field in fields:
        slots.setdefault(field.slot, []).append(field)
    return list(slots.values())


def _steps(fields: list[Field], mark: str) -> list[tuple[int, Callable[..., Any], list[Field]]]:
    """How to read one slot: (slot, what gives the values of its bytes, their fields)."""
    steps = [(field.slot, _whole(field, mark), [field]) for field in fields if not field.size]
    for layer in _layers([field for field in fields if field.size]):
        unpack = struct.Struct(mark + _format(layer)).unpack_from
        steps.append((layer[0].slot, unpack, layer))
    return steps


def _whole(field: Field, mark: str) -> Callable[..., Any]:
    if field.kind.is_number:
        return struct.Struct(mark + field.kind.code).unpack
    return _all


def _all(slot: bytes) -> tuple[bytes]:
    return (slot,)


def _layers(fields: list[Field]) -> list[list[Field]]:
    """The fields in groups in which no two overlap, each by offset: unions need several."""
    layers: list[list[Field]] = []
    for field in sorted(fields, key=lambda one: one.offset):
        for layer in layers:
            if layer[-1].end <= field.offset:
                layer.append(field)
                break
        else:
            layers.append([field])
    return layers


def _format(layer: list[Field]) -> str:
    text, at = "", 0
    for field in layer:
        text += f"{field.offset - at}x" if field.offset > at else ""
        text += field.kind.code if field.kind.is_number else f"{field.size}s"
        at = field.end
    return text


def _arranger(places: list[int]) -> Callable[[list[Any]], Iterable[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: values


def change_for(field: Field, mark: str) -> Change | None:
    """What turns the bytes or number of a field into its value; None: it is the value.

    Args:
        mark: byte order in `struct`'s words.
    """
    kind = field.kind
    if kind.array:
        return _array_change(kind.name, mark + kind.code)
    changes: dict[str, Change] = {"bool": (1).__eq__, "string": text, "cstring": c_text}
    return changes.get(kind.name)


def _array_change(name: str, code: str) -> Change:
    one = struct.Struct(code)

    def numbers(data: bytes) -> tuple[Any, ...]:
        return tuple(value for (value,) in one.iter_unpack(data))

    def booleans(data: bytes) -> tuple[Any, ...]:
        return tuple(byte == 1 for byte in data)

    return booleans if name == "bool" else numbers


def text(data: bytes) -> str:
    """Text as the daemon means it; what is no UTF-8 stays visible as ``\\xff``."""
    return data.decode("utf-8", "backslashreplace")


def c_text(data: bytes) -> str:
    """Text up to the first zero byte."""
    return data.partition(b"\0")[0].decode("utf-8", "backslashreplace")
