# SPDX-License-Identifier: Apache-2.0
"""The CPythons that this machine has: pyenv's, the system's, and Debian sid's in its root."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from . import sid

PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class CPython:
    """How to start one; `root` is the folder that it is in, where that isn't this system's."""

    path: str
    version: str
    root: Path | None = None

    def __str__(self) -> str:
        where = "sid" if self.root else "pyenv" if str(PYENV) in self.path else "system"
        return f"{where}-{self.version}"

    @property
    def minor(self) -> int:
        return int(self.version.partition(".")[2])

    @property
    def library(self) -> Path:
        """The file that holds the interpreter."""
        if self.root:
            return self.root / self.path.lstrip("/")
        found = sorted(Path(self.path).parents[1].glob(f"lib/libpython{self.version}*.so.1.0"))
        return found[0] if found and str(PYENV) in self.path else Path(self.path).resolve()

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Runs it with pipes to its input and from its output."""
        words = ["chroot", str(self.root)] if self.root else []
        return subprocess.Popen(
            [*words, self.path, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        )


@cache
def find_pythons() -> tuple[CPython, ...]:
    """Those from 3.8 on, whatever the machine has of them; never downloads anything."""
    found = [CPython(str(path), path.name[6:]) for path in PYENV.glob("3.*/bin/python3.?*")]
    found = [each for each in found if each.version.replace(".", "").isdecimal()]
    system = "/usr/bin/python3"
    if Path(system).exists():
        asked = subprocess.run([system, "-c", _ASK], capture_output=True, text=True)
        found.append(CPython(system, asked.stdout.strip()))
    root = sid.FOLDER / "root"
    for version in sid.VERSIONS:
        if (root / f"usr/bin/python{version}").exists():
            found.append(CPython(f"/usr/bin/python{version}", version, root))
    return tuple(sorted((each for each in found if each.minor >= 8), key=lambda each: each.minor))


def python_parameters() -> list[object]:
    """One parameter for each minor version and kind; those that are missing skip and say so."""
    found = find_pythons()
    versions = {each.minor for each in found}
    is_root = os.geteuid() == 0
    parameters: list[object] = [
        pytest.param(
            each,
            id=str(each),
            marks=pytest.mark.skipif(
                bool(each.root) and not is_root, reason="only root may change its root"
            ),
        )
        for each in found
    ]
    for minor in sorted({*range(8, 16)} - versions):
        reason = f"this machine has no CPython 3.{minor}"
        parameters.append(
            pytest.param(None, id=f"3.{minor}", marks=pytest.mark.skip(reason=reason))
        )
    return parameters


def a_python(minor: int) -> CPython:
    for each in find_pythons():
        if each.minor == minor and each.root is None and str(PYENV) in each.path:
            return each
    pytest.skip(f"pyenv has no CPython 3.{minor} here")


def patched(python: CPython, folder: Path, *changes: tuple[bytes, bytes]) -> Path:
    """A copy of its library where bytes are others."""
    folder.mkdir(exist_ok=True)
    content = python.library.read_bytes()
    for old, new in changes:
        assert len(old) == len(new)
        assert old in content
        content = content.replace(old, new)
    copy = folder / python.library.name
    copy.write_bytes(content)
    copy.chmod(0o755)
    return copy


def described(minor: int, free_threaded: bytes = b"\0", said: int | None = None) -> bytes:
    """The head of a description."""
    version = bytes([0xF0, 0, minor if said is None else said, 3])
    return b"xdebugpy" + version + bytes(4) + free_threaded
