# SPDX-License-Identifier: Apache-2.0
"""Names of native frames: inlined calls with their lines, symbols, and what they cost."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
from tests.support.debug_programs import (
    CXX_SOURCE,
    WORK,
    Opened,
    addr2line,
    addresses,
    build,
    call_in,
    copy_of,
    has,
    line_of,
    objcopy,
)
from tests.support.elves import compile_c, function

from igsdk._native import SymbolTable

SHAPES = {
    "pie": ["-pie"],
    "no pie": ["-no-pie"],
    "static": ["-static"],
    "static pie": ["-static-pie"],
    "dwarf 4": ["-gdwarf-4"],
    "dwarf 5": ["-gdwarf-5"],
    "compressed": ["-gz=zlib"],
    "link time": ["-flto"],
    "split": ["-gsplit-dwarf"],
}
# Functions are in another file, which is not read.
LINES_ONLY = {"split"}


@pytest.mark.parametrize("shape", SHAPES)
def test_inlined_calls_with_their_lines(tmp_path: Path, shape: str) -> None:
    program = build(tmp_path, *SHAPES[shape])
    place = call_in(program, "work", "printf")
    frames = Opened(program).frames(place)
    assert frames == ([("work", *WORK[0][1:])] if shape in LINES_ONLY else WORK)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("program"), "-Wl,--build-id")


def test_a_caller_has_the_line_of_its_call(program: Path) -> None:
    opened = Opened(program)
    place = call_in(program, "hidden", "work")
    assert opened.frames(place) == [("hidden", "source.c", line_of("HIDDEN"))]
    assert opened.table.debug == "own"
    start, offset, _ = opened.code
    assert opened.table.frames(place - start + offset)[0][1] == str(program.with_name("source.c"))


@pytest.mark.skipif(not has("addr2line"), reason="addr2line is not installed")
def test_every_instruction_agrees_with_addr2line(program: Path) -> None:
    opened = Opened(program)
    names = addresses(program)
    for name in ("work", "hidden", "main"):
        start, size = names[name]
        told = addr2line(program, list(range(start, start + size)))
        for place, frames in told.items():
            assert opened.frames(place) == frames, hex(place)


def test_cold_parts_keep_their_name(tmp_path: Path) -> None:
    program = build(tmp_path, source="#include <stdlib.h>\n" + COLD)
    start, _ = addresses(program)["hot.cold"]
    assert Opened(program).frames(start)[-1][0] == "hot.cold"


COLD = """
__attribute__((cold, noinline)) void rare(int a) { abort(); }
__attribute__((noinline)) int hot(int a) { if (a > 99) { rare(a); exit(a); } return a + 1; }
int main(int argc, char **argv) { return hot(argc); }
"""


def test_templates_and_lambdas(tmp_path: Path) -> None:
    program = build(tmp_path, source=CXX_SOURCE)
    mangled = next(name for name in addresses(program) if "each" in name)
    [frame] = Opened(program).frames(call_in(program, mangled, "_ZZ4main"))
    assert frame[0].startswith("int shop::Shelf<int>::each<main::{lambda(int)#1}>(")
    assert frame[1:] == ("source.cc", line_of("EACH", CXX_SOURCE))
    price = next(name for name in addresses(program) if "price" in name)
    frames = Opened(program).frames(call_in(program, price, "printf"))
    assert ("shop::(anonymous namespace)::price(int)", "source.cc") in [f[:2] for f in frames]


def test_without_debug_information_there_is_the_symbol(program: Path, tmp_path: Path) -> None:
    copy = copy_of(program, tmp_path)
    place = call_in(copy, "work", "printf")
    objcopy("--strip-debug", copy)
    opened = Opened(copy)
    assert opened.frames(place) == [("work", None, 0)]
    assert opened.table.debug == "none"
    assert opened.table.frames(1 << 40) == []


def test_stubs_of_other_libraries(tmp_path: Path) -> None:
    source = "#include <stdlib.h>\nvoid *take(size_t n) { return malloc(n + (long)getenv(0)); }"
    for name, options in {
        "lazy": [],
        "now": ["-Wl,-z,now", "-fcf-protection"],
        "no": ["-fno-plt"],
    }.items():
        library = compile_c(source, tmp_path / f"{name}.so", "-O2", *options)
        listing = subprocess.run(
            ["objdump", "-d", library], capture_output=True, text=True, check=True
        ).stdout
        # `take` ends with a jump to malloc
        stubs = dict(re.findall(r"^(\w{8,}) <(\w+)@plt>:$", listing, re.MULTILINE))
        opened = Opened(library)
        for address, function_ in stubs.items():
            assert opened.frames(int(address, 16)) == [(f"{function_}@plt", None, 0)]
        assert bool(stubs) or name == "no"


def test_the_vdso() -> None:
    maps = Path("/proc/self/maps").read_text()
    found = re.search(r"^(\w+)-(\w+) .*\[vdso\]$", maps, re.MULTILINE)
    if not found:
        pytest.skip("this process has no vdso")
    start, end = int(found[1], 16), int(found[2], 16)
    with Path("/proc/self/mem").open("rb") as memory:
        memory.seek(start)
        content = memory.read(end - start)
    fd = os.memfd_create("vdso")
    os.write(fd, content)
    table = SymbolTable(fd)
    os.close(fd)
    names = {found[0] for found in map(table.lookup, range(0, end - start, 16)) if found}
    assert "__vdso_clock_gettime" in names


def test_aliases_versions_and_functions_without_a_type_or_size(tmp_path: Path) -> None:
    source = """
        static int __attribute__((used)) __local_one(int a) { return a + 1; }
        int __rough(int a) { return a + 2; }
        extern __typeof(__rough) known __attribute__((alias("__rough")));
        extern __typeof(__rough) ___roughest __attribute__((weak, alias("__rough")));
        int versioned_(int a) { return a + 3; }
        asm(".symver versioned_, versioned@@V1");
        static void *choose(void) { return known; }
        int chosen(int) __attribute__((ifunc("choose")));
        asm(".globl plain\\nplain: nop\\nnop\\n.size plain, 2");
        asm(".globl unsized\\n.type unsized, @function\\nunsized: nop\\nnop");
    """
    script = tmp_path / "versions"
    script.write_text("V1 { global: *; };")
    library = compile_c(source, tmp_path / "names.so", f"-Wl,--version-script={script}")
    opened = Opened(library)
    names = {found[0] for found in map(opened.table.lookup_address, range(0x1000, 0x1200)) if found}
    assert {"known", "versioned", "plain", "unsized", "choose", "__local_one"} <= names
    assert not {"__rough", "___roughest", "versioned@@V1", "versioned_"} & names


def test_a_function_without_a_size_ends_with_its_section(tmp_path: Path) -> None:
    library = compile_c(function("real", "nop; ret"), tmp_path / "init.so")
    opened = Opened(library)
    listing = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True).stdout
    sections = re.findall(r"\] (\.\S+)\s+PROGBITS\s+(\w+) \w+ (\w+) .* AX ", listing)
    places = {name: (int(start, 16), int(size, 16)) for name, start, size in sections}
    start, size = places[".init"]
    assert opened.table.lookup_address(start) == ("_init", 0)
    beyond = opened.table.lookup_address(places[".text"][0] + places[".text"][1] - 1)
    assert opened.table.lookup_address(start + size - 1) == ("_init", size - 1)
    assert beyond is None or beyond[0] != "_init"


def test_what_is_forgotten_is_read_again(program: Path) -> None:
    opened = Opened(program)
    place = call_in(program, "work", "printf")
    assert opened.frames(place) == WORK
    assert opened.table.memory > 1000
    assert opened.table.forget()
    assert opened.table.memory == 0
    assert opened.frames(place) == WORK


LIBPYTHON = Path(sysconfig.get_config_var("LIBDIR") or "/", sysconfig.get_config_var("LDLIBRARY"))


def libpython() -> Path:
    """One with debug information, or the test is skipped."""
    if LIBPYTHON.suffix != ".so" or not LIBPYTHON.exists():
        pytest.skip(f"this Python has no shared library: {LIBPYTHON}")
    if Opened(LIBPYTHON).table.debug == "none":
        pytest.skip(f"{LIBPYTHON} has no debug information")
    return LIBPYTHON


@pytest.mark.skipif(not has("addr2line"), reason="addr2line is not installed")
def test_libpython_agrees_with_addr2line() -> None:
    path = libpython()
    opened = Opened(path)
    names = addresses(path)
    functions = sorted((start, size) for start, size in names.values() if size)
    pick = random.Random(3)
    places = [start + pick.randrange(size) for start, size in pick.sample(functions, 300)]
    for place, told in addr2line(path, places).items():
        if told[0][1] is None:
            continue  # assembly without debug information
        frames = opened.frames(place)
        # The last one's name is the symbol's: of functions with the same code, any.
        assert [f[0] for f in frames[:-1]] == [t[0] for t in told[:-1]], hex(place)
        assert [f[2] for f in frames] == [t[2] for t in told], hex(place)
        start, size = names[frames[-1][0]]
        assert start <= place < start + size


def test_speed_and_memory_of_libpython() -> None:
    path = libpython()
    opened = Opened(path)
    start, _, size = opened.code
    began = time.perf_counter()
    while not opened.frames(start + size // 2):
        start += 8
    first = time.perf_counter() - began
    assert first < 0.5 * 3  # half a second, on a machine that does other things too
    place = start + size // 2
    times = []
    for _ in range(200):
        began = time.perf_counter()
        opened.table.lookup_address(place)
        times.append(time.perf_counter() - began)
    assert min(times) < 15e-6


def test_all_tables_together_keep_what_they_may() -> None:
    path = libpython()
    tables = [Opened(path) for _ in range(14)]
    for opened in tables:
        start, _, size = opened.code
        for share in range(1, 8):
            opened.frames(start + size * share // 8)
    each = max(opened.table.memory for opened in tables)
    assert each * len(tables) > 192 << 20
    assert sum(opened.table.memory for opened in tables) <= 192 << 20
    assert tables[-1].table.memory > 0
    assert tables[0].table.memory == 0
