# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's wheel needs to run on the simulated driver, without the vendor's libraries.

``build(FOLDER_OF_TORCHS_LIBRARIES)`` compiles ``tests/libcudart``, our own small runtime,
and one stand-in for each of the vendor's libraries that torch's are linked to. The
stand-ins (cuBLAS, cuDNN, NCCL, ...) are made from nothing but torch's own list of undefined
symbols; each function does nothing and says 0, which is success. The real ones are about
2 GB to download, and most carry a copy of the real runtime, which a simulated driver can't
serve: so stand-ins, in a folder for ``LD_LIBRARY_PATH``.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from .simdriver import TESTS, Driver, compile_library, made_once

SOURCES = TESTS / "libcudart"
CACHE = TESTS.parent / ".work" / "large" / "runtimes"
RUNTIME = "libcudart.so.13"

#: Whose symbols carry no version, or another one than the library's name: by prefix.
_PREFIXES = {
    "libnccl.so.2": "nccl",
    "libcusparseLt.so.0": "cusparseLt",
    "libcufile.so.0": "cuFile",
    "libnvshmem_host.so.3": "nvshmem",
}
#: Libraries that are there without us: the system's, the driver's, our runtime.
_SYSTEM: tuple[str, ...] = (
    "libc.",
    "libm.",
    "libdl.",
    "librt.",
    "libpthread.",
    "ld-linux",
    "libgcc_s.",
)
_SYSTEM += ("libstdc++.", "libz.", "libcuda.", RUNTIME)


def _lines(*command: str | Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _needed(library: Path) -> set[str]:
    """The names of the libraries that this one is linked to."""
    lines = _lines("readelf", "-W", "-d", library)
    return {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}


def _undefined(library: Path) -> set[tuple[str, str]]:
    """Undefined symbols, each with its version ("" where it has none)."""
    lines = _lines("nm", "-D", "--undefined-only", "--with-symbol-versions", library)
    names = (line.split()[-1].partition("@") for line in lines)
    return {(name, version.lstrip("@")) for name, _, version in names}


def _home(name: str, version: str, missing: set[str]) -> str | None:
    """The missing library that this symbol belongs to."""
    if version in missing:
        return version
    return next((lib for lib in missing if name.startswith(_PREFIXES.get(lib, "\0"))), None)


def stand_ins(torch_libraries: Path) -> dict[str, dict[str, set[str]]]:
    """Library that must be stood in for -> version ("": none) -> its functions."""
    libraries = sorted(torch_libraries.glob("*.so*"))
    own = {path.name for path in libraries}
    missing = set().union(*map(_needed, libraries)) - own
    missing = {name for name in missing if not name.startswith(_SYSTEM)}
    result: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in missing}
    for name, version in set().union(*map(_undefined, libraries)):
        home = _home(name, version, missing)
        if home:
            result[home][version].add(name)
    return result


def _stand_in(folder: Path, library: str, versions: dict[str, set[str]]) -> None:
    source, exports = folder / "stand_in.c", folder / "stand_in.map"
    names = sorted(set().union(*versions.values()))
    source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
    blocks = [
        f"{version} {{ global: {' '.join(name + ';' for name in sorted(functions))} }};\n"
        for version, functions in sorted(versions.items())
        if version
    ]
    exports.write_text("".join(blocks))
    flags = [f"-Wl,--version-script={exports}"] if blocks else []
    compile_library(folder / library, [source], *flags)
    source.unlink()
    exports.unlink()


def _build_into(folder: Path, wanted: dict[str, dict[str, set[str]]]) -> None:
    exports = folder / "exports.map"
    exports.write_text(f"{RUNTIME} {{ global: cuda*; __cuda*; local: *; }};\n")
    compile_library(folder / RUNTIME, SOURCES.glob("*.c"), f"-Wl,--version-script={exports}")
    for library, versions in wanted.items():
        _stand_in(folder, library, versions)


@functools.cache
def build(torch_libraries: Path) -> Path:
    """The folder with all of them, compiled once per set of sources and torch's symbols."""
    wanted = stand_ins(torch_libraries)
    symbols = sorted(
        (library, version, sorted(names))
        for library, versions in wanted.items()
        for version, names in versions.items()
    )
    digest = hashlib.sha256(repr(symbols).encode())
    for path in sorted([*SOURCES.glob("*.*"), Path(__file__)]):
        digest.update(path.name.encode() + path.read_bytes())
    return made_once(CACHE / digest.hexdigest()[:16], lambda fresh: _build_into(fresh, wanted))


@dataclass(frozen=True)
class PyTorch:
    """An interpreter that has torch, a simulated driver, and what torch needs beside it."""

    python: Path
    driver: Driver
    runtime: Path

    def environment(self, books: Path, allocator: str = "", devices: str = "80G") -> dict[str, str]:
        """What a process needs to run torch on the driver and to keep books.

        ``allocator`` is what ``PYTORCH_CUDA_ALLOC_CONF`` says.
        """
        result = self.driver.environment(books, devices=devices, base={})
        result["LD_LIBRARY_PATH"] = f"{self.runtime}:{result['LD_LIBRARY_PATH']}"
        result["PYTORCH_CUDA_ALLOC_CONF"] = allocator
        result["PYTHONWARNINGS"] = "ignore"  # of numpy, which is missing and not needed
        return result | {"PATH": "/usr/bin:/bin", "HOME": str(books)}

    def command(self, script: Path, *words: str, **options: object) -> tuple[str, ...]:
        """A command that brings its environment along; options as of ``environment``."""
        variables = self.environment(**options)  # type: ignore[arg-type]
        assigned = (f"{name}={value}" for name, value in variables.items())
        return ("env", *assigned, str(self.python), str(script), *words)


def find(environment: Path, driver: Driver) -> PyTorch | None:
    """PyTorch as `make test-large` installs it into ``environment``, if it is there."""
    libraries = next(environment.glob("lib/python3.*/site-packages/torch/lib"), None)
    if libraries is None:
        return None
    return PyTorch(environment / "bin/python", driver, build(libraries))
