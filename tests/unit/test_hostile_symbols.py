# SPDX-License-Identifier: Apache-2.0
"""Files whose symbols and debug information were made to crash whoever reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.debug_programs import CXX_SOURCE, build, has, pack_symbols

#: arguments: file, first round, rounds
HOSTILE = """
import os, random, struct, sys
from igsdk._native import SymbolTable, elf_inspect

path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = open(path, "rb").read()
headers, = struct.unpack_from("<Q", content, 40)
number, strings = struct.unpack_from("<HH", content, 60)
sections = [struct.unpack_from("<IIQQQQIIQQ", content, headers + 64 * i) for i in range(number)]
def name(section):
    start = sections[strings][4] + section[0]
    return content[start : content.index(b"\\0", start)]
wanted = [s for s in sections if s[5] and s[1] != 8 and (
    name(s).startswith((b".debug_", b".gnu_debug", b".rela", b".plt", b".dyn"))
    or name(s) in (b".symtab", b".strtab"))]
fd = os.open(path, os.O_RDONLY)
start, offset, size = max(elf_inspect(fd).code, key=lambda code: code[2])
WORDS = (0, 1, 0xFFFFFFFF, 0xFFFFFFF0, 0x7FFFFFFF, 1 << 40, (1 << 64) - 1)
for turn in range(seed, seed + rounds):
    pick = random.Random(turn)
    bad = bytearray(content)
    for _ in range(pick.choice((1, 4, 20, 100))):
        section = pick.choice(wanted)
        at = section[4] + pick.randrange(min(section[5], pick.choice((64, 1 << 30))))
        word = struct.pack("<Q", pick.choice((*WORDS, pick.randrange(1 << 32))))
        word = word[: pick.choice((1, 1, 2, 4, 8))]
        bad[at : at + len(word)] = word
    if pick.random() < 0.15:
        at = headers + 64 * pick.randrange(number) + pick.choice((4, 8, 16, 24, 32, 40, 56))
        bad[at : at + 8] = struct.pack("<Q", pick.choice((*WORDS, len(content))))
    if pick.random() < 0.1:
        del bad[pick.randrange(len(bad)) :]
    print(turn, flush=True)
    copy = os.memfd_create("hostile")
    os.write(copy, bad)
    try:
        table = SymbolTable(copy)
    except ValueError:
        continue
    finally:
        length = len(bad)
    for step in range(100):
        table.frames(offset + size * step // 100)
        if step == 50 and turn % 5 == 0:
            os.ftruncate(copy, pick.randrange(length))
            table.forget()
    os.close(copy)
"""


@pytest.mark.parametrize("kind", ["c++", "dwarf 4", "packed", "compressed"])
def test_hostile_files_neither_crash_nor_hang(tmp_path: Path, kind: str) -> None:
    """60 rounds each in a process of its own: debug and symbol sections with wrong bytes,
    section headers that lie, files that end early or shrink while they are read."""
    options = {"dwarf 4": ["-gdwarf-4"], "compressed": ["-gz=zlib"]}.get(kind, [])
    source = {"source": CXX_SOURCE} if kind == "c++" else {}
    program = build(tmp_path, *options, **source)
    if kind == "packed":
        if not has("xz"):
            pytest.skip("xz is not installed")
        pack_symbols(program)
    command = [sys.executable, "-c", HOSTILE, str(program), "1000", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    last = done.stdout.split()[-1:]
    assert done.returncode == 0, f"round {last}: {done.stderr[-2000:]}"
    assert last == ["1059"]
