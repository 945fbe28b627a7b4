# SPDX-License-Identifier: Apache-2.0
"""Our reader of BTF beside bpftool's, and on bytes that are none."""

from __future__ import annotations

import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tiny

from igsdk import GadgetInvalid
from igsdk.image import btf, elf
from igsdk.image.btf import Btf, BtfError

OWN = Path(__file__).parents[2] / "python/igsdk/_bpf/local.amd64.bpf.o"
KINDS = {
    "INT": btf.INT,
    "PTR": btf.PTR,
    "ARRAY": btf.ARRAY,
    "STRUCT": btf.STRUCT,
    "UNION": btf.UNION,
    "ENUM": btf.ENUM,
    "FWD": btf.FWD,
    "TYPEDEF": btf.TYPEDEF,
    "VOLATILE": btf.VOLATILE,
    "CONST": btf.CONST,
    "RESTRICT": btf.RESTRICT,
    "FUNC": btf.FUNC,
    "FUNC_PROTO": btf.FUNC_PROTO,
    "VAR": btf.VAR,
    "DATASEC": btf.DATASEC,
    "FLOAT": btf.FLOAT,
    "DECL_TAG": btf.DECL_TAG,
    "TYPE_TAG": btf.TYPE_TAG,
    "ENUM64": btf.ENUM64,
}


def raw(data: bytes) -> bytes:
    """The section `.BTF` of an object."""
    section = ELFFile(io.BytesIO(data)).get_section_by_name(".BTF")
    assert section is not None
    return bytes(section.data())


@pytest.mark.parametrize("which", ["tiny", "own"])
def test_types_equal_bpftools(which: str, tmp_path: Path) -> None:
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is not installed: apt-get install bpftool")
    data = tiny.compiled() if which == "tiny" else OWN.read_bytes()
    file = tmp_path / "program.o"
    file.write_bytes(data)
    theirs = json.loads(tiny.dumped(file))["types"]
    ours = Btf(raw(data))
    assert len(theirs) == len(ours.types) - 1
    assert len(theirs) > 60
    for they, we in zip(theirs, ours.types[1:], strict=True):
        assert summary(we) == expected(they), they


def summary(one: btf.Type) -> dict[str, Any]:
    """What both readers tell of a type."""
    members = [(m.name, m.type, m.offset, m.bits) for m in one.members]
    return {
        "id": one.number,
        "kind": one.kind,
        "name": one.name,
        "size": one.size if one.kind != btf.DATASEC else 0,
        "members": members,
        "values": list(one.values),
        "count": one.count,
        "linkage": one.linkage,
    }


def expected(they: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS[they["kind"]]
    listed = they.get("members", they.get("vars", []))
    members = [
        (
            named(m.get("name", "")),
            m["type_id"],
            m.get("bits_offset", m.get("offset")),
            m.get("bitfield_size", 0),
        )
        for m in listed
    ]
    linkages = {"static": 0, "global": 1, "extern": 2}
    sized = (btf.INT, btf.STRUCT, btf.UNION, btf.ENUM, btf.ENUM64, btf.FLOAT)
    return {
        "id": they["id"],
        "kind": kind,
        "name": named(they["name"]),
        "size": they["size"] if kind in sized else 0,
        "members": members,
        "values": [(v["name"], v["val"]) for v in they.get("values", [])],
        "count": they.get("nr_elems", 0),
        "linkage": linkages.get(they.get("linkage", "static"), 0),
    }


def named(name: str) -> str:
    """bpftool's word for no name."""
    return "" if name == "(anon)" else name


def test_programs_maps_and_license() -> None:
    program = elf.read(tiny.compiled(), "tiny")
    assert [(one.name, one.section) for one in program.programs] == [
        ("on_open", "tracepoint/syscalls/sys_enter_openat")
    ]
    counts = program.maps["counts"]
    assert (counts.type, counts.key_size, counts.value_size) == ("HASH", 8, 16)
    assert program.maps["events"].max_entries == 262144
    assert program.license == "Dual BSD/GPL"


@given(st.binary(max_size=200))
def test_garbage_is_no_btf(data: bytes) -> None:
    with pytest.raises(BtfError):
        Btf(data)


def test_damaged_objects_are_said_to_be_so() -> None:
    """Every outcome is ours: it is read, or refused with cause and remedy."""
    good, dice, refused = tiny.compiled(), random.Random(5), 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(dice.randint(1, 8)):
            bad[dice.randrange(len(bad))] = dice.randrange(256)
        refused += refuses(bytes(bad))
    assert refused


def refuses(data: bytes) -> bool:
    try:
        elf.read(data, "it")
    except GadgetInvalid as error:
        return bool(error.remedy)
    return False


@pytest.mark.parametrize("length", [0, 3, 64, 1000, 3000])
def test_cut_objects_are_refused(length: int) -> None:
    with pytest.raises(GadgetInvalid):
        elf.read(tiny.compiled()[:length], "it")
