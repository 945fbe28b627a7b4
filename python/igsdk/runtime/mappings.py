# SPDX-License-Identifier: Apache-2.0
"""Which file lies behind an address of a process, also of one that has ended.

``/proc/PID/maps`` knows the processes that were there before us, the kernel's side
band (``MapWatch``) those that came and went since.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._native import MapWatch

_MAX_PROCESSES = 1024
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

    def file_offset(self, address: int) -> int:
        """Where in the file the byte at `address` lies."""
        return address - self.start + self.offset


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


class Mappings:
    """Finds mappings by process and address; bounded, the process asked least goes first."""

    def __init__(self, watch: MapWatch | None = None) -> None:
        self._watch = watch
        self._seeds: OrderedDict[int, list[Mapping]] = OrderedDict()

    def seed(self, pid: int) -> None:
        """Reads what a process has mapped now, if it may be gone when somebody asks."""
        if self._watch is not None and self._watch.complete(pid):
            return
        found = read_maps(pid)
        if found:
            self._seeds[pid] = found
            self._seeds.move_to_end(pid)
            if len(self._seeds) > _MAX_PROCESSES:
                self._seeds.popitem(last=False)

    def of(self, pid: int) -> list[Mapping]:
        """All code mappings known for a process, by address, disjoint."""
        watched = self._watched(pid)
        if self._watch is not None and self._watch.complete(pid):
            return watched
        self.seed(pid)
        return _overlay(self._seeds.get(pid, []), watched)

    def find(self, pid: int, address: int) -> Mapping | None:
        """The mapping that holds an address."""
        known = self.of(pid)
        at = bisect_right(known, address, key=lambda mapping: mapping.start) - 1
        return known[at] if at >= 0 and address < known[at].end else None

    def forget(self, pid: int) -> None:
        """Drops what was read of a process, as after its exec."""
        self._seeds.pop(pid, None)

    def _watched(self, pid: int) -> list[Mapping]:
        if self._watch is None:
            return []
        return [
            Mapping(
                seen.start,
                seen.end,
                seen.offset,
                os.makedev(seen.major, seen.minor),
                seen.inode,
                seen.path,
            )
            for seen in self._watch.mappings(pid)
        ]


def _overlay(base: list[Mapping], newer: Iterable[Mapping]) -> list[Mapping]:
    """Both lists, without those of `base` that a newer one overlaps."""
    top = sorted(newer, key=lambda mapping: mapping.start)
    starts = [mapping.start for mapping in top]

    def is_covered(mapping: Mapping) -> bool:
        at = bisect_right(starts, mapping.end - 1) - 1
        return at >= 0 and top[at].end > mapping.start

    kept = [mapping for mapping in base if not is_covered(mapping)]
    return sorted([*kept, *top], key=lambda mapping: mapping.start)
