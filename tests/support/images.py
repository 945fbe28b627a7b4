# SPDX-License-Identifier: Apache-2.0
"""Images with the programs that a test wants in them, and our own gadget's."""

from __future__ import annotations

import functools
import io
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from igsdk.image import clang, layout, oci
from igsdk.image.build import Built, build
from igsdk.image.layout import Layout
from igsdk.image.machine import program_for

ROOT = Path(__file__).parents[2]
NAME = "example.com/team/gadget:v1"


def pack(programs: Mapping[str, bytes], name: str = NAME) -> Layout:
    """The image that has these programs, by architecture; b"" for one without."""
    image = Layout()
    config = image.add(oci.CONFIG, b"name: test\n")
    manifests = []
    for architecture, program in programs.items():
        layers = [image.add(oci.PROGRAM, program)] if program else []
        data = oci.manifest(config, layers, {})
        platform = {"architecture": architecture, "os": "linux"}
        manifests.append(image.add(oci.MANIFEST, data, platform=platform))
    image.name(image.add(oci.INDEX, oci.index(manifests, {})), name)
    return image


def write(image: Layout, path: Path) -> str:
    """Writes a tar file; returns its path as the command line takes it."""
    layout.write(image, str(path), 0)
    return str(path)


@functools.cache
def own_gadget() -> Built:
    """The gadget of this clone, as `igsdk gadget build gadget` makes it."""
    return build(str(ROOT / "gadget"))


def own_program(architecture: str = "amd64") -> bytes:
    """The program in it."""
    return program_for(own_gadget().layout, architecture)


def altered(file: str, old: str, new: str, architecture: str = "amd64") -> bytes:
    """Our gadget's program, compiled from sources in which one text is another one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(ROOT / "bpf", Path(place) / "bpf"))
        text = (folder / file).read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
        (folder / file).write_text(text.replace(old, new))
        compiler = clang.find_clang()
        assert compiler, "clang is not installed"
        strip = clang.find_strip(compiler)
        made = clang.compile_object(compiler, strip, folder / "gadget.bpf.c", architecture)
    assert made.data, made.messages
    return made.data


def without_sense(program: bytes) -> bytes:
    """The same with a first instruction in `call_entry` that no kernel knows."""
    file: Any = ELFFile(io.BytesIO(program))
    (symbol,) = file.get_section_by_name(".symtab").get_symbol_by_name("call_entry")
    section = file.get_section(symbol["st_shndx"])
    at = section["sh_offset"] + symbol["st_value"]
    return program[:at] + b"\xff" * 8 + program[at + 8 :]
