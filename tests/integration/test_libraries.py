# SPDX-License-Identifier: Apache-2.0
"""Every libcuda is found, wherever it lies, and each real file is attached to once."""

from __future__ import annotations

import errno
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.elves import compile_c, function, small_driver

from igsdk import LibraryUnusable
from igsdk.runtime.hold import Gate
from igsdk.runtime.launch import Command, Exit
from igsdk.runtime.libraries import Libraries, Library, find_mapped

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="other processes' files need root")


class Attached:
    """Stands in for the tracer: remembers what it was asked to attach to."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []

    def __call__(self, path: str, sites: Sequence[tuple[int, int]]) -> int:
        status = Path(path).stat()
        self.calls.append(((status.st_dev, status.st_ino), list(sites)))
        return len(self.calls)


class Only(Libraries):
    """Looks at our own test's files only: others may use a libcuda at the same time."""

    def __init__(self, folder: Path, attach: Attached) -> None:
        super().__init__(attach)
        self.folder = folder

    def scan(self) -> list[Library]:
        before = len(self.attached)
        for pid, mapping in find_mapped():
            if mapping.path.startswith(str(self.folder)):
                self.admit_mapping(pid, mapping, None)
        return self.attached[before:]


@pytest.fixture
def attached() -> Attached:
    return Attached()


@pytest.fixture
def libraries(tmp_path: Path, attached: Attached) -> Iterator[Libraries]:
    libraries = Only(tmp_path, attached)
    yield libraries
    libraries.close()


Load = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def load() -> Iterator[Load]:
    """Starts processes that map a library and then wait."""
    started = []

    def start(path: Path, *wrapper: str) -> subprocess.Popen[str]:
        script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('mapped', flush=True)"
        process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", f"{script}; sys.stdin.read()", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "mapped\n"
        return process

    yield start
    for process in started:
        process.communicate()


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def test_one_file_in_two_processes_is_one_library(
    tmp_path: Path, libraries: Libraries, attached: Attached, load: Load
) -> None:
    path = small_driver(tmp_path / "libcuda.so.1")
    pids = {load(path).pid, load(path).pid}
    [library] = libraries.scan()
    assert libraries.scan() == []
    assert [call[0] for call in attached.calls] == [identity(path)]
    assert set(library.earlier) == pids
    assert library.late_ns(pids.pop()) is None
    assert {site.symbol for site in library.sites} == {
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuCtxDestroy_v2",
    }
    assert {site.how for site in library.sites} == {"jump"}
    assert "cuMemAllocManaged" in library.missing
    assert json.loads(json.dumps(library.describe()))["path"] == str(path)


def test_deleted_replaced_and_copied_files(
    tmp_path: Path, libraries: Libraries, attached: Attached, load: Load
) -> None:
    """The process's own file, not the one that has its name now."""
    path = small_driver(tmp_path / "libcuda.so.1", number=1)
    old = identity(path)
    load(path)
    new = small_driver(tmp_path / "new", number=2)
    new.rename(path)
    load(path)
    copy = tmp_path / "libcuda.so.2"
    shutil.copy(path, copy)
    load(copy)
    deleted = small_driver(tmp_path / "libcuda.so.3", number=3)
    fourth = identity(deleted)
    load(deleted)
    deleted.unlink()
    libraries.scan()
    expected = {old, identity(path), identity(copy), fourth}
    assert {call[0] for call in attached.calls} == expected
    assert len(attached.calls) == 4


def test_in_another_mount_namespace(
    tmp_path: Path, libraries: Libraries, attached: Attached, load: Load
) -> None:
    """A file system that only that process can see."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    source = small_driver(tmp_path / "source.so")
    path = hidden / "libcuda.so.1"
    mount = f'mount -t tmpfs none {hidden} && cp {source} {path} && exec "$@"'
    load(path, "unshare", "-m", "sh", "-c", mount, "sh")
    [library] = libraries.scan()
    assert not path.exists()
    assert library.path == str(path)
    assert os.fstat(library.fd).st_ino == attached.calls[0][0][1]


def test_two_overlays_over_one_file_are_one_library(tmp_path: Path) -> None:
    """overlayfs shows one file under two device numbers; the kernel's inode tells."""
    small_driver(tmp_path / "libcuda.so.1")
    script = f"""
        import json, os, subprocess, sys
        from igsdk.runtime.libraries import Libraries
        from igsdk.runtime.program import load_mappings
        from igsdk.runtime.session import Session
        folder = {str(tmp_path)!r}
        def mount(*arguments): subprocess.run(["mount", *arguments], check=True)
        mount("-t", "tmpfs", "none", "/mnt")
        os.mkdir("/mnt/low")
        subprocess.run(["cp", folder + "/libcuda.so.1", "/mnt/low/"], check=True)
        loaded, devices = [], set()
        for name in ("one", "two"):
            for part in ("upper", "work", "merged"):
                os.makedirs(f"/mnt/{{name}}/{{part}}")
            layers = f"lowerdir=/mnt/low,upperdir=/mnt/{{name}}/upper,workdir=/mnt/{{name}}/work"
            mount("-t", "overlay", "none", "-o", layers, f"/mnt/{{name}}/merged")
            path = f"/mnt/{{name}}/merged/libcuda.so.1"
            devices.add(os.stat(path).st_dev)
            load = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(1, flush=True); input()"
            process = subprocess.Popen([sys.executable, "-c", load, path], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            process.stdout.readline()
            loaded.append(process)
        session = Session.__new__(Session)
        session.mappings = load_mappings()
        calls = []
        libraries = Libraries(lambda path, sites: calls.append(path) or 1, session._real_files)
        libraries.admit_path("/mnt/two/merged/libcuda.so.1")
        found = [library for library in libraries.attached]
        libraries.scan()
        libraries.admit_path("/mnt/one/merged/libcuda.so.1")
        libraries.admit_path("/mnt/low/libcuda.so.1")
        mine = [l for l in libraries.attached if l.path.startswith("/mnt")]
        pids = sorted(p.pid for p in loaded)
        print(json.dumps([len(devices), len(mine), sorted(mine[0].earlier) == pids]))
        for process in loaded: process.communicate("\\n")
    """
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2, 1, True]


def ready(gate: Gate, command: Command) -> list[Gate | Command]:
    """Which of the two have something, after ten seconds at most."""
    watched: list[Gate | Command] = [gate, command]
    return select.select(watched, [], [], 10)[0]


def test_a_held_open_is_attached_before_it_goes_on(
    tmp_path: Path, libraries: Libraries, attached: Attached
) -> None:
    path = small_driver(tmp_path / "libcuda.so.1")
    command = Command([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(path)!r})"])
    gate = Gate(command.prepare(), libraries)
    command.go()
    while command.poll() is None:
        if gate in ready(gate, command):
            gate.serve()
    assert command.poll() == Exit(0)
    assert [call[0] for call in attached.calls] == [identity(path)]
    assert libraries.attached[0].earlier == {}
    assert gate.late == 0
    gate.close()
    command.close()


def test_who_waits_is_met_before_it_goes_on(tmp_path: Path, libraries: Libraries) -> None:
    """A Python must be known before it can call the library that it opens."""
    path = small_driver(tmp_path / "libcuda.so.1")
    opened = "open(sys.argv[1], 'rb').close(); os.write(1, b'.')"
    command = Command([sys.executable, "-c", f"import os, sys; {opened}", str(path)])
    told: list[tuple[int, str]] = []

    def meet(pid: int) -> None:
        told.append((pid, Path(f"/proc/{pid}/syscall").read_text().split()[0]))

    gate = Gate(command.prepare(), libraries, meet=meet)
    command.go()
    while command.poll() is None:
        if gate in ready(gate, command):
            gate.serve()
    assert command.poll() == Exit(0)
    openat = {"x86_64": "257", "aarch64": "56"}[platform.machine()]
    assert told == [(command.pid, openat)]  # it is in there still
    gate.close()
    command.close()


def test_a_library_that_is_of_no_use_does_not_stop_the_command(
    tmp_path: Path, libraries: Libraries
) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_text("no ELF")
    command = Command(["cat", str(path), str(path)])
    gate = Gate(command.prepare(), libraries)
    command.go()
    while command.poll() is None:
        if gate in ready(gate, command):
            assert gate.serve() == []
    assert command.poll() == Exit(0)
    assert len(libraries.refused) == 1
    gate.close()
    command.close()


def refusal(path: Path) -> LibraryUnusable:
    attached = Attached()
    libraries = Libraries(attached)
    for _ in range(2):
        assert libraries.admit_path(str(path)) is None
    assert attached.calls == []
    [error] = libraries.refused
    assert error.exit_code == 6
    assert error.cause.endswith(".")
    assert error.remedy.endswith(".")
    return error


def test_files_of_no_use_say_why(tmp_path: Path) -> None:
    good = small_driver(tmp_path / "good.so").read_bytes()
    path = tmp_path / "libcuda.so.1"
    path.write_text("text")
    assert "not an ELF file" in refusal(path).cause
    path.write_bytes(good[:200])
    assert "cut short" in refusal(path).cause
    arm = bytearray(good)
    arm[18] = 183
    path.write_bytes(arm)
    assert "is for aarch64" in refusal(path).cause
    path.write_bytes(compile_c("int other(void) { return 1; }", tmp_path / "x").read_bytes())
    assert "none of the functions" in refusal(path).cause


def test_a_file_that_does_not_exist() -> None:
    with pytest.raises(LibraryUnusable, match="No such file"):
        Libraries(Attached()).admit_path("/no/such/libcuda.so.1")


def test_what_the_kernel_refuses_is_refused_once(tmp_path: Path) -> None:
    calls = []

    def attach(path: str, sites: Sequence[tuple[int, int]]) -> int:
        calls.append(path)
        raise OSError(errno.EINVAL, "no")

    libraries = Libraries(attach)
    path = str(small_driver(tmp_path / "libcuda.so.1"))
    assert libraries.admit_path(path) is libraries.admit_path(path) is None
    assert len(calls) == 1
    assert "Invalid argument" in libraries.refused[0].cause


def test_two_names_of_one_function_get_one_probe(tmp_path: Path, attached: Attached) -> None:
    """Else the function would count twice. The call is that of the name listed first."""
    source = '__attribute__((visibility("hidden"))) int word;\n'
    source += function("cuMemHostRegister_v2", "cmpl $1000, word(%rip); je 1f; 1: ret")
    names = ".globl cuMemHostRegister; .set cuMemHostRegister, cuMemHostRegister_v2"
    source += f'asm("{names}; .type cuMemHostRegister, @function");'
    path = compile_c(source, tmp_path / "libcuda.so.1")
    libraries = Libraries(attached)
    library = libraries.admit_path(str(path))
    assert library is not None
    assert [site.symbol for site in library.sites] == ["cuMemHostRegister_v2"]
    assert "cuMemHostRegister" not in library.missing
    libraries.close()


def test_nothing_stays_open(tmp_path: Path, attached: Attached, load: Load) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    path = small_driver(tmp_path / "libcuda.so.1")
    bad = tmp_path / "libcuda.so.2"
    bad.write_text("text")
    libraries = Libraries(attached)
    for file in (path, bad, path, bad):
        libraries.admit_path(str(file))
    libraries.close()
    # Earlier tests may close theirs meanwhile.
    assert set(Path("/proc/self/fd").iterdir()) <= before
