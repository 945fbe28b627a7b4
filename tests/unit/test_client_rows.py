# SPDX-License-Identifier: Apache-2.0
"""What a daemon encodes comes back: every kind, alone and in structs, as rows and as columns."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import gadget_packets as gp
from tests.support.gadget_fields import DESCRIBED, gadgets, same, visible

from igsdk._errors import AnswerInvalid
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.columns import ColumnReader
from igsdk.client.packets import slots_of
from igsdk.client.rows import Row, RowReader
from igsdk.client.schema import read_source


def plain(value: Any) -> Any:
    """A value of a column as a row has it."""
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


@given(gadgets())
@settings(max_examples=200, deadline=None)
def test_rows_and_columns_come_back(made: tuple[list[gp.Spec], list[list[Any]], bool]) -> None:
    specs, rows, big = made
    source = read_source(gp.source("s", specs, big=big))
    event = gp.packet([gp.element(specs, row, big) for row in rows], 1)
    expected = [visible(specs, row) for row in rows]

    slots = slots_of(source, event.payload)
    assert slots is not None
    read = [RowReader(source).read(one) for one in slots]
    columns, broken = ColumnReader(source).read([event.payload])

    assert len(read) == len(expected)
    for row, wanted in zip(read, expected, strict=True):
        assert row is not None
        assert list(row) == list(wanted)
        assert all(same(wanted[name], row[name]) for name in wanted)
    assert (columns.rows, columns.unreadable, broken) == (len(rows), 0, 0)
    for field in source.fields:
        values = [plain(value) for value in columns[field.name]]
        assert all(map(same, [wanted[field.name] for wanted in expected], values))
        assert len(values) == len(expected)


@given(gadgets())
@settings(max_examples=60, deadline=None)
def test_data_frames_have_the_same_values(
    made: tuple[list[gp.Spec], list[list[Any]], bool],
) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: pip install 'igsdk[data]'")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'igsdk[data]'")
    specs, rows, big = made
    source = read_source(gp.source("s", specs, big=big))
    event = gp.packet([gp.element(specs, row, big) for row in rows], 1)
    columns, _ = ColumnReader(source).read([event.payload])
    table, frame = columns.to_arrow(), columns.to_pandas()
    table.validate(full=True)
    assert (table.num_rows, len(frame)) == (len(rows) if source.fields else 0, len(rows))
    for name in columns:
        wanted = [plain(value) for value in columns[name]]
        arrow = [tuple(v) if isinstance(v, list) else v for v in table[name].to_pylist()]
        assert all(map(same, wanted, arrow))
        assert all(map(same, wanted, [plain(value) for value in frame[name]]))
    shown = [spec.name for spec in specs if spec.name != "nothing" and not spec.flags & gp.HIDDEN]
    assert list(columns.to_pandas(hidden=False).columns) == shown
    assert columns.to_arrow(hidden=False).column_names == shown


def test_an_event_is_one_row() -> None:
    specs = [gp.Spec("pid", gp.UINT32, 4), gp.Spec("comm", gp.CSTRING, 16)]
    source = read_source(gp.source("s", specs, array=False))
    event = gp.packet([gp.element(specs, [7, "sh"])], 1, array=False)
    slots = slots_of(source, event.payload)
    assert slots is not None
    assert [RowReader(source).read(one) for one in slots] == [{"pid": 7, "comm": "sh"}]


def test_members_take_the_place_of_their_struct_and_unions_overlap() -> None:
    told = pb.DataSource(name="s", type=2)
    for index, (name, offset, size, kind, flags, parent) in enumerate(
        [
            ("proc", 0, 8, gp.BYTES, gp.STATIC, 0),
            ("proc.pid", 0, 4, gp.UINT32, gp.STATIC | gp.HAS_PARENT, 0),
            ("proc.low", 0, 2, gp.UINT16, gp.STATIC | gp.HAS_PARENT, 0),
            ("proc.all", 0, 8, gp.UINT64, gp.STATIC | gp.HAS_PARENT, 0),
            ("proc.tid", 4, 4, gp.INT32, gp.STATIC | gp.HAS_PARENT, 0),
        ]
    ):
        told.fields.add(
            fullName=name,
            index=index,
            offs=offset,
            size=size,
            kind=kind,
            flags=flags,
            parent=parent,
        )
    source = read_source(told)
    data = struct.pack("<Ii", 70000, -2)
    row = RowReader(source).read([data])
    assert row == {
        "proc.pid": 70000,
        "proc.low": 70000 & 0xFFFF,
        "proc.all": int.from_bytes(data, "little"),
        "proc.tid": -2,
    }
    assert list(row) == ["proc.pid", "proc.low", "proc.all", "proc.tid"]
    assert row.nested()["proc"]["tid"] == -2
    columns = ColumnReader(source).of_rows([[data], [data + b"more"]])
    assert columns["proc.tid"].tolist() == [-2, -2]
    assert columns["proc.tid"].dtype == np.int32


def test_text_that_is_no_utf8_stays_visible() -> None:
    specs = [gp.Spec("comm", gp.CSTRING, 8), gp.Spec("path", gp.STRING)]
    source = read_source(gp.source("s", specs))
    slots = [b"a\xffb\0junk", b"\xc3\xa4\xfe"]
    row = RowReader(source).read(slots)
    columns = ColumnReader(source).of_rows([slots])
    assert row == {"comm": "a\\xffb", "path": "ä\\xfe"}
    assert {name: columns[name][0] for name in columns} == row
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'igsdk[data]'")
    assert columns.to_arrow().to_pylist() == [row]


def test_a_bool_is_true_when_its_byte_is_one() -> None:
    source = read_source(gp.source("s", [gp.Spec("yes", gp.BOOL)]))
    read = RowReader(source).read
    assert [read([bytes([byte])]) for byte in (0, 1, 2)] == [
        {"yes": False},
        {"yes": True},
        {"yes": False},
    ]
    rows: list[Any] = [[bytes([byte])] for byte in (0, 1, 2)]
    assert ColumnReader(source).of_rows(rows)["yes"].tolist() == [False, True, False]


@pytest.mark.parametrize("kind", [0, 15, 99, gp.ARRAY | gp.STRING, gp.ARRAY | 77])
def test_kinds_that_nobody_knows_are_bytes(kind: int) -> None:
    source = read_source(gp.source("s", [gp.Spec("odd", kind)]))
    assert RowReader(source).read([b"abc"]) == {"odd": b"abc"}
    assert ColumnReader(source).of_rows([[b"abc"]])["odd"].tolist() == [b"abc"]


SPECS = [gp.Spec("a", gp.UINT64, 8), gp.Spec("b", gp.UINT32), gp.Spec("c", gp.ARRAY | gp.UINT16)]
GOOD = [b"12345678", b"1234", b"123456"]


@pytest.mark.parametrize(
    "slots",
    [
        [],
        GOOD[:2],
        [b"1234567", *GOOD[1:]],
        [b"", *GOOD[1:]],
        [GOOD[0], b"123", GOOD[2]],
        [GOOD[0], b"12345", GOOD[2]],
        [GOOD[0], b"", GOOD[2]],
        [*GOOD[:2], b"12345"],
    ],
)
def test_rows_that_do_not_fit_are_counted_and_the_others_given(slots: list[bytes]) -> None:
    source = read_source(gp.source("s", SPECS))
    read, reader = RowReader(source).read, ColumnReader(source)
    assert read(slots) is None
    assert read(GOOD) is not None
    columns = reader.of_rows([GOOD, slots, [*GOOD, b"one more slot"]])
    assert (columns.rows, columns.unreadable) == (2, 1)
    assert columns["b"].tolist() == [int.from_bytes(b"1234", "little")] * 2
    assert reader.of_rows([slots]).rows == 0


@given(st.lists(st.lists(st.binary(max_size=10), max_size=5), max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_slots_read_the_same_both_ways(rows: list[list[bytes]]) -> None:
    source = read_source(gp.source("s", SPECS))
    by_row = [row for slots in rows if (row := RowReader(source).read(slots)) is not None]
    columns = ColumnReader(source).of_rows(list(rows))
    assert columns.rows == len(by_row)
    assert columns.unreadable == len(rows) - len(by_row)
    assert columns["a"].tolist() == [row["a"] for row in by_row]


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_packet_or_not(payload: bytes) -> None:
    for array in (True, False):
        source = read_source(gp.source("s", SPECS, array=array))
        slots = slots_of(source, payload)
        columns, broken = ColumnReader(source).read([payload])
        assert broken == (slots is None)
        assert columns.rows + columns.unreadable == len(slots or ())


@given(
    st.lists(DESCRIBED, max_size=6, unique_by=lambda field: field.fullName),
    st.lists(st.lists(st.binary(max_size=16), max_size=5), max_size=4),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_any_description_is_refused_or_reads_the_same_both_ways(
    fields: list[pb.Field], rows: list[list[bytes]], big: bool
) -> None:
    try:
        source = read_source(pb.DataSource(name="s", type=2, fields=fields, flags=int(big)))
    except AnswerInvalid:
        return
    by_row = [row for slots in rows if (row := RowReader(source).read(slots)) is not None]
    columns = ColumnReader(source).of_rows(list(rows))
    assert columns.rows == len(by_row)
    assert columns.unreadable == len(rows) - len(by_row)
    for field in source.fields:
        values = [plain(value) for value in columns[field.name]]
        assert all(map(same, [row[field.name] for row in by_row], values))


def wrong(change: str) -> pb.DataSource:
    told = gp.source("s", SPECS)
    match change:
        case "type":
            told.type = 3
        case "parent":
            told.fields[1].flags, told.fields[1].parent = gp.HAS_PARENT, 3
        case "far":
            told.fields[0].offs = 2**32 - 1
        case "large":
            told.fields[2].size = 2**32 - 2
        case "narrow":
            told.fields[0].size = 7
        case "ragged":
            told.fields[2].size = 7
        case "twice":
            told.fields[1].fullName = told.fields[0].fullName
        case "endless":
            for number in range(5000):
                told.fields.add(fullName=str(number))
        case "one slot" | "one byte":
            size = 8 if change == "one byte" else 0
            for number in range(16):
                told.fields.add(
                    fullName=str(number), kind=gp.UINT64, size=size, payloadIndex=0 if size else 1
                )
    return told


@pytest.mark.parametrize(
    "change",
    [
        *("type", "parent", "far", "large", "narrow", "ragged", "twice", "endless"),
        *("one slot", "one byte"),
    ],
)
def test_descriptions_that_make_no_sense(change: str) -> None:
    with pytest.raises(AnswerInvalid, match="data source 's'") as caught:
        read_source(wrong(change))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("field", "change"),
    [(0, {"offs": 1 << 25}), (0, {"payloadIndex": 2**32 - 1}), (2, {"size": 1 << 25})],
)
def test_far_offsets_slots_and_sizes_make_rows_unreadable_and_take_no_memory(
    field: int, change: dict[str, int]
) -> None:
    told = gp.source("s", SPECS)
    for name, value in change.items():
        setattr(told.fields[field], name, value)
    source = read_source(told)
    assert RowReader(source).read(GOOD) is None
    columns = ColumnReader(source).of_rows([GOOD])
    assert (columns.rows, columns.unreadable) == (0, 1)
    assert list(columns) == ["a", "b", "c"]
    assert all(len(columns[name]) == 0 for name in columns)


def test_fields_called_as_others_begin_are_all_there_when_nested() -> None:
    row = Row([("a.b", 1), ("a", 2), ("a.b.c", 3)])
    assert row.nested() == {"a": {"": 2, "b": {"": 1, "c": 3}}}
