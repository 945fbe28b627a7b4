# SPDX-License-Identifier: Apache-2.0
"""The newest CPythons, from Debian's unstable suite, in a folder to chroot into.

Packages come from the mirror that this machine's apt is set up with: an index of 11 MB and
some 35 packages of 31 MB, with a signature that apt checks against the machine's own key.
Apt's resolver finds what they need, dpkg-deb unpacks them, nothing of them is run or
configured. 10 s on a fast line, once; 112 MB stay in ``.work/sid``.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .simdriver import Driver

VERSIONS = ("3.13", "3.14", "3.15")
FOLDER = Path(__file__).parents[2] / ".work" / "sid"
# What a program of tests/pythons finds inside: mount points.
DRIVER, WORK = "driver", "work"

_KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCE = """Types: deb
URIs: {mirror}
Suites: sid
Components: main
Targets: Packages
Signed-By: {key}
"""
_SOURCES = ("sources.list", "sources.list.d/*.sources", "sources.list.d/*.list")
_ADDRESS = re.compile(r"^(?:URIs:|deb(?:\s+\[.*?\])?)\s+(\S+)", re.MULTILINE)
_CONFIGURATION = """
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
Dir::Etc::sourcelist "{folder}/sid.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Debug::NoLocking "1";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"""


class Unavailable(Exception):
    """There is no such root here; the reason, for whoever skips a test."""


def _run(*words: str | Path, seconds: float = 240, **variables: str | Path) -> str:
    """What a command prints; Unavailable with its last words if it fails."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{words[0]}: {lines[-1] if lines else done.returncode}")
    return done.stdout


def _mirror() -> str:
    """Address of the Debian mirror that this machine uses."""
    sources = Path("/etc/apt")
    for path in (path for name in _SOURCES for path in sorted(sources.glob(name))):
        for address in _ADDRESS.findall(path.read_text(errors="replace")):
            if address.rstrip("/").endswith("/debian"):  # neither -security nor somebody else's
                return str(address)
    raise Unavailable("apt on this machine has no mirror of Debian")


def _download(folder: Path) -> list[Path]:
    """The packages, as apt's resolver chooses them for a system without any."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sid.sources").write_text(_SOURCE.format(mirror=_mirror(), key=_KEY))
    configuration = folder / "apt.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder))
    _run("apt-get", "-q", "update", "--error-on=any", APT_CONFIG=configuration)
    known = _run("apt-cache", "pkgnames", "python3.1", APT_CONFIG=configuration).split()
    names = [f"python{version}" for version in VERSIONS if f"python{version}" in known]
    options = ("-q", "-y", "--no-install-recommends", "--download-only")
    _run("apt-get", *options, "install", *names, APT_CONFIG=configuration)
    return sorted((folder / "archives").glob("*.deb"))


def _build(fresh: Path) -> None:
    packages = _download(fresh / "apt")
    root = fresh / "root"
    root.mkdir()
    for package in packages:
        _run("dpkg-deb", "--extract", package, root)
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for name in (DRIVER, WORK, "tmp", "dev", "proc"):
        (root / name).mkdir(exist_ok=True)
    shutil.rmtree(fresh / "apt")


@functools.cache
def _made() -> Path | str:
    """The root, or why there is none; asked once."""
    FOLDER.parent.mkdir(exist_ok=True)
    with (FOLDER.parent / "sid.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FOLDER.exists():
            fresh = FOLDER.with_name(f"sid.{os.getpid()}")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            try:
                _build(fresh)
                fresh.rename(FOLDER)
            except Unavailable as error:
                return str(error)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return FOLDER / "root"


def root() -> Path:
    """The folder to chroot into, made at the first call.

    Raises:
        Unavailable: the mirror does not answer, or does not have it.
    """
    made = _made()
    if isinstance(made, str):
        raise Unavailable(made)
    return made


def python(version: str) -> str:
    """That CPython's path inside the root; raises Unavailable if the suite lacks it."""
    path = f"usr/bin/python{version}"
    if not (root() / path).exists():
        raise Unavailable(f"Debian sid has no CPython {version} any more")
    return f"/{path}"


@contextmanager
def mounted(folder: Path, driver: Driver, work: Path) -> Iterator[Path]:
    """The root as a mount of its own, with a driver and a folder to work in inside it.

    It is one that a command's opens can be held in, and others may use the root as well.
    """
    place = folder / "sid"
    place.mkdir()
    _run("mount", "--bind", root(), place)
    try:
        _run("mount", "--make-private", place)
        _run("mount", "--bind", driver.folder, place / DRIVER)
        _run("mount", "--bind", work, place / WORK)
        _run("mount", "-t", "proc", "proc", place / "proc")
        _run("mount", "-t", "tmpfs", "tmpfs", place / "tmp")  # -X perf leaves maps there
        yield place
    finally:
        _run("umount", "--recursive", "--lazy", place)
