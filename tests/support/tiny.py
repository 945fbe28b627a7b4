# SPDX-License-Identifier: Apache-2.0
"""The small gadget of the tests: copied, changed, built once."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from igsdk import GadgetInvalid
from igsdk.image import clang
from igsdk.image.build import build

SOURCE = Path(__file__).parents[1] / "gadgets/tiny"


def copy(folder: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(SOURCE, folder / "tiny"))


def change(folder: Path, file: str, old: str, new: str) -> int:
    """Replaces a text that stands there once; returns its line, counted from 1."""
    path = folder / file
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def complaints(folder: Path, file: str, old: str, new: str) -> tuple[int, str]:
    """Changes one place of a gadget; returns its line and what is said of it."""
    line = change(folder, file, old, new)
    with pytest.raises(GadgetInvalid) as caught:
        build(str(folder))
    return line, caught.value.cause


@functools.cache
def compiled(source: Path = SOURCE / "program.bpf.c") -> bytes:
    """The object for amd64."""
    compiler = clang.find_clang()
    assert compiler, "clang is not installed"
    made = clang.compile_object(compiler, clang.find_strip(compiler), source, "amd64")
    assert made.data, made.messages
    return made.data


def dumped(object_file: Path) -> str:
    """What bpftool reads of an object's types."""
    command = ["bpftool", "btf", "dump", "-j", "file", str(object_file)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
