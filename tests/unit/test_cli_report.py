# SPDX-License-Identifier: Apache-2.0
"""``igsdk report``: profiles as text and JSON, and files that are none."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from igsdk._events import Frame
from igsdk.cli.app import run
from igsdk.profile import Profile
from igsdk.profile.names import LABELS

MIB = 1 << 20
LEAF, CALLER = Frame("cuMemAlloc_v2"), Frame("load", "train.py", 7)


def sample(kind: str, pid: int, line: int, size: int, peak: int) -> dict[str, object]:
    return {
        "stack": (Frame("load", "train.py", line), Frame("main", "train.py", 1)),
        "process": "python train.py",
        "pid": pid,
        "kind": kind,
        "device": "0",
        "host": "own",
        "inuse_space": size,
        "inuse_objects": 1,
        "alloc_space": peak,
        "alloc_objects": 2,
        "peak_space": peak,
        "peak_objects": 2,
    }


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "igsdk.pb.gz"
    rows = [
        sample("device", 1, 7, 64 * MIB, 64 * MIB),
        sample("device", 2, 9, 8 * MIB, 128 * MIB),
        sample("pool", 2, 11, 1 * MIB, 1 * MIB),
    ]
    Profile.from_samples(rows).write(path)
    return path


def test_text(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(profile)]) == 0
    captured = capsys.readouterr()
    assert re.search(r"73\.00 MiB +73\.00 MiB +100\.0 % +load", captured.out)
    assert captured.err == ""


def test_the_file_has_a_default(
    profile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(profile.parent)
    assert run(["report"]) == 0
    assert "73.00 MiB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (["--by", "line"], r"73\.00 MiB +main  train\.py:1$"),
        (["--by", "line", "--top", "1"], r"64\.00 MiB +64\.00 MiB +load  train\.py:7$"),
        (["--by", "line", "--value", "peak", "--filter", "kind=pool"], r"1\.00 MiB +1\.00 MiB"),
        (["--by", "function"], r"73\.00 MiB +73\.00 MiB +100\.0 % +load"),
        (["--by", "stack", "--value", "peak"], r"1\. 128\.00 MiB"),
        (["--by", "line", "--filter", "pid=1", "--filter", "kind=pool"], r"matches pid=1 and"),
        (["--by", "line", "--filter", "function=nothing*"], r"^Nothing in this profile"),
        (["--filter", "kind=vmm"], r"^Nothing in this profile matches kind=vmm\.$"),
        (["--by", "line", "--value", "failed"], r"This profile has no memory refused\.$"),
    ],
)
def test_holders(
    profile: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], first: str
) -> None:
    assert run(["report", str(profile), *arguments]) == 0
    assert re.search(first, capsys.readouterr().out, re.MULTILINE)


def test_by_line_without_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = sample("device", 1, 7, 64 * MIB, 64 * MIB) | {"stack": (Frame("f"), Frame("g"))}
    Profile.from_samples([row]).write(tmp_path / "x.json")
    assert run(["report", str(tmp_path / "x.json"), "--by", "line"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("This profile has no lines: ")
    assert re.search(r"64\.00 MiB +100\.0 % +f$", text, re.MULTILINE)


def test_top_limits_the_rows(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["report", str(profile), "--by", "line", "--top", "2"])
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("by", ["line", "function"])
def test_those_who_asked_come_before_their_callers(
    profile: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    """A caller of everything has the largest total and is not what anybody looks for."""
    run(["report", str(profile), "--by", by])
    (last,) = [row for row in capsys.readouterr().out.splitlines()[1:] if "main" in row]
    assert last.split()[:2] == ["0", "B"]
    run(["report", str(profile), "--by", by, "--json"])
    rows = json.loads(capsys.readouterr().out)["top"]
    assert [row["name"] for row in rows[-2:]] == ["load", "main"]
    assert (rows[-1]["self"], rows[-1]["total"]) == (0, 73 * MIB)


def test_json(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(profile), "--json", "--value", "peak", "--by", "line"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["value"] == "peak_space"
    assert record["totals"]["inuse_space"]["own"] == 73 * MIB
    assert record["by"] == "line"
    assert record["top"][0]["self"] == 128 * MIB
    assert record["top"][0]["line"] == 9


@pytest.mark.parametrize("bad", ["kind", "=x", "pid=many", "colour=red"])
def test_filters_that_are_none(profile: Path, capsys: pytest.CaptureFixture[str], bad: str) -> None:
    assert run(["report", str(profile), "--filter", bad]) == 2
    assert capsys.readouterr().out == ""


def test_an_unknown_filter_names_all_there_are(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(profile), "--filter", "colour=red"]) == 2
    told = capsys.readouterr().err
    for key in (*LABELS, "pid", "function"):
        assert key in told
        assert run(["report", str(profile), "--filter", f"{key}=1"]) == 0


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def other_tool(data: bytes) -> bytes:
    return b"\x7fELF" + bytes(100)


def other_gzip(data: bytes) -> bytes:
    return gzip.compress(b"a text of somebody else's\n" * 10)


def nothing(data: bytes) -> bytes:
    return b""


def other_json(data: bytes) -> bytes:
    return b'{"traceEvents": []}'


@pytest.mark.parametrize("damage", [cut_short, other_tool, other_gzip, nothing, other_json])
def test_files_that_are_none(
    profile: Path, capsys: pytest.CaptureFixture[str], damage: object
) -> None:
    profile.write_bytes(damage(profile.read_bytes()))  # type: ignore[operator]
    assert run(["report", str(profile)]) == 7
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"igsdk: {profile} ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("name", ["nowhere.pb.gz", "."])
def test_files_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(["report", str(tmp_path / name)]) == 7
    assert "cannot be read" in capsys.readouterr().err
