# SPDX-License-Identifier: Apache-2.0
"""Births and deaths of processes: who is who, what an end gives back, and who is recorded."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.balance import Figures
from tests.support.recording import (
    balanced,
    command,
    info_of,
    own_driver,
    paused,
    play,
    recording,
    with_environment,
)
from tests.support.simdriver import Driver, all_books

from igsdk._run import Run

M = 1 << 20


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def run(driver: Driver) -> Iterator[Run]:
    """One run for all that only looks at the driver's own player."""
    with recording(driver, events="all") as run:
        yield run


def device_sums(figures: Figures, device: int = 0) -> tuple[int, int, int]:
    """Bytes of plain device memory: allocated, freed by calls, given back by an end."""
    row = figures[("device", "own", device)]
    return row["alloc_bytes"], row["free_bytes"], row["implicit_bytes"]


# Ends -----------------------------------------------------------------------------------


def test_a_fork_is_another_process(run: Run, driver: Driver, tmp_path: Path) -> None:
    script = """use 0 = 0; alloc p 1M = 0
        fork { use 0 = 0; free p = 1; alloc q 2M = 0; free q = 0; alloc r 4M = 0 }
        wait = 0; free p = 0"""
    played = play(run, driver, script, tmp_path)
    assert [device_sums(figures) for figures in played.figures] == [
        (M, M, 0),
        (6 * M, 2 * M, 4 * M),
    ]
    assert len({info.instance for info in played.infos}) == 2
    assert played.losses == {}


ENDINGS = {
    "returns": ("", 0),
    "exits": ("exit 0", 0),
    "is killed": ("kill9", -9),
    "exits with a thread that still allocates": ("exit 0", 0),
    "is killed with a thread that still allocates": ("kill9", -9),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_end_gives_back_what_is_held(
    name: str, run: Run, driver: Driver, tmp_path: Path
) -> None:
    end, status = ENDINGS[name]
    script = f"use 0 = 0; alloc p 1M = 0; alloc q 2M = 0; free p = 0; barrier; sleep 5; {end}"
    if "thread" in name:
        script += "\nthread 1 { use 1 = 0; repeat 1000000 { alloc t 4096 } }"
    played = play(run, driver, script, tmp_path)
    assert played.done.returncode == status
    assert device_sums(played.only) == (3 * M, M, 2 * M)
    (info,) = played.infos
    assert info.ended_ns is not None
    assert info.ended_ns > info.start_ns
    assert played.losses == {}


def test_a_process_lives_until_its_last_thread_has_ended(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    """Its first thread has left; what another one does is still its own."""
    before = "use 0 = 0; alloc p 1M = 0; retain c 0 = 0; barrier; leave\n"
    before += "thread 1 { set c = 0; alloc q 2M = 0"
    with paused(driver, tmp_path, before, "alloc r 4M = 0; free p = 0 }"):
        (books,) = all_books(tmp_path)
        while Path(f"/proc/{books.pid}/task/{books.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.002)
        info = info_of(run, books)
        assert info is not None
        assert info.ended_ns is None
    (figures,) = balanced(run, all_books(tmp_path))
    assert device_sums(figures) == (7 * M, M, 6 * M)
    ended = info_of(run, books)
    assert ended is not None
    assert ended.instance == info.instance
    assert ended.ended_ns is not None


def test_after_the_drivers_teardown_nothing_is_freed(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    script = """use 0 = 0; alloc p 1M = 0; hostalloc h 2M = 0; async a 4M = 0; teardown
        free p = 4; freehost h = 4; freeasync a = 4; release 0 = 4; reset 0 = 4; alloc q 5 = 4"""
    played = play(run, driver, script, tmp_path)
    assert device_sums(played.only) == (M, 0, M)
    assert played.only["device", "own", 0]["fail_bytes"] == 5
    assert played.only["pool", "own", 0]["implicit_bytes"] == 4 * M
    assert played.only["pinned", "pinned", 0]["implicit_bytes"] == 2 * M


def test_an_address_wanders_between_threads(run: Run, driver: Driver, tmp_path: Path) -> None:
    """Freed by one thread, which has not returned yet, and handed out in another one."""
    script = """
        thread 0 { use 0 = 0; retain c 0 = 0; alloc p 1M = 0; barrier; free p = 0; free q = 0 }
        thread 1 { barrier; set c = 0; sleep 50; alloc q 1M = 0 }"""
    played = play(run, driver, script, tmp_path, peaks=False, latency="cuMemFree_v2:150000")
    assert device_sums(played.only) == (2 * M, 2 * M, 0)
    rows = [event for event in run.events(0.3) if event.process.pid == played.infos[0].pid]
    assert len({event.address for event in rows}) == 1, "the case did not come about"
    assert [event.type for event in rows[:3]] == ["alloc", "alloc", "free"]
    assert played.losses == {}


# Identity -------------------------------------------------------------------------------


def test_every_exec_is_a_new_process_with_the_same_pid(driver: Driver, tmp_path: Path) -> None:
    texts = (
        "use 0 = 0; alloc p 1M = 0; exec self {}",
        "use 0 = 0; alloc p 2M = 0; free p = 0; alloc q 2M = 0; exec self {}",
        "use 1 = 0; alloc p 4M = 0; free p = 0",
    )
    files = [tmp_path / f"script{number}" for number in range(len(texts))]
    for file, text, after in zip(files, texts, [*files[1:], ""], strict=True):
        file.write_text(text.format(after))
    argv = (*with_environment(driver, tmp_path), str(driver.play), str(files[0]))
    with recording(argv=argv) as run:
        assert run.command is not None
        ended = run.command.wait()
        assert ended is not None
        assert ended.status == 0
        figures = balanced(run, all_books(tmp_path))
        infos = run.processes()
    assert [device_sums(one, device) for one, device in zip(figures, (0, 0, 1), strict=True)] == [
        (M, 0, M),
        (4 * M, 2 * M, 2 * M),
        (4 * M, 4 * M, 0),
    ]
    assert len({info.pid for info in infos}) == 1
    assert len({info.instance for info in infos}) == 3
    assert all(info.ended_ns for info in infos)


def test_a_pid_that_comes_again_is_another_process(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    """The kernel is told which pid was the last one; somebody else may be quicker, so again."""
    counter = Path("/proc/sys/kernel/ns_last_pid")
    for attempt in range(50):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        play(run, driver, "use 0 = 0; alloc p 1M = 0", folder)
        time.sleep(0.02)  # another start time, in ticks
        counter.write_text(str(all_books(folder)[0].pid - 1))
        driver.run("use 0 = 0; alloc p 2M = 0; free p = 0; alloc q 512 = 0", folder)
        books = all_books(folder)
        if books[0].pid == books[1].pid:
            break
    else:
        pytest.fail("no pid came again in 50 attempts")
    figures = balanced(run, books)
    assert [device_sums(one) for one in figures] == [(M, 0, M), (2 * M + 512, 2 * M, 512)]
    first, second = (info_of(run, book) for book in books)
    assert first is not None
    assert second is not None
    assert (first.pid, first.exec_id) == (second.pid, second.exec_id)
    assert first.instance != second.instance


def test_a_pid_namespace_has_its_own_pids(run: Run, driver: Driver, tmp_path: Path) -> None:
    """Both numbers are told, and the second process of that pid there is another one."""
    inside = """for i in 1 2 3; do
        "$0" -e "use 0 = 0; alloc p ${i}M = 0; fork { use 1 = 0; alloc q 4M = 0 }; wait = 0"
        sleep 0.02; echo 10 > /proc/sys/kernel/ns_last_pid; done"""
    words = ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", inside, str(driver.play)]
    subprocess.run(words, env=driver.environment(tmp_path), check=True, timeout=30)
    books = all_books(tmp_path)
    assert len(books) == 6
    assert {book.pid for book in books} <= set(range(2, 20))
    figures = balanced(run, books)
    assert [device_sums(one)[2] for one in figures[::2]] == [M, 2 * M, 3 * M]
    assert [device_sums(one, 1)[2] for one in figures[1::2]] == [4 * M] * 3
    assert len({book.pid for book in books[2::2]}) == 1, "the pid did not come again"
    for book in books:
        info = info_of(run, book)
        assert info is not None
        assert info.ns_pid == book.pid
        assert info.pid != info.ns_pid


# Who is recorded ------------------------------------------------------------------------


def test_a_process_that_was_there_before_us(driver: Driver, tmp_path: Path) -> None:
    """What it had is not claimed, its free of that is counted, and all later calls are booked."""
    after = "alloc q 1M = 0; free p = 0; free q = 0; alloc r 2M = 0; free 12345 = 1"
    with (
        paused(driver, tmp_path, "use 0 = 0; alloc p 4M = 0", after) as process,
        recording(driver) as run,
    ):
        assert any(str(process.pid) in note for note in run.notes())
        (tmp_path / "go").touch()
        process.wait(30)
        (info,) = run.processes()
        losses = run.losses()
        profile = run.profile()
    assert (info.pid, info.before_us, info.unknown_frees) == (process.pid, True, 1)
    assert losses["unknown_free"] == 1
    assert profile.total("alloc_space") == 3 * M
    assert profile.total("inuse_space") == 2 * M
    assert info.peak == 2 * M
    assert {row["device"] for row in profile.samples()} == {"unknown"}


def test_a_process_after_us_was_not_before_us(run: Run, driver: Driver, tmp_path: Path) -> None:
    (info,) = play(run, driver, "use 0 = 0; alloc p 4M = 0", tmp_path).infos
    assert (info.before_us, info.late_ns, info.unknown_frees) == (False, 0, 0)


def test_a_command_is_recorded_with_its_descendants(driver: Driver, tmp_path: Path) -> None:
    """Whatever their generation, and nobody else who uses the same file."""
    books, others = tmp_path / "books", tmp_path / "others"
    books.mkdir()
    others.mkdir()
    script = "use 0 = 0; alloc p 1M = 0; fork { use 0 = 0; alloc p 1M = 0 }; wait = 0"
    shell = '"$0" -e "$1" & (sh -c \'"$0" -e "$1"\' "$0" "$1") ; wait'
    argv = (*with_environment(driver, books), "sh", "-c", shell, str(driver.play), script)
    with (
        paused(driver, others, "use 0 = 0; alloc p 1M = 0", "alloc q 1M = 0"),
        recording(argv=argv) as run,
    ):
        driver.run(script, others)
        assert run.command is not None
        run.command.wait()
        told = all_books(books)
        assert len(told) == 4
        balanced(run, told)
        assert len(run.processes()) == 4
        assert run.profile().total("alloc_space") == 4 * M


def test_a_pid_is_recorded_with_its_later_descendants(driver: Driver, tmp_path: Path) -> None:
    wanted, other = tmp_path / "wanted", tmp_path / "other"
    wanted.mkdir()
    other.mkdir()
    after = "use 0 = 0; alloc p 1M = 0; fork { use 0 = 0; alloc q 2M = 0 }; wait = 0"
    with paused(driver, wanted, "init", after) as process:
        with recording(driver, pid=process.pid) as run:
            driver.run(after, other)
            (wanted / "go").touch()
            process.wait(30)
            balanced(run, all_books(wanted))
            pids = {info.pid for info in run.processes()}
        assert pids == {book.pid for book in all_books(wanted)}
        assert len(pids) == 2


def test_a_command_name_is_a_filter(driver: Driver, tmp_path: Path) -> None:
    """Of the kernel's 15 bytes: the rest of a longer name does not matter."""
    named = driver.folder / "a-long-name-of-a-program"
    if not named.exists():
        named.write_bytes(driver.play.read_bytes())
        named.chmod(0o755)
    environment = driver.environment(tmp_path)
    script = "use 0 = 0; alloc p 3M = 0"
    with recording(driver, command=named.name) as run:
        driver.run(script)
        subprocess.run([named, "-e", script], env=environment, check=True)
        balanced(run, all_books(tmp_path))
        (info,) = run.processes()
    assert info.comm == named.name[:15]


def test_a_mount_namespace_is_a_filter(driver: Driver, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    script = "use 0 = 0; alloc p 3M = 0"
    with paused(driver, tmp_path, "init", script, "unshare", "-m") as process:
        inode = Path(f"/proc/{process.pid}/ns/mnt").stat().st_ino
        assert inode != Path("/proc/self/ns/mnt").stat().st_ino
        with recording(driver, mount_ns=inode) as run:
            driver.run(script, other)
            (tmp_path / "go").touch()
            process.wait(30)
            balanced(run, all_books(tmp_path))
            (info,) = run.processes()
    assert info.mntns_id == inode
    assert info.pid == process.pid


def test_a_command_sees_only_itself(driver: Driver, tmp_path: Path) -> None:
    """The pid of a command is selected anew in each run: a former one's is forgotten."""
    for size in (1, 2):
        folder = tmp_path / str(size)
        folder.mkdir()
        with recording(argv=command(driver, f"use 0 = 0; alloc p {size}M = 0", folder)) as run:
            assert run.command is not None
            run.command.wait()
            (figures,) = balanced(run, all_books(folder))
            assert device_sums(figures) == (size * M, 0, size * M)
            assert len(run.processes()) == 1


def test_a_process_can_record_itself(driver: Driver) -> None:
    """Recorder and client in one process, as in a notebook."""
    script = Path(__file__).parent.parent / "support/own_process.py"
    words = [sys.executable, str(script), str(driver.libcuda)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.stdout == f"{M} 1 []\n", done.stderr


def test_libraries_of_strangers_are_not_spoken_of(driver: Driver) -> None:
    """Other programs of the machine end early too; the run of a command is about its own."""
    with recording(driver, argv=["true"]) as run:
        unreadable = run._session.libraries.unreadable
        unreadable.add(1)
        strangers = run._session.unheld(run._session.reading())
        assert run._session.command
        unreadable.add(run._session.command.pid)
        own = run._session.unheld(run._session.reading())
    assert strangers == []
    assert len(own) == 1
    assert own[0].startswith("1 process ended before the driver library ")
