# SPDX-License-Identifier: Apache-2.0
"""The pieces of a function that its compiler split, with and without symbols."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import sid
from tests.support.elves import compile_c
from tests.support.pythons import NAMES, about, find_python

from igsdk._native import elf_functions, elf_section, function_pieces

EVAL = "_PyEval_EvalFrameDefault"
CALL = b"\xe8"

# What `rare` is called for goes into pieces; `tail` ends with a jump to another function.
SOURCE = """
__attribute__((cold, noinline)) void rare(int *at) { __asm__ volatile("" :: "r"(at)); }
__attribute__((noinline)) int plain(int n) { __asm__ volatile("" : "+r"(n)); return n; }
int tail(int n) { int kept[40]; rare(kept); return plain(n + kept[3]); }
int split(int n) {
    int kept[40] = {n};
    rare(kept);
    return kept[0];
}
int hot(int n) {
    int kept[64];
    for (int i = 0; i < 64; i++) kept[i] = plain(n + i);
    if (__builtin_expect(kept[3] == 7, 0)) { rare(kept); kept[4] = plain(kept[4]); }
    if (__builtin_expect(kept[5] == 9, 0)) rare(kept + 1);
    return plain(kept[4]) + kept[6];
}
int hottest(int n) {
    int kept[64];
    for (int i = 0; i < 64; i++) kept[i] = plain(n + i);
    if (__builtin_expect(kept[3] == 7, 0)) { rare(kept); __builtin_trap(); }
    return plain(kept[4]) + kept[6];
}
"""
FUNCTIONS = ("rare", "plain", "tail", "split", "hot", "hottest")


@pytest.fixture(scope="module", params=["", "-fno-omit-frame-pointer"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("gcc for other machines keeps such functions whole")
    out = tmp_path_factory.mktemp("pieces") / "split.so"
    return compile_c(SOURCE, out, "-O2", *filter(None, [request.param]))


def pieces_of(path: Path, name: str) -> list[tuple[int, int]]:
    with path.open("rb") as file:
        return function_pieces(file.fileno(), name)


def named(path: Path, name: str) -> list[tuple[int, int]]:
    """The same by symbols."""
    with path.open("rb") as file:
        found = elf_functions(file.fileno(), [f"{name}.cold", f"{name}.cold.0"])
    return [(offset, offset + size) for _, _, offset, size in found]


def stripped(path: Path, out: Path) -> Path:
    subprocess.run(["strip", "-o", out, path], check=True)
    return out


def test_pieces_are_those_with_symbols(library: Path, tmp_path: Path) -> None:
    bare = stripped(library, tmp_path / "stripped.so")
    for name in FUNCTIONS:
        expected = named(library, name)
        assert (name, pieces_of(library, name)) == (name, expected)
        assert (name, pieces_of(bare, name)) == (name, expected)
        assert (name, bool(expected)) == (name, name.startswith("hot"))
        assert named(bare, name) == []


def test_a_function_that_is_not_there(library: Path) -> None:
    assert pieces_of(library, "none") == []
    with pytest.raises(ValueError, match="not an ELF file"):
        pieces_of(Path(__file__), "hot")


@pytest.fixture(params=NAMES)
def interpreter(request: pytest.FixtureRequest) -> Path:
    """The file that holds the interpreter's function."""
    python = find_python(request.param)
    _, library = about(request.param, python)
    if request.param.startswith("sid"):
        return Path(sid.root()) / python.lstrip("/")
    return library or Path(python).resolve()


def holds_a_call(path: Path, piece: tuple[int, int]) -> bool:
    start, end = piece
    return CALL in path.read_bytes()[start:end]


def test_the_interpreter_s_function(interpreter: Path) -> None:
    found = pieces_of(interpreter, EVAL)
    with interpreter.open("rb") as file:
        symbols = elf_functions(file.fileno(), [EVAL])
        is_stripped = elf_section(file.fileno(), ".symtab") is None
    own = {(offset, offset + size) for *_, offset, size in symbols}
    if not is_stripped:
        called = [piece for piece in named(interpreter, EVAL) if holds_a_call(interpreter, piece)]
        assert found == called
    else:  # Debian's: most of it lies in one piece
        assert len(found) == 1
        ((start, end),) = found
        assert end - start > 8192
    assert own.isdisjoint(found)


@pytest.mark.parametrize("count", [0, 5, 0x7FFFFFFF, -1])
def test_a_search_table_that_lies(count: int, library: Path, tmp_path: Path) -> None:
    """Its number of rows and all of them: where code starts is not known then."""
    path = Path(shutil.copy(library, tmp_path))
    with path.open("r+b") as file:
        section = elf_section(file.fileno(), ".eh_frame_hdr")
        assert section
        file.seek(section[0] + 8)  # its address is its offset in so small a library
        file.write(count.to_bytes(4, "little", signed=True) + b"\xff" * (section[1] - 12))
    for name in FUNCTIONS:
        assert pieces_of(path, name) in ([], named(path, name))


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 20000), st.integers(0, 255)), min_size=1, max_size=40))
def test_files_that_lie(library: Path, tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    """Whatever is in the file: pieces lie in it, and there are few."""
    content = bytearray(library.read_bytes())
    for at, value in changes:
        content[at % len(content)] = value
    path = tmp_path / "lies.so"
    path.write_bytes(content)
    try:
        found = [piece for name in FUNCTIONS for piece in pieces_of(path, name)]
    except ValueError:
        return
    assert len(found) <= 16 * len(FUNCTIONS)
    assert all(start < end for start, end in found)
