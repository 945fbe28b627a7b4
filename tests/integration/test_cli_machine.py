# SPDX-License-Identifier: Apache-2.0
"""The commands on a real kernel: what they show, and machines that lack something."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support import simdriver
from tests.support.terminal import CTRL_C, Terminal

from igsdk.profile import Profile

MIB = 1 << 20
IGSDK = [sys.executable, "-m", "igsdk.cli"]
SETUP = "cuInit 0; cuDevicePrimaryCtxRetain &c 0; cuCtxSetCurrent c"
STORY = f"{SETUP}; cuMemAlloc_v2 &p 3M = 0; cuMemAlloc_v2 &q 2M = 0; cuMemFree_v2 q = 0"
STORY += "; cuMemAlloc_v2 &r 900G = 2"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
UNABLE = "-bpf,-perfmon,-sys_admin"
POWERLESS = ["setpriv", f"--bounding-set={UNABLE}", f"--inh-caps={UNABLE}"]


@pytest.fixture(scope="module")
def driver() -> simdriver.Driver:
    return simdriver.build()


@pytest.fixture
def environment(driver: simdriver.Driver) -> dict[str, str]:
    return driver.environment(devices="1G")


def igsdk(
    folder: Path, environment: dict[str, str], *arguments: str, before: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    argv = [*(before or []), *IGSDK, *arguments]
    return subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def one_sentence_each(text: str) -> bool:
    """Cause and remedy on one line, no traceback."""
    return text.startswith("igsdk: ") and text.count("\n") == 1 and text.count(". ") >= 1


def test_a_command_is_recorded(
    tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
) -> None:
    command = ["sh", "-c", f"{driver.play} -e '{STORY}'; echo out; exit 7"]
    done = igsdk(tmp_path, environment, "record", "--", *command)
    assert (done.returncode, done.stdout) == (7, "out\n")
    profile = Profile.read(tmp_path / "igsdk.pb.gz")
    assert profile.total("inuse_space") == 3 * MIB
    assert profile.total("peak_space") == 5 * MIB
    assert profile.total("alloc_space") == 5 * MIB
    assert profile.total("failed_space") == 900 * 1024 * MIB
    assert "SIMULATED" in done.stderr
    shown = igsdk(tmp_path, environment, "report")
    assert shown.returncode == 0
    assert "CUDA_ERROR_OUT_OF_MEMORY" in shown.stdout
    assert "3.00 MiB" in shown.stdout


def test_a_command_without_cuda(tmp_path: Path, environment: dict[str, str]) -> None:
    done = igsdk(tmp_path, environment, "record", "--json", "--", "true")
    assert done.returncode == 0
    record = json.loads(done.stderr.splitlines()[0])
    assert record["allocated_bytes"] == 0
    assert record["command"] == {"code": 0, "signal": None}
    assert Profile.read(tmp_path / "igsdk.pb.gz").total("alloc_space") == 0


def test_events_of_a_running_process(
    tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
) -> None:
    script = f"{SETUP}; sleep 4000; cuMemAlloc_v2 &r 900G = 2; sleep 60000"
    with subprocess.Popen([driver.play, "-e", script], env=environment) as process:
        try:
            arguments = ["events", "--json", "--pid", str(process.pid), "--duration", "6"]
            done = igsdk(tmp_path, environment, *arguments)
        finally:
            process.kill()
    assert done.returncode == 0
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["type"], r["pid"], r["result_name"]) for r in records] == [
        ("failure", process.pid, "CUDA_ERROR_OUT_OF_MEMORY")
    ]


def test_the_first_event_is_soon_on_screen(
    tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
) -> None:
    """At most a second after the start; on a busy machine, at most a second of work."""
    argv = [*IGSDK, "events", "--", str(driver.play), "-e", f"{STORY}; sleep 100"]
    walls, works = [], []
    for _ in range(3):
        start, used = time.monotonic(), children_seconds()
        with subprocess.Popen(
            argv, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert "CUDA_ERROR_OUT_OF_MEMORY" in process.stderr.readline()
            walls.append(time.monotonic() - start)
            process.stderr.read()
        works.append(children_seconds() - used)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"first event after {min(walls):.2f} s, {min(works):.2f} s of work, load {load:.1f}")
    assert min(works) <= 1.0
    if load < cores / 2:
        assert min(walls) <= 1.0


def children_seconds() -> float:
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class TestMachinesThatLackSomething:
    @pytest.mark.parametrize("before", [NOBODY, POWERLESS], ids=["no root", "no CAP_BPF"])
    def test_permission(
        self, tmp_path: Path, environment: dict[str, str], before: list[str]
    ) -> None:
        tmp_path.chmod(0o777)
        for parent in list(tmp_path.parents)[:2]:
            parent.chmod(0o755)
        for verb in ("record", "events"):
            done = igsdk(tmp_path, environment, verb, before=before)
            assert (done.returncode, done.stdout) == (3, "")
            assert "CAP_BPF" in done.stderr
            assert "as root" in done.stderr
            assert one_sentence_each(done.stderr)
        command = ["--", "touch", "started"]
        done = igsdk(tmp_path, environment, "record", *command, before=before)
        assert done.returncode == 125
        assert not (tmp_path / "started").exists()
        assert igsdk(tmp_path, environment, "doctor", before=before).returncode == 3

    def test_btf(self, tmp_path: Path, environment: dict[str, str]) -> None:
        (tmp_path / "empty").mkdir()
        line = f'mount --bind {tmp_path}/empty /sys/kernel/btf && exec "$@"'
        before = ["unshare", "-m", "sh", "-c", line, "sh"]
        done = igsdk(tmp_path, environment, "record", before=before)
        assert (done.returncode, done.stdout) == (4, "")
        assert "BTF" in done.stderr
        assert one_sentence_each(done.stderr)
        checked = igsdk(tmp_path, environment, "doctor", "--json", before=before)
        assert checked.returncode == 4
        states = {check["name"]: check["state"] for check in json.loads(checked.stdout)["checks"]}
        assert states["kernel BTF"] == "fail"

    def test_output_folder(self, tmp_path: Path, environment: dict[str, str]) -> None:
        done = igsdk(tmp_path, environment, "record", "-o", "missing/x.pb.gz")
        assert done.returncode == 8
        assert one_sentence_each(done.stderr)

    def test_room_on_the_disk(
        self, tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
    ) -> None:
        (tmp_path / "small").mkdir()
        line = 'mount -t tmpfs -o size=64k none small && exec "$@"'
        before = ["unshare", "-m", "sh", "-c", line, "sh"]
        fill = f"{driver.play} -e '{STORY}'; cat /dev/zero >small/fill 2>/dev/null; exit 4"
        arguments = ["record", "-o", "small/x.pb.gz", "--", "sh", "-c", fill]
        done = igsdk(tmp_path, environment, *arguments, before=before)
        assert done.returncode == 4
        assert "No space left on device. The profile went elsewhere" in done.stderr
        rescued = Path(done.stderr.split("the profile is in ")[1].split(";")[0])
        assert Profile.read(rescued).total("inuse_space") == 3 * MIB
        shutil.rmtree(rescued.parent)

    @pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
    def test_a_command(
        self, tmp_path: Path, environment: dict[str, str], command: str, code: int
    ) -> None:
        done = igsdk(tmp_path, environment, "record", "--", command)
        assert (done.returncode, done.stdout) == (code, "")
        assert one_sentence_each(done.stderr)


class TestOnATerminal:
    def test_ctrl_c_once(
        self, tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
    ) -> None:
        script = f"{STORY}; sleep 60000"
        with subprocess.Popen([driver.play, "-e", script], env=environment) as process:
            try:
                argv = [*IGSDK, "record", "--pid", str(process.pid)]
                with Terminal(argv, cwd=tmp_path, env=environment) as shown:
                    shown.read_until("ctrl-C ends it")
                    shown.read_until(r"in use, \d+ process")
                    shown.press(CTRL_C)
                    shown.read_until("nothing was traced; the profile in igsdk.pb.gz is empty")
                    assert shown.wait() == 0
                assert process.poll() is None
            finally:
                process.kill()
        about = Profile.read(tmp_path / "igsdk.pb.gz").metadata
        called = {row.pid for row in about.processes if row.before_us}
        assert process.pid in called or str(process.pid) in " ".join(about.notes)

    def test_ctrl_c_twice(
        self, tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
    ) -> None:
        script = f"trap '' INT; {driver.play} -e '{STORY}'; echo played; exec sleep 60"
        argv = [*IGSDK, "record", "--", "sh", "-c", script]
        with Terminal(argv, cwd=tmp_path, env=environment) as shown:
            shown.read_until("played")
            shown.press(CTRL_C)
            time.sleep(0.4)
            shown.press(CTRL_C)
            shown.read_until("the profile is in igsdk.pb.gz")
            assert shown.wait() == -signal.SIGINT
            end_session(shown.process.pid)
        assert Profile.read(tmp_path / "igsdk.pb.gz").total("inuse_space") == 3 * MIB

    def test_our_death_in_the_middle(
        self, tmp_path: Path, driver: simdriver.Driver, environment: dict[str, str]
    ) -> None:
        half = "cuMemAlloc_v2 &p 1M = 0; cuMemFree_v2 p = 0; "
        script = f"{SETUP}; {half * 50}sleep 3000; {half * 50}cuMemAlloc_v2 &q 1M = 0"
        plain = subprocess.run(
            [driver.play, "-v", "-e", script],
            env=environment,
            text=True,
            capture_output=True,
            timeout=60,
        )
        line = f"{driver.play} -v -e '{script}' >out; echo $? >status"
        argv = [*IGSDK, "record", "--", "sh", "-c", line]
        with subprocess.Popen(argv, env=environment, cwd=tmp_path) as process:
            wait_for(lambda: "cuMemAlloc_v2" in read(tmp_path / "out"))
            process.kill()
        wait_for(lambda: read(tmp_path / "status") != "")
        assert read(tmp_path / "status") == f"{plain.returncode}\n"
        assert without_addresses(read(tmp_path / "out")) == without_addresses(plain.stdout)


def end_session(leader: int) -> None:
    """Ends what a leader that is gone left behind in its session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                os.kill(int(folder.name), signal.SIGKILL)
        except (OSError, IndexError):  # noqa: PERF203 - it ended while we looked
            continue


def wait_for(condition: object, timeout: float = 20.0) -> None:
    end = time.monotonic() + timeout
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def without_addresses(text: str) -> list[str]:
    return [" ".join(w for w in line.split() if "0x" not in w) for line in text.splitlines()]
