# SPDX-License-Identifier: Apache-2.0
"""Small programs with debug information, and the ways in which distributions strip it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from igsdk._native import SymbolTable, elf_inspect

Frame = tuple[str, str | None, int]

#: calls that the compiler puts into `work`, one within the other; the marks are lines
C_SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
static inline __attribute__((always_inline)) int leaf(int a)
{
    return printf("%d", a); /* LEAF */
}
static inline __attribute__((always_inline)) int middle(int a)
{
    return leaf(a + 1) * 3; /* MIDDLE */
}
__attribute__((noinline)) int work(int a)
{
    int sum = middle(a); /* WORK */
    if (__builtin_expect(sum == 12345, 0))
        abort();
    return sum + 1;
}
static __attribute__((noinline)) int hidden(int a)
{
    return work(a) + 2; /* HIDDEN */
}
int main(int argc, char **argv)
{
    return hidden(argc) + (argv[0] == NULL);
}
"""

CXX_SOURCE = """\
#include <cstdio>
#include <vector>
namespace shop {
template <typename T> struct Shelf {
    std::vector<T> things;
    template <typename F> __attribute__((noinline)) int each(F visit)
    {
        int sum = 0;
        for (const T &thing : things)
            sum += visit(thing); // EACH
        return sum;
    }
};
namespace {
__attribute__((noinline)) int price(int a)
{
    return std::printf("%d", a); // PRICE
}
} // namespace
} // namespace shop
int main(int argc, char **)
{
    shop::Shelf<int> shelf{{argc, 2, 3}};
    return shelf.each([&](int a) __attribute__((noinline)) { return shop::price(a + argc); });
}
"""


def line_of(mark: str, source: str = C_SOURCE) -> int:
    """The line of a comment, from 1 on."""
    lines = source.splitlines()
    return next(number for number, line in enumerate(lines, 1) if mark in line)


def build(folder: Path, *options: str, source: str = C_SOURCE, name: str = "program") -> Path:
    """Compiles and links a program with -O2 -g in that folder."""
    cxx = "std::" in source
    text = folder / ("source.cc" if cxx else "source.c")
    text.write_text(source)
    command = ["c++" if cxx else "cc", "-O2", "-g", text.name, "-o", name, *options]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder / name


def objcopy(*arguments: str | Path) -> None:
    """Runs objcopy."""
    subprocess.run(["objcopy", *arguments], check=True, capture_output=True)


def split(program: Path, debug: Path, *options: str) -> None:
    """Moves the debug information of a program into a file of its own, all symbols too."""
    debug.parent.mkdir(parents=True, exist_ok=True)
    objcopy("--only-keep-debug", *options, program, debug)
    objcopy("--strip-all", program)


def add_link(program: Path, debug: Path) -> None:
    """Lets the program name its debug file, with its checksum."""
    objcopy(f"--add-gnu-debuglink={debug}", program)


def pack_symbols(program: Path) -> None:
    """Strips a program as AlmaLinux does: function symbols stay, packed with xz."""
    mini = program.with_name("mini")
    objcopy("--strip-debug", program, mini)
    objcopy("-S", "--remove-section=.comment", "--keep-symbol=hidden", program, mini)
    subprocess.run(["xz", "-f", mini], check=True)
    objcopy("--strip-all", program)
    objcopy(f"--add-section=.gnu_debugdata={mini}.xz", program)


@dataclass
class Opened:
    """A symbol table of a file, asked by address."""

    path: Path
    root: str = ""

    def __post_init__(self) -> None:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            self.table = SymbolTable(fd, str(self.path), self.root)
            self._code = elf_inspect(fd).code
        finally:
            os.close(fd)

    @property
    def code(self) -> tuple[int, int, int]:
        """Address, file offset and size of the largest segment of code."""
        return max(self._code, key=lambda code: code[2])

    def frames(self, address: int) -> list[Frame]:
        """The frames of an address, files by their base name."""
        start, offset, _ = self.code
        found = self.table.frames(address - start + offset)
        return [(name, file and Path(file).name, line) for name, file, line in found]


def addresses(program: Path) -> dict[str, tuple[int, int]]:
    """Address and size of each function, as nm tells them."""
    listing = subprocess.run(["nm", "-S", program], capture_output=True, text=True).stdout
    found = re.findall(r"^(\w+) (\w+) [tTW] (\S+)$", listing, re.MULTILINE)
    return {name: (int(start, 16), int(size, 16)) for start, size, name in found}


def call_in(program: Path, function: str, callee: str) -> int:
    """The address of the first call of `callee` within a function, or jump to it."""
    command = ["objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", str(program)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^\s*(\w+):\s+(?:call|jmp)\s.*<[^>]*{callee}", listing, re.MULTILINE)
    assert found, listing
    return int(found[1], 16)


def addr2line(path: Path, places: list[int]) -> dict[int, list[Frame]]:
    """What binutils says of each address: functions as they stand in DWARF, base names."""
    command = ["addr2line", "-f", "-i", "-a", "-e", str(path)]
    lines = "\n".join(hex(place) for place in places) + "\n"
    answer = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    found: dict[int, list[Frame]] = {}
    rows = iter(answer.stdout.splitlines())
    for row in rows:
        if row.startswith("0x"):
            current = found.setdefault(int(row, 16), [])
            continue
        file, _, number = next(rows).partition(" (")[0].rpartition(":")
        name = None if file == "??" else Path(file).name
        current.append((row, name, int(number) if number.isdigit() else 0))
    return found


def has(tool: str) -> bool:
    return shutil.which(tool) is not None


def copy_of(program: Path, folder: Path) -> Path:
    """A copy to strip, with its source beside it."""
    shutil.copy(program.with_name("source.c"), folder)
    return Path(shutil.copy(program, folder / program.name))


#: the frames of the call of printf in `work`
WORK = [
    ("leaf", "source.c", line_of("LEAF")),
    ("middle", "source.c", line_of("MIDDLE")),
    ("work", "source.c", line_of("WORK")),
]
