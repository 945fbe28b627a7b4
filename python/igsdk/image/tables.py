# SPDX-License-Identifier: Apache-2.0
"""Text in columns that fits a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_GAP, _INDENT = 2, 2
#: the last column gets at least so much, even where the terminal has less
_NARROWEST = 16


def table(rows: Iterable[tuple[str, ...]], columns: int | None) -> Iterator[str]:
    """Lines with cells below one another; the last cell of a row is broken where it has to be.

    Args:
        columns: of the terminal, None where lines may have any length.
    """
    lines = list(rows)
    heads = [line[:-1] for line in lines]
    widths = [max(map(len, column)) for column in zip(*heads, strict=True)] if heads else []
    start = _INDENT + sum(width + _GAP for width in widths)
    for line in lines:
        cells = "".join(
            f"{cell:<{width + _GAP}}" for cell, width in zip(line, widths, strict=False)
        )
        pieces = paragraph(line[-1], columns and columns - start)
        for number, piece in enumerate(pieces):
            first = cells if number == 0 else ""
            yield f"{'':{_INDENT}}{first:<{start - _INDENT}}{piece}".rstrip()


def paragraph(text: str, columns: int | None) -> list[str]:
    """A text in lines, at least one; words that are too long stay whole."""
    if columns is None:
        return [text]
    width = max(columns, _NARROWEST)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
