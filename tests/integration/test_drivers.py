# SPDX-License-Identifier: Apache-2.0
"""Drivers of every sort, and files that only look like one; the workload never notices."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.balance import assert_balanced
from tests.support.elves import small_driver
from tests.support.recording import balanced, command, own_driver, paused, play, recording
from tests.support.simdriver import Driver, all_books

M = 1 << 20
SCRIPT = "use 0 = 0; alloc p 1M = 0; alloc q 2M = 0; free p = 0; alloc r 100G = 2"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def test_an_entry_without_the_compare(tmp_path: Path) -> None:
    """Its probes sit on the entries themselves, and the result says so."""
    plain = own_driver(tmp_path, plain_entries=True)
    with recording(argv=command(plain, SCRIPT, tmp_path)) as run:
        assert run.command is not None
        run.command.wait()
        (library,) = (one for one in run.attached if one.path == str(plain.libcuda))
        assert {site.on for site in library.sites} == {"entry"}
        assert_balanced(run, all_books(tmp_path))


def test_an_entry_with_the_compare(driver: Driver, tmp_path: Path) -> None:
    with recording(argv=command(driver, SCRIPT, tmp_path)) as run:
        assert run.command is not None
        run.command.wait()
        (library,) = (one for one in run.attached if one.path == str(driver.libcuda))
        assert {site.on for site in library.sites} == {"jump"}
        assert library.simulated
        assert_balanced(run, all_books(tmp_path))


def test_missing_symbols_are_listed(tmp_path: Path) -> None:
    omitted = ("cuMemAllocAsync_ptsz", "cuMemCreate", "cuCtxCreate_v4", "cuMemAlloc")
    poor = own_driver(tmp_path, omit=omitted)
    with recording(poor) as run:
        play(run, poor, "asyncz p 1 = missing; create v 2M 0 = missing; " + SCRIPT, tmp_path)
        (library,) = (one for one in run.attached if one.path == str(poor.libcuda))
        assert library.missing == tuple(sorted(omitted))
        assert not any(str(poor.libcuda) in note for note in run.notes())


def test_several_versions_at_once(tmp_path: Path) -> None:
    """Two containers with their own drivers: both files, each with its own offsets."""
    versions = [
        own_driver(tmp_path, version="535.1"),
        own_driver(tmp_path, version="550.2", omit=("cuMemAlloc", "cuMemFree")),
        own_driver(tmp_path, version="570.3", plain_entries=True),
    ]
    shared = [replace(one, play=versions[0].play) for one in versions]
    folders = [tmp_path / f"books{number}" for number in range(len(versions))]
    with recording(versions[0]) as run:
        for one in versions[1:]:
            run._session.libraries.admit_path(str(one.libcuda))
        for one, folder in zip(shared, folders, strict=True):
            folder.mkdir()
            assert one.run(SCRIPT, folder).returncode == 0
        assert_balanced(run, [books for folder in folders for books in all_books(folder)])
        names = {Path(library.path).name for library in run.attached}
        assert names >= {"libcuda.so.535.1", "libcuda.so.550.2", "libcuda.so.570.3"}


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_file_that_is_gone(what: str, tmp_path: Path) -> None:
    """The process goes on with what it has mapped, and that is where the probes go."""
    gone = own_driver(tmp_path)
    after = "use 0 = 0; alloc p 1M = 0; free p = 0; alloc q 2M = 0"
    with paused(gone, tmp_path, "init = 0", after) as process:
        libcuda = gone.libcuda
        kept = libcuda.read_bytes()
        libcuda.unlink()
        if what == "replaced":
            libcuda.write_bytes(kept)
        with recording(command=gone.play.name) as run:
            (tmp_path / "go").touch()
            process.wait(30)
            (figures,) = balanced(run, all_books(tmp_path))
    assert figures["device", "own", 0]["alloc_bytes"] == 3 * M


def test_a_copy_is_another_file(driver: Driver, tmp_path: Path) -> None:
    copy = own_driver(tmp_path)
    copy = replace(copy, play=driver.play)
    books = tmp_path / "books"
    books.mkdir()
    with recording(driver) as run:
        run._session.libraries.admit_path(str(copy.libcuda))
        driver.run(SCRIPT, books)
        copy.run(SCRIPT, books)
        assert_balanced(run, all_books(books))
        inodes = {library.inode for library in run.attached}
    assert len(inodes) >= 2


OVERLAYS = """for n in 1 2; do
    mkdir -p $0/up$n $0/work$n $0/merged$n
    upper=upperdir=$0/up$n,workdir=$0/work$n
    mount -t overlay overlay -o lowerdir=$1,$upper $0/merged$n || exit 77
done
for n in 1 2; do
    LD_LIBRARY_PATH=$0/merged$n "$2" -e "$3" || exit 9
done"""


def test_two_overlays_over_one_file(driver: Driver, tmp_path: Path) -> None:
    """Seen as two files under two device numbers, each call is still counted once."""
    layers, books = tmp_path / "layers", tmp_path / "books"
    layers.mkdir()
    books.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", layers], check=True)
    try:
        words = ("sh", "-c", OVERLAYS, layers, driver.folder, driver.play, SCRIPT)
        environment = driver.environment(books)
        with recording(command=driver.play.name) as run:
            done = subprocess.run(["unshare", "-m", *words], env=environment, check=False)
            if done.returncode == 77:
                pytest.skip("this kernel mounts no overlay here")
            assert done.returncode == 0
            told = all_books(books)
            assert len(told) == 2
            run.stop()
            # watching mappings may come too late for a short process, never twice
            assert run.profile().total("alloc_objects") <= 4
        with recording(driver) as run:
            subprocess.run(["unshare", "-m", *words], env=environment, check=True)
            run.stop()
            assert_balanced(run, all_books(books)[2:])
            mine = [one for one in run.attached if one.path.endswith("libcuda.so.1")]
            assert run.profile().total("alloc_objects") == 4
            assert len({one.inode for one in mine}) == len(mine)
    finally:
        subprocess.run(["umount", layers], check=True)


def test_a_driver_that_is_opened_late(driver: Driver, tmp_path: Path) -> None:
    """Long after the start of its process, by dlopen: a command still loses nothing."""
    script = "sleep 300; " + SCRIPT
    with recording(argv=command(driver, script, tmp_path)) as run:
        assert run.command is not None
        run.command.wait()
        assert_balanced(run, all_books(tmp_path))
        (info,) = run.processes()
        assert (info.before_us, info.late_ns) == (False, 0)


FAKES = {
    "text": ("can't be used", lambda path: path.write_text("GROUP ( libcuda.so.1 )\n" * 300)),
    "empty": ("can't be used", lambda path: path.write_bytes(b"")),
    "cut short": (
        "can't be used",
        lambda path: path.write_bytes(small_driver(path.with_suffix(".whole")).read_bytes()[:700]),
    ),
    "no symbols": ("none of the functions", lambda path: small_driver(path, "cuNothing")),
    "another machine": ("is for aarch64", lambda path: _foreign(path)),
}


def _foreign(path: Path) -> None:
    """The machine's number stands at offset 18 of an ELF file; 183 is aarch64."""
    data = bytearray(small_driver(path).read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    path.write_bytes(data)


@pytest.mark.parametrize("what", FAKES)
def test_a_file_that_is_no_driver(what: str, driver: Driver, tmp_path: Path) -> None:
    """Named in the run's notes; its reader gets what it would get, and others are recorded."""
    words, make = FAKES[what]
    fake = tmp_path / "libcuda.so.9"
    make(fake)
    books = tmp_path / "books"
    books.mkdir()
    shell = 'sum=$(cksum < "$0") && "$1" -e "$2" && echo "$sum" > "$3"'
    environment = command(driver, SCRIPT, books)[:-3]
    told = tmp_path / "told"
    argv = (*environment, "sh", "-c", shell, str(fake), str(driver.play), SCRIPT, str(told))
    with recording(argv=argv) as run:
        assert run.command is not None
        ended = run.command.wait()
        assert ended is not None
        assert ended.status == 0
        notes = [note for note in run.notes() if str(fake) in note]
        assert_balanced(run, all_books(books))
    with fake.open("rb") as stream:
        sum_ = subprocess.run(["cksum"], stdin=stream, capture_output=True, text=True, check=True)
    assert told.read_text() == sum_.stdout
    assert len(notes) == 1
    assert words in notes[0]
