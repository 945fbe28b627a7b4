# SPDX-License-Identifier: Apache-2.0
"""Names of generated code from /tmp/perf-PID.map, whatever stands in that file."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from igsdk.runtime import perf_maps
from igsdk.runtime.perf_maps import PerfMaps, is_trampoline

PID = os.getpid()


@pytest.fixture
def path() -> Iterator[Path]:
    """The map of the process that runs the tests."""
    path = Path(f"/tmp/perf-{PID}.map")
    path.unlink(missing_ok=True)
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[PerfMaps]:
    monkeypatch.setattr(perf_maps, "_RETRY", 0)
    maps = PerfMaps()
    yield maps
    maps.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def names(maps: PerfMaps, *addresses: int) -> list[str | None]:
    return [maps.lookup(1, PID, address) for address in addresses]


def test_addresses_have_names(path: Path, maps: PerfMaps) -> None:
    path.write_text("1000 20 first\n2000 10 LazyCompile:*sum /app/main.js:3\n0x1020 0x5 third\n")
    assert names(maps, 0xFFF, 0x1000, 0x101F, 0x1020, 0x1025) == [
        None,
        "first",
        "first",
        "third",
        None,
    ]
    assert names(maps, 0x200F, 0x2010) == ["LazyCompile:*sum /app/main.js:3", None]


def test_a_file_that_grows_is_read_on(path: Path, maps: PerfMaps) -> None:
    assert names(maps, 0x1000) == [None]
    path.write_text("1000 20 early\n2000 20 half a li")
    assert names(maps, 0x1000, 0x2000) == ["early", None]
    with path.open("a") as file:
        file.write("ne\n1010 8 later\n")
    assert names(maps, 0x1000, 0x2000, 0x1010, 0x1018) == ["early", "half a line", "later", "early"]


def test_a_file_that_begins_anew_is_read_anew(path: Path, maps: PerfMaps) -> None:
    path.write_text("1000 20 a long name of a function\n")
    assert names(maps, 0x1000) == ["a long name of a function"]
    path.write_text("3000 20 b\n")
    assert names(maps, 0x1000, 0x3000) == [None, "b"]


def test_the_map_of_a_process_that_is_gone(maps: PerfMaps) -> None:
    """It has to be seen in time."""
    process = subprocess.Popen(["sleep", "60"])
    path = Path(f"/tmp/perf-{process.pid}.map")
    path.write_text("1000 20 function\n")
    maps.meet(process.pid)
    process.kill()
    process.wait()
    path.unlink()
    assert maps.lookup(7, process.pid, 0x1000) == "function"
    assert maps.lookup(7, process.pid, 0x1000) == "function"
    assert maps.lookup(8, process.pid, 0x1000) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_in_its_own_mounts_by_its_own_pid(maps: PerfMaps) -> None:
    script = "mount -t tmpfs none /tmp; echo '1000 20 inside' > /tmp/perf-$$.map; echo $$; read x"
    process = subprocess.Popen(
        ["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", script],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert maps.lookup(1, int(children[0]), 0x1000) == "inside"
    process.communicate("")


# Files that are no maps, and worse ------------------------------------------------------


def test_lines_that_say_nothing_are_left_out(path: Path, maps: PerfMaps) -> None:
    lines = [
        b"",
        b"1000",
        b"1000 20",
        b"1000 zz name",
        b"-1000 20 name",
        b"1000 -20 name",
        b"1000 0 empty",
        b"1000 ffffffffffff too long",
        b"ffffffffffffffff 20 beyond the end",
        b"1" * 70 + b" 20 name",
        b"1000 20 ",
        b"\xff\xfe\x00 \x00 \x00",
        b"2000 20 good",
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert names(maps, 0x1000, 0x2000) == [None, "good"]


def test_names_are_safe_to_show_and_short(path: Path, maps: PerfMaps) -> None:
    path.write_bytes(b"1000 20 \x1b[31mred\tx\n2000 20 \xff\xfe\n3000 20 " + b"n" * 100_000 + b"\n")
    assert names(maps, 0x1000, 0x2000) == ["\ufffd[31mred\ufffdx", "\ufffd\ufffd"]
    (name,) = names(maps, 0x3000)
    assert name == "n" * 512


def test_random_bytes_never_hurt(path: Path, maps: PerfMaps) -> None:
    generator = random.Random(4)
    alphabet = b"0123456789abcdef \n\n\x00\xffx"
    for length in [*range(100), 5000, 100_000]:
        path.write_bytes(bytes(generator.choices(alphabet, k=length)))
        for address in (0, 1, 0x10, 0xABC, 0xFFFFFFFF, (1 << 64) - 1):
            name = maps.lookup(length + 10, PID, address)
            assert name is None or name.isprintable()


def test_only_a_plain_file_of_the_process_itself(path: Path, maps: PerfMaps) -> None:
    text = "1000 20 name\n"
    other = path.with_suffix(".other")
    other.write_text(text)
    path.symlink_to(other)
    assert names(maps, 0x1000) == [None]
    path.unlink()
    other.unlink()
    os.mkfifo(path)
    assert names(maps, 0x1000) == [None]
    path.unlink()
    path.mkdir()
    assert names(maps, 0x1000) == [None]
    path.rmdir()
    path.write_text(text)
    if os.geteuid() == 0:
        os.chown(path, 12345, 0)
        assert names(maps, 0x1000) == [None]
        os.chown(path, 0, 0)
    assert names(maps, 0x1000) == ["name"]


def test_one_that_an_earlier_process_of_that_number_left(path: Path, maps: PerfMaps) -> None:
    path.write_text("1000 20 old\n")
    os.utime(path, (1, 1))
    assert names(maps, 0x1000) == [None]


def test_what_is_kept_has_an_end(path: Path, maps: PerfMaps) -> None:
    line = "{:x} 10 the function number {}\n"
    text = "".join(line.format(0x1000 + 16 * n, n) for n in range(250_000))
    assert len(text) > perf_maps._MAX_FILE
    path.write_text(text)
    before = time.process_time()
    assert names(maps, 0x1000, 0x1000 + 16 * 249_999) == ["the function number 0", None]
    assert time.process_time() - before < 3
    assert maps._bytes() <= perf_maps._MAX_FILE
    for process in range(2, 7):
        assert maps.lookup(process, PID, 0x1000) == "the function number 0"
    assert maps._bytes() <= perf_maps._MAX_TOTAL


def test_many_processes_have_few_descriptors(path: Path, maps: PerfMaps) -> None:
    path.write_text("1000 20 name\n")
    before = descriptors()
    for process in range(1, 500):
        assert maps.lookup(process, PID, 0x1000) == "name"
        maps.meet(PID)
    assert descriptors() - before <= perf_maps._MAX_PROCESSES + 1  # that one is met
    maps.close()
    assert descriptors() == before


def test_a_line_for_each_call_costs_little_each_time(path: Path, maps: PerfMaps) -> None:
    """A program that compiles all the time."""
    before = time.process_time()
    with path.open("a") as file:
        for number in range(10_000):
            file.write(f"{0x1000 + 16 * number:x} 10 f{number}\n")
            if number % 10 == 0:
                file.flush()
                assert names(maps, 0x1000 + 16 * number) == [f"f{number}"]
    assert time.process_time() - before < 5


def test_what_pythons_trampolines_are_called() -> None:
    assert is_trampoline("py::Model.load:/app/model.py")
    assert not is_trampoline("pypy")


def test_maps_of_processes_that_are_gone_are_closed_after_a_while(
    path: Path, maps: PerfMaps
) -> None:
    before = descriptors()
    path.write_text("1000 20 own\n")
    process = subprocess.Popen(["sleep", "60"])
    other = Path(f"/tmp/perf-{process.pid}.map")
    other.write_text("1000 20 function\n")
    maps.meet(process.pid)
    assert maps.lookup(7, process.pid, 0x1000) == "function"
    maps.meet(process.pid)
    assert names(maps, 0x1000) == ["own"]
    maps.close_ended(0.1)
    assert descriptors() == before + 3
    process.kill()
    process.wait()
    other.unlink()
    maps.close_ended(60)
    assert maps.lookup(7, process.pid, 0x1000) == "function"
    time.sleep(0.1)
    maps.close_ended(0.1)
    assert descriptors() == before + 1
    assert names(maps, 0x1000) == ["own"]
