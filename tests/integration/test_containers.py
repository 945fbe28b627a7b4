# SPDX-License-Identifier: Apache-2.0
"""Programs in real containers: every byte, who they are, and whole stacks.

The containers are made by ``tests.support.containers``: other mount, PID, IPC, UTS and
network namespaces, a root on overlayfs, a driver and a Python that exist only inside.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support import containerd, containers, shapes
from tests.support.containers import BIN, BOOKS, LIBRARIES, VERSION, Container, container
from tests.support.recording import Figures, balanced, info_of, recording
from tests.support.simdriver import TESTS, Books, all_books, build

from igsdk._events import ProcessInfo
from igsdk._run import Run
from igsdk.runtime.libraries import Library

pytestmark = pytest.mark.skipif(bool(containers.missing()), reason=containers.missing() or "-")

M = 1 << 20
# As long as a driver takes to start. Until then its files are open and its Python is found.
_SLOW = {"SIMCUDA_LATENCY": "cuInit:500000"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def lower() -> Path:
    return containers.image(build())


@pytest.fixture
def comm() -> str:
    """A name that nobody else's programs have: a run that keeps to it sees only ours."""
    return f"c{os.getpid()}.{next(_numbers)}"


@pytest.fixture
def run(comm: str, lower: Path) -> Iterator[Run]:
    """A run over the whole machine that was on before there is any container.

    It knows the image's driver by the image's own file: containers have it on overlayfs.
    """
    with recording(command=comm) as run:
        run._session.libraries.admit_path(f"{lower}{LIBRARIES}/libcuda.so.1")
        yield run


def told(run: Run, box: Container) -> tuple[Figures, Books, ProcessInfo]:
    """What the one process of a container did: found equal to its driver's books."""
    (books,) = all_books(box.books)
    (figures,) = balanced(run, [books])
    info = info_of(run, books)
    assert info is not None
    return figures, books, info


def device_sums(figures: Figures) -> tuple[int, int, int]:
    row = figures[("device", "own", 0)]
    return row["alloc_bytes"], row["free_bytes"], row["implicit_bytes"]


def losses(run: Run) -> dict[str, int]:
    return {name: count for name, count in run.losses().items() if count}


def ours(run: Run, lower: Path) -> list[Library]:
    """The attached libraries that are the image's: one, however many containers there are."""
    wanted = (lower / LIBRARIES[1:] / "libcuda.so.1").stat().st_ino
    return [each for each in run._session.libraries.attached if each.inode == wanted]


@contextmanager
def started(*arguments: Any, **options: Any) -> Iterator[Container]:
    """A container that has come to its pause. Another one begins in a later clock tick: pid
    and start are what the harness tells processes apart by."""
    with container(*arguments, **options) as box:
        box.await_file("ready")
        time.sleep(0.02)
        yield box


# Bytes and identities -------------------------------------------------------------------

SCRIPT = "use 0 = 0; alloc p 1M = 0; alloc q 3M = 0; free q = 0; alloc r 100G = 2"


@pytest.mark.parametrize("users", [False, True], ids=["root", "user namespace"])
def test_a_container_that_starts_after_us_and_ends_at_once(
    users: bool, run: Run, comm: str, lower: Path, tmp_path: Path
) -> None:
    for _ in range(5):
        with container(lower, tmp_path, "play", "-e", SCRIPT, comm=comm, users=users) as box:
            box.finish()
            figures, books, info = told(run, box)
        assert device_sums(figures) == (4 * M, 3 * M, M)
        assert (books.pid, info.ns_pid, info.comm) == (1, 1, comm)
        assert info.pid > 1
        assert info.uid == (containers.FIRST_USER if users else 0)
        assert info.ended_ns is not None
        assert info.container in (box.id, None)  # there was no time to ask
    own = Path("/proc/self/ns/mnt").stat().st_ino
    assert own not in {info.mntns_id for info in run.processes()}
    assert len(run.processes()) == 5
    # the driver here starts in no time: its container may be gone before its files are open
    assert losses(run).keys() <= {"unwind_ended", "code_unknown"}
    assert len(ours(run, lower)) == 1


def test_who_a_container_is(run: Run, comm: str, lower: Path, tmp_path: Path) -> None:
    """A driver takes a while to start: enough to ask who it is, and to open its files."""
    for _ in range(3):
        words = ("play", "-e", SCRIPT)
        with container(lower, tmp_path, *words, comm=comm, variables=_SLOW) as box:
            box.finish()
            _, _, info = told(run, box)
        assert info.container == box.id
        assert info.cmdline == f"{BIN}/{comm} -e {SCRIPT}"
    assert losses(run) == {}
    for row in run.profile().samples():
        names = [frame.function for frame in row["stack"]]
        assert names[:2] == ["cuMemAlloc_v2", "allocate_leaf"]
        assert names[-1] == "_start"


def test_a_command_that_starts_a_container(lower: Path, tmp_path: Path) -> None:
    """Its driver is in mounts that were made later, where no open waits for us."""
    put = [(_DRIVER, lower / _DRIVER[1:])]  # a file that nobody has seen before
    words = ("play", "-e", SCRIPT)
    made = containers.bundle(lower, tmp_path, *words, put=put, variables=_SLOW)
    with recording(argv=made.command) as run:
        assert run.command is not None
        ended = run.command.wait()
        containers.remove_cgroups()
        assert ended is not None
        assert ended.status == 0
        balanced(run, all_books(made.folder / "books"))
        (info,) = run.processes()
    assert (info.container, info.ns_pid) == (made.id, 1)


def test_the_whole_machine_by_container(lower: Path, tmp_path: Path) -> None:
    """Nothing is chosen; afterwards each container's part is told by its id."""
    with recording() as run:
        run._session.libraries.admit_path(f"{lower}{LIBRARIES}/libcuda.so.1")
        words = ("play", "-e", SCRIPT)
        with (
            container(lower, tmp_path, *words, variables=_SLOW) as one,
            container(lower, tmp_path, *words, variables=_SLOW, users=True) as two,
        ):
            one.finish()
            two.finish()
        profile = run.profile()
    for box in (one, two):
        part = profile.filter(container=box.id)
        assert (part.total("alloc_space"), part.total("failed_space")) == (4 * M, 100 << 30)
        assert {row["container"] for row in part.samples()} == {box.id}


def test_a_container_of_containerd(run: Run, comm: str, lower: Path, tmp_path: Path) -> None:
    """Its own snapshots, its own shim, the cgroup as a kubelet's container has it."""
    if containerd.missing():
        pytest.skip(containerd.missing())
    (tmp_path / "books").mkdir()
    root, name = tmp_path / "root", secrets.token_hex(32)
    shutil.copytree(lower, root, symlinks=True)
    (root / BIN[1:] / comm).symlink_to("play")
    with containerd.containerd() as service:
        service.load(root, f"igsdk.test/{comm}:1")
        variables = containers.environment(_SLOW)  # its file was never seen
        argv = (f"{BIN}/{comm}", "-e", SCRIPT)
        books = tmp_path / "books"
        done = service.run(f"igsdk.test/{comm}:1", name, *argv, books=books, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    told = all_books(books)
    (figures,) = balanced(run, told)
    (info,) = run.processes()
    assert device_sums(figures) == (4 * M, 3 * M, M)
    assert (info.container, info.ns_pid) == (name, 1)
    assert losses(run) == {}


def pause(before: str, after: str) -> tuple[str, str]:
    """A script that waits in its middle until the container's ``go`` is there."""
    return "-e", f"{before}; touch {BOOKS}/ready; await {BOOKS}/go; {after}"


def test_a_container_that_was_there_before_us(comm: str, lower: Path, tmp_path: Path) -> None:
    """All later calls are booked; who it is, we can still ask."""
    script = pause("use 0 = 0; alloc p 4M = 0", "alloc q 1M = 0; free p = 0; free q = 0")
    with container(lower, tmp_path, "play", *script, comm=comm) as box:
        box.await_file("ready")
        with recording(pid=box.pid) as run:
            (box.books / "go").touch()
            box.finish()
            (info,) = run.processes()
            profile = run.profile()
            assert len(ours(run, lower)) == 1
    assert (info.ns_pid, info.container, info.before_us) == (1, box.id, True)
    assert info.cmdline is not None
    assert info.cmdline.startswith(f"{BIN}/{comm} -e use")
    assert (profile.total("alloc_space"), profile.total("inuse_space")) == (M, 0)
    assert info.unknown_frees == 1


def test_containers_of_one_image_have_one_library(comm: str, lower: Path, tmp_path: Path) -> None:
    """One real file under two devices, in processes before and after us: counted once."""
    first, second = pause("init", "use 0 = 0; alloc p 1M = 0"), pause("init", SCRIPT)
    with (
        started(lower, tmp_path, "play", *first, comm=comm) as one,
        started(lower, tmp_path, "play", *second, comm=comm) as two,
    ):
        pids = {one.pid, two.pid}
        with recording(command=comm) as run:
            with container(lower, tmp_path, "play", "-e", SCRIPT, comm=comm) as three:
                three.finish()
            for box in (one, two):
                (box.books / "go").touch()
                box.finish()
            sums = [device_sums(told(run, box)[0]) for box in (one, two)]
            sums.append(device_sums(told(run, three)[0]))
            (library,) = ours(run, lower)
    assert sums == [(M, 0, M), (4 * M, 3 * M, M), (4 * M, 3 * M, M)]
    assert pids <= library.earlier.keys()


# Stacks ---------------------------------------------------------------------------------

_TRAIN = """\
import ctypes, os, sys, time
inside, pointer = ctypes.CDLL("libinside.so"), ctypes.c_uint64()
class Model:
    def load(self, size):
        return inside.inside_allocate(ctypes.byref(pointer), ctypes.c_size_t(size))
def train(size):
    return Model().load(size)
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
if "wait" in sys.argv:
    open("/books/start.ready", "w").close()
    while not os.path.exists("/books/start.go"):
        time.sleep(0.005)
assert train(1 << 20) == 0
"""
#: function, file and line of each Python frame, leaf first
_LINES = [("Model.load", "/app/train.py", 5), ("train", "/app/train.py", 7)]
_LINES += [("<module>", "/app/train.py", 14)]


def assert_whole(run: Run) -> None:
    """The one stack of the program above, with its names as they are inside."""
    (row,) = [row for row in run.profile().samples() if row["alloc_space"]]
    frames = row["stack"]
    python = [frame for frame in frames if frame.kind == "python"]
    assert [(frame.function, frame.file, frame.line) for frame in python] == _LINES
    assert [frame for frame in frames if frame.kind == "marker"] == []
    assert [(frame.function, frame.mapping) for frame in frames[:2]] == [
        ("cuMemAlloc_v2", f"{LIBRARIES}/libcuda.so.1"),
        ("inside_allocate", f"{LIBRARIES}/libinside.so"),
    ]
    mapped = {frame.mapping for frame in frames if frame.kind in ("native", "interpreter")}
    assert all(path.startswith(("/opt/inside/", "[")) for path in mapped if path), mapped


@pytest.mark.parametrize("users", [False, True], ids=["root", "user namespace"])
def test_a_stack_of_a_container_that_is_gone(
    users: bool, run: Run, comm: str, lower: Path, tmp_path: Path
) -> None:
    put = [("/app/train.py", _TRAIN)]
    words = (VERSION, "/app/train.py")
    with container(
        lower, tmp_path, *words, comm=comm, put=put, users=users, variables=_SLOW
    ) as box:
        box.finish()
        told(run, box)
    assert_whole(run)
    assert losses(run) == {}


def test_a_stack_of_a_container_that_was_there_before_us(
    comm: str, lower: Path, tmp_path: Path
) -> None:
    put = [("/app/train.py", _TRAIN)]
    arguments = (VERSION, "/app/train.py", "wait")
    with container(lower, tmp_path, *arguments, comm=comm, put=put) as box:
        box.await_file("start.ready")
        with recording(pid=box.pid) as run:
            go_on(box, "start")
            box.finish()
            assert_whole(run)


def test_a_stack_through_files_that_were_deleted(comm: str, lower: Path, tmp_path: Path) -> None:
    """The interpreter, its library and the driver are gone or others when we come."""
    put = [("/app/train.py", _TRAIN)]
    arguments = (VERSION, "/app/train.py", "wait")
    files = f"{_DRIVER} {LIBRARIES}/libinside.so {BIN}/{VERSION} {LIBRARIES}/lib{VERSION}.so.1.0"
    commands = f"for f in {files}; do [ ! -e $f ] || {{ rm $f; cp /app/train.py $f; }}; done"
    with container(lower, tmp_path, *arguments, comm=comm, put=put) as box:
        box.await_file("start.ready")
        change(box, commands)
        with recording(pid=box.pid) as run:
            go_on(box, "start")
            box.finish()
            assert_whole(run)


def test_code_that_a_program_makes_has_the_names_that_it_gives(
    run: Run, comm: str, lower: Path, tmp_path: Path
) -> None:
    """In the container's own /tmp, under the pid that it has there; also when it is gone."""
    program = tmp_path / "made"
    source = TESTS / "hostile" / "made.c"
    subprocess.run(["cc", "-O2", "-o", program, source, "-ldl"], check=True)
    put = [(f"{BIN}/made", program)]
    with container(lower, tmp_path, "made", comm=comm, put=put, variables=_SLOW) as box:
        box.finish()
        assert (box.upper / "tmp/perf-1.map").exists()
    stacks = [row["stack"] for row in run.profile().samples() if row["alloc_space"]]
    names = [[frame.function for frame in stack] for stack in stacks]
    assert sorted(each[:3] for each in names) == [
        ["cuMemAlloc_v2", "Model::load(int) /app/model.js:3", "main"],
        ["cuMemAlloc_v2", "later", "main"],
    ]
    assert losses(run) == {}


_SHAPES: tuple[str, ...] = (
    "function",
    "lambdas",
    "nested",
    "methods",
    "generators",
    "comprehensions",
)
_SHAPES += ("executed", "names_of_all_scripts", "callbacks", "threads")


def test_shapes_of_python_in_a_container(comm: str, lower: Path, tmp_path: Path) -> None:
    """What the program itself saw of its stacks, as outside."""
    put = [(f"/app/{path.name}", path) for path in shapes.PROGRAMS.glob("*.py")]
    arguments = (VERSION, "/app/shapes.py", f"{BOOKS}/said", "5000", *_SHAPES)
    with recording(command=comm, events="all") as run:
        run._session.libraries.admit_path(f"{lower}{LIBRARIES}/libcuda.so.1")
        with container(lower, tmp_path, *arguments, comm=comm, put=put, variables=_SLOW) as box:
            box.finish()
            truths = shapes.Told.read(box.books / "said")
        stacks = shapes.samples_of(run.events(0.5))
    wrong = [sample.difference(stacks.get(sample.number)) for sample in truths.samples]
    assert [sentence for sentence in wrong if sentence] == []


# Files that are no longer what they were ----------------------------------------------

# Allocates 1 MiB, then in a child of its own, then again; waits before each.
_THREE = """
import ctypes, os, subprocess, sys, time
def pause(name):
    open(f"/books/{name}.ready", "w").close()
    while not os.path.exists(f"/books/{name}.go"):
        time.sleep(0.005)
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
def allocate(name):
    pause(name)
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
me, *names = sys.argv[1:]
for name in names:
    allocate(name)
    if name == "first":
        pause("change")
        subprocess.run([me, "/app.py", me, "child"], check=True)
"""
_DRIVER = f"{LIBRARIES}/libcuda.so.1"
#: how a driver is changed below a process that has it, by commands inside the container
CHANGES = {
    "upgraded": f"cp {_DRIVER} {_DRIVER}.new; mv {_DRIVER}.new {_DRIVER}",
    "deleted and made anew": f"cp {_DRIVER} /tmp/one; rm {_DRIVER}; cp /tmp/one {_DRIVER}",
    "written to": f"echo >> {_DRIVER}",
}


def change(box: Container, commands: str) -> None:
    words = ["nsenter", "-t", str(box.pid), "-m", "/bin/sh", "-ec", commands]
    variables = {"PATH": "/bin", "LD_LIBRARY_PATH": LIBRARIES}
    subprocess.run(words, env=variables, check=True, timeout=20)


def await_libraries(run: Run, count: int) -> None:
    """Waits until so many files that were a container's driver have their probes."""
    until = time.monotonic() + 20
    while True:
        attached = [each.path for each in run._session.libraries.attached]
        if sum(path.startswith(_DRIVER) for path in attached) >= count:
            return
        assert time.monotonic() < until, attached
        time.sleep(0.01)


def go_on(box: Container, name: str) -> None:
    """Lets the program in a container go on from a pause."""
    box.await_file(f"{name}.ready")
    (box.books / f"{name}.go").touch()


@pytest.mark.parametrize("when", ["before us", "while we look"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_driver_that_is_changed_inside(
    how: str, when: str, comm: str, lower: Path, tmp_path: Path
) -> None:
    """Old and new processes each have their own file, and both are booked.

    A file of the image that is written to becomes another one. Where that was before us
    no path leads to the old one any more, and we say so.
    """
    unreachable = (how, when) == ("written to", "before us")
    arguments = ("/app.py", f"{BIN}/{comm}", "first", "last")
    put = [("/app.py", _THREE)]
    with container(lower, tmp_path, VERSION, *arguments, comm=comm, put=put) as box:
        box.await_file("first.ready")
        if when == "before us":
            change(box, CHANGES[how])
        with recording(command=comm) as run:
            go_on(box, "first")
            box.await_file("change.ready")
            if when == "while we look":
                change(box, CHANGES[how])
            go_on(box, "change")
            box.await_file("child.ready")
            await_libraries(run, 1 if unreachable else 2)
            go_on(box, "child")
            go_on(box, "last")
            box.finish()
            total, notes = run.profile().total("alloc_space"), run.notes()
            assert losses(run) == {}
    assert total == (M if unreachable else 3 * M)
    assert any("was written to below processes" in note for note in notes) == unreachable


# A root that is no mount point ----------------------------------------------------------

_IN_A_CHROOT = """
import os, select, subprocess, sys
from igsdk._native import OpenHold
from igsdk.runtime.launch import Command
root, library = sys.argv[1:]
subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], check=True)
os.chroot(root)
os.chdir("/")
assert " / / " not in open("/proc/self/mountinfo").read()
variables = {"PATH": "/bin", "LD_LIBRARY_PATH": os.path.dirname(library)}
command = Command(["sh", "-c", f"exec 3< {library}"], environment=variables)
hold = OpenHold(command.prepare(), deadline=20)
command.go()
assert select.select([hold], [], [], 10)[0]
(waiting,) = hold.take()
print(waiting.path, command.poll(), hold.counts()["marked"])
hold.release(waiting.token)
print(command.wait(10).status)
"""


def test_opens_are_held_in_a_chroot(lower: Path) -> None:
    """Its root is a folder like any other: no mount point, and in no list of mounts."""
    library = f"{LIBRARIES}/libcuda.so.1"
    words = ["unshare", "-m", sys.executable, "-c", _IN_A_CHROOT, str(lower), library]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{lower.resolve()}{library} None 1\n0\n", done.stderr
