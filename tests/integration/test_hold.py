# SPDX-License-Identifier: Apache-2.0
"""Opens of a libcuda wait until the probes are on, and never longer than they must."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from igsdk._native import Held, OpenHold
from igsdk.runtime.launch import Command, Exit

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="permission events need root")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libcuda.so.1"
    path.write_text("a driver\n")
    return path


@contextmanager
def held(argv: list[str], **options: float) -> Iterator[tuple[Command, OpenHold]]:
    """A command whose opens are held, running."""
    command = Command(argv)
    hold = OpenHold(command.prepare(), **options)  # type: ignore[arg-type]
    try:
        command.go()
        yield command, hold
    finally:
        hold.close()
        command.kill()
        command.close()


def is_ready(hold: OpenHold, seconds: float = 10) -> bool:
    return bool(select.select([hold], [], [], seconds)[0])


def test_an_open_waits_until_it_is_released(library: Path) -> None:
    with held(["cat", str(library)]) as (command, hold):
        assert is_ready(hold)
        [waiting] = hold.take()
        status = library.stat()
        assert (waiting.device, waiting.inode) == (status.st_dev, status.st_ino)
        assert (waiting.path, waiting.pid) == (str(library), command.pid)
        assert os.pread(waiting.fileno(), 100, 0) == b"a driver\n"
        assert command.wait(0.3) is None
        assert hold.release(waiting.token)
        assert command.wait(10) == Exit(0)
        assert hold.counts()["late"] == 0


def test_after_the_deadline_it_goes_on_and_is_counted(library: Path) -> None:
    with held(["cat", str(library)], deadline=0.3) as (command, hold):
        start = time.monotonic()
        assert command.wait(10) == Exit(0)
        assert time.monotonic() - start > 0.2
        [waiting] = hold.take()
        assert not hold.release(waiting.token)
        assert hold.counts()["late"] == 1
        # The file is still the same one, though the open is answered.
        assert os.pread(waiting.fileno(), 100, 0) == b"a driver\n"


def test_links_and_deleted_files_are_held(library: Path) -> None:
    """By the name of the file itself, not by that of a link."""
    link = library.with_name("driver.so")
    link.symlink_to(library)
    script = f"exec 3< {link}; rm {library}; exec 4< /proc/self/fd/3"
    with held(["sh", "-c", script]) as (command, hold):
        for _ in range(2):
            assert is_ready(hold)
            for waiting in hold.take():
                hold.release(waiting.token)
        assert command.wait(10) == Exit(0)
        assert hold.counts()["held"] == 2


def test_other_names_pass(library: Path) -> None:
    other = library.with_name("libcudart.so.12")
    other.write_text("")
    with held(["cat", str(other)]) as (command, hold):
        assert command.wait(10) == Exit(0)
        assert hold.counts()["held"] == 0
        assert hold.counts()["opens"] >= 2


def test_each_open_waits_for_itself(library: Path) -> None:
    script = f"cat {library} & cat {library} & wait"
    with held(["sh", "-c", script]) as (command, hold):
        seen: list[Held] = []
        while len(seen) < 2:
            assert is_ready(hold)
            seen += hold.take()
        assert hold.release(seen[0].token)
        assert hold.counts()["waiting"] == 1
        assert hold.release(seen[1].token)
        assert command.wait(10) == Exit(0)


def test_only_the_commands_mounts_are_held(library: Path) -> None:
    with held(["sleep", "60"]) as (command, hold):
        assert library.read_text()
        subprocess.run(["cat", str(library)], check=True, timeout=10, stdout=subprocess.DEVNULL)
        assert not is_ready(hold, 0)
        # Nor does anybody wait who looks through the command's root, we ourselves included.
        inside = f"/proc/{command.pid}/root{library}"
        assert Path(inside).read_text()
        subprocess.run(["cat", inside], check=True, timeout=10, stdout=subprocess.DEVNULL)
        assert hold.counts()["held"] == 0


def test_descendants_are_held_and_so_is_another_user(library: Path) -> None:
    for folder in library.parents[:3]:
        folder.chmod(0o755)
    read = f"setpriv --reuid=65534 --clear-groups cat {library}"
    with held(["sh", "-c", f"(({read}) & wait)"]) as (command, hold):
        assert is_ready(hold)
        [waiting] = hold.take()
        assert waiting.pid != command.pid
        hold.release(waiting.token)
        assert command.wait(10) == Exit(0)


def test_mounts_that_come_later_are_held(library: Path) -> None:
    folder = library.parent / "mount"
    folder.mkdir()
    script = f"""
        mount -t tmpfs none {folder}
        cp {library.parent}/plain {folder}/libcuda.so.1
        sleep 0.3
        cat {folder}/libcuda.so.1
    """
    (library.parent / "plain").write_text("")
    with held(["sh", "-ec", script], deadline=1.0) as (command, hold):
        wanted = str(folder / "libcuda.so.1")
        paths = []
        while command.poll() is None and is_ready(hold):
            for waiting in hold.take():
                paths.append(waiting.path)
                hold.release(waiting.token)
        assert command.wait(10) == Exit(0)
        assert [path for path in paths if path.endswith("/libcuda.so.1")], (paths, wanted)


def test_file_systems_that_might_refuse_us_are_named(library: Path) -> None:
    command = Command(["true"])
    hold = OpenHold(command.prepare())
    assert hold.counts()["marked"] >= 1
    assert ("/proc", "proc") in hold.unmarked()
    hold.close()
    command.go()
    assert command.wait(10) == Exit(0)


def test_closing_lets_everything_go_on(library: Path) -> None:
    with held(["cat", str(library)], deadline=60) as (command, hold):
        assert is_ready(hold)
        hold.close()
        assert command.wait(10) == Exit(0)
        hold.close()


def test_killing_us_lets_everything_go_on(library: Path, tmp_path: Path) -> None:
    """kill -9 while the open waits: no answer will ever come from us."""
    mark = tmp_path / "mark"
    script = f"""
        import select, time
        from igsdk._native import Held, OpenHold
        from igsdk.runtime.launch import Command
        command = Command(["sh", "-c", "cat {library} && touch {mark}"])
        hold = OpenHold(command.prepare(), deadline=60)
        command.go()
        select.select([hold], [], [])
        print("held", flush=True)
        time.sleep(60)
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert not mark.exists()
    holder.kill()
    holder.communicate()
    end = time.monotonic() + 10
    while not mark.exists():
        assert time.monotonic() < end, "the command still waits"
        time.sleep(0.01)


def test_the_answer_needs_no_gil(library: Path) -> None:
    """Other opens go on while Python computes: a C call that keeps the GIL for a while."""
    sleep_with_gil = ctypes.PyDLL(None).usleep
    with held(["sh", "-c", "for i in 1 2 3 4 5; do cat /etc/passwd; done >/dev/null"]) as (
        command,
        _,
    ):
        sleep_with_gil(900_000)
        assert command.poll() == Exit(0)


def test_many_opens_at_once_are_all_answered(tmp_path: Path) -> None:
    """More than we hold at once: those above the limit go on, and are counted."""
    for number in range(100):
        (tmp_path / f"libcuda.so.{number}").write_text("")
    script = f"for f in {tmp_path}/libcuda.so.*; do cat $f & done; wait"
    with held(["sh", "-c", script], deadline=1.0) as (command, hold):
        assert command.wait(20) == Exit(0)
        counts = hold.counts()
        assert counts["held"] + counts["full"] == 100
        assert counts["late"] == counts["held"] <= 64
        assert counts["waiting"] == 0


def test_a_process_that_is_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OSError, match="mounts of the command"):
        OpenHold(gone.pid)


def test_a_program_that_is_killed_while_it_waits(library: Path) -> None:
    with held(["cat", str(library)]) as (command, hold):
        assert is_ready(hold)
        command.kill()
        [waiting] = hold.take()
        assert hold.release(waiting.token)
        assert hold.counts()["waiting"] == 0
