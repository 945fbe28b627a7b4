# SPDX-License-Identifier: Apache-2.0
"""Records of the captures ring, made by hand, and a stack of our own process to unwind."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from igsdk import _abi

PROCESS = 0x1DE47
#: Numbers of the stack pointer and the instruction pointer in DWARF's order.
SP, PC = (31, 32) if platform.machine() == "aarch64" else (7, 16)
_SIZES = {"name": 256, "file": 512}


def _row(name: str, values: dict[str, Any]) -> Any:
    row = np.zeros(1, _abi.dtype(name))
    for field, value in values.items():
        row[field][0] = value
    return row


def stack_record(
    key: int = 1,
    *,
    words: Sequence[int] = (),
    pc: int = 0,
    sp: int = 0x7FFD_0000_1000,
    python: Iterable[tuple[int, int, int, int, int]] = (),
    **fields: Any,
) -> bytes:
    """A stack: `words` above its pointer, Python frames as (code, check, type, lasti, flags)."""
    frames = np.array(list(python), _abi.dtype("python_frame"))
    stack = np.array(words, "<u8").tobytes()
    head = {
        "record": _abi.RECORD_STACK,
        "process": PROCESS,
        "key": key,
        "pid": os.getpid(),
        "tid": os.getpid(),
        "n_python": len(frames),
        "stack_bytes": len(stack),
        "flags": _abi.CAPTURE_NATIVE if words else 0,
    }
    row = _row("capture", head | fields)
    row["registers"][0, [SP, PC]] = sp, pc
    if "size" not in fields:
        row["size"] = row.itemsize + frames.nbytes + len(stack)
    record: bytes = row.tobytes() + frames.tobytes() + stack
    return record


def string_fields(which: str, text: str, kind: int, at: int = 0) -> dict[str, Any]:
    """The fields of a string of a code record, cut where the record has no more room."""
    encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind]
    points = text.encode(encoding, "surrogatepass")[: _SIZES[which]]
    return {
        f"{which}_object": at,
        f"{which}_length": len(text),
        f"{which}_kind": kind,
        f"{which}_taken": len(points),
        f"{which}_bytes": np.void(points.ljust(_SIZES[which], b"\0")),
    }


def code_record(code: int = 0xC0DE, check: int = 7, **fields: Any) -> bytes:
    """A code object; name and file are "f" and "f.py" unless `fields` say something else."""
    values = {
        "size": _abi.dtype("code").itemsize,
        "record": _abi.RECORD_CODE,
        "process": PROCESS,
        "code": code,
        "check": check,
        "pid": os.getpid(),
        "first_line": 1,
        **string_fields("name", "f", 1),
        **string_fields("file", "f.py", 1),
    }
    record: bytes = _row("code", values | fields).tobytes()
    return record


def table_fields(table: bytes, at: int = 0) -> dict[str, Any]:
    """The fields of a line table, cut as the record cuts it."""
    taken = table[:2048]
    return {
        "table": at,
        "table_length": len(table),
        "table_taken": len(taken),
        "table_bytes": np.void(taken.ljust(2048, b"\0")),
    }


def class_record(kind: int, name: str, at: int = 0, **fields: Any) -> bytes:
    """The class at an address, with its name as far as the record has room."""
    text = (name.encode() + b"\0")[:256]
    taken = len(text)
    values = {
        "size": _abi.dtype("class").itemsize,
        "record": _abi.RECORD_CLASS,
        "process": PROCESS,
        "type": kind,
        "name_address": at,
        "pid": os.getpid(),
        "taken": taken,
        "name": np.void((text[:255] + b"\0").ljust(256, b"\0")),
    }
    record: bytes = _row("class", values | fields).tobytes()
    return record


def function_address(name: str) -> int:
    """Where a function of our own C library stands in our own process."""
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert address
    return address


def start_address() -> int:
    """Where our own process begins: `_start` of the interpreter's program."""
    from igsdk import _native

    program = Path("/proc/self/exe")
    with program.open("rb") as file:
        [(_, address, offset, _)] = _native.elf_functions(file.fileno(), ["_start"])
    path = str(program.resolve())
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, start, _, _, *name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in span.split("-"))
        if name == [path] and 0 <= offset - int(start, 16) < high - low:
            return low + offset - int(start, 16)
    raise AssertionError(f"{path} is not mapped at {address:#x}")
