# SPDX-License-Identifier: Apache-2.0
"""Pieces of the interpreter's function, found in builds of other people."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support import sid

from igsdk._native import elf_functions, elf_section
from igsdk.runtime.pythons.pieces import EVAL, find_pieces


def pieces_of(path: Path) -> list[range]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return find_pieces(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("version", sid.VERSIONS)
def test_builds_with_profile_feedback_have_one(version: str) -> None:
    """Debian's, stripped: most of the function is not under its name."""
    try:
        path = sid.root() / sid.python(version).lstrip("/")
    except sid.Unavailable as error:
        pytest.skip(f"no Debian sid here: {error}")
    (piece,) = pieces_of(path)
    with path.open("rb") as file:
        ((_, _, offset, size),) = elf_functions(file.fileno(), [EVAL])
    assert len(piece) > size
    assert offset not in piece


SOURCE = """
__attribute__((cold, noinline)) int rare(int n) { return n * 7 + 1; }
int other(int n) { return n > 3 ? n * 2 : n; }
int _PyEval_EvalFrameDefault(int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++) {
        sum += other(i + sum) * 3;
#ifdef SPLIT
        if (sum == 1000)
            sum += rare(sum) + rare(i);
        if (sum == 2000)
            sum -= rare(sum + i) * 2;
        if (sum == 3000)
            sum ^= rare(i) + other(sum);
        if (sum == 4000)
            sum |= rare(i + 1) * rare(sum);
#endif
    }
    return sum;
}
"""


def built(folder: Path, *flags: str) -> Path:
    """A stripped library with a function of that name."""
    (folder / "eval.c").write_text(SOURCE)
    path = folder / "libpython3.99.so.1.0"
    words = ["cc", "-O2", "-s", "-shared", "-fPIC", *flags, "-o", str(path), str(folder / "eval.c")]
    subprocess.run(words, check=True)
    return path


def test_a_whole_function_has_none(tmp_path: Path) -> None:
    assert pieces_of(built(tmp_path)) == []


def test_a_file_without_that_function_has_none() -> None:
    assert pieces_of(Path(shutil.which("cat") or "/bin/cat")) == []


@pytest.mark.parametrize("count", [0, 5, 0x7FFFFFFF, -1])
def test_a_table_that_lies_gives_none(count: int, tmp_path: Path) -> None:
    library = built(tmp_path, "-DSPLIT")
    assert len(pieces_of(library)) == 1
    with library.open("r+b") as file:
        section = elf_section(file.fileno(), ".eh_frame_hdr")
        assert section
        file.seek(section[0] + 8)  # its address is its offset in so small a library
        file.write(count.to_bytes(4, "little", signed=True) + b"\xff" * (section[1] - 12))
    assert pieces_of(library) == []
