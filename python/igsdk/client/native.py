# SPDX-License-Identifier: Apache-2.0
"""What the extension does with packets, where it is there.

It gives the same as the readers in Python, for which a packet takes five to ten times as
long. They stay: macOS has no extension, nor has a Linux without libbpf.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from igsdk.client.needs import needs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from igsdk._native import PacketReader
    from igsdk.client.kinds import Kind
    from igsdk.client.schema import DataSource

#: kinds in the extension's words; numbers are i, u and f
_SORTS = {"bool": "?", "string": "s", "cstring": "c", "bytes": "b"}


def native_reader(source: DataSource, blank: Callable[[], dict[str, Any]]) -> PacketReader | None:
    """Reads packets of a data source; None without the extension.

    Args:
        blank: makes a new row for it to fill.
    """
    try:
        from igsdk._native import PacketReader
    except ImportError:
        return None
    needs = needs_of(source.fields)
    places = {slot: place for place, slot in enumerate(needs)}
    return PacketReader(
        array=source.array,
        big_endian=source.big_endian,
        needs=[(need.number, need.least, need.exact, need.unit) for need in needs.values()],
        fields=[
            (
                places[field.slot],
                field.offset,
                field.size,
                field.kind.width,
                _sort(field.kind),
                field.kind.array,
            )
            for field in source.fields
        ],
        names=tuple(field.name for field in source.fields),
        blank=blank,
    )


def _sort(kind: Kind) -> str:
    return _SORTS.get(kind.name) or kind.name[0]


def texts_of(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> list[str]:
    """Texts that lie one after the other, as `rows.text` reads them.

    Args:
        starts: where each one begins, and where the last one ends.
    """
    try:
        from igsdk._native import text_list
    except ImportError:
        return _texts_without(data.tobytes(), starts.tolist())
    return text_list(data.data, starts.data)


def _texts_without(data: bytes, starts: list[int]) -> list[str]:
    known: dict[bytes, str] = {}
    texts = []
    for start, end in pairwise(starts):
        one = data[start:end]
        if (text := known.get(one)) is None:
            text = known[one] = one.decode("utf-8", "backslashreplace")
        texts.append(text)
    return texts
