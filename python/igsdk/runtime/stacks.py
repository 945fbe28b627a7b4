# SPDX-License-Identifier: Apache-2.0
"""From captures to stacks with names, while the process that they are of still lives."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _abi
from .._events import Frame, Stack, marker
from .libraries import open_mapped

if TYPE_CHECKING:
    from .._native import SymbolTable
    from .mappings import Mapping, Mappings

# Functions below which there is no caller: a walk that ends in one is whole.
_OUTERMOST = {"_start", "clone", "clone3", "__clone3", "__libc_start_call_main", "start_thread"}
_HOW = "frame pointers"
_MAX_TABLES = 256
_MAX_KEYS = 1 << 20

LOST = marker("stack lost")


@dataclass(frozen=True, slots=True)
class _Open:
    """A table reads its file for as long as it lives."""

    table: SymbolTable
    fd: int


class SymbolTables:
    """The symbols of each mapped file, opened at first sight and kept; bounded."""

    def __init__(self) -> None:
        self._tables: OrderedDict[tuple[int, int], _Open | None] = OrderedDict()

    def of(self, pid: int, mapping: Mapping) -> SymbolTable | None:
        """The table of a mapping's file, or None where it cannot be read."""
        key = (mapping.device, mapping.inode)
        if key not in self._tables:
            self._tables[key] = self._open(pid, mapping)
            if len(self._tables) > _MAX_TABLES:
                self._drop_oldest()
        self._tables.move_to_end(key)
        entry = self._tables[key]
        return entry.table if entry else None

    def close(self) -> None:
        """Closes the files."""
        while self._tables:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, entry = self._tables.popitem(last=False)
        if entry:
            os.close(entry.fd)

    def _open(self, pid: int, mapping: Mapping) -> _Open | None:
        from .._native import SymbolTable

        fd = _open_file(pid, mapping)
        if fd is None:
            return None
        with suppress(ValueError):
            return _Open(SymbolTable(fd), fd)
        os.close(fd)
        return None


def _open_file(pid: int, mapping: Mapping) -> int | None:
    """The mapped file: through its process, or by its path if that is the same file."""
    with suppress(OSError):
        return open_mapped(pid, mapping)
    with suppress(OSError):
        fd = os.open(mapping.path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == (mapping.device, mapping.inode):
            return fd
        os.close(fd)
    return None


class StackResolver:
    """Makes stacks of captures, and knows which capture key means which stack.

    A key is unique within a process; several keys may mean one stack.
    """

    def __init__(self, mappings: Mappings) -> None:
        self._mappings = mappings
        self._tables = SymbolTables()
        self._ids: dict[tuple[int, int], int] = {}
        self.stacks: dict[int, Stack] = {}
        self.lost = 0

    def feed(self, records: bytes) -> list[tuple[int, int]]:
        """Resolves the records of the captures ring; returns their (pid, instance)."""
        seen = []
        offset = 0
        size = _abi.dtype("capture").itemsize
        while offset + size <= len(records):
            head = _read_head(records, offset)
            frames = _read_frames(records, offset + size, int(head["n_frames"]))
            self._add(head, frames)
            seen.append((int(head["pid"]), int(head["process"])))
            offset += int(head["size"])
        return seen

    def close(self) -> None:
        """Closes the files that names were read from."""
        self._tables.close()

    def id_of(self, process: int, key: int) -> int:
        """The ``stacks`` id of a capture key; 0 where stacks are off."""
        if key == 0:
            return 0
        known = self._ids.get((process, key))
        if known is None:
            known = self._keep(Stack.of([LOST], _HOW, "its capture was lost"))
        return known

    def stack_of(self, process: int, key: int) -> Stack | None:
        """The stack itself, None where stacks are off."""
        return self.stacks.get(self.id_of(process, key))

    def _keep(self, stack: Stack) -> int:
        self.stacks.setdefault(stack.id, stack)
        return stack.id

    def _add(self, head: Any, addresses: list[int]) -> None:
        if len(self._ids) >= _MAX_KEYS:
            self.lost += 1
            return
        if int(head["flags"]) & _abi.CAPTURE_FAILED:
            reason = os.strerror(-int(head["error"])) if head["error"] else "no frames"
            stack = Stack.of([marker(f"stack not taken: {reason}")], _HOW, reason)
        else:
            cut = bool(int(head["flags"]) & _abi.CAPTURE_TRUNCATED)
            stack = self._resolve(int(head["pid"]), addresses, cut)
        self._ids[int(head["process"]), int(head["key"])] = self._keep(stack)

    def _resolve(self, pid: int, addresses: list[int], cut: bool) -> Stack:
        frames: list[Frame] = []
        for depth, address in enumerate(addresses):
            # a return address stands behind its call: look at the call
            frame = self._frame(pid, address - (1 if depth else 0))
            if frame is None:
                break
            frames.append(frame)
        if frames and frames[-1].function in _OUTERMOST:
            return Stack.of(frames, _HOW)
        # Above `main` is only libc's start, which often has no symbol and no frame pointer.
        for last in range(len(frames) - 1, max(-1, len(frames) - 3), -1):
            if frames[last].function == "main":
                return Stack.of(frames[: last + 1], _HOW)
        whole = len(frames) == len(addresses)
        missing = "deeper callers" if cut and whole else "callers without frame pointers"
        return Stack.of([*frames, marker(missing)], _HOW, missing)

    def _frame(self, pid: int, address: int) -> Frame | None:
        """None for an address that is no code: the walk has left the stack."""
        mapping = self._mappings.find(pid, address)
        if mapping is None:
            return None
        if not mapping.path.startswith("/"):
            return marker(mapping.path.strip("[]") or "anonymous code")
        offset = mapping.file_offset(address)
        table = self._tables.of(pid, mapping)
        found = table.lookup(offset) if table else None
        name = found[0] if found else f"{mapping.name}+{offset:#x}"
        build_id = table.build_id if table else None
        return Frame(name, address=offset, mapping=mapping.path, build_id=build_id or None)


def _read_head(records: bytes, offset: int) -> Any:
    import numpy as np

    return np.frombuffer(records, _abi.dtype("capture"), count=1, offset=offset)[0]


def _read_frames(records: bytes, offset: int, count: int) -> list[int]:
    import numpy as np

    frames: list[int] = np.frombuffer(records, np.uint64, count=count, offset=offset).tolist()
    return frames
