# SPDX-License-Identifier: Apache-2.0
"""Columns as data frames of other packages, which are imported here and only here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._errors import ExtensionMissing
from igsdk.client.columns import Packed

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from igsdk.client.columns import Array, Column, Columns

# Arrow counts these in 32 bits, and other programs read only those everywhere.
_MOST_BYTES = 2**31 - 1


def to_pandas(columns: Columns, hidden: bool) -> pandas.DataFrame:
    """See `Columns.to_pandas`."""
    try:
        import pandas
    except ImportError as error:
        raise _missing("pandas") from error
    series: dict[str, Any] = {}
    for name in _names(columns, hidden):
        values = columns[name]
        series[name] = list(values) if values.ndim > 1 else values
    return pandas.DataFrame(series, index=pandas.RangeIndex(columns.rows))


def to_arrow(columns: Columns, hidden: bool) -> pyarrow.Table:
    """See `Columns.to_arrow`."""
    try:
        import pyarrow
    except ImportError as error:
        raise _missing("pyarrow") from error
    names = _names(columns, hidden)
    arrays = [_arrow(pyarrow, columns.column(name)) for name in names]
    return pyarrow.table(arrays, names=names)


def _names(columns: Columns, hidden: bool) -> list[str]:
    return [field.name for field in columns.source.fields if hidden or not field.hidden]


def _arrow(pa: Any, column: Column) -> Any:
    if not isinstance(column, Packed):
        return _fixed(pa, column)
    if column.kind.array:
        return pa.LargeListArray.from_arrays(pa.array(column.starts), pa.array(column.data))
    wide = len(column.data) > _MOST_BYTES
    starts = column.starts if wide else column.starts.astype(np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(column.data))]
    made = pa.Array.from_buffers(_type(pa, column, wide), len(column), buffers)
    if column.kind.is_text and not _is_utf8(column, made):
        return pa.array(column.objects(), type=made.type)
    return made


def _fixed(pa: Any, array: Array) -> Any:
    if array.ndim == 1:
        return pa.array(array)
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])


def _type(pa: Any, column: Packed, wide: bool) -> Any:
    if column.kind.is_text:
        return pa.large_string() if wide else pa.string()
    return pa.large_binary() if wide else pa.binary()


def _is_utf8(column: Packed, made: Any) -> bool:
    """Whether every value is; Arrow trusts what it is given until it is asked."""
    if not (column.data & 0x80).any():
        return True
    try:
        made.validate(full=True)
    except ValueError:  # pyarrow's own error for this is one
        return False
    return True


def _missing(package: str) -> ExtensionMissing:
    return ExtensionMissing(
        f"The Python package {package} is not installed.",
        "Install what data frames need: pip install 'igsdk[data]'.",
    )
