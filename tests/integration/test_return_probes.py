# SPDX-License-Identifier: Apache-2.0
"""Return probes and seccomp: on some kernels the one kills whoever has the other.

This kernel is not one of them, as far as these tests were ever run: there the switch is
forced, and what is proven is that no return is asked for and nothing is booked.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.recording import balanced, own_driver, play, recording
from tests.support.simdriver import Driver, all_books

import igsdk
from igsdk import _native
from igsdk._run import Run
from igsdk.runtime import kernel
from igsdk.views.losses import MEANINGS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="probes need root")

URETPROBE, EXIT_GROUP = 335, 231
WAIT_ALL = 0x40000000  # __WALL: children without an exit signal too
STORY = "cuInit 0; cuCtxCreate_v2 &c 0 0; cuMemAlloc_v2 &p 3M = 0; cuMemFree_v2 p = 0"
STORY += "; cuMemAlloc_v2 &q 2M = 0"
CALLS = STORY.count("cuCtx") + STORY.count("cuMem")
#: starts a command under a filter that kills it for the system call of return probes
FILTERED = f"""
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, {URETPROBE}), (6, 0, 0, 0x80000000), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
program = struct.pack("@HP", 4, ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
on_amd64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86-64 has a system call for return probes"
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


def play_filtered(driver: Driver, folder: Path) -> None:
    """Plays the story under the filter; the driver's books say that it was played whole."""
    words = [sys.executable, "-I", "-c", FILTERED, str(driver.play), "-e", STORY]
    environment = driver.environment(folder)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    (book,) = all_books(folder)
    assert book.row("device").alloc_bytes == 5 << 20


def assert_left_alone(run: Run, driver: Driver, folder: Path) -> None:
    play_filtered(driver, folder)
    assert {cause: n for cause, n in run.losses().items() if n} == {"seccomp": CALLS}
    profile = run.profile()
    assert profile.total("alloc_space") == profile.total("inuse_space") == 0


def test_a_filtered_process_is_left_alone(driver: Driver, tmp_path: Path) -> None:
    with recording(driver, settings={"spare_filtered": 1}) as run:
        assert_left_alone(run, driver, tmp_path)
        (other_folder := tmp_path / "other").mkdir()
        other = play(run, driver, STORY, other_folder)
        assert other.losses == {}, "a process without a filter is traced as ever"
        assert run.profile().total("alloc_space") == 5 << 20


def test_an_affected_kernel_turns_it_on(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "return_probes_kill", lambda: True)
    with recording(driver) as run:
        assert_left_alone(run, driver, tmp_path)


@pytest.mark.skipif(kernel.return_probes_kill(), reason="this kernel would kill the process")
@pytest.mark.parametrize("link_mode", [1, 2])
def test_elsewhere_a_filtered_process_is_booked(
    driver: Driver, tmp_path: Path, link_mode: int
) -> None:
    with recording(driver, settings={"link_mode": link_mode}) as run:
        play_filtered(driver, tmp_path)
        balanced(run, all_books(tmp_path))
        assert not any(run.losses().values())


@pytest.mark.parametrize("link_mode", [2, 3])
def test_without_session_links_it_is_refused(link_mode: int) -> None:
    settings = {"spare_filtered": 1, "link_mode": link_mode}
    with igsdk.connect("local:") as gpu, pytest.raises(igsdk.KernelUnsupported) as refused:
        gpu.profile_cuda_memory(settings=settings).__enter__()
    assert "seccomp" in refused.value.cause
    assert "6.14" in refused.value.remedy


@on_amd64
def test_the_self_test_finds_what_kills() -> None:
    assert _native.return_probe_passes(EXIT_GROUP) is False
    affected = kernel.URETPROBE_CALL <= kernel.kernel_version() < kernel.URETPROBE_PASSES
    assert affected or _native.return_probe_passes(URETPROBE) is True


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_the_self_test_leaves_nothing() -> None:
    before = open_descriptors()
    for _ in range(3):
        _native.return_probe_passes(URETPROBE)
    assert open_descriptors() == before
    with suppress(ChildProcessError):
        assert os.waitpid(-1, os.WNOHANG | WAIT_ALL) == (0, 0)


def test_the_loss_has_words() -> None:
    meaning = MEANINGS["seccomp"]
    assert meaning.lost
    assert not meaning.bytes_exact
