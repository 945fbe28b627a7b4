# SPDX-License-Identifier: Apache-2.0
"""ctrl-C once and twice, SIGTERM, a terminal that goes away, and our own death."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.terminal import CTRL_C, Terminal

from igsdk.cli.signals import Signals
from igsdk.profile import Profile

ROOT = Path(__file__).parents[2]
VERB = [sys.executable, "-m", "tests.support.fake_runtime"]
NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="a command is started in a mount namespace, which needs root"
)
# Longer than what two signals need to be two.
APART = 0.4
#: A command that counts its interrupts and ends by itself when told by a file.
STUBBORN = (
    "trap 'echo got INT' INT; trap 'echo got TERM; exit 9' TERM; echo ready; "
    "while [ ! -e end ]; do sleep 0.05; done; echo done; exit 6"
)


def terminal(folder: Path, *arguments: str, **options: str) -> Terminal:
    return Terminal([*VERB, *arguments], cwd=folder, env={"PYTHONPATH": str(ROOT), **options})


def under_a_shell(folder: Path) -> list[str]:
    """Like a login shell it leads the session; our process id is in the file `pid`."""
    line = 'sh -c \'echo $$ >pid; exec "$@"\' sh "$@"; echo status $?; read end'
    return ["sh", "-c", line, "sh", *VERB]


def appears(path: Path) -> bool:
    end = time.monotonic() + 10
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return path.exists()


def is_whole(folder: Path) -> bool:
    return Profile.read(folder / "igsdk.pb.gz").total("inuse_space") > 0


def test_many_descriptors() -> None:
    """Where each probe has one of its own they go beyond 1023, which select() can't take."""
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, 1500)
    try:
        with Signals() as signals:
            assert signals.wait([high], 0.01) == []
            os.write(write, b"x")
            assert signals.wait([high], None) == [high]
    finally:
        for descriptor in (read, write, high):
            os.close(descriptor)


class TestWithoutACommand:
    def test_ctrl_c_stops_and_writes(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record") as shown:
            shown.read_until("ctrl-C ends it")
            shown.press(CTRL_C)
            shown.read_until("writing the profile")
            shown.read_until("Largest holders")
            assert shown.wait() == 0
        assert is_whole(tmp_path)

    def test_progress_on_a_terminal(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record") as shown:
            shown.read_until(r"64\.00 MiB in use, 0 process\w*, 1 failure, 1\.\d s")
            shown.press(CTRL_C)
            assert shown.wait() == 0

    def test_progress_that_fails_ends_no_recording(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", FAKE_MODE="FIRST_PROFILE_FAILS") as shown:
            shown.read_until("This is a mistake in igsdk: ZeroDivisionError")
            shown.press(CTRL_C)
            assert shown.wait() == 0
        assert is_whole(tmp_path)

    def test_twice_writes_and_leaves_at_once(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", FAKE_SLOW="2") as shown:
            shown.read_until("ctrl-C ends it")
            shown.press(CTRL_C)
            time.sleep(APART)
            shown.press(CTRL_C)
            shown.read_until("the profile is in igsdk.pb.gz")
            assert shown.wait() == -signal.SIGINT
            assert "Largest holders" not in shown.text
        assert is_whole(tmp_path)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
    def test_signals_that_are_like_ctrl_c(self, tmp_path: Path, number: int) -> None:
        with terminal(tmp_path, "record") as shown:
            shown.read_until("ctrl-C ends it")
            shown.process.send_signal(number)
            assert shown.wait() == 0
        assert is_whole(tmp_path)

    def test_a_signal_sent_twice_at_once_is_one(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", FAKE_SLOW="1") as shown:
            shown.read_until("ctrl-C ends it")
            shown.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            shown.process.send_signal(signal.SIGTERM)
            assert shown.wait() == 0

    def test_the_terminal_goes_away(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record") as shown:
            shown.read_until("ctrl-C ends it")
            shown.hang_up()
            assert shown.wait() == 0
        assert is_whole(tmp_path)

    def test_events_end(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "events") as shown:
            shown.read_until("CUDA_ERROR_OUT_OF_MEMORY")
            shown.press(CTRL_C)
            assert shown.wait() == 0

    def test_ignored_signals_stay_ignored(self, tmp_path: Path) -> None:
        line = 'trap "" HUP INT; exec "$@"'
        argv = ["sh", "-c", line, "sh", *VERB, "record", "--duration", "2"]
        with Terminal(argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as shown:
            shown.read_until("ctrl-C ends it")
            start = time.monotonic()
            shown.press(CTRL_C)
            shown.process.send_signal(signal.SIGHUP)
            assert shown.wait() == 0
            assert time.monotonic() - start > 1


@NEEDS_ROOT
class TestWithACommand:
    def test_ctrl_c_reaches_it_and_we_wait(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", "--", "sh", "-c", STUBBORN) as shown:
            shown.read_until("ready")
            shown.press(CTRL_C)
            shown.read_until("waiting for the command")
            time.sleep(APART)
            assert shown.process.poll() is None
            (tmp_path / "end").touch()
            shown.read_until("done")
            assert shown.wait() == 6
        assert is_whole(tmp_path)

    def test_ctrl_c_that_kills_it(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", "--", "sh", "-c", "echo ready; exec sleep 60") as shown:
            shown.read_until("ready")
            shown.press(CTRL_C)
            assert shown.wait() == -signal.SIGINT
        assert is_whole(tmp_path)

    def test_twice_writes_and_leaves_it(self, tmp_path: Path) -> None:
        script = STUBBORN.replace("echo ready", "echo ready $$")
        with terminal(tmp_path, "record", "--", "sh", "-c", script) as shown:
            command = int(shown.read_until(r"ready (\d+)")[1])
            shown.press(CTRL_C)
            shown.read_until("got INT")
            time.sleep(APART)
            shown.press(CTRL_C)
            assert shown.read_until(r"\n(.*)writing the profile and leaving")[1] == "igsdk: "
            shown.read_until("the profile is in")
            shown.read_until(rf"the command \(pid {command}\) still runs; it is not traced")
            assert shown.wait() == -signal.SIGINT
            assert shown.text.endswith("\n")
            assert Path(f"/proc/{command}").exists()
            (tmp_path / "end").touch()
        assert is_whole(tmp_path)

    def test_sigterm_for_us_alone_is_passed_on(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", "--", "sh", "-c", STUBBORN) as shown:
            shown.read_until("ready")
            shown.process.send_signal(signal.SIGTERM)
            shown.read_until("got TERM")
            assert shown.wait() == 9
        assert is_whole(tmp_path)

    def test_sigterm_for_the_group_kills_it(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "record", "--", "sh", "-c", "echo ready; exec sleep 60") as shown:
            shown.read_until("ready")
            os.killpg(shown.process.pid, signal.SIGTERM)
            assert shown.wait() == -signal.SIGTERM
        assert is_whole(tmp_path)

    def test_the_terminal_goes_away(self, tmp_path: Path) -> None:
        script = f"trap 'touch hung' HUP; {STUBBORN}"
        with terminal(tmp_path, "record", "--", "sh", "-c", script) as shown:
            shown.read_until("ready")
            shown.hang_up()
            assert appears(tmp_path / "hung")
            assert shown.process.poll() is None
            (tmp_path / "end").touch()
            # Its `echo done` fails, as it would without us; we end as it does.
            assert shown.wait() == 6
        assert is_whole(tmp_path)

    def test_the_terminal_of_a_shell_goes_away(self, tmp_path: Path) -> None:
        argv = [*under_a_shell(tmp_path), "record", "--", "sh", "-c", "echo ready; sleep 60"]
        with Terminal(argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as shown:
            shown.read_until("ready")
            shown.hang_up()
            assert appears(tmp_path / "igsdk.pb.gz")
        assert is_whole(tmp_path)

    @pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGPIPE])
    def test_we_die_as_it_dies(self, tmp_path: Path, number: int) -> None:
        with terminal(tmp_path, "record", "--", "sh", "-c", f"kill -{int(number)} $$") as shown:
            assert shown.wait() == -number
        assert is_whole(tmp_path)
        assert not list(tmp_path.glob("core*"))

    def test_our_death_is_not_its_death(self, tmp_path: Path) -> None:
        script = "echo ready; while [ ! -e end ]; do sleep 0.05; done; echo alive >proof"
        argv = [*under_a_shell(tmp_path), "record", "--", "sh", "-c", script]
        with Terminal(argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as shown:
            shown.read_until("ready")
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            shown.read_until("status 137")
            (tmp_path / "end").touch()
            assert appears(tmp_path / "proof")

    def test_standard_error_that_nobody_reads(self, tmp_path: Path) -> None:
        read, write = os.pipe()
        os.close(read)
        argv = [*VERB, "record", "--", "sh", "-c", "echo out; exit 3"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=write, timeout=60
        )
        os.close(write)
        assert (done.returncode, done.stdout) == (3, b"out\n")
        assert is_whole(tmp_path)

    def test_a_pipe_for_events_that_nobody_reads(self, tmp_path: Path) -> None:
        read, write = os.pipe()
        os.close(read)
        argv = [*VERB, "events", "--", "sh", "-c", "sleep 0.3; echo out; exit 3"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_EVENTS": "9"}
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=write, timeout=60
        )
        os.close(write)
        assert (done.returncode, done.stdout) == (3, b"out\n")
