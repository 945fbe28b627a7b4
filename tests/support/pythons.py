# SPDX-License-Identifier: Apache-2.0
"""The interpreters that this machine has: pyenv's, Debian's own, Debian sid's in a root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import sid

PYENV = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
NAMES = (
    *(f"pyenv {version}" for version in PYENV),
    "debian",
    *(f"sid {version}" for version in sid.VERSIONS),
)
_ASK = """
import os, sys, sysconfig
print(".".join(map(str, sys.version_info[:3])))
print(os.path.join(*map(sysconfig.get_config_var, ("LIBDIR", "INSTSONAME"))))
print(bool(sysconfig.get_config_var("Py_ENABLE_SHARED")))
"""


def find_python(name: str) -> str:
    """The path of one of `NAMES`, inside sid's root for those; skips where there is none."""
    source, _, version = name.partition(" ")
    if source == "sid":
        try:
            return sid.python(version)
        except sid.Unavailable as error:
            pytest.skip(f"no Debian sid here: {error}")
    for path in _candidates(source, version):
        if path.exists():
            return str(path)
    pytest.skip(f"{name} is not on this machine")


def _candidates(source: str, version: str) -> list[Path]:
    if source == "debian":
        return [Path("/usr/bin/python3")]
    if sys.version.startswith(f"{version}."):
        return [Path(sys.executable)]  # it may have greenlet
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))


def about(name: str, python: str) -> tuple[tuple[int, ...], Path | None]:
    """Its version, and the shared library that it runs from; Debian's run from none."""
    inside = ("chroot", str(sid.root())) if name.startswith("sid") else ()
    words = [*inside, python, "-c", _ASK]
    asked = subprocess.run(words, capture_output=True, text=True, check=True)
    version, library, is_shared = asked.stdout.splitlines()
    runs_from_it = is_shared == "True" and name.startswith("pyenv")
    return tuple(map(int, version.split("."))), Path(library) if runs_from_it else None
