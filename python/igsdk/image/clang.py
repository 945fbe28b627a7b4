# SPDX-License-Identifier: Apache-2.0
"""Compiles C to BPF objects: clang, then llvm-strip, whole or not at all.

Needs nothing but the standard library, so that setup.py may load this file alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CLANGS = ("clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang")
#: Go's name of an architecture, which images carry -> what bpf_tracing.h calls it
ARCHITECTURES = {"amd64": "x86", "arm64": "arm64"}


@dataclass(frozen=True)
class Compiled:
    """What came out: the object, or nothing and what the compiler said."""

    data: bytes
    messages: str


def find_clang() -> str | None:
    """Returns the clang to use: IGSDK_CLANG, else the newest one in PATH."""
    wanted = os.environ.get("IGSDK_CLANG")
    if wanted:
        return shutil.which(wanted)
    return next(filter(None, map(shutil.which, CLANGS)), None)


def find_strip(clang: str) -> str | None:
    """Returns the llvm-strip that came with that clang, else any."""
    suffix = Path(clang).name.removeprefix("clang")
    beside = Path(clang).resolve().parent / "llvm-strip"
    others = (f"llvm-strip-{n}" for n in range(14, 23))
    names = (f"llvm-strip{suffix}", str(beside), "llvm-strip", *others)
    return next(filter(None, map(shutil.which, names)), None)


def compile_object(
    clang: str,
    strip: str | None,
    source: Path,
    architecture: str,
    includes: Iterable[Path] = (),
    warnings: Iterable[str] = ("-Wall",),
    root: Path | None = None,
    cpu: str = "v3",
) -> Compiled:
    """Compiles one file for one architecture; DWARF goes, BTF stays.

    `cpu` is the set of BPF instructions, "" = what the compiler takes by itself.

    The object does not depend on where source and headers are: paths in it begin at
    `root`, by default the source's folder, or at the name of the folder of headers.
    """
    root = root or source.parent
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "program.o"
        command = [*_command(clang, root, architecture, includes), *warnings]
        command += [f"-mcpu={cpu}"] if cpu else []
        command += ["-c", str(source.relative_to(root)), "-o", str(output)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace")
        if done.returncode:
            return Compiled(b"", done.stderr or f"clang ended with {done.returncode}")
        if strip:
            bared = subprocess.run([strip, "-g", str(output)], capture_output=True, text=True)
            if bared.returncode:
                return Compiled(b"", f"{strip}: {bared.stderr or bared.returncode}")
        return Compiled(output.read_bytes(), done.stderr)


def _command(clang: str, root: Path, architecture: str, includes: Iterable[Path]) -> list[str]:
    command = [clang, "-target", "bpf", "-O2", "-g"]
    command += [
        f"-D__TARGET_ARCH_{ARCHITECTURES[architecture]}",
        f"-ffile-prefix-map={root}=.",
    ]
    for folder in includes:
        # Headers that differ by architecture lie in folders of its name.
        for place in (folder / architecture, folder):
            if place.is_dir():
                command += ["-I", str(place)]
        command.append(f"-ffile-prefix-map={folder}={folder.name}")
    # Where Debian keeps asm/types.h, which only compilers for this machine look for.
    return [*command, "-idirafter", f"/usr/include/{os.uname().machine}-linux-gnu"]
