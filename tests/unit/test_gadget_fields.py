# SPDX-License-Identifier: Apache-2.0
"""Our fields beside those that Inspektor Gadget v0.55.1 made of the same structs.

The table is what its own reader gave for such an object (`facts/inspektor-gadget.md`
G.4): name, slot, offset, size, kind. What it adds has no offset.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import tiny

from igsdk import GadgetInvalid
from igsdk.image import elf, fields, sources
from igsdk.image.build import build

FOLDER = tiny.SOURCE.with_name("stacks")
KEY = [("stack_id_key", 0, 4, "uint32")]
STACK = [
    *(("major", 72, 4), ("minor", 76, 4), ("inode", 80, 8), ("mtime_sec", 88, 8)),
    *(("mtime_nsec", 96, 4), ("base_addr_hash", 100, 4), ("stack_id", 104, 4)),
    *(("tgid_level0", 108, 4), ("pid_level0", 112, 4), ("pidns_level0", 116, 4)),
    *(("pid_level1", 120, 4), ("pidns_level1", 124, 4), ("otel_correlation_id", 128, 8)),
    ("boot_timestamp", 136, 8),
]
VALUE = [
    ("count", 0, 8, "uint64"),
    ("proc", 8, 64, "bytes"),
    ("proc.comm", 8, 16, "text"),
    ("proc.pid", 24, 4, "uint32"),
    ("proc.tid", 28, 4, "uint32"),
    ("proc.mntns_id", 32, 8, "uint64"),
    ("proc.creds", 40, 8, "bytes"),
    ("proc.creds.uid", 40, 4, "uint32"),
    ("proc.creds.gid", 44, 4, "uint32"),
    ("proc.parent", 48, 24, "bytes"),
    ("proc.parent.comm", 48, 16, "text"),
    ("proc.parent.pid", 64, 4, "uint32"),
    ("proc.parent.tid", 68, 4, "uint32"),
    ("ustack_raw", 72, 72, "bytes"),
    *((f"ustack_raw.{name}", at, size, f"uint{8 * size}") for name, at, size in STACK),
    ("host_raw", 144, 1, "uint8"),
    ("pad", 145, 7, "uint8[7]"),
    ("slots", 152, 32, "uint64[4]"),
    ("f", 184, 4, "float32"),
]
ADDED = {
    "host": "string",
    "k8s": "group",
    **dict.fromkeys(
        ("k8s.node", "k8s.namespace", "k8s.podName", "k8s.containerName", "k8s.podLabels"), "string"
    ),
    "k8s.hostnetwork": "bool",
    "k8s.owner": "group",
    "k8s.owner.kind": "string",
    "k8s.owner.name": "string",
    "runtime": "group",
    **{
        f"runtime.{name}": "string"
        for name in (
            *("containerName", "runtimeName", "containerId"),
            *("containerImageName", "containerImageDigest"),
        )
    },
    "runtime.containerPid": "uint32",
    "runtime.containerStartedAt": "int64",
    "proc.creds.user": "string",
    "proc.creds.group": "string",
    **{f"ustack_raw.{name}": "string" for name in ("addresses", "buildid", "symbols")},
}


def program() -> elf.Object:
    return elf.read(tiny.compiled(FOLDER / "program.bpf.c"), "stacks")


def test_members_become_fields() -> None:
    found = sources.declared(program()).sources["allocs"]
    assert found.array
    by_part = {
        part: [
            (one.name, one.offset, one.size, one.kind) for one in found.fields if one.part == part
        ]
        for part in ("key", "value")
    }
    assert by_part == {"key": KEY, "value": VALUE}


def test_operators_add_fields() -> None:
    made = program()
    found = sources.declared(made).sources["allocs"]
    added = [(one.name, one.kind) for one in fields.added(made.btf, found.fields)]
    assert len(added) == len(dict(added))
    assert dict(added) == ADDED


def test_parameters_get_their_usual_names() -> None:
    found = sources.declared(program()).parameters.values()
    assert {one.key: (one.kind, one.default) for one in found} == {
        "ig_build_id_max_entries": ("int32", "1024"),
        "collect-ustack": ("bool", "true"),
        "pid": ("uint32", "0"),
        "comm": ("string", ""),
    }


def test_it_builds() -> None:
    assert build(str(FOLDER)).warnings == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("} ig_build_id IN", "} build_ids IN", "crashes"),
        ("} ig_ustack IN", "} stacks IN", "a map ig_ustack is needed"),
        ("[127 * 32]", "[127 * 20]", "map ig_build_id has to be HASH, 4, 4064"),
        ("ig_build_id_max_entries = 1024", "other = 1024", "no variable ig_build_id_max_entries"),
        ("__u64 inode;", "__u64 node;", "struct gadget_user_stack lacks inode"),
        ("stack_id_key;", "pid;", "meets the key's pid"),
    ],
)
def test_traps_of_stacks(tmp_path: Path, old: str, new: str, words: str) -> None:
    folder = tmp_path / "stacks"
    folder.mkdir()
    for name in ("program.bpf.c", "gadget.yaml"):
        (folder / name).write_text((FOLDER / name).read_text())
    _, cause = tiny.complaints(folder, "program.bpf.c", old, new)
    assert words in cause


def test_a_probe_that_nobody_would_attach(tmp_path: Path) -> None:
    """Probes of user space are attached by container, and only if one is asked for."""
    folder = tmp_path / "stacks"
    folder.mkdir()
    for name in ("program.bpf.c", "gadget.yaml"):
        (folder / name).write_text((FOLDER / name).read_text())
    tiny.change(folder, "program.bpf.c", "} gadget_mntns_filter_map IN", "} some_map IN")
    tiny.change(folder, "program.bpf.c", "    gadget_mntns_id mntns_id;", "    __u64 mntns_id;")
    with pytest.raises(GadgetInvalid, match="on_call is never attached"):
        build(str(folder))
