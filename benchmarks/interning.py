# SPDX-License-Identifier: Apache-2.0
"""From records of the captures ring to stacks with names: how many a second and core.

The records are made by hand, since no client makes stacks as fast as they are taken: 40
Python frames over 41 native calls of our own C library.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.captures import code_record, function_address, stack_record, string_fields

from igsdk import _abi
from igsdk._native import StackTable
from igsdk.runtime.stacks import StackResolver

from .support import heading, resident_mib, say

PYTHON = 40
REPEATED, FRESH, NAMED = 50_000, 20_000, 10_000
FUNCTIONS = (
    "malloc",
    "free",
    "calloc",
    "realloc",
    "getenv",
    "setenv",
    "qsort",
    "bsearch",
    "strtol",
    "strtoul",
    "strtod",
    "fopen",
    "fclose",
    "fread",
    "fwrite",
    "fprintf",
    "vfprintf",
    "snprintf",
    "sscanf",
    "getline",
    "fseek",
    "ftell",
    "rewind",
    "perror",
    "abort",
    "exit",
    "system",
    "popen",
    "pclose",
    "mktime",
    "gmtime",
    "localtime",
    "strftime",
    "clock",
    "nanosleep",
    "getcwd",
    "chdir",
    "rename",
    "remove",
    "tmpfile",
)


def run(_folder: Path) -> None:
    heading(f"from the ring to a stack: {PYTHON} Python frames, {len(FUNCTIONS)} native calls")
    table = StackTable()
    for code in range(PYTHON):
        table.take(code_record(code, 7, **string_fields("name", f"function_{code}", 1)))
    native = _native_fields()
    table.take(stack_record(_abi.KEY_FRESH | 1, python=_frames(0), **native))
    template = int.from_bytes(table.templates()[0][1][:8], "little")
    hit: dict[str, Any] = {
        "flags": _abi.CAPTURE_TEMPLATE | _abi.CAPTURE_PYTHON,
        "template_id": template,
    }
    known = [stack_record(2, python=_frames(0), **hit)] * REPEATED
    _say("known, recognised in the kernel", table.take, known)
    copied = [stack_record(_abi.KEY_FRESH | 3, python=_frames(0), **native)] * FRESH
    _say("known, copied and unwound", table.take, copied)
    fresh = [
        stack_record(_abi.KEY_FRESH | 10 + number, python=_frames(number), **native)
        for number in range(1, FRESH + 1)
    ]
    _say("new, copied and unwound", table.take, fresh)
    table.take_stacks()
    _name(table, native)
    say(f"  our memory now: {resident_mib():.0f} MiB")


def _native_fields() -> dict[str, Any]:
    """As if each function had called the one before at its first byte."""
    leaf, *callers = (function_address(name) for name in FUNCTIONS)
    words = [address + 1 for address in callers]
    flags = _abi.CAPTURE_NATIVE | _abi.CAPTURE_PYTHON
    return {"words": words, "pc": leaf, "place": 1, "flags": flags}


def _frames(number: int) -> list[tuple[int, int, int, int, int]]:
    """Another number, another instruction in one of the functions."""
    return [
        (code, 7, 0, 2 * number if code == number % PYTHON else 2, _abi.FRAME_ENTRY)
        for code in range(PYTHON)
    ]


def _say(name: str, take: Callable[[bytes], object], records: Sequence[bytes]) -> None:
    began = time.thread_time()
    for record in records:
        take(record)
    _say_rate(name, len(records), time.thread_time() - began)


def _say_rate(name: str, count: int, seconds: float) -> None:
    say(f"  {name:36} {count / seconds:10,.0f} a second")


def _name(table: StackTable, native: dict[str, Any]) -> None:
    """What Python does with new stacks: names, order, and the id."""
    resolver = StackResolver(table)
    numbers: Iterable[int] = itertools.count(FRESH + 1)
    for start in (0, NAMED):
        for number, _ in zip(numbers, range(NAMED), strict=False):
            key = _abi.KEY_FRESH | 1_000_000 + start + number
            table.take(stack_record(key, python=_frames(number), **native))
        began = time.thread_time()
        resolver.take()
        name = "new, named by Python, first names" if start == 0 else "new, named by Python"
        _say_rate(name, NAMED, time.thread_time() - began)
    resolver.close()
