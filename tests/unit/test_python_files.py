# SPDX-License-Identifier: Apache-2.0
"""What the file of an interpreter says of it: version, structures; and files that lie."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.interpreters import (
    CPython,
    a_python,
    described,
    find_pythons,
    patched,
    python_parameters,
)

from igsdk import _abi
from igsdk.runtime.mappings import Mapping
from igsdk.runtime.pythons import registry
from igsdk.runtime.pythons.discover import Interpreter, libc_of, read_interpreter
from igsdk.runtime.pythons.offsets import NONE, Unsupported, layout


@pytest.mark.parametrize("python", python_parameters())
def test_the_version_without_a_name(python: CPython) -> None:
    found = read(python.library, "/x/program")
    assert found
    assert found.layout
    assert found.layout.version == 0x0300 | python.minor
    assert found == read(python.library, str(python.library))


def read(path: Path, name: str, *, likely: bool = True) -> Interpreter | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_interpreter(fd, name, likely=likely)
    finally:
        os.close(fd)


NO_SYMBOL = (b"\0_PyRuntime\0", b"\0_PyXuntime\0")
NO_SECTION = (b"\0.PyRuntime\0", b"\0.PyXuntime\0")


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_without_its_symbol_the_section_tells(minor: int, tmp_path: Path) -> None:
    python = a_python(minor)
    copy = patched(python, tmp_path, NO_SYMBOL)
    assert read(copy, copy.name) == read(python.library, copy.name)


def test_without_symbol_and_section_the_description_tells(tmp_path: Path) -> None:
    python = a_python(13)
    copy = patched(python, tmp_path, NO_SYMBOL, NO_SECTION)
    assert read(copy, copy.name) == read(python.library, copy.name)
    assert read(copy, copy.name, likely=False) is None  # nobody reads through any library


def test_an_old_one_without_symbol_is_none(tmp_path: Path) -> None:
    copy = patched(a_python(9), tmp_path, NO_SYMBOL)
    assert read(copy, copy.name) is None


@cache
def description_of(python: CPython) -> bytes:
    """The first bytes of its runtime."""
    content = python.library.read_bytes()
    found = re.search(rb"xdebugpy\xf0.%c\x03\0{4}" % python.minor, content, re.DOTALL)
    assert found
    return content[found.start() :][:1024]


def as_version(description: bytes, minor: int) -> bytes:
    return described(minor) + description[len(described(minor)) :]


def test_a_later_version_is_read_by_its_description() -> None:
    newest = [each for each in find_pythons() if each.minor == 15]
    if not newest:
        pytest.skip("this machine has no CPython 3.15: tests/support/sid.py brings one")
    description = description_of(newest[0])
    found = layout(0x0310, "x86_64", as_version(description, 16))
    assert found.note == "Python 3.16 is newer than what igsdk was tested with: check its stacks."
    assert found.numbers == layout(0x030F, "x86_64", description).numbers


def test_a_later_version_with_other_structures_is_not_read() -> None:
    """Positions of 3.13 hold something else than those of the newest."""
    description = as_version(description_of(a_python(13)), 16)
    with pytest.raises(Unsupported, match=r"3\.16: it describes its structures in an unknown"):
        layout(0x0310, "x86_64", description)


def test_what_it_says_of_itself_is_believed() -> None:
    """And the reader of results is told where that is not what its version usually says."""
    description = bytearray(description_of(a_python(13)))
    description[64:72] = (7280).to_bytes(8, "little")  # interpreter_state.next
    found = layout(0x030D, "x86_64", bytes(description))
    assert found.numbers["interp_next"] == 7280
    assert found.note == (
        "Python 3.13 here describes other structures than usual (interp_next): check its stacks."
    )


@pytest.mark.parametrize(
    ("version", "description", "why"),
    [
        (0x030D, b"", "does not describe itself"),
        (0x030D, described(14), "another version"),
        (0x030E, described(14), "in an unknown way"),
        (0x030D, described(13, b"\1" + bytes(7)), r"3\.13t: free-threaded"),
        (0x0307, b"", r"older than 3\.8"),
        (0x0207, b"", r"older than 3\.8"),
    ],
)
def test_what_is_not_supported(version: int, description: bytes, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        layout(version, "x86_64", description)


@given(st.binary(max_size=1100), st.integers(13, 20), st.booleans())
def test_a_damaged_description_is_refused_or_bounded(
    garbage: bytes, minor: int, keeps_head: bool
) -> None:
    description = (described(minor) + bytes(7) if keeps_head else b"") + garbage
    check_layout(minor, description)


@given(st.lists(st.tuples(st.integers(24, 700), st.binary(min_size=1, max_size=8)), min_size=1))
def test_a_description_with_a_few_other_numbers(changes: list[tuple[int, bytes]]) -> None:
    description = bytearray(description_of(a_python(13)))
    for at, piece in changes:
        description[at : at + len(piece)] = piece
    check_layout(13, bytes(description))


def check_layout(minor: int, description: bytes) -> None:
    """It is refused, or the kernel part can work with it."""
    with suppress(Unsupported):
        found = layout(0x0300 | minor, "x86_64", description)
        assert found.numbers["frame_size"] <= 128
        assert found.numbers["code_size"] <= 256
        assert len(found.pack(1 << 47, "glibc", "x86_64")) == _abi.dtype("python").itemsize


def test_arm64_compares_thread_ids_that_the_kernel_knows() -> None:
    numbers = layout(0x030B, "aarch64").numbers
    assert (numbers["thread_id"], numbers["thread_native_id"]) == (NONE, 160)
    assert numbers["tss_key"] == layout(0x030B, "x86_64").numbers["tss_key"] + 16
    assert layout(0x030C, "aarch64").numbers["tss_key"] == 1548
    with pytest.raises(Unsupported, match="can't be told apart on arm64"):
        layout(0x030A, "aarch64")


def test_slots_of_the_c_library() -> None:
    def slots(libc: str, machine: str) -> int:
        packed = layout(0x030B, machine).pack(0, libc, machine)
        return int(np.frombuffer(packed, _abi.dtype("python"))[0]["tss_slots"])

    assert slots("glibc", "x86_64") == 784
    assert {slots("musl", "x86_64"), slots("", "x86_64"), slots("glibc", "aarch64")} == {NONE}


@pytest.mark.parametrize(
    ("path", "loader", "libc"),
    [
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "", "glibc"),
        ("/lib/libc-2.17.so", "", "glibc"),
        ("/lib/ld-musl-x86_64.so.1", "", "musl"),
        ("/bin/python3", "/lib64/ld-linux-x86-64.so.2", "glibc"),
        ("/bin/python3", "/lib/ld-musl-x86_64.so.1", "musl"),
        ("/bin/python3", "", ""),
    ],
)
def test_which_c_library(path: str, loader: str, libc: str) -> None:
    assert libc_of([Mapping(0, 4096, 0, 1, 1, path)], loader) == libc


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    copy = tmp_path_factory.mktemp("damaged") / "libpython3.13.so.1.0"
    copy.write_bytes(a_python(13).library.read_bytes())
    return copy, copy.read_bytes()


SPOTS = ("start", "sections", "symbols", "names", "runtime")
damage = st.tuples(st.sampled_from(SPOTS), st.integers(0, 3000), st.binary(min_size=1, max_size=64))


def spot(content: bytes, name: str) -> int:
    return {
        "start": 0,
        "sections": len(content) - 4096,
        "symbols": 4096,
        "names": content.index(b"_PyRuntime\0"),
        "runtime": content.index(described(13)),
    }[name]


@settings(max_examples=60, deadline=None)
@given(damages=st.lists(damage, min_size=1, max_size=4), cut=st.sampled_from((1, 1, 1, 2, 4096)))
def test_a_damaged_file_is_refused_or_read(
    victim: tuple[Path, bytes], damages: list[tuple[str, int, bytes]], cut: int
) -> None:
    """Headers, sections, symbols and descriptions that lie."""
    path, content = victim
    for name, offset, piece in damages:
        write_at(path, spot(content, name) + offset, piece)
    os.truncate(path, len(content) // cut)
    fd = os.open(path, os.O_RDONLY)
    found = registry._read(fd, str(path), True)
    os.close(fd)
    if cut > 1:
        path.write_bytes(content)
    for name, offset, piece in damages:
        at = spot(content, name) + offset
        write_at(path, at, content[at : at + len(piece)])
    os.truncate(path, len(content))
    if found and found.layout:
        assert found.layout.numbers["frame_size"] <= 128
    elif found:
        assert found.reason.startswith("Python")


def write_at(path: Path, at: int, piece: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(piece)
