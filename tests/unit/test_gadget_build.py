# SPDX-License-Identifier: Apache-2.0
"""`igsdk gadget build`: the documents of an image, the same bytes, whole or not there."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from tests.support import tiny

from igsdk import GadgetInvalid, ImageUnreadable, UsageError
from igsdk.cli.app import run
from igsdk.image import clang, inspection, layout, oci
from igsdk.image.build import build


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small gadget's image, in a tar file."""
    path = tmp_path_factory.mktemp("image") / "tiny.tar"
    assert run(["gadget", "build", str(tiny.SOURCE), "-o", str(path)]) == 0
    return path


def test_documents_are_those_that_are_read(image: Path) -> None:
    """Media types, order, platforms and annotations of `facts` B.1, without our own reader."""
    with tarfile.open(image, "r:") as tar:
        names = tar.getnames()
        blobs = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    assert json.loads(blobs["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(blobs["index.json"])["manifests"]
    name = "ghcr.io/inspektor-gadget/gadget/tiny:latest"
    assert top["annotations"]["org.opencontainers.image.ref.name"] == name
    for path, data in blobs.items():
        if path.startswith("blobs/sha256/"):
            assert hashlib.sha256(data).hexdigest() == Path(path).name

    def get(entry: dict[str, str]) -> bytes:
        data = blobs[f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"]
        assert len(data) == int(entry["size"])
        return data

    index = json.loads(get(top))
    assert top["mediaType"] == index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    platforms = [entry["platform"] for entry in index["manifests"]]
    assert platforms == [{"architecture": a, "os": "linux"} for a in ("amd64", "arm64")]
    for entry in index["manifests"]:
        manifest = json.loads(get(entry))
        assert manifest["artifactType"] == "application/vnd.gadget.v1+binary"
        assert manifest["config"]["mediaType"] == "application/vnd.gadget.config.v1+yaml"
        assert get(manifest["config"]) == (tiny.SOURCE / "gadget.yaml").read_bytes()
        (layer,) = manifest["layers"]
        assert layer["mediaType"] == "application/vnd.gadget.ebpf.program.v1+binary"
        assert get(layer).startswith(b"\x7fELF")
        assert b".debug_info" not in get(layer)
        notes = manifest["annotations"]
        assert notes["org.opencontainers.image.title"] == "tiny"
        assert notes["org.opencontainers.image.url"] == "https://example.com/tiny"
        assert notes["example.com/team"] == "tests"
        assert notes == index["annotations"] == entry["annotations"]
        assert notes == manifest["config"]["annotations"]


def test_same_source_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the source lies, and whenever it is built."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    moved = tiny.copy(tmp_path / "else" / "where")
    for folder, name in ((tiny.SOURCE, "one.tar"), (moved, "two.tar")):
        assert run(["gadget", "build", str(folder), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000001")
    assert run(["gadget", "build", str(moved), "-o", str(tmp_path / "three.tar")]) == 0
    assert (tmp_path / "one.tar").read_bytes() != (tmp_path / "three.tar").read_bytes()


def test_folder_and_tar_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for place in ("tiny.tar", "folder/", "folder/"):
        assert run(["gadget", "build", str(tiny.SOURCE), "-o", f"{tmp_path}/{place}"]) == 0
    folder, tar = layout.read(f"{tmp_path}/folder"), layout.read(f"{tmp_path}/tiny.tar")
    assert folder.blobs == tar.blobs
    assert folder.entries == tar.entries
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "tiny.tar"]


WRITES = """
import sys
from igsdk.image import layout
images = [layout.read(path) for path in sys.argv[2:]]
print("ready", flush=True)
while True:
    for image in images:
        layout.write(image, sys.argv[1], 0)
"""


def test_a_folder_is_whole_whenever_its_writer_dies(tmp_path: Path, image: Path) -> None:
    """What is killed in the middle of another image leaves one of the two."""
    other = tiny.copy(tmp_path)
    tiny.change(other, "program.bpf.c", "smallest = 7", "smallest = 8")
    assert run(["gadget", "build", str(other), "-o", f"{tmp_path}/other.tar"]) == 0
    folder, seen = tmp_path / "folder", set()
    for delay in (0.01, 0.02, 0.05, 0.03, 0.015, 0.04, 0.06):
        command = [sys.executable, "-c", WRITES, str(folder), str(image), f"{tmp_path}/other.tar"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.readline()
            if not folder.exists():
                time.sleep(1)
            time.sleep(delay)
            writer.kill()
        found = layout.read(str(folder))
        inspection.check_whole(found)
        seen.add(found.image()["digest"])
    assert run(["gadget", "build", str(tiny.SOURCE), "-o", str(folder)]) == 0
    assert len(layout.read(str(folder)).blobs) == len(layout.read(str(image)).blobs)
    digests = {layout.read(f"{path}").image()["digest"] for path in (image, tmp_path / "other.tar")}
    assert seen <= digests


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("data")
    assert run(["gadget", "build", str(tiny.SOURCE), "-o", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("place", ["none/x.tar", "none/x/"])
def test_a_missing_folder_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert run(["gadget", "build", str(tiny.SOURCE), "-o", f"{tmp_path}/{place}"]) == 8
    assert f"{tmp_path}/none does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_verb_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gadget"]) == 2
    assert capsys.readouterr().err.count("Commands:") == 1


def test_the_old_image_stays_where_the_new_one_fails(tmp_path: Path, image: Path) -> None:
    target = tmp_path / "tiny.tar"
    target.write_bytes(image.read_bytes())
    broken = tiny.copy(tmp_path)
    tiny.change(broken, "program.bpf.c", "return 0;\n}", "return nothing;\n}")
    assert run(["gadget", "build", str(broken), "-o", str(target)]) == 10
    assert target.read_bytes() == image.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "tiny.tar"]


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("program.bpf.c", "return 0;\n}", "return nothing;\n}", "nothing"),
        ("program.bpf.c", "typedef char", '#include "far.h"\ntypedef char', "-I DIR"),
        ("build.yaml", "ebpfsource:", "ebpfsorce:", "did you mean 'ebpfsource'"),
        ("build.yaml", "program.bpf.c", "other.bpf.c", "other.bpf.c, which is not there"),
        ("build.yaml", "metadata:", "wasm: gadget.yaml\nmetadata:", "WebAssembly"),
        ("gadget.yaml", "name: tiny", "name: [tiny", "no YAML"),
        ("gadget.yaml", "name: tiny", "name: tiny\nName: small", "twice"),
        ("gadget.yaml", "name: tiny", "name: [tiny]", "no name"),
    ],
)
def test_bad_sources_have_a_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, words: str
) -> None:
    folder = tiny.copy(tmp_path)
    tiny.change(folder, file, old, new)
    assert run(["gadget", "build", str(folder), "-o", str(tmp_path / "x.tar")]) in (2, 10)
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not (tmp_path / "x.tar").exists()


def test_headers_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that differ by architecture; where the folder lies does not matter."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    folder = tiny.copy(tmp_path)
    tiny.change(folder, "program.bpf.c", "typedef char", '#include "far.h"\ntypedef char')
    digests = set()
    for place in ("a/headers", "b/headers"):
        for architecture in ("amd64", "arm64"):
            (tmp_path / place / architecture).mkdir(parents=True)
            text = f"static inline int is_{architecture}(void) {{ return 1; }}\n"
            (tmp_path / place / architecture / "far.h").write_text(text)
        output = tmp_path / "x.tar"
        arguments = ["-I", str(tmp_path / place), "-o", str(output)]
        assert run(["gadget", "build", str(folder), *arguments]) == 0
        digests.add(layout.read(str(output)).image()["digest"])
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("tiny", "ghcr.io/inspektor-gadget/gadget/tiny:latest"),
        ("trace init_module", "ghcr.io/inspektor-gadget/gadget/trace_init_module:latest"),
        ("CUDA memory: who holds it?", "ghcr.io/inspektor-gadget/gadget/cuda_memory_who_holds_it:"),
        ("localhost:5000/team/tiny:v1", "localhost:5000/team/tiny:v1"),
    ],
)
def test_names_for_people_become_names_of_images(title: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "gadget.yaml").write_text(f"name: '{title}'\noperator: {{process: {{count: 1}}}}\n")
    assert build(str(tmp_path)).name.startswith(name)


def recipe(root: Path, place: str, text: str) -> Path:
    """A checkout with program and metadata in folders of their own, and a recipe somewhere."""
    (root / "bpf").mkdir(parents=True, exist_ok=True)
    (root / "gadget").mkdir(exist_ok=True)
    program = (tiny.SOURCE / "program.bpf.c").read_text()
    head, types = program.split("#define SEC", 1)
    (root / "bpf/types.h").write_text(head)
    (root / "bpf/tiny.bpf.c").write_text(f'#include "types.h"\n#define SEC{types}')
    (root / "gadget/gadget.yaml").write_bytes((tiny.SOURCE / "gadget.yaml").read_bytes())
    (root / place).write_text(text)
    return (root / place).parent


INSIDE = ("gadget/build.yaml", "ebpfsource: ../bpf/tiny.bpf.c\n")
AT_ROOT = ("build.yaml", "ebpfsource: bpf/tiny.bpf.c\nmetadata: gadget/gadget.yaml\n")


def test_files_outside_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the recipe and the checkout lie, and whatever leads there: the same bytes."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = recipe(tmp_path / "a", *INSIDE)
    second = recipe(tmp_path / "far/away/b", *AT_ROOT)
    (tmp_path / "link").symlink_to(first)
    digests = {build(str(place)).digest for place in (first, second, tmp_path / "link")}
    monkeypatch.chdir(second)
    digests.add(build(".").digest)
    monkeypatch.chdir(first)
    made = build(".")
    assert digests == {made.digest}
    assert not any(bytes(tmp_path) in data for data in made.layout.blobs.values())
    assert any(b"./tiny.bpf.c" in data for data in made.layout.blobs.values())


def test_errors_name_the_file_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = recipe(tmp_path / "a", *AT_ROOT)
    monkeypatch.chdir(place)
    (place / "gadget/gadget.yaml").write_text("name: tiny\nnothing: 1\n")
    assert run(["gadget", "build", ".", "-o", "x.tar"]) == 10
    assert " gadget/gadget.yaml:2: there is no key 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("vmlinux.h", "kernels' types by architecture"),
        ("gadget/buffer.h", "the folder include of Inspektor Gadget's source"),
        ("bpf/none.h", "apt-get install libbpf-dev"),
        ("own.h", "holds this header with -I DIR."),
    ],
)
def test_a_missing_header_has_a_source(tmp_path: Path, header: str, words: str) -> None:
    folder = tiny.copy(tmp_path)
    tiny.change(folder, "program.bpf.c", "typedef char", f"#include <{header}>\ntypedef char")
    with pytest.raises(GadgetInvalid) as caught:
        build(str(folder))
    assert "-I DIR" in caught.value.remedy
    assert words in caught.value.remedy


@pytest.mark.parametrize("name", ["gadget.yaml", "build.yaml"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """Here one that the kernel lets nobody read at its start."""
    folder = tiny.copy(tmp_path)
    (folder / name).unlink()
    (folder / name).symlink_to("/proc/self/mem")
    with pytest.raises(GadgetInvalid, match="cannot be read"):
        build(str(folder))


def test_a_strip_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strip = tmp_path / "llvm-strip"
    strip.write_text("#!/bin/sh\necho no room >&2; exit 3\n")
    strip.chmod(0o755)
    monkeypatch.setattr(clang, "find_strip", lambda _: str(strip))
    with pytest.raises(GadgetInvalid, match="llvm-strip: no room"):
        build(str(tiny.SOURCE))


def test_a_folder_of_headers_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        build(str(tiny.SOURCE), [str(tmp_path / "none")])


def test_what_is_damaged_is_not_read(tmp_path: Path, image: Path) -> None:
    good = image.read_bytes()
    bad = tmp_path / "bad.tar"
    for change in (good[:2000], good.replace(b"\x7fELF", b"\x7fELG"), b"", b"nothing" * 500):
        bad.write_bytes(change)
        assert run(["gadget", "inspect", str(bad)]) == 11


def test_an_entry_without_platform_is_refused() -> None:
    """Inspektor Gadget crashes at it."""
    from igsdk.image.inspection import inspect

    made = layout.Layout()
    config = made.add(oci.EMPTY, b"{}")
    entry = made.add(oci.MANIFEST, oci.manifest(config, [], {}))
    made.name(made.add(oci.INDEX, oci.index([entry], {})), "x")
    with pytest.raises(ImageUnreadable, match="architecture"):
        inspect(made)


def test_inspection_shows_fields(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gadget", "inspect", str(image), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    opens, totals = record["datasources"]
    fields = {one["name"]: one for one in opens["fields"]}
    assert (fields["at.depth"]["kind"], fields["at.depth"]["offset"]) == ("uint8", 48)
    assert (fields["comm"]["kind"], fields["comm"]["size"]) == ("text", 16)
    assert fields["numbers"]["kind"] == "uint32[3]"
    assert {"time", "user", "how", "k8s.podName", "runtime.containerPid"} <= fields.keys()
    assert totals["shape"] == "array"
    assert [one["name"] for one in totals["fields"]] == [
        *("process", "flags", "calls", "bytes_raw", "bytes")
    ]
    assert record["parameters"][0]["default"] == "7"
    assert run(["gadget", "inspect", str(image)]) == 0
    text = capsys.readouterr().out
    # It is in a file: whoever runs it has to get it first.
    name = "ghcr.io/inspektor-gadget/gadget/tiny:latest"
    assert f"ig image import {image}\n    ig run {name} --host\n" in text
    assert f"igsdk gadget push {image} REGISTRY/NAME:TAG\n    kubectl gadget run REGISTRY" in text


def test_the_heavy_parts_are_loaded_late() -> None:
    code = "import sys, igsdk, igsdk.cli.gadget; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"yaml", "urllib3", "elftools", "cryptography"}.isdisjoint(done.stdout.split())
