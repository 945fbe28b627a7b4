# SPDX-License-Identifier: Apache-2.0
"""Line tables, against what each CPython of this machine says of its own code objects."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.interpreters import CPython, python_parameters

from igsdk.runtime.pythons.lines import find_line

CLIENT = Path(__file__).parents[1] / "clients" / "tell_lines.py"
EVERY = 12  # module of the standard library
versions = st.integers(0x0308, 0x0310)


@pytest.mark.parametrize("python", python_parameters())
def test_each_range_has_the_line_that_python_gives_it(python: CPython) -> None:
    process = python.start("-c", CLIENT.read_text(), str(EVERY))
    told, _ = process.communicate()
    assert process.returncode == 0
    codes = [json.loads(line) for line in told.splitlines()]
    version, probes, wrong = 0x0300 | python.minor, 0, []
    for code in codes:
        table = bytes.fromhex(code["table"])
        for start, end, line in code["ranges"]:
            for lasti in {start, end - 2}:
                probes += 1
                found = find_line(table, lasti, code["first"], version)
                if found != (line or 0):
                    wrong.append((code["name"], lasti, line, found))
    print(f"{python}: {len(codes)} code objects, {probes} instructions")
    assert wrong == []
    assert len(codes) > 300
    assert probes > 3000


@given(st.binary(max_size=200), st.integers(-4, 4000), st.integers(-5, 1 << 31), versions)
@example(b"\xf8" + b"\x7f" * 100, 0, 1, 0x030D)  # a number that does not end
@example(b"\xe8", 0, 7, 0x030B)
@example(b"\x80", 0, 7, 0x030B)  # its last byte is missing
def test_garbage_is_no_line_but_no_error(
    table: bytes, lasti: int, first: int, version: int
) -> None:
    assert find_line(table, lasti, first, version) >= 0
    assert find_line(table, lasti, first, version, complete=False) >= 0


@pytest.mark.parametrize("version", [0x0309, 0x030A, 0x030B])
def test_a_table_of_any_size_is_read_in_one_go(version: int) -> None:
    before = time.process_time()
    for byte in (b"\x00", b"\x7f", b"\xff"):
        assert find_line(byte * 400_000, 1 << 30, 1, version) >= 0
    assert time.process_time() - before < 10


def test_code_that_has_not_begun_is_on_its_first_line() -> None:
    assert {find_line(b"", -1, 41, version) for version in range(0x0308, 0x0310)} == {41}


def test_a_table_that_was_cut_tells_only_what_it_has() -> None:
    table = bytes([4, 1, 4, 1])  # lines 2 from byte 4, 3 from byte 8
    assert [find_line(table, at, 1, 0x0309, complete=False) for at in (0, 4, 8)] == [1, 2, 0]
    assert find_line(table, 8, 1, 0x0309) == 3
    assert find_line(table, 8, 1, 0x030A, complete=False) == 0
