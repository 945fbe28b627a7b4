# SPDX-License-Identifier: Apache-2.0
"""What only goes wrong at an edge: late frees, deep stacks, threads with other names, races."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.recording import own_driver, play, recording
from tests.support.simdriver import Driver

import igsdk
from igsdk._run import Run

M = 1 << 20

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def run(driver: Driver) -> Iterator[Run]:
    with recording(driver) as run:
        yield run


def test_frees_in_flight_when_their_context_ends_count_once(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    """The first such free must not make the second one look like one of a living context."""
    script = """
        thread 0 { init = 0; ctx x 0 = 0; alloc a 1M; alloc b 1M; alloc c 4M
                   barrier; sleep 100; destroy x; sleep 400; ctx y 0 = 0; alloc d 2M }
        thread 1 { barrier; set x = 0; free a }
        thread 2 { barrier; set x = 0; sleep 30; free b }"""
    played = play(run, driver, script, tmp_path, peaks=False, latency="cuMemFree_v2:250000")
    (row,) = run._session.reading().snapshot.processes
    assert int(row["in_use"]) == 2 * M
    assert int(row["peak"]) == 6 * M
    assert played.losses == {}


def test_a_deep_stack_is_whole_as_far_as_it_is_copied(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    play(run, driver, "depth 300; use 0 = 0; alloc p 1M = 0", tmp_path)
    stack = max(run.stacks().values(), key=lambda stack: len(stack.frames))
    assert len(stack.frames) > 300
    assert (stack.frames[0].function, stack.missing) == ("cuMemAlloc_v2", None)
    assert stack.frames[-1].function == "_start"


def test_a_stack_deeper_than_the_copy_is_kept_as_far_as_it_goes(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    played = play(run, driver, "depth 30000; use 0 = 0; alloc p 1M = 0", tmp_path)
    stack = max(run.stacks().values(), key=lambda stack: len(stack.frames))
    assert len(stack.frames) > 300
    assert stack.frames[-1].function == "[native frames cut after 32 KiB of stack]"
    assert stack.missing == "native frames cut after 32 KiB of stack"
    assert played.losses == {"stacks_cut": 1}


def test_who_stops_reading_events_goes_on_where_that_was(driver: Driver, tmp_path: Path) -> None:
    """Events come in batches; the rest of one is not lost with the loop that took it."""
    script = "use 0 = 0; alloc a 1M = 0; alloc b 2M = 0; alloc c 4M = 0; free a = 0"
    with recording(driver, events="all") as run:
        play(run, driver, script, tmp_path)
        run.stop()
        first = next(iter(run.events(0)))
        rest = list(run.events(0))
    assert [event.bytes for event in (first, *rest)] == [M, 2 * M, 4 * M, M]


_NAMED_THREAD = """
import ctypes, threading, sys
libc, cuda = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
def work():
    libc.prctl(15, b"worker")
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemFree_v2(pointer) == 0
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_threads_with_names_of_their_own_belong_to_their_process(
    driver: Driver, tmp_path: Path
) -> None:
    program = tmp_path / f"n{os.getpid()}"
    program.symlink_to(sys.executable)
    with recording(driver, command=program.name) as run:
        subprocess.run(
            [program, "-c", _NAMED_THREAD], env=driver.environment(tmp_path), check=True, timeout=30
        )
        (usage,) = run._session.reading().snapshot.usages
    assert (int(usage["alloc_bytes"]), int(usage["free_bytes"])) == (M, M)


def test_a_sweep_leaves_fresh_entries_at_old_addresses(driver: Driver, tmp_path: Path) -> None:
    """A context ends with memory in it, and the next one gets the same addresses."""
    allocate = "; ".join(f"alloc p{number} 4096" for number in range(60))
    free = "; ".join(f"free p{number}" for number in range(60))
    script = f"""init = 0
        repeat 300 {{ ctx x 0; {allocate}; destroy x; ctx x 0; {allocate}; {free}; destroy x }}"""
    with recording(driver, stacks=False) as run:
        over = threading.Event()

        def sweep() -> None:
            while not over.wait(0.001):
                run._session.tracer.sweep()

        sweeper = threading.Thread(target=sweep)
        sweeper.start()
        play(run, driver, script, tmp_path, peaks=False)
        over.set()
        sweeper.join()


def test_a_map_that_fails_may_be_the_last_to_hold_a_handle(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    """The handle is released while the failing call still runs."""
    script = """
        thread 0 { use 0 = 0; prop gpu device 0; create v 2M @gpu = 0; reserve r 4M = 0
                   inject cuMemMap:1:205; barrier; map r 2M v = 205; barrier }
        thread 1 { barrier; sleep 80; releasehandle v = 0; barrier }"""
    played = play(run, driver, script, tmp_path, peaks=False, latency="cuMemMap:200000")
    assert played.losses == {}


def test_a_context_older_than_thousands_of_others_gives_back_its_memory(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    script = """init = 0; ctx first 0 = 0; alloc p 3M = 0
        repeat 5000 { ctx x 0; alloc q 4096; destroy x }
        destroy first = 0; use 0 = 0; alloc r 1M = 0"""
    play(run, driver, script, tmp_path, peaks=False)
    (row,) = run._session.reading().snapshot.processes
    assert int(row["in_use"]) == M


# The session -----------------------------------------------------------------------------


def test_a_command_never_starts_after_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed pipe means exec to it; but it was said that the start had failed."""

    def refuse(*_: object, **__: object) -> None:
        raise igsdk.StartFailed("No opens can be held.", "This is a test.")

    monkeypatch.setattr("igsdk.runtime.hold.Gate.__init__", refuse)
    mark = tmp_path / "ran"
    run = igsdk.connect("local:").profile_cuda_memory(argv=["touch", str(mark)])
    with pytest.raises(igsdk.StartFailed), run:
        pass
    command = run.command
    assert command is not None
    assert not Path(f"/proc/{command.pid}").exists()
    assert not mark.exists()


def test_a_mistake_while_tracing_ends_nothing_and_is_told(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("this is a test")

    with recording(driver) as run:
        monkeypatch.setattr(run._session.libraries, "admit_seen", fail)
        play(run, driver, "use 0 = 0; alloc p 1M = 0; alloc q 100G = 2", tmp_path)
        assert next(run.events(5)).type == "failure"
        monkeypatch.undo()
    assert any("this is a test" in note for note in run.notes())


def test_a_run_that_is_closed_leaves_no_descriptor_of_its_command(driver: Driver) -> None:
    def held() -> list[str]:
        links = []
        for entry in os.scandir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                links.append(str(Path(entry.path).readlink()))
        return [link for link in links if "pidfd" in link or "mountinfo" in link]

    before = held()
    with igsdk.connect("local:").profile_cuda_memory(argv=["true"]) as run:
        assert run.command
        run.command.wait()
    run.close()
    assert held() == before
