# SPDX-License-Identifier: Apache-2.0
"""What one machine takes from an image, and whether its runtime can run it. No root needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import images, tiny

from igsdk import GadgetInvalid, ImageUnreadable
from igsdk.image import layout, oci, places
from igsdk.image.machine import identity, program_for
from igsdk.profile.metadata import Metadata, merged
from igsdk.runtime.program import Program, architecture, check, own_object


def test_each_architecture_has_its_own() -> None:
    image = images.pack({"amd64": b"one", "arm64": b"two"})
    assert program_for(image, "amd64") == b"one"
    assert program_for(image, "arm64") == b"two"
    with pytest.raises(ImageUnreadable, match="no program for s390x, only for amd64, arm64"):
        program_for(image, "s390x")


def test_an_index_that_names_no_architecture() -> None:
    image = images.pack({"amd64": b"one"})
    listed = json.loads(image.blob(image.image()))
    del listed["manifests"][0]["platform"]
    image.name(image.add(oci.INDEX, oci.encode(listed)), images.NAME)
    with pytest.raises(ImageUnreadable, match="no program for amd64, only for unknown"):
        program_for(image, "amd64")


def test_a_gadget_without_a_bpf_program() -> None:
    with pytest.raises(GadgetInvalid, match="has no BPF program for amd64"):
        program_for(images.pack({"amd64": b""}), "amd64")


def test_a_part_that_is_missing_or_has_other_bytes() -> None:
    image = images.pack({"amd64": b"one"})
    digest = oci.digest_of(b"one")
    image.blobs[digest] = b"two"
    with pytest.raises(ImageUnreadable, match=f"other bytes than those of {digest}"):
        program_for(image, "amd64")
    del image.blobs[digest]
    with pytest.raises(ImageUnreadable, match=f"lacks {digest}"):
        program_for(image, "amd64")


def test_how_an_image_is_called(tmp_path: Path) -> None:
    image = images.pack({"amd64": b"one"})
    digest = image.image()["digest"]
    assert identity(image) == f"{images.NAME}@{digest}"
    image.name(image.image(), f"{images.NAME}@{digest}")  # as one that was asked for by digest
    image.entries = [each for each in image.entries if "@" in layout.entry_name(each)]
    assert identity(image) == f"{images.NAME}@{digest}"
    for entry in image.entries:
        del entry["annotations"]
    path = images.write(image, tmp_path / "nameless.tar")
    assert identity(layout.read(path)) == f"{path}@{digest}"


def test_files_and_names_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for local in ("a.tar", "./a", "/nowhere", "there"):
        assert places.is_local(local), local
    for name in ("trace_open", "trace_open:latest", "localhost:5000/a/b:v1", "a/b@sha256:0"):
        assert not places.is_local(name), name


def test_programs_that_can_t_be_run() -> None:
    """Told by the object alone, before the kernel sees it."""
    assert check(Program(own_object("local"), "own")) == []
    with pytest.raises(GadgetInvalid, match="tiny has no local runtime"):
        check(Program(tiny.compiled(), "tiny"))
    mappings = own_object("mappings")
    with pytest.raises(GadgetInvalid, match="has no local runtime"):
        check(Program(mappings, "mappings"))
    for cut in (0, 1, 64, 1000, len(mappings) // 2):
        with pytest.raises(GadgetInvalid, match="is no BPF object"):
            check(Program(own_object("local")[:cut], "cut"))


def test_the_gadget_keeps_the_contract_on_every_architecture() -> None:
    """Types are the same on both, so the one of the other machine tells as well."""
    for name in ("amd64", "arm64"):
        extra = check(Program(images.own_program(name), name))
        assert {"heap_rows", "process_rows", "loss_rows", "cuda_events", "handlers"} <= set(extra)
    assert architecture() in ("amd64", "arm64")


def test_profiles_that_are_added_up_name_all_their_programs() -> None:
    parts = [Metadata(gadget="a@1"), Metadata(gadget="a@1"), Metadata(gadget="b@2"), Metadata()]
    assert merged(parts).gadget == "a@1 + b@2"
    assert Metadata.from_json(parts[0].to_json()).gadget == "a@1"
    assert "gadget" not in parts[3].to_json()
