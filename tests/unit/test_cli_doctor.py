# SPDX-License-Identifier: Apache-2.0
"""``igsdk doctor``: each check, its remedy, and the exit code."""

from __future__ import annotations

import json

import pytest

from igsdk import KernelUnsupported
from igsdk._check import Check
from igsdk.cli.app import run
from igsdk.runtime import kernel

FOUND = [
    Check("kernel", "ok", "6.8"),
    Check("kernel BTF", "fail", "there is none", "Take a kernel that has it."),
    Check("NVML", "warn", "no answer", "Install the driver."),
]


@pytest.fixture
def ill(monkeypatch: pytest.MonkeyPatch) -> None:
    def require() -> None:
        raise KernelUnsupported("kernel BTF: there is none.", "Take a kernel that has it.")

    monkeypatch.setattr(kernel, "checks", lambda: FOUND)
    monkeypatch.setattr(kernel, "require", require)


def test_text(ill: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok    kernel      6.8"
    assert lines[1] == "fail  kernel BTF  there is none"
    assert lines[2].split("-> ")[1] == "Take a kernel that has it."
    assert lines[-1] == "local: does not work here, see above."


def test_json(ill: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 4
    record = json.loads(capsys.readouterr().out)
    assert record["local"] is False
    assert record["checks"][2] == {
        "name": "NVML",
        "state": "warn",
        "detail": "no answer",
        "remedy": "Install the driver.",
    }


def test_warnings_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "checks", lambda: [FOUND[0], FOUND[2]])
    monkeypatch.setattr(kernel, "require", lambda: None)
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("local: works here.\n")


def test_on_a_terminal_paths_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/usr/lib/a-very-long-folder/" + "x" * 60 + "/libcuda.so.1"
    check = Check(
        "libcuda", "warn", f"the driver library is {path} " + "word " * 20, "Do it. " * 20
    )
    monkeypatch.setattr(kernel, "checks", lambda: [check])
    monkeypatch.setattr(kernel, "require", lambda: None)
    monkeypatch.setattr("igsdk.cli.output.width", lambda fd=1: 60)
    assert run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(path in line for line in lines)
    assert all(len(line) < 60 for line in lines if path not in line)
    assert len(lines) > 6
