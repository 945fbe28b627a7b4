# SPDX-License-Identifier: Apache-2.0
"""Roots with the simulated driver where the dynamic linker finds it: the machine's, a container's.

Inspektor Gadget looks for libraries in /etc/ld.so.cache of either, and nowhere else.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.simdriver import Driver

_ETC = ("ld.so.conf", "passwd", "group", "os-release", "nsswitch.conf")


def own_etc(room: Path, driver: Driver) -> None:
    """An /etc and a /var/lib of this machine alone, with the driver in the linker's cache."""
    etc = room / "etc"
    etc.mkdir()
    for name in _ETC:
        if Path("/etc", name).exists():
            shutil.copy(Path("/etc", name), etc / name)
    (etc / "ld.so.conf").write_text(f"{driver.folder}\n{(etc / 'ld.so.conf').read_text()}")
    subprocess.run(["mount", "--bind", str(etc), "/etc"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/var/lib"], check=True)
    _own_runc(room)
    subprocess.run(["ldconfig", "-C", "/etc/ld.so.cache"], check=True, capture_output=True)


def _own_runc(room: Path) -> None:
    """A copy on our tmpfs: a file on 9p has another inode each time, so nobody can watch it."""
    runc = shutil.which("runc")
    assert runc, "runc is not installed"
    shutil.copy(runc, room / "runc")
    subprocess.run(["mount", "--bind", str(room / "runc"), str(Path(runc).resolve())], check=True)


def _needed(*files: Path) -> set[Path]:
    """Shared libraries by what ldd says, the loader among them."""
    found: set[Path] = set()
    for file in files:
        said = subprocess.run(["ldd", str(file)], capture_output=True, text=True).stdout
        found |= {Path(path) for path in re.findall(r"(/\S+) \(0x", said)}
    return found


def make_bundle(bundle: Path, driver: Driver, script: str) -> None:
    """A container that plays a script, with libcuda among its own libraries."""
    root = bundle / "rootfs"
    for name in ("bin", "lib64", "usr/lib", "etc", "proc", "dev", "sys", "books"):
        (root / name).mkdir(parents=True)
    shutil.copy(driver.play, root / "bin/play")
    shutil.copy(driver.libcuda, root / "usr/lib/libcuda.so.1")
    for library in _needed(driver.play, driver.libcuda):
        place = root / ("lib64" if library.name.startswith("ld-linux") else "usr/lib")
        shutil.copy(library, place / library.name)
    (root / "etc/ld.so.conf").write_text("/usr/lib\n")
    subprocess.run(["ldconfig", "-r", str(root)], check=True)
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    config = json.loads((bundle / "config.json").read_text())
    config["root"]["readonly"] = False
    config["process"] |= {"terminal": False, "args": ["/bin/play", "-v", "-e", script]}
    config["process"]["env"].append("SIMCUDA_BOOKS=/books")
    (bundle / "config.json").write_text(json.dumps(config))


@contextmanager
def container(bundle: Path, name: str) -> Iterator[int]:
    """Made and started, so that Inspektor Gadget sees it made; its process as seen outside."""
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    pid_file, log = bundle / "pid", bundle / "log"
    create = ["runc", "create", "--bundle", str(bundle), "--pid-file", str(pid_file), name]
    with log.open("w") as said:
        done = subprocess.run(create, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    assert done.returncode == 0, log.read_text()
    try:
        subprocess.run(["runc", "start", name], check=True)
        yield int(pid_file.read_text())
    finally:
        subprocess.run(["runc", "delete", "-f", name], check=True)
