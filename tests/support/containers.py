# SPDX-License-Identifier: Apache-2.0
"""Real containers by ``runc``: an image of its own files on overlayfs, its own namespaces.

Nothing is pulled. The image is a folder made of copies of this machine's own files: the
interpreter that runs the tests with its standard library, the shared libraries that it
needs, a shell, the simulated driver, and a small library of our own. All that lies where
no such file lies outside, or is another file than the one outside of that name.

Each container gets an overlay mount of its own (lower: the image, shared by all; upper:
fresh) in a mount namespace that goes with its last process: a test that is killed
leaves no mount behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .elves import compile_c
from .simdriver import TESTS, Driver, made_once

CACHE = TESTS.parent / ".work" / "containers"
#: Where things lie inside. No such folder exists outside.
INSIDE = "/opt/inside"
BIN = f"{INSIDE}/bin"
LIBRARIES = f"{INSIDE}/lib"
BOOKS = "/books"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: A user of a container with a user namespace is this one outside, counted up.
FIRST_USER = 100_000

_CGROUPS = Path("/sys/fs/cgroup")
_NOT_NEEDED = ("test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3")
_NOT_NEEDED_EITHER = ("turtledemo", "pydoc_data", "distutils", "config-*", "__pycache__", "*.a")
#: the extension modules whose libraries are there too
_EXTENSIONS = ("_ctypes", "binascii", "zlib", "_bz2", "_lzma")
_FOLDERS = ("bin", "dev", "proc", "sys", "tmp", "books", "etc", BIN[1:])
_SHELL = ("sh", "cat", "cp", "mv", "rm", "sleep")

# A native function between Python and the driver, in a file that only the image has.
_LIBRARY = """
#include <stddef.h>
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int inside_allocate(unsigned long long *pointer, size_t bytes)
{ int result = cuMemAlloc_v2(pointer, bytes); __asm__ volatile("" ::: "memory"); return result; }
int inside_free(unsigned long long pointer)
{ int result = cuMemFree_v2(pointer); __asm__ volatile("" ::: "memory"); return result; }
"""


def missing() -> str:
    """Why there can be no containers here; "" where there can."""
    if os.geteuid() != 0:
        return "containers need root"
    if not shutil.which("runc"):
        return "runc is not installed: apt-get install runc"
    return ""


# The image ------------------------------------------------------------------------------


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _libraries_of(*files: Path) -> dict[str, Path]:
    """Name -> file of every shared library that these need, the loader included."""
    found = {}
    for file in files:
        text = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+)(?: => (\S+))? \(0x", text, re.MULTILINE):
            source = Path(path or name)
            if source.is_absolute() and source.name != "libcuda.so.1":
                found[path or name] = source
    return {Path(path).name: source for path, source in found.items()}


def _copy_python(root: Path) -> list[Path]:
    """The interpreter and its modules; returns what needs shared libraries."""
    program = root / BIN[1:] / VERSION
    shutil.copy(_interpreter(), program)
    modules = root / LIBRARIES[1:] / VERSION
    source = Path(os.__file__).parent
    shutil.copytree(
        source, modules, ignore=shutil.ignore_patterns(*_NOT_NEEDED, *_NOT_NEEDED_EITHER)
    )
    needing = (each for name in _EXTENSIONS for each in modules.glob(f"lib-dynload/{name}.*"))
    return [program, *needing]


def _copy_tools(root: Path) -> list[Path]:
    tools = []
    for name in _SHELL:
        found = shutil.which(name)
        assert found, f"{name} is not on this machine"
        tools.append(Path(shutil.copy(Path(found).resolve(), root / "bin" / name)))
    return tools


def _copy_driver(root: Path, driver: Driver) -> list[Path]:
    libraries = root / LIBRARIES[1:]
    for file in driver.folder.glob("lib*.so.1"):
        shutil.copy(file, libraries)
    player = Path(shutil.copy(driver.play, root / BIN[1:] / "play"))
    link = ("-L", str(libraries), "-l:libcuda.so.1", "-O1", "-g0")
    return [player, compile_c(_LIBRARY, libraries / "libinside.so", *link)]


def _make_image(root: Path, driver: Driver) -> None:
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    needing = _copy_python(root) + _copy_tools(root) + _copy_driver(root, driver)
    for name, source in _libraries_of(*needing).items():
        is_loader = name.startswith("ld-")  # programs have its path in them
        target = root / (str(source)[1:] if is_loader else f"{LIBRARIES[1:]}/{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.resolve(), target)
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():  # a user of a user namespace reads it as anybody
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def image(driver: Driver) -> Path:
    """The image's root folder, made once per interpreter and build of the driver."""
    interpreter = _interpreter()
    facts = (interpreter, interpreter.stat().st_mtime_ns, sys.version)
    files = (driver.libcuda.read_bytes(), driver.play.read_bytes(), Path(__file__).read_bytes())
    digest = hashlib.sha256(repr((facts, files)).encode())
    return made_once(CACHE / digest.hexdigest()[:16], lambda fresh: _make_image(fresh, driver))


# Containers -----------------------------------------------------------------------------


@dataclass
class Container:
    """One container and the ``runc`` that waits for it.

    ``upper`` is where what it writes (and what was put there before) lies outside;
    ``books`` is its ``/books``.
    """

    id: str
    folder: Path
    process: subprocess.Popen[str] = field(repr=False)

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    @property
    def books(self) -> Path:
        return self.folder / "books"

    @property
    def pid(self) -> int:
        """Its first process, as the machine counts."""
        words = ["runc", "--root", str(self.folder / "state"), "state", self.id]
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20)
        return int(json.loads(told.stdout)["pid"])

    def await_file(self, name: str, seconds: float = 20) -> None:
        """Waits until the container has made that file in its ``/books``."""
        until = time.monotonic() + seconds
        while not (self.books / name).exists():
            assert self.process.poll() is None, f"it ended: {self.process.communicate()}"
            assert time.monotonic() < until, f"the container does not come to {name}"
            time.sleep(0.005)

    def finish(self, seconds: float = 30) -> str:
        """Waits for its end, which must be a good one; returns what it said."""
        said, errors = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, said + errors
        return said


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """What the programs of the image need, and more."""
    base = {
        "PATH": f"{BIN}:/bin",
        "LD_LIBRARY_PATH": LIBRARIES,
        "SIMCUDA_BOOKS": BOOKS,
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }
    return base | dict(more)


def _specification(
    name: str, argv: Sequence[str], variables: Mapping[str, str], users: bool
) -> dict[str, Any]:
    kinds = ["pid", "ipc", "uts", "mount", "network", *(["user"] if users else [])]
    mapping = [{"containerID": 0, "hostID": FIRST_USER, "size": 65536}]
    linux: dict[str, Any] = {
        "namespaces": [{"type": kind} for kind in kinds],
        "cgroupsPath": f"/{_cgroup_parent()}/{name}",
    }
    if users:
        linux |= {"uidMappings": mapping, "gidMappings": mapping}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "args": list(argv),
            "cwd": "/",
            "env": [f"{key}={value}" for key, value in variables.items()],
            "user": {"uid": 0, "gid": 0},
            "noNewPrivileges": True,
        },
        "root": {"path": "/mnt", "readonly": False},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        ],
        "linux": linux,
    }


def _cgroup_parent() -> str:
    return f"igsdk-tests-{os.getpid()}"


def remove_cgroups() -> None:
    """Those above the containers, which runc leaves."""
    for hierarchy in [_CGROUPS, *_CGROUPS.iterdir()]:
        with contextlib.suppress(OSError):
            (hierarchy / _cgroup_parent()).rmdir()


# Mounted at /mnt, which every user may enter, and in a mount namespace of its own.
_MOUNT = """
set -e
mount -t overlay none -o "lowerdir=$LOWER,upperdir=$0/upper,workdir=$0/work" /mnt
mount --bind "$0/books" /mnt/books
exec runc --root "$0/state" run --bundle "$0" "$1"
"""


@dataclass(frozen=True)
class Bundle:
    """A container that is ready to be started by ``command``; see :func:`bundle`."""

    id: str
    folder: Path
    command: tuple[str, ...]


def bundle(
    lower: Path,
    folder: Path,
    program: str,
    *arguments: str,
    comm: str = "",
    put: Iterable[tuple[str, str | Path]] = (),
    users: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Bundle:
    """A bundle for a program of the image.

    ``comm``: the name that the kernel shows for it, if it is to be another one.
    ``put``: (path inside, text or file to copy) of files in its own upper layer.
    ``users``: in a user namespace of its own, its root being nobody in particular outside.
    """
    comm = comm or program
    name = secrets.token_hex(32)
    made = Path(tempfile.mkdtemp(dir=folder))
    for part in ("upper", "work", "books"):
        (made / part).mkdir()
    (made / "books").chmod(0o777)
    for path, content in put:
        _put(made / "upper" / path.lstrip("/"), content)
    if comm != program:
        (made / "upper" / BIN[1:]).mkdir(parents=True, exist_ok=True)
        (made / "upper" / BIN[1:] / comm).symlink_to(f"{BIN}/{program}")
    argv = [f"{BIN}/{comm}", *arguments]
    specification = _specification(name, argv, environment(variables or {}), users)
    (made / "config.json").write_text(json.dumps(specification))
    words = ("unshare", "-m", "--propagation", "private", "sh", "-c", _MOUNT, str(made), name)
    return Bundle(name, made, ("env", f"LOWER={lower}", *words))


@contextlib.contextmanager
def container(lower: Path, folder: Path, *words: str, **options: Any) -> Iterator[Container]:
    """A :func:`bundle` that runs; what is left of it at the end of the block is killed."""
    made = bundle(lower, folder, *words, **options)
    process = subprocess.Popen(
        made.command,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Container(made.id, made.folder, process)
    finally:
        _end(process, made.folder / "state", made.id)
        remove_cgroups()


def _put(target: Path, content: str | Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copy(content, target)
    else:
        target.write_text(content)


def _end(process: subprocess.Popen[str], state: Path, name: str) -> None:
    if process.poll() is None:
        words = ["runc", "--root", str(state), "delete", "--force", name]
        subprocess.run(words, capture_output=True, timeout=20)
    process.communicate(timeout=20)
