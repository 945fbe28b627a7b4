# SPDX-License-Identifier: Apache-2.0
"""Files: whole or not there; what cannot be read says why and what to do."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.unit.profile_cases import A, B, C, profiles, sample

from igsdk import OutputUnwritable, ProfileUnreadable, UsageError
from igsdk.profile import Profile, check_output, store, write_or_rescue


@pytest.fixture
def profile() -> Profile:
    return Profile.from_samples([sample(A, B, C, process="p", inuse_space=5, inuse_objects=1)])


@given(profiles)
@settings(max_examples=60, deadline=None)
def test_json_reads_back_whole(profile: Profile):
    from igsdk.profile import formats

    assert formats.from_json(formats.to_json(profile), "x") == profile


def test_a_folded_file_has_the_root_first(tmp_path: Path, profile: Profile):
    odd = sample(A, C, host="registered", kind="registered", process="a;b\nc", inuse_space=7)
    path = tmp_path / "x.folded"
    Profile.merge(profile, Profile.from_samples([odd])).write(path)
    assert path.read_text().splitlines() == [
        "[registered];a:b c;<module>;alloc 7",
        "p;<module>;work;alloc 5",
    ]


@pytest.mark.parametrize("name", ["x.pb.gz", "x.json"])
def test_every_cut_is_told_from_a_whole_file(tmp_path: Path, profile: Profile, name: str):
    path = tmp_path / name
    profile.write(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ProfileUnreadable) as caught:
            Profile.read(path)
        assert str(path) in caught.value.cause
        assert caught.value.remedy


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "empty"),
        (b"\x7fELF rubbish", "no profile"),
        (b'{"flamegraph": 1}', "another tool"),
        (b"{ not json", "not JSON"),
        (b'{"igsdk_profile": 1, "frames": 3}', "damaged"),
        (b"\x1f\x8brubbish", "damaged"),
        (gzip.compress(b"plain text, no profile"), "no profile"),
        (gzip.compress(b""), "no profile"),
    ],
)
def test_what_is_no_profile_says_so(tmp_path: Path, content: bytes, cause: str):
    path = tmp_path / "x.pb.gz"
    path.write_bytes(content)
    with pytest.raises(ProfileUnreadable, match=cause) as caught:
        Profile.read(path)
    assert caught.value.exit_code == 7


def test_a_missing_file_says_so(tmp_path: Path):
    with pytest.raises(ProfileUnreadable, match="No such file"):
        Profile.read(tmp_path / "none.pb.gz")
    with pytest.raises(ProfileUnreadable, match="directory"):
        Profile.read(tmp_path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from igsdk.profile import pprof_read

    monkeypatch.setattr(pprof_read, "LARGEST", 1000)
    path = tmp_path / "x.pb.gz"
    path.write_bytes(gzip.compress(bytes(10_000)))
    with pytest.raises(ProfileUnreadable, match="unpacks to more"):
        Profile.read(path)


def test_suffixes_that_stand_for_nothing(tmp_path: Path, profile: Profile):
    with pytest.raises(UsageError, match=r"\.html"):
        profile.write(tmp_path / "x.html")
    with pytest.raises(UsageError, match="no suffix") as caught:
        profile.write(tmp_path / "x.txt")
    assert ".pb.gz" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path, profile: Profile):
    path = tmp_path / "none" / "x.json"
    for attempt in (lambda: profile.write(path), lambda: check_output(path)):
        with pytest.raises(OutputUnwritable, match=r"folder .*none does not exist"):
            attempt()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputUnwritable, match="Not a directory"):
        profile.write(tmp_path / "file" / "x.json")
    (tmp_path / "x.json").mkdir()
    with pytest.raises(OutputUnwritable, match="folder"):
        profile.write(tmp_path / "x.json")


def test_a_full_disk_leaves_the_old_file_and_no_part(
    tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "x.json"
    path.write_text("old")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputUnwritable, match="No space left"):
        profile.write(path)
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_a_really_full_device_is_told(profile: Profile):
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    with pytest.raises(OutputUnwritable, match="No space left"):
        store.write_bytes("/dev/full", b"x" * 100_000)


def test_a_device_and_a_pipe_are_written_to_and_stay(tmp_path: Path, profile: Profile):
    fifo = tmp_path / "x.json"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_output(fifo)
        profile.write(fifo)
        assert json.loads(os.read(reader, 1 << 20))["igsdk_profile"] == 1
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_link_is_followed(tmp_path: Path, profile: Profile):
    link, real = tmp_path / "x.json", tmp_path / "real.json"
    link.symlink_to(real)
    profile.write(link)
    assert link.is_symlink()
    assert Profile.read(real) == profile


def test_the_mode_is_the_callers_and_the_owner_is_set(tmp_path: Path, profile: Profile):
    path = tmp_path / "x.json"
    before = os.umask(0o027)
    try:
        profile.write(path, owner=(os.getuid(), os.getgid()))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    if os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    profile.write(path, owner=(12345, 54321))
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


def test_checking_leaves_nothing_behind(tmp_path: Path):
    check_output(tmp_path / "x.pb.gz")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError):
        check_output(tmp_path / "x.pdf")


@pytest.mark.parametrize("name", ["none/x.json", "x.pdf"])
def test_nothing_collected_is_lost(
    tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch, name: str
):
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(rescue))
    path, error = write_or_rescue(profile, tmp_path / name)
    assert error is not None
    assert rescue in path.parents
    assert Profile.read(path) == profile


def test_what_can_be_written_needs_no_rescue(tmp_path: Path, profile: Profile):
    assert write_or_rescue(profile, tmp_path / "x.json") == (tmp_path / "x.json", None)


def test_when_no_folder_takes_it_the_first_reason_is_told(
    tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*arguments: object, **options: object) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(store.tempfile, "mkdtemp", refuse)
    with pytest.raises(OutputUnwritable, match="does not exist"):
        write_or_rescue(profile, tmp_path / "none" / "x.json")
