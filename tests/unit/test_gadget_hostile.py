# SPDX-License-Identifier: Apache-2.0
"""Images and metadata that somebody made to do harm, or that nobody thought about."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tiny

from igsdk import GadgetInvalid, IgsdkError
from igsdk.cli.app import run
from igsdk.image import clang, document, layout, oci
from igsdk.image.build import build
from igsdk.image.explained import explain
from igsdk.image.inspection import inspect

ODD: tuple[Any, ...] = (None, 0, -1, 1.5, "", "x", [], {}, [None], {"a": 1}, True, [[]], "\x1b[2J")
PAIRS = list(zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {b: *a}",
        "a: &a [1]\n" + "".join(f"{new}: &{new} [{f'*{old},' * 9}]\n" for old, new in PAIRS),
        "[" * 5000,
        "- a list",
        "text",
        "? [1, 2]\n: x",
        "a: b: c",
        "a: \t- b",
        "\x00",
        "x" * (1 << 21),
    ],
)
def test_metadata_that_is_none(text: str) -> None:
    start = time.process_time()
    with pytest.raises(GadgetInvalid):
        document.load(text.encode(), "it")
    assert time.process_time() - start < 5


@given(st.binary(max_size=60))
def test_any_bytes_are_metadata_or_refused(data: bytes) -> None:
    try:
        found = document.load(data, "it")
    except GadgetInvalid:
        return
    assert isinstance(found.root.content, dict)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    inner = [(*path, key) for key in keys] if isinstance(value, dict | list) else []
    nested = [one for one in inner if isinstance(value[one[-1]], dict | list)]
    return inner + [deep for one in nested for deep in places(value[one[-1]], one)]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copied = json.loads(json.dumps(value))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copied


def test_documents_with_odd_values_are_read_or_refused() -> None:
    """Each place of index and manifest takes each odd value; every end is one of ours."""
    made = build(str(tiny.SOURCE)).layout
    top = json.loads(made.blob(made.image()))
    inner = json.loads(made.blob(top["manifests"][0]))
    refused = read = 0
    for path in places(top):
        for odd in ODD:
            refused, read = count(with_index(made, replaced(top, path, odd)), refused, read)
    for path in places(inner):
        for odd in ODD:
            data = oci.encode(replaced(inner, path, odd))
            entry = oci.descriptor(oci.MANIFEST, data, platform={"architecture": "amd64"})
            changed = with_index(made, {"manifests": [entry]})
            changed.blobs[entry["digest"]] = data
            refused, read = count(changed, refused, read)
    assert refused > 100
    assert read > 20


def with_index(made: layout.Layout, index: Any) -> layout.Layout:
    changed = layout.Layout([], dict(made.blobs))
    changed.name(changed.add(oci.INDEX, oci.encode(index)), "x")
    return changed


def count(changed: layout.Layout, refused: int, read: int) -> tuple[int, int]:
    try:
        explain(inspect(changed))
    except IgsdkError:
        return refused + 1, read
    return refused, read + 1


def test_entries_with_odd_values(tmp_path: Path) -> None:
    made = build(str(tiny.SOURCE)).layout
    listed = {"manifests": made.entries}
    dice = random.Random(3)
    for path in places(listed):
        odd = dice.choice(ODD)
        data = dict(layout.files(made))
        data["index.json"] = oci.encode(replaced(listed, path, odd))
        for name, content in data.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        with contextlib.suppress(IgsdkError):
            inspect(layout.read(str(tmp_path)))


def test_an_object_without_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a compiler makes it that was not told -g: said of the image, which stays as it is."""
    compiler = clang.find_clang()
    assert compiler, "clang is not installed"
    command = [compiler, "-target", "bpf", "-O2", "-c", str(tiny.SOURCE / "program.bpf.c")]
    subprocess.run([*command, "-o", str(tmp_path / "bare.o")], check=True, capture_output=True)
    made = layout.Layout()
    config = made.add(oci.CONFIG, (tiny.SOURCE / "gadget.yaml").read_bytes())
    layer = made.add(oci.PROGRAM, (tmp_path / "bare.o").read_bytes())
    platform = {"architecture": "amd64", "os": "linux"}
    entry = made.add(oci.MANIFEST, oci.manifest(config, [layer], {}), platform=platform)
    made.name(made.add(oci.INDEX, oci.index([entry], {})), "x")
    layout.write(made, str(tmp_path / "bare.tar"), 0)
    assert run(["gadget", "inspect", str(tmp_path / "bare.tar")]) == 10
    said = capsys.readouterr().err
    assert "has no BTF" in said
    assert "Compile it again for BPF, with -g" in said


@pytest.mark.parametrize("package", ["yaml", "elftools"])
def test_a_missing_package_is_named(package: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from igsdk.cli import main; main()"
    arguments = ["gadget", "build", str(tiny.SOURCE), "-o", str(tmp_path / "x.tar")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 5
    assert "igsdk[gadget]" in done.stderr
