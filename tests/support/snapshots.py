# SPDX-License-Identifier: Apache-2.0
"""Programs that copy their own registers and stack as a probe would: tests/unwind."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from igsdk._native import Spaces, SymbolTable

SOURCES = Path(__file__).parents[1] / "unwind"
_REGISTERS = 33 * 8
#: DWARF's number of the stack pointer
STACK_POINTER = 7 if os.uname().machine == "x86_64" else 31
PC = 16 if os.uname().machine == "x86_64" else 32

Frame = tuple[int, str, int, int, bool]  # pc, path, offset in the file, slot, guessed


@dataclass
class Snapshot:
    """What a probe at the entry of snapshot() would have copied, in DWARF's order."""

    process: subprocess.Popen[bytes]
    registers: bytes
    stack: bytes

    @property
    def pid(self) -> int:
        return self.process.pid

    def register(self, number: int) -> int:
        return int(struct.unpack_from("<Q", self.registers, 8 * number)[0])

    def with_registers(self, **values: int) -> bytes:
        """The registers with others at `pc`, `sp`."""
        words = list(struct.unpack("<33Q", self.registers))
        for name, value in values.items():
            words[{"pc": PC, "sp": STACK_POINTER}[name]] = value
        return struct.pack("<33Q", *words)

    def unwind(self, spaces: Spaces | None = None) -> tuple[list[Frame], str]:
        return (spaces or Spaces()).unwind(self.pid, self.registers, self.stack)

    def go_on(self) -> None:
        """Lets the program return from snapshot()."""
        assert self.process.stdin is not None
        self.process.stdin.close()


def build(out: Path, sources: Sequence[str], *options: str) -> Path:
    """Compiles programs of tests/unwind, in C or C++ by the sources' names."""
    compiler = "c++" if any(source.endswith(".cpp") for source in sources) else "cc"
    objects = []
    for source in sources:
        made = out.with_suffix(f".{source}.o")
        how = ["cc"] if source.endswith(".c") else ["c++"]
        compile_only = [o for o in options if not o.startswith("-Wl,")]
        subprocess.run(
            [*how, "-O2", *compile_only, "-c", SOURCES / source, "-o", made],
            check=True,
            capture_output=True,
        )
        objects.append(made)
    subprocess.run(
        [compiler, *options, "-o", out, *objects, "-pthread"], check=True, capture_output=True
    )
    return out


@contextmanager
def snapshot(program: Path, *arguments: str | Path) -> Iterator[Snapshot]:
    """Runs the program up to its snapshot; it ends with the context."""
    with subprocess.Popen(
        [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            registers = process.stdout.read(_REGISTERS)
            (size,) = struct.unpack("<Q", process.stdout.read(8))
            yield Snapshot(process, registers, process.stdout.read(size))
        finally:
            process.kill()


def functions(frames: Sequence[Frame], symbols: Path | None = None) -> list[str]:
    """The functions' names, "?" where there is none; all looked up in `symbols` if given."""
    tables: dict[str, SymbolTable] = {}
    names = []
    for _, path, offset, _, _ in frames:
        source = str(symbols) if symbols else path
        if source not in tables and source.startswith("/"):
            with Path(source).open("rb") as file:
                tables[source] = SymbolTable(file.fileno())
        found = tables[source].lookup(offset) if source in tables else None
        names.append(found[0].split("(")[0].split("::")[-1].split(".")[0] if found else "?")
    return names
