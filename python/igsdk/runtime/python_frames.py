# SPDX-License-Identifier: Apache-2.0
"""Names and lines of Python frames: by code object, instruction and class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .._events import Frame, marker
from .merge import PythonCall
from .pythons.lines import find_line

if TYPE_CHECKING:
    from .._native import Code

_MAX_FRAMES = 1 << 16
_NAMELESS = marker("Python function: its name was not read")


class Codes(Protocol):
    """Code objects and classes by number: a tracer, or a table of stacks without one."""

    def code(self, number: int, /) -> Code: ...
    def class_name(self, number: int, /) -> str: ...


class PythonFrames:
    """Python calls as a raw stack has them, each resolved once; bounded.

    Attributes:
        unnamed: how many frames have no name, since their code objects were not kept.
    """

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self._calls: dict[tuple[int, int, int, bool], PythonCall] = {}
        self.unnamed = 0

    def of(self, raw: tuple[int, int, int, bool]) -> PythonCall:
        """Of (code number, byte offset of the instruction, class number, entry)."""
        call = self._calls.get(raw)
        if call is None:
            if len(self._calls) >= _MAX_FRAMES:
                self._calls.clear()
            number, lasti, class_number, entry = raw
            frame = self._frame(number, lasti, class_number)
            call = self._calls[raw] = PythonCall(frame, entry)
        return call

    def _frame(self, number: int, lasti: int, class_number: int) -> Frame:
        try:
            code = self._codes.code(number) if number else None
        except KeyError:
            code = None
        if code is None or not code.name:
            self.unnamed += 1
            return _NAMELESS
        name = self._class(class_number) + code.name
        return Frame(name, code.file or None, _line(code, lasti), kind="python")

    def _class(self, number: int) -> str:
        """``Class.`` of a method's first argument, for versions without qualified names."""
        try:
            name = self._codes.class_name(number) if number else ""
        except KeyError:
            return ""
        return f"{name.rpartition('.')[2]}." if name else ""


def _line(code: Code, lasti: int) -> int:
    """The line of an instruction; 0 where nobody knows it for certain."""
    if not code.version:
        return 0
    return find_line(code.table, lasti, code.first_line, code.version, complete=code.complete)
