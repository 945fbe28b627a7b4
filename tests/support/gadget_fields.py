# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: fields of every kind, rows for them, and when two values are the same."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from tests.support import gadget_packets as gp

from igsdk._proto import gadget_pb2 as pb

LIMITS = {
    gp.BOOL: (0, 1),
    gp.INT8: (-(2**7), 2**7 - 1),
    gp.INT16: (-(2**15), 2**15 - 1),
    gp.INT32: (-(2**31), 2**31 - 1),
    gp.INT64: (-(2**63), 2**63 - 1),
    gp.UINT8: (0, 255),
    gp.UINT16: (0, 2**16 - 1),
    gp.UINT32: (0, 2**32 - 1),
    gp.UINT64: (0, 2**64 - 1),
}
SMALL = st.one_of(st.integers(0, 12), st.sampled_from((2**31, 2**32 - 1)))
#: fields as a daemon may describe them, good ones and bad ones
DESCRIBED = st.builds(
    pb.Field,
    fullName=st.sampled_from("abcdef"),
    payloadIndex=st.integers(0, 3),
    offs=SMALL,
    size=SMALL,
    flags=st.sampled_from((0, 0, 0, 1, 4, 8, 16, 24, 32)),
    kind=st.one_of(st.integers(0, 16), st.integers(0, 16).map(lambda kind: kind | gp.ARRAY)),
    parent=st.integers(0, 6),
    order=st.integers(-5, 5),
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


def numbers(kind: int) -> st.SearchStrategy[Any]:
    if kind in LIMITS:
        whole = st.integers(*LIMITS[kind])
        return whole.map(bool) if kind == gp.BOOL else whole
    return st.floats(width=32 if kind == gp.FLOAT32 else 64)


@st.composite
def fields(draw: st.DrawFn, name: str) -> tuple[gp.Spec, st.SearchStrategy[Any]]:
    """A field, and what makes values for it."""
    kind = draw(st.integers(gp.BOOL, gp.BYTES))
    static, gap = draw(st.booleans()), draw(st.integers(0, 9))
    flags = draw(st.sampled_from((0, gp.HIDDEN)))
    if kind in gp.WIDTHS and draw(st.booleans()):
        length = draw(st.integers(1, 5)) if static else 0
        values = st.lists(numbers(kind), min_size=length, max_size=length or 6)
        size = length * gp.WIDTHS[kind]
        return gp.Spec(name, kind | gp.ARRAY, size, gap, flags), values.map(tuple)
    if kind in gp.WIDTHS:
        return gp.Spec(name, kind, gp.WIDTHS[kind] if static else 0, gap, flags), numbers(kind)
    texts: st.SearchStrategy[Any] = st.binary(max_size=12) if kind == gp.BYTES else TEXT
    if not static:
        return gp.Spec(name, kind, 0, 0, flags), texts
    size = draw(st.integers(1, 16))
    return gp.Spec(name, kind, size, gap, flags), texts.map(lambda v: fit(kind, v, size))


def fit(kind: int, value: Any, size: int) -> Any:
    """The value as a field of that many bytes can have it."""
    if kind == gp.BYTES:
        return value[:size].ljust(size, b"\0")
    cut = value.encode()[:size].decode("utf-8", "ignore")
    return cut if kind == gp.CSTRING else cut + "\0" * (size - len(cut.encode()))


@st.composite
def gadgets(draw: st.DrawFn) -> tuple[list[gp.Spec], list[list[Any]], bool]:
    """Fields, rows and the byte order; among the fields are those that have no values."""
    made = [draw(fields(f"f{place}")) for place in range(draw(st.integers(0, 8)))]
    rows = draw(st.lists(st.tuples(*(values for _, values in made)).map(list), max_size=6))
    specs = [spec for spec, _ in made]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(specs)))
        flags = draw(st.sampled_from((gp.EMPTY, gp.UNREFERENCED)))
        specs.insert(place, gp.Spec("nothing", gp.BYTES, 0, 0, flags))
        for row in rows:
            row.insert(place, b"unseen")
    return specs, rows, draw(st.booleans())


def visible(specs: list[gp.Spec], row: list[Any]) -> dict[str, Any]:
    return {s.name: v for s, v in zip(specs, row, strict=True) if s.name != "nothing"}


def same(one: Any, other: Any) -> bool:
    """Equal, of the same type, with NaN equal to itself."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other
