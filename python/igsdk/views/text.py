# SPDX-License-Identifier: Apache-2.0
"""Plain text that fits a width: tables, paths cut in the middle, wrapped sentences."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from igsdk._events import Frame

NARROWEST, WIDEST = 80, 200
#: a place that is cut to fewer characters tells nothing
_SHORTEST_PLACE = 8
_UUID = re.compile(r"\b((?:GPU|MIG)-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Text that a terminal shows and does not obey: names of processes are not ours."""
    return _CONTROL.sub("?", text)


def fitted_width(width: int | None) -> int:
    """A width between 80 and 200 columns, 100 where nobody knows it."""
    return max(NARROWEST, min(WIDEST, width or 100))


def shorten(text: str, room: int) -> str:
    """Cut out of the middle: the beginning and, more of it, the end of a path tell most."""
    clean = plain(text)
    if len(clean) <= room:
        return clean
    head = max(0, (room - 1) // 3)
    return f"{clean[:head]}…{clean[len(clean) - (room - 1 - head) :]}" if room > 1 else clean[:room]


def short_device(name: str) -> str:
    """The beginning of a UUID tells devices of one report apart; --json has it whole."""
    return _UUID.sub(r"\1", name)


def frame_label(frame: Frame, place: str | None = None) -> str:
    """``name  place``, to be cut by :func:`cut_place`; ``place`` instead of the frame's own.

    A frame without a symbol is called ``file+offset``: its place is then the folder only.
    C++ and Rust names are shown without what hardly tells them apart.
    """
    where = frame.place if place is None else place
    folder, _, file = where.rpartition("/")
    if frame.mapping and file and frame.name.startswith(f"{file}+0x"):
        where = folder
    return f"{frame.shown_name}  {where}".rstrip()


def cut_place(label: str, room: int) -> str:
    """Cut ``name  place`` so that the name stays whole: two names shall never look alike."""
    name, gap, place = plain(label).partition("  ")
    left = room - len(name) - len(gap)
    if left >= len(place):
        return f"{name}{gap}{place}"
    return shorten(name, room) if left < _SHORTEST_PLACE else f"{name}{gap}{_end(place, left)}"


def _end(place: str, room: int) -> str:
    """A place with its last name whole, and its first folders where there is room for them."""
    file = len(place) - place.rfind("/")
    return shorten(place, room) if file < room // 2 else f"…{place[1 - room :]}"


def cut_end(text: str, room: int) -> str:
    """Cut off at the end: a command says most at its beginning."""
    clean = plain(text)
    return clean if len(clean) <= room else f"{clean[: room - 1]}…"


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    cut: Callable[[str, int], str] = shorten,
) -> list[str]:
    """Lines of a table: a column whose header begins with ``<`` is left-aligned, others right.

    The last column is cut to fit if it is a left-aligned one: by ``cut``, in the middle
    unless another function is given.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    titles = [header.lstrip("<") for header in headers]
    sizes = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    left = [header.startswith("<") for header in headers]
    room = max(10, width - sum(size + 2 for size in sizes[:-1]) - 2)

    def line(row: Sequence[str]) -> str:
        parts = [
            cell.ljust(size) if is_left else cell.rjust(size)
            for cell, size, is_left in zip(row[:-1], sizes, left, strict=False)
        ]
        # Figures without end may fill the line alone.
        last = cut(row[-1], room) if left[-1] else row[-1].rjust(sizes[-1])
        return cut_end(("  " + "  ".join([*parts, last])).rstrip(), width)

    return [line(titles), *(line(row) for row in cells)]


def sentence(text: str, width: int, indent: str = "  ") -> list[str]:
    """A wrapped sentence whose further lines are indented more."""
    return textwrap.wrap(
        plain(text), width, initial_indent=indent, subsequent_indent=indent + "  ",
        break_on_hyphens=False,
    )  # fmt: skip
