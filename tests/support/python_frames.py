# SPDX-License-Identifier: Apache-2.0
"""The kernel's walk over Python frames once more, from outside a stopped process.

It needs no more than ``struct igsdk_python``, so it proves those numbers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from igsdk import _abi
from igsdk.runtime.pythons.lines import find_line

NONE = 0xFFFF
_OBJECTS, _CFRAMES = 1, 2
_SEIZE, _INTERRUPT, _DETACH, _GETREGS = 0x4206, 0x4207, 17, 12
_FS_BASE = 21  # word in struct user_regs_struct
_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(frozen=True)
class PythonFrame:
    """As `sys._getframe` would show it."""

    name: str
    file: str
    line: int
    first_line: int


class Memory:
    """Another process's memory."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def read(self, address: int, size: int) -> bytes:
        into = ctypes.create_string_buffer(size)
        here = _Vector(ctypes.cast(into, ctypes.c_void_p), size)
        there = _Vector(address, size)
        done = _libc.process_vm_readv(
            self._pid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), 1, 0
        )
        if done != size:
            raise OSError(ctypes.get_errno(), f"{size} bytes at {address:#x}: {done}")
        return into.raw

    def word(self, address: int) -> int:
        return int(struct.unpack("<Q", self.read(address, 8))[0])

    def int32(self, address: int) -> int:
        return int(struct.unpack("<i", self.read(address, 4))[0])

    def byte(self, address: int) -> int:
        return self.read(address, 1)[0]


def wait_for_read(tid: int) -> None:
    """Until a thread waits for a byte from its standard input."""
    deadline = time.monotonic() + 20
    reads = {"x86_64": "0 0x0 ", "aarch64": "63 0x0 "}[platform.machine()]
    while not Path(f"/proc/{tid}/syscall").read_text().startswith(reads):
        assert time.monotonic() < deadline


@contextmanager
def held(tid: int) -> Iterator[int]:
    """Stops a thread; its thread pointer is what identifies it to Python. x86-64."""
    assert platform.machine() == "x86_64"
    registers = (ctypes.c_uint64 * 27)()
    for request in (_SEIZE, _INTERRUPT):
        assert _libc.ptrace(request, tid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(tid, 0x40000000)  # __WALL
    try:
        assert _libc.ptrace(_GETREGS, tid, None, registers) == 0
        yield int(registers[_FS_BASE])
    finally:
        _libc.ptrace(_DETACH, tid, None, None)


class Walk:
    """The frames of one thread, leaf first, by the numbers in `layout`."""

    def __init__(self, pid: int, layout: bytes) -> None:
        self.memory = Memory(pid)
        row = np.frombuffer(layout, _abi.dtype("python"))[0]
        self.at: dict[str, int] = {name: int(row[name]) for name in row.dtype.names}

    def frames(self, identity: int) -> list[PythonFrame]:
        return list(self._frames(self.find_thread(identity)))

    def by_slot(self, thread_pointer: int) -> int:
        """The thread state that the C library keeps; 0 = there is no way to tell."""
        if NONE in (self.at["tss_key"], self.at["tss_slots"]):
            return 0
        key = self.memory.int32(self.at["runtime"] + self.at["tss_key"])
        slots = thread_pointer + self.at["tss_slots"]
        if key >= 32:
            slots = self.memory.word(slots + 32 * 16 + 8 * (key // 32))
        return self.memory.word(slots + 16 * (key % 32) + 8)

    def find_thread(self, identity: int) -> int:
        """The thread state of a thread, by the list."""
        at, memory = self.at, self.memory
        which = at["thread_native_id"] if at["thread_id"] == NONE else at["thread_id"]
        interpreter = memory.word(at["runtime"] + at["interpreters_head"])
        while interpreter:
            thread = memory.word(interpreter + at["interp_threads"])
            while thread:
                if memory.word(thread + which) == identity and self._first_frame(thread):
                    return thread
                thread = memory.word(thread + at["thread_next"])
            interpreter = memory.word(interpreter + at["interp_next"])
        return 0

    def _first_frame(self, thread: int) -> int:
        frame = self.memory.word(thread + self.at["thread_frame"])
        if self.at["flavour"] == _CFRAMES and frame:
            frame = self.memory.word(frame + self.at["cframe_frame"])
        return frame

    def _frames(self, thread: int) -> Iterator[PythonFrame]:
        at = self.at
        address = self._first_frame(thread) if thread else 0
        while address:
            frame = self.memory.read(address, at["frame_size"])
            address = _word(frame, at["frame_previous"])
            if at["owner_shim"] != NONE and frame[at["frame_owner"]] >= at["owner_shim"]:
                continue
            found = self._frame(frame)
            if found is not None:
                yield found

    def _frame(self, frame: bytes) -> PythonFrame | None:
        at = self.at
        address = _word(frame, at["frame_code"]) & ~at["code_tag"]
        code = self.memory.read(address, at["code_size"])
        if at["flavour"] == _OBJECTS:
            lasti = _int(frame, at["frame_instruction"]) * at["lasti_scale"]
        else:
            lasti = _word(frame, at["frame_instruction"]) - address - at["code_start"]
            begun = lasti >= 2 * _int(code, at["code_first_traceable"])
            if frame[at["frame_owner"]] != 1 and not begun:
                return None
        first_line = _int(code, at["code_first_line"])
        table = _word(code, at["code_table"])
        size = self.memory.word(table + at["bytes_size"])
        line = find_line(
            self.memory.read(table + at["bytes_data"], size) if size else b"",
            lasti,
            first_line,
            at["version"],
        )
        name, file = (self.text(_word(code, at[key])) for key in ("code_name", "code_file"))
        return PythonFrame(name, file, line, first_line)

    def text(self, address: int) -> str:
        """A string object."""
        at = self.at
        length = self.memory.word(address + at["string_length"])
        state = self.memory.int32(address + at["string_state"])
        kind = state >> at["string_kind_shift"] & 7
        is_ascii = state >> at["string_ascii_bit"] & 1
        data = at["string_ascii_data"] if is_ascii else at["string_data"]
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind]
        return self.memory.read(address + data, length * kind).decode(encoding)

    def class_of(self, frame: int) -> str:
        """Up to 3.10: the class of the first argument of the frame at this address."""
        first = self.memory.word(frame + self.at["frame_locals"])
        name = self.memory.word(
            self.memory.word(first + self.at["object_type"]) + self.at["type_name"]
        )
        return ctypes_string(self.memory, name)

    def leaf(self, identity: int) -> int:
        """The address of the innermost frame."""
        return self._first_frame(self.find_thread(identity))


def ctypes_string(memory: Memory, address: int) -> str:
    text = b""
    while not text.endswith(b"\0"):
        text += memory.read(address + len(text), 1)
    return text[:-1].decode()


def _word(bytes_: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", bytes_, at)[0])


def _int(bytes_: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", bytes_, at)[0])
