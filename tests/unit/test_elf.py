# SPDX-License-Identifier: Apache-2.0
"""Reading ELF files: places of functions, sites of probes, and files that lie."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.elves import ENTRIES, compile_c, entry_shapes, function

from igsdk._native import (
    SymbolTable,
    demangle,
    elf_functions,
    elf_inspect,
    elf_read,
    elf_section,
    elf_symbols,
    probe_site,
)

x86_only = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the entries are x86-64 instructions"
)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return entry_shapes(tmp_path_factory.mktemp("elf") / "shapes.so", "-Wl,--build-id")


def test_inspect_agrees_with_readelf(shapes: Path) -> None:
    with opened(shapes) as fd:
        info = elf_inspect(fd)
    notes = subprocess.run(["readelf", "-n", shapes], capture_output=True, text=True).stdout
    assert info.build_id == re.search(r"Build ID: (\w+)", notes)[1]  # type: ignore[index]
    assert (info.machine, info.type) == (platform.machine(), "shared")
    headers = subprocess.run(["readelf", "-lW", shapes], capture_output=True, text=True).stdout
    code = re.findall(r"LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+) 0x\w+ R E", headers)
    assert info.code == [(int(v, 16), int(o, 16), int(n, 16)) for o, v, n in code]


@x86_only
@pytest.mark.parametrize("name", ENTRIES)
def test_probe_site(shapes: Path, name: str) -> None:
    _, offset, how, note = ENTRIES[name]
    with opened(shapes) as fd:
        [(_, _, place, size)] = elf_functions(fd, [name])
        assert probe_site(fd, place, size) == (place + offset, how, note)


@x86_only
def test_a_jump_outside_the_function_is_not_used(shapes: Path) -> None:
    with opened(shapes) as fd:
        [(_, _, place, _)] = elf_functions(fd, ["short_jump"])
        assert probe_site(fd, place, 11) == (place, "entry", "stepped")
        assert probe_site(fd, place, 12)[1] == "jump"


@x86_only
def test_a_jump_that_leads_out_of_the_code_is_not_used(tmp_path: Path) -> None:
    entry = "cmpl $1000, word(%rip); .byte 0x0f,0x84; .long 0x7ffffff; ret"
    path = compile_c("static int word;\n" + function("wild", entry), tmp_path / "wild.so", "-O0")
    with opened(path) as fd:
        [(_, _, place, size)] = elf_functions(fd, ["wild"])
        assert probe_site(fd, place, size) == (place, "entry", "stepped")


def test_an_offset_outside_the_code_is_refused(shapes: Path) -> None:
    with opened(shapes) as fd, pytest.raises(ValueError, match="does not lie in its code"):
        probe_site(fd, 1 << 40)


def test_file_offsets_come_from_the_program_headers(tmp_path: Path) -> None:
    """Where addresses and offsets differ, the bytes in memory say which offset is right."""
    source = "int here(int a) { return a * 12345; }"
    path = compile_c(source, tmp_path / "moved.so", "-Wl,-Ttext-segment=0x400000")
    with opened(path) as fd:
        [(_, address, offset, size)] = elf_functions(fd, ["here"])
        in_file = os.pread(fd, size, offset)
    assert address != offset
    place = ctypes.cast(ctypes.CDLL(str(path)).here, ctypes.c_void_p).value
    assert place is not None
    assert ctypes.string_at(place, size) == in_file


def test_functions_without_ifuncs_variables_and_imports(tmp_path: Path) -> None:
    source = """
        #include <stdlib.h>
        int variable = 1;
        static int one(void) { return 1; }
        static void *choose(void) { return one; }
        int chosen(void) __attribute__((ifunc("choose")));
        void *defined(void) { return malloc(1); }
    """
    path = compile_c(source, tmp_path / "mixed.so")
    with opened(path) as fd:
        found = elf_functions(fd, ["variable", "chosen", "malloc", "defined", "defined"])
    assert [name for name, *_ in found] == ["defined"]


def test_data_by_symbol_section_and_address(tmp_path: Path) -> None:
    source = """
        __attribute__((section(".kept"))) const char words[16] = "some bytes here";
        int zeros[4096];
        long number = 0x1122334455667788;
        extern int elsewhere;
        int function(void) { return elsewhere; }
    """
    path = compile_c(source, tmp_path / "data.so")
    listing = subprocess.run(["nm", "-S", "-D", path], capture_output=True, text=True).stdout
    truth = re.findall(r"^(\w+) (\w+) \w (words|zeros|number|function)$", listing, re.MULTILINE)
    with opened(path) as fd:
        found = elf_symbols(fd, ["words", "zeros", "number", "function", "elsewhere", "none"])
        assert found == sorted((name, int(at, 16), int(size, 16)) for at, size, name in truth)
        assert elf_symbols(fd, ["words", "none", "function"], exported=True) == [
            entry for entry in found if entry[0] in ("words", "function")
        ]
        at = {name: address for name, address, _ in found}
        assert elf_section(fd, ".kept") == (at["words"], 16)
        assert elf_section(fd, ".bss") is None  # it has no bytes
        assert elf_section(fd, ".none") is None
        assert elf_read(fd, at["words"] + 5, 11) == b"bytes here\0"
        assert elf_read(fd, at["number"], 8) == bytes.fromhex("8877665544332211")
        [(start, _, size)] = elf_inspect(fd).data
        assert start <= at["number"] < start + size <= at["zeros"] + 4 * 4096
        assert len(elf_read(fd, start, 1 << 40)) == size
        assert elf_read(fd, at["zeros"] + 4 * 4096 + (1 << 20), 8) == b""


def test_each_export_is_found_by_its_hash() -> None:
    """Those of a large library; what it only imports is none of them."""
    path = next(Path("/lib").glob("*-linux-gnu/libc.so.6"))
    listing = subprocess.run(["nm", "-D", path], capture_output=True, text=True).stdout
    defined = set(re.findall(r"^\w+ [TWBDRV] (\w+)@@", listing, re.MULTILINE))
    imported = set(re.findall(r"^ +U (\w+)", listing, re.MULTILINE))
    with opened(path) as fd:
        truth = elf_symbols(fd, sorted(defined))
        found = elf_symbols(fd, sorted(defined | imported), exported=True)
    assert {name for name, *_ in found} == {name for name, *_ in truth}
    assert set(found) <= set(truth)  # a name may have several versions
    assert len(found) > 1000


def test_the_loader_of_a_program() -> None:
    shown = subprocess.run(["readelf", "-lW", "/bin/cat"], capture_output=True, text=True).stdout
    with opened(Path("/bin/cat")) as fd:
        assert elf_inspect(fd).interpreter == re.search(r"interpreter: (\S+)\]", shown)[1]  # type: ignore[index]


def test_every_version_of_a_symbol_is_found(tmp_path: Path) -> None:
    source = """
        int old_one(void) { return 1; }
        int new_one(void) { return 2; }
        asm(".symver old_one, call@V1"); asm(".symver new_one, call@@V2");
    """
    script = tmp_path / "versions"
    script.write_text("V1 { global: call; local: *; }; V2 { global: call; } V1;")
    path = compile_c(source, tmp_path / "versions.so", f"-Wl,--version-script={script}", "-s")
    with opened(path) as fd:
        found = elf_functions(fd, ["call"])
    assert len({address for _, address, *_ in found}) == 2


def test_a_large_library_is_read_in_five_milliseconds(tmp_path: Path) -> None:
    source = "".join(f"int cuFunction{i}(void) {{ return {i}; }}\n" for i in range(700))
    source += "const char filler[30 << 20] = {1};\n"
    path = compile_c(source, tmp_path / "large.so", "-s")
    names = [f"cuFunction{i}" for i in range(0, 700, 10)]
    times = []
    with opened(path) as fd:
        for _ in range(10):
            start = time.perf_counter()
            found = elf_functions(fd, names)
            times.append(time.perf_counter() - start)
    assert len(found) == 70
    assert min(times) < 0.005


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elf") / "symbols.so"
    source = """
        namespace store { struct Shelf { int put(long, const char *); }; }
        __attribute__((noinline)) int store::Shelf::put(long a, const char *) { return a; }
        static __attribute__((noinline, used)) int hidden(int a) { return a + 1; }
        extern "C" int open_c(int a) { return hidden(a); }
    """
    command = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def test_symbol_table_agrees_with_nm(symbols: Path) -> None:
    listing = subprocess.run(["nm", "-S", symbols], capture_output=True, text=True).stdout
    functions = re.findall(r"^(\w+) (\w+) [tT] (\S+)$", listing, re.MULTILINE)
    assert len(functions) >= 3
    with opened(symbols) as fd:
        table = SymbolTable(fd)
    for start, size, name in functions:
        address, last = int(start, 16), int(size, 16) - 1
        assert table.lookup_address(address) == (demangle(name), 0)
        assert table.lookup_address(address + last) == (demangle(name), last)


def test_symbol_table_by_file_offset_and_demangled(symbols: Path) -> None:
    with opened(symbols) as fd:
        [(_, _, offset, _)] = elf_functions(fd, ["_ZN5store5Shelf3putElPKc"])
        table = SymbolTable(fd)
    assert table.lookup(offset + 1) == ("store::Shelf::put(long, char const*)", 1)
    assert table.lookup(1 << 40) is None
    assert table.lookup_address(0) is None
    assert table.complete


def test_nested_symbols_and_gaps(tmp_path: Path) -> None:
    source = function("outer", "nop; nop; nop; nop; nop; nop; nop; nop")
    source += (
        'asm(".globl inner; .type inner, @function; .set inner, outer + 2; .size inner, 2");\n'
    )
    source += function("after", "ret")
    with opened(compile_c(source, tmp_path / "nested.so")) as fd:
        table = SymbolTable(fd)
        [(_, outer, _, size)] = elf_functions(fd, ["outer"])
    assert size == 8
    names = [table.lookup_address(outer + at) for at in range(9)]
    assert names == [
        ("outer", 0),
        ("outer", 1),
        ("inner", 0),
        ("inner", 1),
        *[("outer", at) for at in range(4, 8)],
        None,
    ]


def test_a_name_that_is_no_c_plus_plus_stays() -> None:
    assert demangle("_Zzzz") == "_Zzzz"
    assert demangle("_Z1fv") == "f()"
    assert demangle("_Z" + "1" * 5000) == "_Z" + "1" * 5000


@pytest.mark.parametrize(
    ("content", "clause"),
    [
        (b"", "not an ELF file"),
        (b"hello, world", "not an ELF file"),
        (b"\x7fELF", "cut short"),
        (b"\x7fELF\x01" + bytes(60), "32-bit"),
        (b"\x7fELF\x02\x02" + bytes(60), "little-endian"),
        (b"\x7fELF\x02\x01" + bytes(60), "neither a shared library nor a program"),
    ],
)
def test_files_of_no_use_say_why(tmp_path: Path, content: bytes, clause: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with opened(path) as fd, pytest.raises(ValueError, match=clause):
        elf_inspect(fd)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as fd, pytest.raises(ValueError, match="not a regular file"):
        elf_inspect(fd)


def read_everything(path: Path) -> None:
    """Whatever is in the file: an answer or ValueError, and answers lie in the file."""
    size = path.stat().st_size
    with opened(path) as fd:
        try:
            info = elf_inspect(fd)
            found = elf_functions(fd, list(ENTRIES))
            elf_symbols(fd, list(ENTRIES))
            elf_symbols(fd, list(ENTRIES), exported=True)
            elf_section(fd, ".none")
            assert len(info.interpreter) <= size
            for address, _, length in info.data:
                assert len(elf_read(fd, address, length)) <= size
            table = SymbolTable(fd)
        except ValueError:
            return
        for _, address, offset, length in found:
            assert offset < size
            assert probe_site(fd, offset, length)[0] < size
            table.lookup(offset)
            table.lookup_address(address)
        assert len(table) <= size


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=40))
@example(flips=[])
def test_flipped_bytes_never_crash(
    shapes: Path, tmp_path: Path, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(shapes.read_bytes())
    for at, mask in flips:
        content[at % len(content)] ^= mask
    path = tmp_path / "flipped.so"
    path.write_bytes(content)
    read_everything(path)


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_wrong_headers_never_crash(shapes: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Flips that hit where it hurts: the file's header, program headers, section headers."""
    content = bytearray(shapes.read_bytes())
    sections = int.from_bytes(content[40:48], "little")
    for _ in range(data.draw(st.integers(1, 6))):
        start, end = data.draw(
            st.sampled_from([(16, 64), (64, 64 + 56 * 9), (sections, len(content))])
        )
        at = data.draw(st.integers(start, max(start, end - 8)))
        value = data.draw(
            st.sampled_from([0, 1, 0xFFFF, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, len(content)])
        )
        content[at : at + 8] = value.to_bytes(8, "little")
    path = tmp_path / "headers.so"
    path.write_bytes(content)
    read_everything(path)


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0, 1))
def test_cut_files_never_crash(shapes: Path, tmp_path: Path, share: float) -> None:
    content = shapes.read_bytes()
    path = tmp_path / "cut.so"
    path.write_bytes(content[: int(len(content) * share)])
    read_everything(path)


def test_a_file_that_shrinks_while_it_is_read(shapes: Path, tmp_path: Path) -> None:
    path = tmp_path / "shrinks.so"
    path.write_bytes(shapes.read_bytes())
    with opened(path) as fd:
        table = SymbolTable(fd)
        os.truncate(path, 100)
        assert table.lookup(0x1000) is None
        assert len(table) == 0


def test_a_huge_hole_takes_no_memory(shapes: Path, tmp_path: Path) -> None:
    """Section sizes may claim what a sparse file pretends to have."""
    path = tmp_path / "hole.so"
    content = bytearray(shapes.read_bytes())
    sections = int.from_bytes(content[40:48], "little")
    for number in range(int.from_bytes(content[60:62], "little")):
        at = sections + number * 64 + 32
        content[at : at + 8] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(content)
    os.truncate(path, 1 << 40)
    start = time.perf_counter()
    with opened(path) as fd:
        names = [name for name, *_ in elf_functions(fd, ["short_jump"])]
    assert names == ["short_jump"]
    assert time.perf_counter() - start < 30
