# SPDX-License-Identifier: Apache-2.0
"""``igsdk record`` and ``events`` over a runtime without a kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import MIB, PROCESS, FakeRuntime

from igsdk._errors import OutputUnwritable
from igsdk.cli.app import run
from igsdk.profile import Profile, store
from igsdk.runtime.launch import Exit

NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="a command is started in a mount namespace, which needs root"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    runtime = FakeRuntime()
    monkeypatch.setattr("igsdk._connect.connect", lambda target: runtime)
    return runtime


def test_writes_and_shows_a_profile(
    runtime: FakeRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["record", "--duration", "100ms"]) == 0
    assert Profile.read("igsdk.pb.gz").total("inuse_space") == 64 * MIB
    captured = capsys.readouterr()
    assert "64.00 MiB" in captured.out
    assert "the profile is in igsdk.pb.gz; read it with `igsdk report igsdk.pb.gz`" in captured.err
    assert runtime.run is not None
    assert runtime.run.stopped


def test_options_reach_the_run(runtime: FakeRuntime) -> None:
    arguments = ["--command", "python", "--mount-ns", "7", "--no-stacks", "--live-entries", "9"]
    run(["record", "--duration", "10ms", "--pid", str(os.getpid()), "--pid", "1", *arguments])
    assert runtime.run is not None
    assert runtime.run.settings == {
        "argv": None,
        "user": None,
        "pid": [os.getpid(), 1],
        "command": "python",
        "mount_ns": 7,
        "events": "failures",
        "stacks": False,
        "live_entries": 9,
    }


def test_json_summary(runtime: FakeRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--duration", "10ms", "--json", "-o", "x.json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["profile"] == "x.json"
    assert record["in_use_bytes"] == 64 * MIB
    assert record["peak_bytes"] == 96 * MIB
    assert record["failed_calls"] == 1
    assert record["command"] is None


@pytest.mark.parametrize("path", ["missing/x.pb.gz", "/proc/x.pb.gz"])
def test_output_is_checked_before_the_start(
    runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    assert run(["record", "-o", path]) == OutputUnwritable.exit_code
    assert run(["record", "-o", path, "--", "touch", "started"]) == 125
    assert runtime.run is None
    assert not Path("started").exists()
    assert capsys.readouterr().err.count("\n") == 2


@NEEDS_ROOT
class TestWithACommand:
    def test_its_code_and_its_streams(
        self, runtime: FakeRuntime, capfd: pytest.CaptureFixture[str]
    ) -> None:
        script = "echo to stdout; echo to stderr >&2; exit 7"
        assert run(["record", "--", "sh", "-c", script]) == Exit(7)
        captured = capfd.readouterr()
        assert captured.out == "to stdout\n"
        assert captured.err.startswith("to stderr\n")
        assert "64.00 MiB" in captured.err

    def test_its_signal(self, runtime: FakeRuntime) -> None:
        assert run(["record", "--", "sh", "-c", "kill -USR1 $$"]) == Exit(None, 10)

    def test_options_behind_it_are_its_own(
        self, runtime: FakeRuntime, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["record", "echo", "-o", "x", "--", "y"]) == Exit(0)
        assert capfd.readouterr().out == "-o x -- y\n"

    @pytest.mark.parametrize(
        ("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126), ("/", 126)]
    )
    def test_that_does_not_start(
        self, runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], command: str, code: int
    ) -> None:
        assert run(["record", "--", command]) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"igsdk: The command '{command}' ")
        assert not Path("igsdk.pb.gz").exists()

    def test_survivors_are_named(
        self, runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("tests.support.fake_runtime.FakeRun.processes", lambda _: [PROCESS])
        run(["record", "--", "true"])
        assert "still running: python train.py (4711)." in capsys.readouterr().err

    def test_our_mistake_is_not_its_mistake(
        self, runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], monkeypatch: Any
    ) -> None:
        monkeypatch.setenv("FAKE_MODE", "PROFILE_FAILS")
        assert run(["record", "--duration", "10ms", "--", "sh", "-c", "sleep .3; exit 5"]) == (
            Exit(5)
        )
        assert "This is a mistake in igsdk: ZeroDivisionError" in capsys.readouterr().err

    def test_its_end_is_awaited_after_the_duration(self, runtime: FakeRuntime) -> None:
        script = "sleep .5; touch ended; exit 4"
        assert run(["record", "--duration", "50ms", "--", "sh", "-c", script]) == Exit(4)
        assert Path("ended").exists()

    def test_the_profile_belongs_to_its_user(self, runtime: FakeRuntime, folder: Path) -> None:
        folder.chmod(0o777)
        assert run(["record", "--user", "nobody", "--", "true"]) == Exit(0)
        assert Path("igsdk.pb.gz").owner() == "nobody"

    def test_events_go_to_standard_error(
        self, runtime: FakeRuntime, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["events", "--", "sh", "-c", "echo mine; exit 3"]) == Exit(3)
        captured = capfd.readouterr()
        assert captured.out == "mine\n"
        assert "failure  1.00 MiB  device  cuMemAlloc_v2" in captured.err


def test_the_profile_is_rescued(
    runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []
    real = store.write

    def write(profile: Profile, path: Any, owner: Any = None) -> None:
        places.append(str(path))
        if len(places) == 1:
            raise OutputUnwritable("igsdk.pb.gz cannot be written: No space left.", "Make room.")
        real(profile, path, owner)

    monkeypatch.setattr(store, "write", write)
    assert run(["record", "--duration", "10ms"]) == 0
    shown = capsys.readouterr().err
    assert "No space left. The profile went elsewhere, see below." in shown
    assert f"the profile is in {places[1]};" in shown
    assert Profile.read(places[1]).total("inuse_space") == 64 * MIB
    shutil.rmtree(Path(places[1]).parent)


class TestEvents:
    def test_one_a_line(self, runtime: FakeRuntime, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["events", "--duration", "100ms"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1
        assert "CUDA_ERROR_OUT_OF_MEMORY  pid 4711  python train.py" in lines[0]
        assert runtime.run is not None
        assert runtime.run.settings["events"] == "failures"

    def test_json(
        self, runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], monkeypatch: Any
    ) -> None:
        monkeypatch.setenv("FAKE_EVENTS", "3")
        assert run(["events", "--all", "--json", "--duration", "100ms"]) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [record["bytes"] for record in records] == [MIB, 2 * MIB, 3 * MIB]
        assert runtime.run is not None
        assert runtime.run.settings["events"] == "all"

    def test_end_quietly_when_nobody_reads(self) -> None:
        argv = [sys.executable, "-m", "tests.support.fake_runtime", "events"]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "FAKE_EVENTS": "5", "PYTHONPATH": str(root)}
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(10) == 0
            assert process.stderr.read() == b""
