# SPDX-License-Identifier: Apache-2.0
"""Debug information that stands in other files than the code, as distributions have it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.debug_programs import (
    CXX_SOURCE,
    WORK,
    Opened,
    add_link,
    addresses,
    build,
    call_in,
    copy_of,
    has,
    objcopy,
    pack_symbols,
    split,
)
from tests.support.elves import compile_c

from igsdk._native import SymbolTable


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("program"), "-Wl,--build-id")


@pytest.mark.parametrize("place", ["beside", "below", "tree"])
@pytest.mark.parametrize("in_root", [False, True], ids=["ours", "root"])
def test_a_separate_file_by_its_link(tmp_path: Path, place: str, in_root: bool) -> None:
    root = tmp_path / "root"
    folder = root / "opt"
    folder.mkdir(parents=True)
    program = build(folder, "-Wl,--build-id=none")
    at = call_in(program, "work", "printf")
    seen = Path("/opt") if in_root else folder
    debug = {
        "beside": folder / "program.debug",
        "below": folder / ".debug/program.debug",
        "tree": root / "usr/lib/debug/opt/program.debug",
    }[place]
    split(program, debug)
    add_link(program, debug)
    fd = os.open(program, os.O_RDONLY)
    table = SymbolTable(fd, str(seen / program.name), str(root) if in_root else "")
    os.close(fd)
    start, offset, _ = Opened(program).code
    found = [(name, line) for name, _, line in table.frames(at - start + offset)]
    if place == "tree" and not in_root:  # only the system's own tree counts
        assert (found, table.debug) == ([], "none")
    else:
        assert (found, table.debug) == ([(name, line) for name, _, line in WORK], "separate")


def test_a_link_with_another_checksum_is_not_followed(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    copy = build(folder, "-Wl,--build-id=none")
    place = call_in(copy, "work", "printf")
    debug = folder / "program.debug"
    split(copy, debug)
    add_link(copy, debug)
    debug.write_bytes(debug.read_bytes() + b"more")
    assert Opened(copy).frames(place) == []


def test_a_link_leads_to_no_other_folder_and_waits_for_no_pipe(tmp_path: Path) -> None:
    program = build(tmp_path, "-Wl,--build-id=none")
    place = call_in(program, "work", "printf")
    debug = tmp_path / "program.debug"
    split(program, debug)
    add_link(program, debug)
    debug.unlink()
    os.mkfifo(debug)
    assert Opened(program).frames(place) == []
    content = program.read_bytes().replace(b"program.debug\0", b"../../a.debug\0")
    program.write_bytes(content)
    assert Opened(program).frames(place) == []


def build_id(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY)
    try:
        return SymbolTable(fd).build_id
    finally:
        os.close(fd)


def test_a_separate_file_by_build_id(program: Path, tmp_path: Path) -> None:
    copy = copy_of(program, tmp_path)
    place = call_in(copy, "work", "printf")
    name = build_id(copy)
    debug = tmp_path / f"usr/lib/debug/.build-id/{name[:2]}/{name[2:]}.debug"
    split(copy, debug, "--compress-debug-sections=zlib")
    opened = Opened(copy, str(tmp_path))
    assert opened.frames(place) == WORK
    assert opened.table.debug == "separate"
    assert opened.frames(call_in(program, "hidden", "work"))[0][0] == "hidden"
    assert Opened(copy).frames(place) == []


def test_a_file_of_another_build_is_not_used(program: Path, tmp_path: Path) -> None:
    copy = copy_of(program, tmp_path)
    place = call_in(copy, "work", "printf")
    name = build_id(copy)
    debug = tmp_path / f"usr/lib/debug/.build-id/{name[:2]}/{name[2:]}.debug"
    split(copy, debug)
    other = bytes.fromhex(name)
    debug.write_bytes(debug.read_bytes().replace(other, other[::-1]))
    assert Opened(copy, str(tmp_path)).frames(place) == []


@pytest.mark.parametrize("variable", ["DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME", "HOME"])
def test_the_cache_of_debuginfod(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    copy = copy_of(program, tmp_path)
    place = call_in(copy, "work", "printf")
    below = {"XDG_CACHE_HOME": "debuginfod_client", "HOME": ".cache/debuginfod_client"}
    split(copy, tmp_path / below.get(variable, ".") / build_id(copy) / "debuginfo")
    assert Opened(copy).frames(place) == []
    monkeypatch.setenv(variable, str(tmp_path))
    assert Opened(copy).frames(place) == WORK


@pytest.mark.skipif(not has("dwz"), reason="dwz is not installed")
def test_what_two_debug_files_share(tmp_path: Path) -> None:
    """Frames of every address stay when parts of the debug information move away."""
    tree = tmp_path / "usr/lib/debug"
    debugs, before, copies, places = [], [], [], []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        copies.append(build(folder, "-Wl,--build-id", source=CXX_SOURCE))
        start, size = addresses(copies[-1])["main"]
        places.append(range(start, start + size))
        before.append([Opened(copies[-1]).frames(place) for place in places[-1]])
        identity = build_id(copies[-1])
        debugs.append(tree / f".build-id/{identity[:2]}/{identity[2:]}.debug")
        split(copies[-1], debugs[-1])
    common = tree / ".dwz/common.debug"
    common.parent.mkdir()
    command = ["dwz", "-m", str(common), "-M", "/usr/lib/debug/.dwz/common.debug"]
    subprocess.run([*command, *debugs], check=True, capture_output=True)
    assert common.exists()
    for copy, frames, places_ in zip(copies, before, places, strict=True):
        assert any(len(calls) > 2 for calls in frames)
        opened = Opened(copy, str(tmp_path))
        assert [opened.frames(place) for place in places_] == frames


@pytest.mark.skipif(not has("xz"), reason="xz is not installed")
def test_packed_symbols(program: Path, tmp_path: Path) -> None:
    copy = copy_of(program, tmp_path)
    start, _ = addresses(copy)["hidden"]
    pack_symbols(copy)
    assert Opened(copy).frames(start + 1) == [("hidden", None, 0)]


@pytest.mark.parametrize("content", [b"", b"\xfd7zXZ\0", b"no xz at all" * 100])
def test_packed_symbols_that_can_not_be_unpacked_hide_nothing(
    tmp_path: Path, content: bytes
) -> None:
    library = compile_c("int open_one(int a) { return a * 3; }", tmp_path / "lib.so")
    data = tmp_path / "data"
    data.write_bytes(content or b"\0")
    objcopy("--strip-all", f"--add-section=.gnu_debugdata={data}", library)
    opened = Opened(library)
    names = {opened.table.lookup_address(address) for address in range(0x1000, 0x1200)}
    assert ("open_one", 1) in names
