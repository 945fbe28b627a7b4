# SPDX-License-Identifier: Apache-2.0
"""Control groups in which all of a test cluster runs, so that all of it can be ended.

Kubelets move nothing out of the group that they are given as their root, and what a
container starts stays below. ``build/cluster-end.sh`` knows the same name.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_MOUNT = Path("/sys/fs/cgroup")


def _checksum(text: str) -> str:
    """As in the script: no module has just this sum."""
    done = subprocess.run(["cksum"], input=text, capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def _hierarchies() -> list[Path]:
    """Where control groups are mounted: one folder, or one for each controller (version 1)."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(each[1]) for each in mounts if each[2] in ("cgroup", "cgroup2")]


class Groups:
    """The groups of one instance.

    Attributes:
        name: path of its top group, from the root of each hierarchy.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self.name = f"igsdk-cluster-{_checksum(str(ROOT))}-{instance}"

    def make(self, name: str) -> list[Path]:
        """Makes ``name`` below the top group in every hierarchy; returns the folders."""
        return [_make(hierarchy, Path(self.name, name)) for hierarchy in _hierarchies()]

    def end(self) -> None:
        """Ends all that runs in them, and removes them."""
        subprocess.run([ROOT / "build/cluster-end.sh", self._instance], check=True, timeout=60)


def _make(hierarchy: Path, path: Path) -> Path:
    folder = hierarchy
    for part in path.parts:
        _delegate(folder)
        parent, folder = folder, folder / part
        folder.mkdir(exist_ok=True)
        _inherit_processors(parent, folder)
    _delegate(folder)
    return folder


def _inherit_processors(parent: Path, folder: Path) -> None:
    """Version 1: a new group of cpuset has no processor, and takes no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if hierarchy_is_old(folder) and (folder / name).exists():
            (folder / name).write_text((parent / name).read_text())


def hierarchy_is_old(folder: Path) -> bool:
    """Version 2 has a list of controllers in every group."""
    return not (folder / "cgroup.controllers").exists()


def _delegate(folder: Path) -> None:
    """Version 2: what a group may limit has to be handed down to it."""
    if hierarchy_is_old(folder):
        return
    names = (folder / "cgroup.controllers").read_text().split()
    wanted = " ".join(
        f"+{name}" for name in names if name in ("cpu", "cpuset", "memory", "pids", "io")
    )
    if wanted:
        (folder / "cgroup.subtree_control").write_text(wanted)


def join_command(folders: list[Path]) -> list[str]:
    """Words before a command that have it run in the groups of these folders."""
    files = [str(folder / "cgroup.procs") for folder in folders]
    script = 'for f in "$@"; do [ "$f" != -- ] || break; echo $$ >"$f"; done; '
    script += 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    return ["sh", "-ec", script, "sh", *files, "--"]
