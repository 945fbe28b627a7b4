# SPDX-License-Identifier: Apache-2.0
"""The native reader of packets gives what the one in Python gives, whatever the bytes are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import gadget_packets as gp
from tests.support.gadget_fields import DESCRIBED, gadgets, same

from igsdk._errors import AnswerInvalid
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.columns import ColumnReader, Packed
from igsdk.client.native import texts_of
from igsdk.client.rows import RowReader, text
from igsdk.client.schema import DataSource, read_source

_native = pytest.importorskip(
    "igsdk._native", reason="the extension is not built here: see docs/development.md"
)


def parts(column: Any) -> list[np.ndarray[Any, Any]]:
    return [column.starts, column.data] if isinstance(column, Packed) else [column]


def assert_same_columns(source: DataSource, payloads: list[bytes]) -> None:
    ours, broken = ColumnReader(source).read(payloads)
    wanted, wanted_broken = ColumnReader(source, native=False).read(payloads)
    assert (ours.rows, ours.unreadable, broken) == (
        wanted.rows,
        wanted.unreadable,
        wanted_broken,
    )
    assert list(ours) == list(wanted)
    for name in wanted:
        one, other = parts(ours.column(name)), parts(wanted.column(name))
        assert [(a.dtype, a.shape) for a in one] == [(a.dtype, a.shape) for a in other]
        assert [a.tobytes() for a in one] == [a.tobytes() for a in other]
        assert all(array.flags.writeable for array in one)


def assert_same_rows(source: DataSource, payload: bytes) -> None:
    ours = RowReader(source).packet(payload)
    wanted = RowReader(source, native=False).packet(payload)
    if ours is None or wanted is None:
        assert ours is wanted
        return
    assert ours[1] == wanted[1]
    assert len(ours[0]) == len(wanted[0])
    for one, other in zip(ours[0], wanted[0], strict=True):
        assert type(one) is type(other)
        assert (one.source, list(one)) == (other.source, list(other))
        assert all(same(other[name], one[name]) for name in other)


def assert_same(source: DataSource, *payloads: bytes) -> None:
    assert_same_columns(source, list(payloads))
    for payload in payloads:
        assert_same_rows(source, payload)


@given(gadgets(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_good_packets(made: tuple[list[gp.Spec], list[list[Any]], bool], array: bool) -> None:
    specs, rows, big = made
    source = read_source(gp.source("s", specs, big=big, array=array))
    elements = [gp.element(specs, row, big) for row in rows]
    if array:
        payloads = [gp.packet(elements, 1).payload, gp.packet(elements[:1], 2).payload]
    else:
        payloads = [gp.packet([one], 1, array=False).payload for one in elements]
    assert_same(source, *payloads)


@given(
    st.lists(DESCRIBED, max_size=6, unique_by=lambda field: field.fullName),
    st.lists(st.lists(st.lists(st.binary(max_size=16), max_size=5), max_size=4), max_size=3),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_any_description_and_any_slots(
    fields: list[pb.Field], packets: list[list[list[bytes]]], array: bool, big: bool
) -> None:
    told = pb.DataSource(name="s", type=2 if array else 1, fields=fields, flags=int(big))
    try:
        source = read_source(told)
    except AnswerInvalid:
        return
    elements = [[pb.DataElement(payload=slots) for slots in packet] for packet in packets]
    if array:
        payloads = [gp.packet(packet, 1).payload for packet in elements]
    else:
        payloads = [gp.packet(packet[:1], 1, array=False).payload for packet in elements if packet]
    assert_same(source, *payloads)


SPECS = [gp.Spec("a", gp.UINT64, 8), gp.Spec("b", gp.UINT32), gp.Spec("c", gp.STRING)]
ROW = [1, 2, "text"]
WHOLE = {
    True: pb.GadgetDataArray(node="n", seq=300, dataArray=[gp.element(SPECS, ROW)] * 3),
    False: pb.GadgetData(node="n", seq=300, data=gp.element(SPECS, ROW)),
}


def source_of(array: bool) -> DataSource:
    return read_source(gp.source("s", SPECS, array=array))


@given(st.lists(st.binary(max_size=60), max_size=3), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_bytes(payloads: list[bytes], array: bool) -> None:
    assert_same(source_of(array), *payloads)


@given(st.data(), st.booleans())
@settings(max_examples=600, deadline=None)
def test_damaged_packets(data: st.DataObject, array: bool) -> None:
    good = WHOLE[array].SerializeToString()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(start, min(start + 3, len(damaged))))
        damaged[start:end] = data.draw(st.binary(max_size=3))
    assert_same(source_of(array), good, bytes(damaged), good)


def field(number: int, wire: int, rest: bytes = b"") -> bytes:
    return bytes([number << 3 | wire]) + rest


ELEMENT = gp.element(SPECS, ROW).SerializeToString()
AS_ROW = field(3, 2, bytes([len(ELEMENT)]) + ELEMENT)
ODDITIES = {
    "a number unknown": field(9, 0, b"\x05"),
    "eight bytes unknown": field(9, 1, b"12345678"),
    "bytes unknown": field(9, 2, b"\x03abc"),
    "four bytes unknown": field(9, 5, b"1234"),
    "a group": field(9, 3) + field(9, 4),
    "a group without end": field(9, 3),
    "an end without group": field(9, 4),
    "no type of field": field(9, 6),
    "no number of a field": field(0, 0, b"\x01"),
    "a field far away": b"\xf8\xff\xff\xff\x0f\x01",
    "too far away": b"\xf8\xff\xff\xff\x1f\x01",
    "a tag of six bytes": b"\xc8\x80\x80\x80\x80\x00\x01",
    "a long way to say one": field(9, 0, b"\x81\x00"),
    "a length said long": field(9, 2, b"\x83\x00abc"),
    "ten bytes of a number": field(2, 0, b"\xff" * 9 + b"\x01"),
    "eleven bytes of a number": field(2, 0, b"\xff" * 10 + b"\x01"),
    "a node beyond ASCII": field(1, 2, b"\x02\xc3\xa4"),
    "a node that is no text": field(1, 2, b"\x02\xff\xfe"),
    "a node that is a number": field(1, 0, b"\x01"),
    "seq as bytes": field(2, 2, b"\x01\x01"),
    "rows as a number": field(3, 0, b"\x01"),
    "a row that is cut": field(3, 2, b"\x7f"),
    "a row of nothing": field(3, 2, b"\x00"),
    "a row with more": field(3, 2, bytes([len(ELEMENT) + 2]) + ELEMENT + field(2, 0, b"\x01")),
    "a row's slot as a number": field(3, 2, bytes([len(ELEMENT) + 2]) + ELEMENT + b"\x08\x01"),
    "a row's slot that is cut": field(3, 2, bytes([len(ELEMENT) + 2]) + ELEMENT + b"\x0a\x09"),
    "two rows": AS_ROW,
    "a row in two parts": field(3, 2, bytes([len(ELEMENT)]) + ELEMENT),
}


@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("name", ODDITIES)
def test_odd_packets(name: str, array: bool) -> None:
    odd = ODDITIES[name]
    source = source_of(array)
    assert_same(source, AS_ROW, odd + AS_ROW, AS_ROW, AS_ROW + odd, odd, AS_ROW)


def test_odd_packets_keep_their_place() -> None:
    source = source_of(True)
    rows = [gp.packet([gp.element(SPECS, [n, n, "t"])], 1).payload for n in range(4)]
    rows[2] += ODDITIES["a group"]
    columns, broken = ColumnReader(source).read([*rows[:2], b"\xff", *rows[2:]])
    assert (columns["a"].tolist(), broken) == ([0, 1, 2, 3], 1)


NUMBER = (0, 0, 8, 8, "u", False)


@pytest.mark.parametrize(
    ("needs", "fields"),
    [
        ([], [NUMBER]),
        ([(0, 7, 0, 1)], [NUMBER]),
        ([(0, 8, 0, 1)], [(1, 0, 8, 8, "u", False)]),
        ([(0, 8, 0, 1)], [(0, 2**64 - 1, 8, 8, "u", False)]),
        ([(0, 8, 0, 1)], [(0, 0, 8, 4, "u", False)]),
        ([(0, 8, 0, 1)], [(0, 0, 7, 2, "u", True)]),
        ([(0, 9, 0, 1)], [(0, 0, 9, 3, "u", True)]),
        ([(0, 0, 0, 1)], [(0, 0, 0, 8, "u", False)]),
        ([(0, 0, 0, 1)], [(0, 0, 0, 8, "u", True)]),
        ([(1, 0, 0, 1), (0, 0, 0, 1)], []),
        ([(0, 0, 0, 1)], [(0, 0, 0, 0, "u", False)]),
        ([(0, 0, 0, 1)], [(0, 0, 0, 0, "!", False)]),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(
    needs: list[tuple[int, int, int, int]], fields: list[tuple[int, int, int, int, str, bool]]
) -> None:
    with pytest.raises(ValueError, match=r"^(a|slots) "):
        _native.PacketReader(True, False, needs, fields, ("x",) * len(fields), dict)


def test_as_many_names_as_fields() -> None:
    with pytest.raises(ValueError, match="names"):
        _native.PacketReader(True, False, [(0, 8, 0, 1)], [NUMBER], (), dict)


def test_a_row_that_cannot_be_made_is_an_error() -> None:
    def blank() -> dict[str, Any]:
        raise KeyError("no row today")

    reader = _native.PacketReader(True, False, [(0, 8, 0, 1)], [NUMBER], ("a",), blank)
    with pytest.raises(KeyError, match="no row today"):
        reader.rows(pb.GadgetDataArray(dataArray=[gp.element(SPECS, ROW)]).SerializeToString())


def test_rows_with_the_same_text_share_it() -> None:
    read = RowReader(source_of(True)).packet(WHOLE[True].SerializeToString())
    assert read is not None
    rows, _ = read
    assert rows[0]["c"] is rows[2]["c"]


@given(st.lists(st.one_of(st.sampled_from((b"", b"pod", b"\xff")), st.binary(max_size=200))))
@settings(max_examples=200, deadline=None)
def test_texts_of_a_column(texts: list[bytes]) -> None:
    data = np.frombuffer(b"".join(texts), np.uint8)
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    assert texts_of(data, starts) == [text(one) for one in texts]


@pytest.mark.parametrize("starts", [[0, 5], [-1, 2], [3, 2], [0, 2, 1], [0, 2**62], [2**62, 3]])
def test_texts_that_lie_outside_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        texts_of(np.zeros(4, np.uint8), np.array(starts, np.int64))


def test_texts_with_gaps_are_refused() -> None:
    starts = np.zeros(2, np.int64)
    for data, places in (
        (np.zeros(8, np.uint8)[::2], starts),
        (np.zeros(4, np.uint16), starts),
        (np.zeros(4, np.uint8), np.zeros(8, np.int64)[::2]),
        (np.zeros(4, np.uint8), np.zeros(2, np.int32)),
        (np.zeros((2, 2), np.uint8), starts),
    ):
        with pytest.raises(ValueError, match="without gaps"):
            _native.text_list(data.data, places.data)


@pytest.mark.parametrize("array", [True, False])
def test_without_the_extension(monkeypatch: pytest.MonkeyPatch, array: bool) -> None:
    monkeypatch.setitem(sys.modules, "igsdk._native", None)
    source, payload = source_of(array), WHOLE[array].SerializeToString()
    assert RowReader(source)._native is None
    assert ColumnReader(source)._native is None
    read = RowReader(source).packet(payload)
    assert read is not None
    assert read[0][0] == {"a": 1, "b": 2, "c": "text"}
    texts = ColumnReader(source).read([payload])[0]["c"].tolist()
    assert texts == ["text"] * len(read[0])
