# SPDX-License-Identifier: Apache-2.0
"""Columns of several nodes, one below the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from igsdk.client.columns import Columns, Packed
from igsdk.client.kinds import Kind
from igsdk.client.schema import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.client.columns import Array, Column
    from igsdk.client.schema import DataSource

_NODE = "node"
_TEXT = Kind("string")


def join(source: DataSource | None, parts: Sequence[Columns]) -> Columns:
    """All rows, with a column ``node`` where there is no field of that name.

    Fields are those of `source`, or of the first part without one. Nodes whose daemons are
    of other versions may lack some: there is zero or nothing then.
    """
    source = source or parts[0].source
    rows = sum(part.rows for part in parts)
    columns: dict[str, Column] = {
        field.name: _stacked(field, [_column(field, part) for part in parts])
        for field in source.fields
    }
    if _NODE not in columns:
        source = replace(source, fields=(*source.fields, _node_field(source)))
        columns[_NODE] = _names(parts)
    return Columns(source, columns, rows, sum(part.unreadable for part in parts))


def _node_field(source: DataSource) -> Field:
    last = max((field.order for field in source.fields), default=0)
    return Field(_NODE, _TEXT, source.slots, order=last + 1)


def _names(parts: Sequence[Columns]) -> Packed:
    names = [part.node.encode() for part in parts]
    lengths = np.repeat(
        np.array([len(name) for name in names], np.int64), [part.rows for part in parts]
    )
    data = b"".join(name * part.rows for name, part in zip(names, parts, strict=True))
    return Packed(_TEXT, _starts(lengths), np.frombuffer(data, np.uint8))


def _column(field: Field, part: Columns) -> Column:
    known = {one.name: one for one in part.source.fields}.get(field.name)
    if known is not None and (known.kind, known.size) == (field.kind, field.size):
        return part.column(field.name)
    return _nothing(field, part.rows)


def _nothing(field: Field, rows: int) -> Column:
    kind = field.kind
    dtype = np.dtype("bool" if kind.name == "bool" else kind.dtype if kind.width else "u1")
    if kind.is_number:
        return np.zeros(rows, dtype)
    if kind.array and field.size:
        return np.zeros((rows, field.size // kind.width), dtype)
    return Packed(kind, np.zeros(rows + 1, np.int64), np.zeros(0, dtype))


def _stacked(field: Field, columns: list[Column]) -> Column:
    packed = [column for column in columns if isinstance(column, Packed)]
    if len(packed) < len(columns):
        return np.concatenate([one for one in columns if not isinstance(one, Packed)])
    if not packed:
        return _nothing(field, 0)
    lengths = np.concatenate([np.diff(one.starts) for one in packed])
    return Packed(field.kind, _starts(lengths), np.concatenate([one.data for one in packed]))


def _starts(lengths: Array) -> Array:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
