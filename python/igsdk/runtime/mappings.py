# SPDX-License-Identifier: Apache-2.0
"""Which code a living process has mapped, as ``/proc/PID/maps`` tells it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_DELETED = " (deleted)"
_CODE = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ ..x.*", re.MULTILINE)  # most lines are data


@dataclass(frozen=True)
class Mapping:
    """A piece of a process's address space: `end` is the first byte behind it."""

    start: int
    end: int
    offset: int
    device: int
    inode: int
    path: str

    @property
    def name(self) -> str:
        """The file's own name, without folder and without the mark of a deleted one."""
        return plain_name(self.path)


def plain_name(path: str) -> str:
    """The last part of a path as the kernel shows it, without its mark of deleted files."""
    return path.rpartition("/")[2].removesuffix(_DELETED)


def read_maps(pid: int) -> list[Mapping]:
    """The code that a living process has mapped, by address; [] if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return []
    return [mapping for line in _CODE.findall(raw) if (mapping := parse_line(line))]


def parse_line(line: bytes) -> Mapping | None:
    """One line of ``/proc/PID/maps``, if it is code."""
    fields = line.split(None, 5)
    if len(fields) < 5 or b"x" not in fields[1]:
        return None
    start, _, end = fields[0].partition(b"-")
    major, _, minor = fields[3].partition(b":")
    path = os.fsdecode(fields[5]).replace("\\012", "\n") if len(fields) > 5 else ""
    device = os.makedev(int(major, 16), int(minor, 16))
    return Mapping(int(start, 16), int(end, 16), int(fields[2], 16), device, int(fields[4]), path)
