# SPDX-License-Identifier: Apache-2.0
"""What the agent's rows are to clients: decoded by our own client's code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from igsdk import _abi
from igsdk._proto import gadget_pb2 as pb
from igsdk.agent import packets
from igsdk.agent.frame import HOSTS, KINDS, mixed
from igsdk.agent.layout import EVENTS, HEAP, LOSSES, PROCESSES, REPORT, SOURCES, STACKS, Source
from igsdk.client.rows import RowReader
from igsdk.client.schema import read_source, read_sources


def some_rows(source: Source, count: int) -> Any:
    """Different numbers in all fields, as large as they can be."""
    rows = np.zeros(count, dtype=source.fixed)
    for number, name in enumerate(source.fixed.names or ()):
        kind = source.fixed[name]
        if kind.kind == "S":
            rows[name] = [f"{name[-8:]}{row}"[: kind.itemsize - 1].encode() for row in range(count)]
        else:
            most = np.iinfo(kind).max
            rows[name] = [most - (number + row) % 97 for row in range(count)]
    return rows


def expected(rows: Any, at: int) -> dict[str, Any]:
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in zip(rows.dtype.names, rows[at].tolist(), strict=True)
    }


def test_sources_are_described_as_numbered() -> None:
    assert [source.number for source in SOURCES] == list(range(len(SOURCES)))
    assert [source.name for source in SOURCES] == sorted(source.name for source in SOURCES)
    read = read_sources([source.describe() for source in SOURCES])
    assert {name for name, one in read.items() if one.array} == {"heap", "processes", "losses"}
    for one in read.values():
        assert all(field.description for field in one.fields)


def test_arrays_come_at_intervals() -> None:
    """Else gadgetctl takes one packet of a source and hangs at the next."""
    for source in SOURCES:
        told = dict(source.describe(2.5).annotations)
        assert told == ({"fetch-interval": "2500ms", "fetch-count": "0"} if source.array else {})


def test_fields_stand_where_clients_of_inspektor_gadget_look() -> None:
    """Parents by their place in the list, nothing beyond the slot."""
    for source in SOURCES:
        told = source.describe()
        for place, field in enumerate(told.fields):
            assert field.index == place
            assert field.offs + field.size <= source.fixed.itemsize
            if field.flags & 8:
                parent = told.fields[field.parent]
                assert field.fullName == f"{parent.fullName}.{field.name}"


@pytest.mark.parametrize("source", [HEAP, LOSSES], ids=lambda one: one.name)
def test_rows_of_arrays(source: Source) -> None:
    rows = some_rows(source, packets.MOST_ROWS + 3)
    sent = list(packets.array_packets(source, rows))
    reader = RowReader(read_source(source.describe()))
    got = [reader.packet(payload) for payload in sent]
    assert all(one is not None and one[1] == 0 for one in got)
    read = [row for one in got if one for row in one[0]]
    assert [len(one[0]) for one in got if one] == [packets.MOST_ROWS, 3]
    for at in (0, 1, packets.MOST_ROWS, len(rows) - 1):
        assert read[at] == expected(rows, at)
    assert max(map(len, sent)) < 4 << 20


def test_rows_with_texts() -> None:
    rows = some_rows(PROCESSES, 2)
    texts = [("python train.py é", "c" * 64, "uid", "GPU-1"), ("", "", "", "")]
    (payload,) = packets.array_packets(PROCESSES, rows, texts)
    read = RowReader(read_source(PROCESSES.describe())).packet(payload)
    assert read
    for at, words in enumerate(texts):
        whole = expected(rows, at) | dict(zip(PROCESSES.texts, words, strict=True))
        assert read[0][at] == whole


def test_rows_of_their_own() -> None:
    rows = some_rows(EVENTS, 3)
    reader = RowReader(read_source(EVENTS.describe()))
    for at, payload in enumerate(packets.row_packets(EVENTS, rows)):
        read = reader.packet(payload)
        assert read
        whole = expected(rows, at)
        assert read[0] == [whole | {"latency_ns": whole["latency_raw"]}]


def test_texts_alone() -> None:
    payload = packets.text_packet((7).to_bytes(8, "little"), "how", "", "[]")
    read = RowReader(read_source(STACKS.describe())).packet(payload)
    assert read
    assert read[0] == [{"id": 7, "how": "how", "missing": "", "frames": "[]"}]
    read = RowReader(read_source(REPORT.describe())).packet(packets.text_packet(b"", "{}"))
    assert read
    assert read[0] == [{"json": "{}"}]


@pytest.mark.parametrize("seq", [1, 127, 128, 300_000])
def test_events_of_the_stream(seq: int) -> None:
    for source in SOURCES:
        payload = bytes(seq % 300)
        event = pb.GadgetEvent.FromString(packets.packet(seq, source, payload))
        assert (event.type, event.seq) == (0, seq)
        assert (event.dataSourceID, event.payload) == (source.number, payload)
    line = pb.GadgetEvent.FromString(packets.log(packets.WARNING, "so"))
    assert (line.type, line.payload) == (0x30000, b"so")


def test_names_are_those_of_the_gadget() -> None:
    assert len(KINDS) == len(_abi.KINDS)
    assert len(HOSTS) == len(_abi.HOSTS)
    assert all(len(_abi.call_name(call)) < 40 for call in range(len(_abi.CALLS)))
    assert all(len(cause) < 32 for cause in _abi.LOSSES)


def test_row_numbers_differ_where_any_column_does() -> None:
    one = [np.array([1, 1, 2, 1]), np.array([0, 1, 0, 0]), np.array([-1, -1, -1, 0], dtype="i2")]
    assert len(set(mixed(one).tolist())) == 4
    assert mixed(one).tolist() == mixed([column.copy() for column in one]).tolist()
    assert mixed([np.zeros(0)]).tolist() == []
