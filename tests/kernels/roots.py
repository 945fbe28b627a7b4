# SPDX-License-Identifier: Apache-2.0
"""A root with the simulated driver where the dynamic linker finds it.

Inspektor Gadget looks for libraries in /etc/ld.so.cache, and nowhere else.
"""

from __future__ import annotations

import shutil
import subprocess
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
    subprocess.run(["ldconfig", "-C", "/etc/ld.so.cache"], check=True, capture_output=True)
