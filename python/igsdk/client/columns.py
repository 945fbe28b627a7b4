# SPDX-License-Identifier: Apache-2.0
"""Rows of one data source as columns, without a Python object for each value.

Numbers are one numpy array a column. Texts and other values of different lengths are their
bytes one after the other, with the place where each one begins, as Arrow keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk.client.native import native_reader, texts_of
from igsdk.client.needs import needs_of
from igsdk.client.packets import slots_of, tidied

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    import numpy.typing as npt
    import pandas
    import pyarrow

    from igsdk._native import ColumnBytes, PacketReader
    from igsdk.client.kinds import Kind
    from igsdk.client.schema import DataSource, Field

    Array: TypeAlias = npt.NDArray[Any]
    Column: TypeAlias = "Array | Packed"


@dataclass(frozen=True)
class Packed:
    """Values of different lengths.

    Attributes:
        kind: of the values: string, cstring, bytes or an array.
        starts: int64, one more than there are values: where in `data` each one begins,
            counted in bytes, or in elements for arrays.
        data: uint8, or the elements' own type for arrays.
    """

    kind: Kind
    starts: npt.NDArray[np.int64]
    data: Array

    def __len__(self) -> int:
        return len(self.starts) - 1

    def objects(self) -> Array:
        """An array of str, bytes or arrays; equal texts may be one object."""
        values = np.empty(len(self), dtype=object)
        if self.kind.is_text:
            values[:] = texts_of(self.data, self.starts)
        else:
            cuts = self.starts.tolist()
            whole: Any = self.data if self.kind.array else self.data.tobytes()
            for place in range(len(self)):
                values[place] = whole[cuts[place] : cuts[place + 1]]
        return values


class Columns(Mapping[str, "Array"]):
    """Rows as columns: a numpy array for each field, by full name.

    ``columns["count"]`` has the field's own type; texts are objects of str; arrays of a
    fixed length have a second axis.

    Attributes:
        source: the data source.
        unreadable: rows that were left out, since their bytes did not fit the description.
        node: name of the fleet's member that sent them; empty where there is one daemon
            only, or where the rows of several are together.
    """

    node = ""

    def __init__(
        self, source: DataSource, columns: dict[str, Column], length: int, unreadable: int = 0
    ) -> None:
        self.source = source
        self.unreadable = unreadable
        self._columns = columns
        self._length = length

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._length

    def __getitem__(self, name: str) -> Array:
        column = self._columns[name]
        return column.objects() if isinstance(column, Packed) else column

    def __contains__(self, name: object) -> bool:
        return name in self._columns  # without making the values

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<{self.source.name}: {self.rows} rows of {len(self)} fields>"

    def column(self, name: str) -> Column:
        """The column as it is kept; `Packed` for texts and other values of any length."""
        return self._columns[name]

    def to_pandas(self, hidden: bool = True) -> pandas.DataFrame:
        """A data frame; needs pandas.

        Args:
            hidden: whether to take the fields too that the gadget hides.

        Raises:
            ExtensionMissing: pandas is not installed.
        """
        from igsdk.client.frames import to_pandas

        return to_pandas(self, hidden)

    def to_arrow(self, hidden: bool = True) -> pyarrow.Table:
        """An Arrow table that shares memory with this one where it can; as `to_pandas`."""
        from igsdk.client.frames import to_arrow

        return to_arrow(self, hidden)


class ColumnReader:
    """Reads packets of one data source.

    Args:
        native: whether the extension may do it, where it is there.
    """

    def __init__(self, source: DataSource, native: bool = True) -> None:
        self._source = source
        self._mark = ">" if source.big_endian else "<"
        self._slots = needs_of(source.fields)
        self._native = native_reader(source, dict) if native else None

    def read(self, payloads: Iterable[bytes]) -> tuple[Columns, int]:
        """All rows of some packets as one batch.

        Returns:
            The columns, and how many packets could not be read at all.
        """
        if self._native is not None:
            return self._read_native(self._native, list(payloads))
        rows: list[Sequence[bytes]] = []
        broken = 0
        for payload in payloads:
            found = slots_of(self._source, payload)
            broken += found is None
            rows += found or ()
        return self.of_rows(rows), broken

    def of_rows(self, rows: list[Sequence[bytes]]) -> Columns:
        """Rows as lists of slots, as columns; those that do not fit are counted."""
        good, slots = self._fitting(rows)
        columns: dict[str, Column] = {}
        matrices: dict[int, Array] = {}
        for field in self._source.fields:
            values = slots[field.slot] if good else ()
            if field.size and field.slot not in matrices:
                matrices[field.slot] = _matrix(values, self._slots[field.slot].least)
            columns[field.name] = (
                self._member(field, matrices[field.slot])
                if field.size
                else self._whole(field, values)
            )
        return Columns(self._source, columns, len(good), len(rows) - len(good))

    def _read_native(self, reader: PacketReader, payloads: list[bytes]) -> tuple[Columns, int]:
        parts, rows, unreadable, odd = reader.columns(payloads)
        good = payloads
        if odd:
            good = tidied(self._source, payloads, odd)
            parts, rows, unreadable, _ = reader.columns(good)
        columns = {
            field.name: _column_of(field, data, starts)
            for field, (data, starts) in zip(self._source.fields, parts, strict=True)
        }
        return Columns(self._source, columns, rows, unreadable), len(payloads) - len(good)

    def _fitting(
        self, rows: list[Sequence[bytes]]
    ) -> tuple[list[Sequence[bytes]], list[tuple[bytes, ...]]]:
        """The rows that can be read, and the same by slot."""
        needs = self._slots
        if min(map(len, rows), default=0) >= self._source.slots:
            slots = list(zip(*rows, strict=False))
            if all(need.all_fit(slots[number]) for number, need in needs.items()):
                return rows, slots
        good = [row for row in rows if all(need.fits(row) for need in needs.values())]
        return good, list(zip(*good, strict=False))

    def _member(self, field: Field, matrix: Array) -> Column:
        part = matrix[:, field.offset : field.end]
        if field.kind.width:
            numbers = self._numbers(field.kind, np.ascontiguousarray(part))
            return numbers if field.kind.array else numbers[:, 0]
        if field.kind.name == "cstring":
            return _cut(field.kind, part)
        starts = np.arange(len(part) + 1, dtype=np.int64) * field.size
        return Packed(field.kind, starts, np.ascontiguousarray(part).reshape(-1))

    def _whole(self, field: Field, values: Sequence[bytes]) -> Column:
        kind = field.kind
        if kind.name == "cstring":
            values = [value.partition(b"\0")[0] for value in values]
        flat = np.frombuffer(b"".join(values), dtype=np.uint8)
        if kind.is_number:
            return self._numbers(kind, flat)
        starts = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=starts[1:])
        if kind.array:
            return Packed(kind, starts // kind.width, self._numbers(kind, flat))
        return Packed(kind, starts, flat)

    def _numbers(self, kind: Kind, data: Array) -> Array:
        """Bytes as numbers of this machine's own byte order, along the last axis."""
        numbers: Array = data.view(np.dtype(self._mark + kind.dtype))
        if kind.name == "bool":
            return np.equal(numbers, 1)
        return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


def _column_of(field: Field, data: ColumnBytes, starts: ColumnBytes) -> Column:
    """What the extension read, where it lies."""
    kind = field.kind
    dtype = (kind.name if kind.name == "bool" else kind.dtype) if kind.width else "u1"
    values: Array = np.frombuffer(memoryview(data), np.dtype(dtype))
    if len(starts):
        return Packed(kind, np.frombuffer(memoryview(starts), np.int64), values)
    return values.reshape(-1, field.size // kind.width) if kind.array else values


def _matrix(values: Sequence[bytes], least: int) -> Array:
    """Slots of the same struct as one row of bytes each."""
    if len(set(map(len, values))) > 1:
        values = [value[:least] for value in values]
    stride = len(values[0]) if values else least
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), stride)


def _cut(kind: Kind, part: Array) -> Packed:
    """Texts of fixed size, each up to its first zero byte."""
    before_zero = np.logical_and.accumulate(part != 0, axis=1)
    starts = np.zeros(len(part) + 1, dtype=np.int64)
    np.cumsum(before_zero.sum(axis=1), out=starts[1:])
    return Packed(kind, starts, part[before_zero])
