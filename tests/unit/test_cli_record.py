# SPDX-License-Identifier: Apache-2.0
"""``igsdk record`` and ``events`` over a runtime without a kernel."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import MIB, PROCESS, FakeRun, FakeRuntime

from igsdk._errors import OutputUnwritable, PermissionMissing
from igsdk._events import AttachedLibrary
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
        "gadget": None,
        "plain_http": False,
    }


def test_json_summary(runtime: FakeRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--duration", "10ms", "--json", "-o", "x.json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["profile"] == "x.json"
    assert record["in_use_bytes"] == 64 * MIB
    assert record["peak_bytes"] == 96 * MIB
    assert record["failed_calls"] == 1
    assert record["command"] is None


@pytest.mark.parametrize(
    ("path", "readers"),
    [
        ("x.pb.gz", ["igsdk report x.pb.gz", "go tool pprof -http=: x.pb.gz"]),
        ("x.json", ["igsdk report x.json"]),
        ("x.folded", ["speedscope", "flamegraph.pl"]),
    ],
)
def test_the_advice_fits_the_format(
    runtime: FakeRuntime, capsys: pytest.CaptureFixture[str], path: str, readers: list[str]
) -> None:
    assert run(["record", "--duration", "10ms", "-o", path]) == 0
    told = capsys.readouterr().err
    for reader in ("igsdk report", "go tool pprof", "speedscope", "flamegraph.pl"):
        assert (reader in told) is any(reader in fitting for fitting in readers)
    for reader in readers:
        assert reader in told
        if reader.startswith("igsdk"):
            assert run(reader.split()[1:]) == 0


class TestNothingWasTraced:
    @pytest.fixture(autouse=True)
    def nothing(self, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_MODE", "NOTHING")

    def test_an_older_profile_stays(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("igsdk.pb.gz").write_bytes(b"older")
        assert run(["record", "--duration", "10ms"]) == 0
        assert Path("igsdk.pb.gz").read_bytes() == b"older"
        told = capsys.readouterr().err
        assert "nothing was traced; igsdk.pb.gz was left as it is." in told
        assert "the profile is in" not in told
        assert run(["record", "--duration", "10ms", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["profile"] is None

    def test_a_file_that_was_asked_for_is_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        for arguments in (["-o", "igsdk.pb.gz"], ["-o", "igsdk.pb.gz"], []):
            assert run(["record", "--duration", "10ms", *arguments]) == 0
        told = capsys.readouterr().err
        assert told.count("nothing was traced; the profile in igsdk.pb.gz is empty.") == 2
        assert "igsdk.pb.gz was left as it is" in told
        assert Profile.read("igsdk.pb.gz").total("alloc_space") == 0


@pytest.mark.parametrize(
    ("number", "path", "cause", "remedy"),
    [
        (errno.ENOSPC, "x.pb.gz", "No space left", "Make room"),
        (errno.EROFS, "x.pb.gz", "Read-only file system", "Name a file elsewhere"),
        (errno.EACCES, "x.pb.gz", "Permission denied", "that you may write to"),
        (errno.ENOENT, "missing/x.pb.gz", "missing does not exist", "Create it"),
        (errno.ENOENT, "/proc/x.pb.gz", "/proc takes no files", "Name another"),
    ],
)
def test_the_remedy_fits_what_is_in_the_way(
    runtime: FakeRuntime,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    path: str,
    cause: str,
    remedy: str,
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("igsdk.profile.store.os.open", refuse)
    assert run(["record", "-o", path]) == OutputUnwritable.exit_code
    told = capsys.readouterr().err
    assert cause in told
    assert remedy in told
    assert ("Make room" in told) is (number == errno.ENOSPC)


def test_permission_comes_before_the_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(target: str) -> object:
        raise PermissionMissing("This is no root.", "Become root.")

    monkeypatch.setattr("igsdk._connect.connect", connect)
    assert run(["record", "-o", "missing/x.pb.gz"]) == PermissionMissing.exit_code
    assert "This is no root." in capsys.readouterr().err


@pytest.mark.parametrize("how", ["session", "single"])
def test_probes_that_stay_a_while(
    runtime: FakeRuntime,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    library = AttachedLibrary(path="libcuda.so.1", sites=(), how=f"uprobe-{how}")
    monkeypatch.setattr(FakeRun, "attached", [library], raising=False)
    gone = time.monotonic() + 0.4
    monkeypatch.setattr(
        FakeRun, "detaching", property(lambda _: time.monotonic() < gone), raising=False
    )
    assert run(["record", "--duration", "10ms"]) == 0
    told = capsys.readouterr().err
    assert ("they count nothing any more, and you can start again" in told) is (how == "single")


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
    def test_says_at_the_start_what_it_watches(
        self,
        runtime: FakeRuntime,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert run(["events", "--duration", "10ms"]) == 0
        told = capsys.readouterr().err
        assert told.startswith("igsdk: no process has a CUDA driver library yet")
        libraries = [AttachedLibrary(path=f"/{name}/libcuda.so.1", sites=()) for name in "abcd"]
        monkeypatch.setattr(FakeRun, "attached", libraries)
        monkeypatch.setattr(FakeRun, "earlier", [(7, "python")])
        note = "These processes had the driver mapped before: 7 (python)."
        monkeypatch.setattr(FakeRun, "notes", lambda _: [note, "Another note."])
        assert run(["events", "--duration", "10ms"]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("igsdk: watching 4 driver libraries (/a/libcuda.so.1, ")
        assert lines[0].endswith(" and 1 more); ctrl-C ends it.")
        assert "had the driver mapped: 7 (python)." in lines[1]
        assert lines[2:] == ["igsdk: Another note."]

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
            assert process.stderr.read().count(b"\n") == 1  # what it watches
