# SPDX-License-Identifier: Apache-2.0
"""Small ELF files, built on the spot, whose functions begin as a driver's do."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: name -> the instructions at its entry (x86-64, AT&T), and where a probe belongs:
#: offset from the symbol, how, what is probed there
ENTRIES: dict[str, tuple[str, int, str, str]] = {
    "short_jump": ("cmpl $0x12345678, word(%rip); je 1f; ret; 1: ret", 10, "jump", "jump"),
    "near_jump": (
        "cmpl $0x12345678, word(%rip); .byte 0x0f,0x84; .long 0; ret",
        10,
        "jump",
        "jump",
    ),
    "small_number": ("cmpl $7, word(%rip); jne 1f; nop; 1: ret", 7, "jump", "jump"),
    "behind_endbr": ("endbr64; cmpl $0x12345678, word(%rip); je 1f; 1: ret", 14, "jump", "jump"),
    "no_jump": ("cmpl $0x12345678, word(%rip); ret", 0, "entry", "stepped"),
    "other_register": ("cmpl $0x12345678, 8(%rax); je 1f; 1: ret", 0, "entry", "stepped"),
    "plain_endbr": ("endbr64; push %rbp; pop %rbp; ret", 0, "entry", "stepped"),
    "pushes": ("push %rbp; pop %rbp; ret", 0, "entry", "push"),
    "pushes_high": ("push %r12; pop %r12; ret", 0, "entry", "push"),
    "nops": ("nopl 0(%rax,%rax,1); ret", 0, "entry", "nop"),
    "jumps": (".byte 0xe9; .long 0; ret", 0, "entry", "jump"),
}


def compile_c(source: str, out: Path, *options: str) -> Path:
    """Compiles C (or assembly within it) into a shared library, unless told otherwise."""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(out), *options]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return out


def function(name: str, instructions: str) -> str:
    """Top-level assembly of one exported function."""
    lines = [
        ".text",
        ".p2align 5",
        f".globl {name}",
        f".type {name}, @function",
        f"{name}:",
        *instructions.split("; "),
        f".size {name}, . - {name}",
    ]
    return "".join(f'asm("{line}");\n' for line in lines)


def entry_shapes(out: Path, *options: str) -> Path:
    """A library with one function for each of ENTRIES."""
    word = '__attribute__((visibility("hidden"))) int word = 1;\n'
    functions = (function(name, shape[0]) for name, shape in ENTRIES.items())
    return compile_c(word + "".join(functions), out, *options)


def small_driver(out: Path, *names: str, number: int = 1) -> Path:
    """A library that exports functions of the driver, all with its entry; `number` makes
    its content unlike another one's."""
    names = names or ("cuMemAlloc_v2", "cuMemFree_v2", "cuCtxDestroy_v2")
    word = f'__attribute__((visibility("hidden"))) int word = 1; int number = {number};\n'
    entry = "cmpl $0x12345678, word(%rip); je 1f; xor %eax, %eax; ret; 1: mov $4, %eax; ret"
    return compile_c(word + "".join(function(name, entry) for name in names), out)
