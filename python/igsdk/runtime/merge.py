# SPDX-License-Identifier: Apache-2.0
"""One stack of native and Python frames: each Python frame where its interpreter frame stands.

The interpreter's function `_PyEval_EvalFrameDefault` runs Python frames: one a call up to
3.10, later all those that call one another without C code between. The outermost of each
such run is marked as its entry, so runs and calls of that function pair off from the leaf
on (facts/cpython-frames.md section 3.2). Everything here is leaf first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from .._events import marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .._events import Frame

#: the reasons where the interpreter runs frames that its thread does not list
NOT_KNOWN = "Python frames not known"
SUBINTERPRETER = "Python frames not known: they are a subinterpreter's"


class Role(Enum):
    """What a native call is to the Python frames around it."""

    CODE = auto()  # of a program or an extension module: always its own
    EVAL = auto()  # the interpreter's function that runs Python frames
    EVAL_PART = auto()  # a piece that the compiler cut out of it, and that it calls
    INTERPRETER = auto()  # other code of the interpreter's file
    GREENLET = auto()  # code of an extension: outside it another greenlet's frames begin
    SUBINTERPRETER = auto()  # the same for interpreters in one process
    OLD_SUBINTERPRETER = auto()  # up to 3.12, where a thread may list the frames outside it
    START = auto()  # where the C library starts a process or a thread
    UNKNOWN = auto()  # code of no file, as perf trampolines are


_OF_ITS_FILE = (Role.EVAL, Role.EVAL_PART, Role.INTERPRETER)
_BOUNDARIES = (Role.GREENLET, Role.SUBINTERPRETER, Role.OLD_SUBINTERPRETER)


def is_of_interpreter(role: Role) -> bool:
    """Whether it is code of the interpreter's file."""
    return role in _OF_ITS_FILE


@dataclass(frozen=True, slots=True)
class NativeCall:
    """One native call: its frames (several where functions were inlined, innermost first).

    ``hidden`` are the same frames as a part of the interpreter.
    """

    frames: tuple[Frame, ...]
    hidden: tuple[Frame, ...]
    role: Role = Role.CODE

    @classmethod
    def of(cls, frames: Iterable[Frame], role: Role = Role.CODE) -> NativeCall:
        """A call whose hidden frames are made of the others."""
        kept = tuple(frames)
        return cls(kept, tuple(replace(frame, kind="interpreter") for frame in kept), role)


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One Python frame; ``entry``: the outermost of those that one interpreter call runs."""

    frame: Frame
    entry: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """What was taken of one stack.

    ``native_end`` and ``python_end`` say why such frames end before the stack does, or
    why there are none; None: they are complete.
    """

    native: Sequence[NativeCall]
    python: Sequence[PythonCall]
    native_end: str | None = None
    python_end: str | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The frames of one stack, and why they might be more or in another order (or None)."""

    frames: tuple[Frame, ...]
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where Python frames go.

    Attributes:
        placed: before which native call.
        rest: behind the end of the native ones.
        gap: the native call before which a reason says that Python frames are missing.
        shown: calls of the interpreter that stay visible, since they stand for those.
    """

    placed: dict[int, list[Frame]]
    rest: Sequence[Frame] = ()
    gap: int | None = None
    reason: str = NOT_KNOWN
    shown: range = range(0)
    doubt: str | None = None


def merge(parts: Parts) -> Merged:
    """Puts both kinds of frames into one order; none of them is ever left out."""
    if not parts.native:
        reasons = _markers(parts.python_end, parts.native_end)
        return Merged((*(call.frame for call in parts.python), *reasons))
    plan = _plan(parts)
    return Merged(tuple(_laid_out(parts, plan)), plan.doubt)


def _plan(parts: Parts) -> _Plan:
    native, evals, runs = parts.native, _eval_calls(parts.native), _runs(parts.python)
    if len(evals) > len(runs) > 0 and parts.python_end is None:
        plan = _by_boundary(native, evals, runs)
        if plan:
            return plan
    placed = dict(zip(evals, runs, strict=False))
    rest = [frame for run in runs[len(evals) :] for frame in run]
    doubt = NOT_KNOWN if len(evals) > len(runs) and parts.python_end is None else None
    if rest and parts.native_end is None:
        placed.setdefault(_home(native, evals), []).extend(rest)
        rest, doubt = [], "fewer interpreter calls than Python frames need: their order is a guess"
    gap = None if rest else _gap(parts, evals, runs)
    shown = range(0 if gap is None else gap, 0 if gap is None else len(native))
    return _Plan(placed, rest, gap, parts.python_end or NOT_KNOWN, shown, doubt)


def _by_boundary(
    native: Sequence[NativeCall], evals: list[int], runs: list[list[Frame]]
) -> _Plan | None:
    """Where the thread lists the Python frames of one side of a boundary only.

    Those inside a greenlet are all that the program itself sees there; so are those of a
    subinterpreter, unless another thread made it, up to 3.12.
    """
    for place, call in enumerate(native):
        if call.role not in _BOUNDARIES:
            continue
        inside = [each for each in evals if each < place]
        outside = evals[len(inside) :]
        may_be_outside = call.role is Role.OLD_SUBINTERPRETER and len(outside) == len(runs)
        if len(inside) == len(runs) and (not may_be_outside or _are_a_string_s(runs)):
            return _Plan(dict(zip(inside, runs, strict=True)))
        if may_be_outside:
            placed = dict(zip(outside, runs, strict=True))
            shown = range(inside[0], place)
            return _Plan(placed, (), inside[0], SUBINTERPRETER, shown, SUBINTERPRETER)
    return None


def _are_a_string_s(runs: list[list[Frame]]) -> bool:
    """Whether frames may be those of a subinterpreter, which up to 3.12 runs a string."""
    outermost = runs[-1][-1]
    return (outermost.function, outermost.file) == ("<module>", "<string>")


def _markers(*reasons: str | None) -> list[Frame]:
    return [marker(reason) for reason in reasons if reason]


def _eval_calls(native: Sequence[NativeCall]) -> list[int]:
    """Places of the calls that run Python frames; a cut-out piece and its caller are one."""
    after = [*native[1:], None]
    return [
        place
        for place, (call, caller) in enumerate(zip(native, after, strict=True))
        if call.role is Role.EVAL
        or (call.role is Role.EVAL_PART and (caller is None or caller.role is not Role.EVAL))
    ]


def _runs(python: Sequence[PythonCall]) -> list[list[Frame]]:
    """Python frames by interpreter call; the last run may lack its entry."""
    runs: list[list[Frame]] = []
    is_open = False
    for call in python:
        if not is_open:
            runs.append([])
        runs[-1].append(call.frame)
        is_open = not call.entry
    return runs


def _home(native: Sequence[NativeCall], evals: Sequence[int]) -> int:
    """Where Python frames belong whose interpreter call was not recognised."""
    if evals:
        return evals[-1]
    inside = (place for place, call in enumerate(native) if call.role in _OF_ITS_FILE)
    return next(inside, len(native))


def _gap(parts: Parts, evals: Sequence[int], runs: Sequence[object]) -> int | None:
    """The call behind whose Python frames others are missing; None where none are."""
    matched = min(len(evals), len(runs))
    if parts.python_end and matched and not parts.python[-1].entry:
        return evals[matched - 1]
    if len(evals) > len(runs):
        return evals[len(runs)]
    if parts.python_end is None:
        return None
    return evals[-1] if evals else len(parts.native)


def _laid_out(parts: Parts, plan: _Plan) -> list[Frame]:
    """The frames in order."""
    frames: list[Frame] = []
    hidden = _hidden_calls(parts.native, plan) if parts.python else set()
    for place, call in enumerate(parts.native):
        frames += plan.placed.get(place, ())
        if place == plan.gap:
            frames.append(marker(plan.reason))
        frames += call.hidden if place in hidden else call.frames
    frames += plan.placed.get(len(parts.native), ())
    if plan.gap == len(parts.native):
        frames.append(marker(plan.reason))
    frames += [*_markers(parts.native_end), *plan.rest]
    return frames + _markers(parts.python_end) if plan.rest else frames


def _hidden_calls(native: Sequence[NativeCall], plan: _Plan) -> set[int]:
    """Calls that Python frames stand for."""
    hidden = {place for place in range(len(native)) if _is_interpreter(native, place)}
    if len(native) - 1 not in plan.shown:
        hidden |= _start_of(native, max(plan.placed, default=-1))
    return hidden.difference(plan.shown)


def _is_interpreter(native: Sequence[NativeCall], place: int) -> bool:
    role = native[place].role
    if role is Role.UNKNOWN:  # a perf trampoline stands between two of the interpreter's
        outer = native[place + 1].role in _OF_ITS_FILE if place + 1 < len(native) else True
        return place > 0 and native[place - 1].role is Role.EVAL and outer
    return role in _OF_ITS_FILE


def _start_of(native: Sequence[NativeCall], outermost: int) -> set[int]:
    """The start of the process or thread, outside the outermost Python frame."""
    start = set()
    for place in range(len(native) - 1, outermost, -1):
        if native[place].role is not Role.START and native[place].role not in _OF_ITS_FILE:
            break
        start.add(place)
    return start
