# SPDX-License-Identifier: Apache-2.0
"""Builds the simulated driver and the player, runs children on them, reads their books.

The driver is C in ``tests/simdriver``; ``build()`` compiles it with plain ``cc`` into
``.work/simdriver/`` once per set of sources and options. A child started with
``Driver.environment(books=FOLDER)`` keeps its books in ``FOLDER``; ``all_books(FOLDER)``
reads those of every process, living or dead.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
CACHE = TESTS.parent / ".work" / "simdriver"
KINDS = ("none", "device", "managed", "pinned", "registered", "pool", "vmm", "array", "imported")
HOSTS = ("own", "pinned", "registered", "imported", "managed")

_MAGIC = 0x31304B4F4F424953
_DEVICES = 8
_HEADER = struct.Struct("<QIIQQQQQQ16s8i40x")
_ROW = struct.Struct("<10Q")
_COMMON = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer")

Key = tuple[str, str, int]
"""Kind and host class by name, device by the process's own ordinal (-1: host or unknown)."""


@dataclass(frozen=True)
class Totals:
    """One row of a process's books: bytes and calls since its first call."""

    alloc_bytes: int = 0
    alloc_calls: int = 0
    free_bytes: int = 0
    free_calls: int = 0
    implicit_bytes: int = 0
    implicit_calls: int = 0
    fail_bytes: int = 0
    fail_calls: int = 0
    in_use: int = 0
    peak: int = 0

    @property
    def live_calls(self) -> int:
        """Allocations that are still there."""
        return self.alloc_calls - self.free_calls - self.implicit_calls


@dataclass(frozen=True)
class Books:
    """What one process did, as its driver saw it.

    ``pid`` is the one that the process itself saw; ``start_ticks`` is field 22 of its stat,
    the same in every PID namespace. ``in_use`` and ``peak`` are bytes of host class ``own``.
    Exec keeps the pid and begins new books with a higher ``counter``.
    """

    path: Path
    pid: int
    counter: int
    start_ticks: int
    pid_namespace: int
    created_ns: int
    comm: str
    in_use: int
    peak: int
    calls: int
    physical: tuple[int, ...]
    rows: dict[Key, Totals]

    @property
    def alive(self) -> bool:
        """True while this process (not a later one with its pid) is running."""
        return _start_ticks(self.pid) == self.start_ticks

    def row(self, kind: str, host: str = "own", device: int = 0) -> Totals:
        """The totals of one row; zeros where nothing was booked."""
        return self.rows.get((kind, host, device), Totals())


@dataclass(frozen=True)
class Driver:
    """One build: ``folder`` holds libcuda.so.1 and libnvidia-ml.so.1; ``play`` is the player."""

    folder: Path
    play: Path

    @property
    def libcuda(self) -> Path:
        """The file itself, behind the symbolic links."""
        return (self.folder / "libcuda.so.1").resolve()

    def environment(
        self,
        books: Path | None = None,
        *,
        devices: str | None = None,
        fail: str | None = None,
        latency: str | None = None,
        control: Path | None = None,
        nested: bool = False,
        teardown: bool = False,
        base: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """The environment for a child: this driver first in the library path.

        ``devices`` as in "24G,8G"; ``fail`` as in "cuMemFree_v2:3:700,cuMemAlloc_v2:*:2";
        ``latency`` as in "cuMemFree_v2:500" (microseconds, after the work is done).
        """
        wanted = {
            "SIMCUDA_BOOKS": str(books) if books else None,
            "SIMCUDA_DEVICES": devices,
            "SIMCUDA_FAIL": fail,
            "SIMCUDA_LATENCY": latency,
            "SIMCUDA_CONTROL": str(control) if control else None,
            "SIMCUDA_NESTED": "1" if nested else None,
            "SIMCUDA_TEARDOWN": "1" if teardown else None,
        }
        result = dict(os.environ if base is None else base)
        paths = [str(self.folder), *filter(None, [result.get("LD_LIBRARY_PATH")])]
        result["LD_LIBRARY_PATH"] = ":".join(paths)
        for name, value in wanted.items():
            result.pop(name, None)
            if value is not None:
                result[name] = value
        return result

    def run(
        self, script: str, books: Path | None = None, *, timeout: float = 60, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Plays ``script`` and waits; options as of ``environment``. Exit status unchecked."""
        environment = self.environment(books, **options)  # type: ignore[arg-type]
        return subprocess.run(
            [self.play, "-v"],
            input=script,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def _start_ticks(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def read_books(path: Path) -> Books | None:
    """One process's books; None for a file that its process is still making."""
    data = path.read_bytes()
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != _MAGIC:
        return None
    _, pid, n_devices, ticks, namespace, created, in_use, peak, calls, comm, *physical = (
        _HEADER.unpack_from(data)
    )
    return Books(
        path=path,
        pid=pid,
        counter=int(path.name.split(".")[1]),
        start_ticks=ticks,
        pid_namespace=namespace,
        created_ns=created,
        comm=comm.rstrip(b"\0").decode(errors="replace"),
        in_use=in_use,
        peak=peak,
        calls=calls,
        physical=tuple(physical[:n_devices]),
        rows=_rows(data[_HEADER.size :]),
    )


def _rows(data: bytes) -> dict[Key, Totals]:
    rows: dict[Key, Totals] = {}
    per_kind = len(HOSTS) * (_DEVICES + 1)
    for number, values in enumerate(_ROW.iter_unpack(data)):
        if any(values):
            kind, rest = divmod(number, per_kind)
            host, device = divmod(rest, _DEVICES + 1)
            rows[KINDS[kind], HOSTS[host], device - 1] = Totals(*values)
    return rows


def all_books(folder: Path) -> list[Books]:
    """The books of every process that ran with this folder, in the order of their making."""
    found = [read_books(path) for path in folder.glob("*.books")]
    return sorted((books for books in found if books), key=lambda books: books.created_ns)


def _fingerprint(*options: object) -> str:
    digest = hashlib.sha256(repr(options).encode())
    for folder in ("simdriver", "clients"):
        for path in sorted((TESTS / folder).glob("*.[chdm]*")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(target: Path, sources: Iterable[Path], *flags: str) -> None:
    command: list[str | Path] = [
        "cc",
        *_COMMON,
        "-o",
        target,
        *sorted(sources),
        *flags,
        "-lpthread",
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{target.name} does not compile:\n{done.stderr}")


def compile_library(target: Path, sources: Iterable[Path], *flags: str) -> None:
    """A shared library with the name of its file, stripped as the vendor's are."""
    soname = f"-Wl,-soname,{target.name}"
    _compile(target, sources, "-fPIC", "-shared", "-Wl,--build-id", "-s", soname, *flags)


def _version_map(omit: Iterable[str]) -> str:
    local = "".join(f" {name};" for name in omit)
    return f"{{ global: cu*; simcuda*; local:{local} *; }};\n"


def _link(folder: Path, name: str, version: str | None) -> Path:
    """The file to compile; with a version, NAME.so.1 and NAME.so become links to it."""
    if version is None:
        return folder / f"{name}.so.1"
    (folder / f"{name}.so.1").symlink_to(f"{name}.so.{version}")
    (folder / f"{name}.so").symlink_to(f"{name}.so.1")
    return folder / f"{name}.so.{version}"


def _build_into(folder: Path, plain: bool, omit: tuple[str, ...], version: str | None) -> None:
    source = TESTS / "simdriver"
    exports = folder / "exports.map"
    exports.write_text(_version_map(omit))
    shared = ("-fPIC", "-shared", "-Wl,--build-id", "-s")
    nvml = {source / "nvml.c"}
    _compile(
        _link(folder, "libcuda", version),
        set(source.glob("*.c")) - nvml,
        *shared,
        "-Wl,-soname,libcuda.so.1",
        f"-Wl,--version-script={exports}",
        *(["-DPLAIN_ENTRIES"] if plain else []),
    )
    _compile(_link(folder, "libnvidia-ml", version), nvml, *shared, "-Wl,-soname,libnvidia-ml.so.1")
    _compile(folder / "play", (TESTS / "clients").glob("*.c"))


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled by `make` where it is not there yet: whole or not at all."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    fresh.chmod(0o755)
    try:
        make(fresh)
        fresh.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was quicker
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


@functools.cache
def build(
    *,
    plain_entries: bool = False,
    omit: tuple[str, ...] = (),
    version: str | None = None,
) -> Driver:
    """Compiles what is not in the cache yet.

    ``plain_entries``: entries begin with ``push %rbp`` instead of the real library's
    compare; ``omit``: symbols that this driver lacks; ``version``: the file is called
    ``libcuda.so.VERSION`` and ``libcuda.so.1`` is a link. Raises RuntimeError with the
    compiler's words if it does not compile.
    """
    folder = made_once(
        CACHE / _fingerprint(plain_entries, omit, version),
        lambda fresh: _build_into(fresh, plain_entries, omit, version),
    )
    return Driver(folder, folder / "play")


if __name__ == "__main__":
    print(build().folder)
