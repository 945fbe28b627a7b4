# SPDX-License-Identifier: Apache-2.0
"""From raw stacks to stacks with names, while what the names stand in is still there."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from .. import _abi
from .._events import Stack, marker
from .merge import NOT_KNOWN, SUBINTERPRETER, Parts, Role, is_of_interpreter, merge
from .python_frames import Codes, PythonFrames
from .symbols import UNKNOWN, Files, NativeCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._native import RawStack
    from .merge import NativeCall
    from .snapshot import Array

_MAX_STACKS = 1 << 18
_NAMED = 5  # files in a note

_KIB = 32  # of stack that are copied, IGSDK_STACK_BYTES
_MOST_PYTHON = 1024  # IGSDK_MAX_PYTHON
#: why native frames end before the stack does, by RawStack.end
_NATIVE_ENDS = {
    "cut": f"native frames cut after {_KIB} KiB of stack",
    "unreadable": "native frames end: the stack above cannot be read",
    "no rules": "native frames end: this code has no unwind tables",
    "not code": "native frames end: the return address is no code",
    "loop": "native frames end: the stack leads back to itself",
    "too long": "native frames end: there are too many",
    "no room": "native frames not taken: their buffer was full",
    "lost": "native frames lost",
}
# How they may end where the outermost function has no rule that says so.
_AT_START = ("no rules", "not code", "loop")
_CUT = ("cut", "unreadable", "too long")
# The kernel counts these.
_COUNTED = ("no room", "busy")
_BUSY = "stack not taken: no memory to take it in was free"

LOST = Stack.of([marker("stack lost")], "", "its capture was lost")
BUSY = Stack.of([marker(_BUSY)], "", _BUSY)
FULL = Stack.of([marker("too many different stacks")], "", "too many different stacks")


class Source(Files, Codes, Protocol):
    """What raw stacks come from: a tracer, or a table of stacks without one."""

    def take_stacks(self) -> list[RawStack]: ...
    def stack_numbers(self, processes: bytes, keys: bytes, /) -> bytes: ...


class StackResolver:
    """Makes stacks of raw ones, and knows which capture key means which stack.

    A key is unique within a process; several keys may mean one stack.

    Args:
        source: a tracer.
        unsupported: why Python frames of a process can't be read, "" where they can or
            nobody knows.

    Attributes:
        stacks: all different ones, by id.
    """

    def __init__(self, source: Source, unsupported: Callable[[int], str] = lambda _: "") -> None:
        self._source = source
        self._unsupported = unsupported
        self._native = NativeCalls(source)
        self._python = PythonFrames(source)
        self._ids = array("Q", [0])  # by the number of the raw stack; 0 is none
        self._losses = dict.fromkeys(("stacks_full", "stacks_cut", "unwind_ended"), 0)
        self._losses |= {"python_missing": 0, "code_unknown": 0}
        self.stacks: dict[int, Stack] = {}

    def take(self, see: Callable[[int, int], None] = lambda *_: None) -> None:
        """Resolves what has come since the last call.

        Before any name is looked up, which takes its time, `see` is told of the
        processes: (pid, instance).
        """
        fresh = self._source.take_stacks()
        for raw in fresh:
            see(raw.pid, raw.process)
        for raw in fresh:
            self._keep(raw.number, self._resolve(raw))

    def meet(self, pid: int) -> None:
        """Opens what the names of a process may be read from when it is gone."""
        self._native.meet(pid)

    def close_unused(self, ended_seconds: float = 120) -> None:
        """Closes files of processes that ended a while ago; to be called behind :meth:`take`."""
        self._native.close_unused(ended_seconds)

    def close(self) -> None:
        """Closes the files that names were read from."""
        self._native.close()

    def losses(self) -> dict[str, int]:
        """By cause, how many different stacks lack something, and Python frames a name."""
        return {**self._losses, "names_missing": self._python.unnamed}

    def notes(self) -> list[str]:
        """What a reader should know of the names, in sentences."""
        files = sorted(self._native.nameless)
        if not files:
            return []
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        named = f"{', '.join(files[:_NAMED])}{more}"
        return [f"Functions without a symbol are called FILE+OFFSET: some of {named}."]

    def ids_of(self, processes: Array, keys: Array) -> Array:
        """The ``stacks`` ids of capture keys (u64 each); 0 where stacks are off."""
        import numpy as np

        raw = self._source.stack_numbers(
            np.ascontiguousarray(processes, "<u8").tobytes(),
            np.ascontiguousarray(keys, "<u8").tobytes(),
        )
        numbers = np.frombuffer(raw, "<u4")
        known = np.array(self._ids, dtype=np.uint64)
        ids: Array = known[np.where(numbers < len(known), numbers, 0)]
        for key, stack in ((None, LOST), (_abi.KEY_BUSY, BUSY)):
            unknown = (ids == 0) & (keys != 0) if key is None else keys == key
            if unknown.any():
                ids[unknown] = self._add(stack)
        return ids

    def _keep(self, number: int, stack: Stack) -> None:
        if number >= len(self._ids):
            self._ids.extend([0] * (number + 1 - len(self._ids)))
        if stack.id not in self.stacks and len(self.stacks) >= _MAX_STACKS:
            self._losses["stacks_full"] += 1
            stack = FULL
        self._ids[number] = self._add(stack)

    def _add(self, stack: Stack) -> int:
        self.stacks.setdefault(stack.id, stack)
        return stack.id

    def _resolve(self, raw: RawStack) -> Stack:
        if raw.end == "busy":
            return BUSY
        pid, process = raw.pid, raw.process
        # code of no file is known by its address: of the call, where a return address is told
        native = [
            self._native.of(file, offset if file else address - 1, pid, process)
            for file, offset, address in raw.native
        ]
        python = [self._python.of(frame) for frame in raw.python]
        native_end = self._native_end(raw.end, native)
        python_end = self._python_end(raw, native)
        merged = merge(Parts(native, python, native_end, python_end))
        reasons = [reason for reason in (native_end, python_end, merged.doubt) if reason]
        self._losses["python_missing"] += merged.doubt in (NOT_KNOWN, SUBINTERPRETER)
        self._losses["code_unknown"] += any(frame in UNKNOWN for frame in merged.frames)
        how = f"{raw.how}, Python frames" if raw.native and raw.python else raw.how
        return Stack.of(merged.frames, how, "; ".join(reasons) or None)

    def _native_end(self, end: str, native: Sequence[NativeCall]) -> str | None:
        """Why the native frames are not all there, None where they are."""
        if not end or (end in _AT_START and native and native[-1].role is Role.START):
            return None
        if end not in _COUNTED:
            self._losses["stacks_cut" if end in _CUT else "unwind_ended"] += 1
        return _NATIVE_ENDS.get(end, f"native frames end: {end}")

    def _python_end(self, raw: RawStack, native: Sequence[NativeCall]) -> str | None:
        """Why the Python frames are not all there, None where they are."""
        if raw.flags & _abi.CAPTURE_PYTHON_FAULT:
            return "Python frames end: their memory could not be read"
        if raw.flags & _abi.CAPTURE_PYTHON_CUT:
            self._losses["python_missing"] += 1
            return f"Python frames cut after {_MOST_PYTHON}"
        # Any code of its file will do: native frames may end before those that run Python.
        runs_python = any(is_of_interpreter(call.role) for call in native)
        if raw.flags & _abi.CAPTURE_PYTHON or not runs_python:
            return None
        self._losses["python_missing"] += 1
        reason = self._unsupported(raw.pid) or "this interpreter is not known"
        return f"Python frames not taken: {reason}"
