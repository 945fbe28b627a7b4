# SPDX-License-Identifier: Apache-2.0
"""Native and Python frames in one stack; the patterns are those measured on each version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from igsdk._events import Frame
from igsdk.runtime.merge import (
    NOT_KNOWN,
    SUBINTERPRETER,
    Merged,
    NativeCall,
    Parts,
    PythonCall,
    Role,
    merge,
)

ROLES = {
    "EVAL": Role.EVAL,
    "EVAL.part": Role.EVAL_PART,
    "jit": Role.UNKNOWN,
    "clone3": Role.START,
    "libc_start": Role.START,
    "green_switch": Role.GREENLET,
    "interp_run": Role.SUBINTERPRETER,
    "old_run": Role.OLD_SUBINTERPRETER,
}


def native(words: str) -> list[NativeCall]:
    """Calls by name: `EVAL`, those of the interpreter with `*` before them, start, `jit`."""
    return [
        NativeCall.of(
            [Frame(word.lstrip("*"))],
            ROLES.get(word, Role.INTERPRETER if word.startswith("*") else Role.CODE),
        )
        for word in words.split()
    ]


def python(words: str) -> list[PythonCall]:
    """Python frames by name, `|` behind the outermost of each interpreter call."""
    return [
        PythonCall(Frame(word.rstrip("|"), "x.py", 1, kind="python"), word.endswith("|"))
        for word in words.split()
    ]


def shown(merged: Merged) -> str:
    """Names as the default view has them."""
    return " ".join(f.function.replace(" ", "_") for f in merged.frames if f.kind != "interpreter")


def full(merged: Merged) -> str:
    return " ".join(frame.function.replace(" ", "_") for frame in merged.frames)


START = "*PyRun_Main *main libc_start"

#: what is called, native stack, Python frames, what people see
PATTERNS = {
    "3.10: one interpreter call a frame": (
        f"cuMemAlloc cydriver *vectorcall EVAL *function EVAL *function EVAL {START}",
        "leaf| once| <module>|",
        "cuMemAlloc cydriver leaf once <module>",
    ),
    "3.11: calls among Python functions have none": (
        f"cuMemAlloc cydriver *vectorcall EVAL {START}",
        "leaf once <module>|",
        "cuMemAlloc cydriver leaf once <module>",
    ),
    "3.8: sorted() calls __lt__": (
        f"cuMemAlloc EVAL *slot *islt *binarysort *builtin_sorted EVAL *function EVAL {START}",
        "__lt__| run| <module>|",
        "cuMemAlloc __lt__ run <module>",
    ),
    "3.12: sorted() calls __lt__": (
        f"cuMemAlloc EVAL *slot *binarysort *builtin_sorted EVAL {START}",
        "__lt__| cbk once run <module>|",
        "cuMemAlloc __lt__ cbk once run <module>",
    ),
    "functools.reduce of an extension module": (
        f"cuMemAlloc EVAL *vectorcall functools_reduce *cfunction EVAL {START}",
        "<lambda>| fold <module>|",
        "cuMemAlloc <lambda> functools_reduce fold <module>",
    ),
    "ctypes callback": (
        "cuMemAlloc EVAL *call closure_fcn ffi_closure qsort ffi_call callproc *fast EVAL "
        + START,
        "compare| sort <module>|",
        "cuMemAlloc compare closure_fcn ffi_closure qsort ffi_call callproc sort <module>",
    ),
    "3.11: each running generator is an entry": (
        f"cuMemAlloc EVAL *gen_send EVAL *gen_iternext *list_extend EVAL {START}",
        "inner| outer| <module>|",
        "cuMemAlloc inner outer <module>",
    ),
    "3.12: generators stay in one run": (
        f"cuMemAlloc EVAL *gen_iternext *list_extend EVAL {START}",
        "inner outer| run <module>|",
        "cuMemAlloc inner outer run <module>",
    ),
    "a thread of Python's": (
        "cuMemAlloc EVAL *method_call *thread_run *pythread_wrapper clone3 clone3",
        "work Thread.run Thread._bootstrap|",
        "cuMemAlloc work Thread.run Thread._bootstrap",
    ),
    "a C++ thread that calls in": (
        "cuMemAlloc EVAL *PyObject_Call backward engine_main clone3",
        "hook|",
        "cuMemAlloc hook backward engine_main",
    ),
    "perf trampolines": (
        f"cuMemAlloc EVAL jit *py_trampoline *vectorcall EVAL jit *py_trampoline {START}",
        "leaf| <module>|",
        "cuMemAlloc leaf <module>",
    ),
    "JIT code of somebody else stays": (
        f"cuMemAlloc jit launcher EVAL {START}",
        "<module>|",
        "cuMemAlloc jit launcher <module>",
    ),
    "a piece of the interpreter function in a function of its own": (
        f"cuMemAlloc EVAL.part EVAL *function EVAL.part {START}",
        "leaf| <module>|",
        "cuMemAlloc leaf <module>",
    ),
    "a greenlet, whose frames end where it begins": (
        f"cuMemAlloc EVAL *call green_switch green_switch *call EVAL {START}",
        "leaf work|",
        "cuMemAlloc leaf work green_switch green_switch",
    ),
    "a greenlet in a greenlet": (
        f"cuMemAlloc EVAL *call green_switch EVAL green_switch *call EVAL {START}",
        "leaf work|",
        "cuMemAlloc leaf work green_switch green_switch",
    ),
    "3.13: a subinterpreter, whose frames are the thread's": (
        f"cuMemAlloc EVAL *PyRun interp_run *call EVAL *call EVAL {START}",
        "inner <module>|",
        "cuMemAlloc inner <module> interp_run",
    ),
    "a program without Python": (
        "cuMemAlloc f main libc_start",
        "",
        "cuMemAlloc f main libc_start",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    calls, frames, expected = PATTERNS[name]
    merged = merge(Parts(native(calls), python(frames)))
    assert shown(merged) == expected
    assert merged.doubt is None


def test_all_frames_are_there_with_the_interpreter_s_own() -> None:
    merged = merge(Parts(native("cu *call EVAL *main libc_start"), python("f <module>|")))
    assert full(merged) == "cu call f <module> EVAL main libc_start"
    assert [frame.kind for frame in merged.frames] == [
        "native", "interpreter", "python", "python", "interpreter", "interpreter", "interpreter",
    ]  # fmt: skip


CUT = "native frames cut after 32 KiB of stack"


def test_where_the_native_copy_ends_the_rest_of_python_follows() -> None:
    merged = merge(Parts(native("cu EVAL *call EVAL"), python("a| b| c| <module>|"), CUT))
    assert shown(merged) == f"cu a b [{CUT.replace(' ', '_')}] c <module>"
    trampoline = merge(Parts(native("cu EVAL jit"), python("a| <module>|"), "no rules"))
    assert shown(trampoline) == "cu a [no_rules] <module>"
    only = merge(Parts([], python("a| <module>|"), "no room"))
    assert shown(only) == "a <module> [no_room]"
    assert merge(Parts([], [], "no room", "busy")).frames[0].function == "[busy]"


def test_where_python_was_not_taken_the_interpreter_stays_visible() -> None:
    merged = merge(Parts(native("cu *call EVAL *main libc_start"), [], None, "not taken"))
    assert shown(merged) == "cu call [not_taken] EVAL main libc_start"
    nowhere = merge(Parts(native("cu f main"), [], None, "busy"))
    assert shown(nowhere) == "cu f main [busy]"


def test_python_frames_that_end_too_early() -> None:
    fault = Parts(native("cu EVAL *call EVAL *main"), python("a| b"), None, "fault")
    assert shown(merge(fault)) == "cu a b [fault] EVAL main"
    between = Parts(native("cu EVAL *call EVAL *main"), python("a|"), None, "fault")
    assert shown(merge(between)) == "cu a [fault] EVAL main"
    both = Parts(native("cu EVAL *call"), python("a| b"), CUT, "cut")
    assert shown(merge(both)) == f"cu a [{CUT.replace(' ', '_')}] b [cut]"
    whole = Parts(native("cu EVAL *main"), python("a b"), None, "cut")
    assert shown(merge(whole)) == "cu a b [cut] EVAL main"


def test_a_subinterpreter_whose_frames_are_not_the_thread_s() -> None:
    """Up to 3.11, where another thread made it: what is found is its caller's."""
    reason = SUBINTERPRETER.replace(" ", "_")
    for inside, outside in (("EVAL", "EVAL *call EVAL"), ("EVAL *call EVAL", "EVAL *call EVAL")):
        native_calls = native(f"cu *call {inside} *PyRun old_run {outside} {START}")
        merged = merge(Parts(native_calls, python("lambda| Thread.run _bootstrap|")))
        own = inside.replace("*", "")
        assert shown(merged) == f"cu [{reason}] {own} PyRun old_run lambda Thread.run _bootstrap"
        assert merged.doubt == SUBINTERPRETER


def test_a_subinterpreter_whose_frames_are_as_many_as_its_caller_s() -> None:
    """Its outermost frame is a string's; up to 3.12 it runs nothing else."""
    native_calls = native(f"cu EVAL *call EVAL *PyRun old_run EVAL *call EVAL {START}")
    inner = [*python("inner|"), PythonCall(Frame("<module>", "<string>", kind="python"), True)]
    merged = merge(Parts(native_calls, inner))
    assert shown(merged) == "cu inner <module> old_run"
    assert merged.doubt is None


def test_counts_that_do_not_fit_are_said() -> None:
    more = merge(Parts(native("cu EVAL *call EVAL *main"), python("a|")))
    assert shown(more) == f"cu a [{NOT_KNOWN.replace(' ', '_')}] EVAL main"
    assert more.doubt == NOT_KNOWN
    fewer = merge(Parts(native("cu EVAL *call *main"), python("a| b| c|")))
    assert shown(fewer) == "cu a b c"
    assert fewer.doubt
    none = merge(Parts(native("cu f *call *main"), python("a| b|")))
    assert shown(none) == "cu f a b"
    elsewhere = merge(Parts(native("cu f main"), python("a| b|")))
    assert shown(elsewhere) == "cu f main a b"


MORE = ("green_switch", "interp_run", "old_run")
calls = st.lists(
    st.sampled_from(["cu", "*call", "EVAL", "EVAL.part", "jit", "clone3", *MORE]),
    max_size=9,
)
entries = st.lists(st.booleans(), max_size=9)
reasons = st.sampled_from([None, "reason"])


@given(calls, entries, reasons, reasons)
def test_no_frame_is_ever_lost_or_out_of_order(
    words: list[str], entered: list[bool], native_end: str | None, python_end: str | None
) -> None:
    taken = native(" ".join(words))
    frames = python(" ".join(f"p{n}{'|' if e else ''}" for n, e in enumerate(entered)))
    merged = merge(Parts(taken, frames, native_end, python_end)).frames
    assert [f.function for f in merged if f.kind == "python"] == [c.frame.function for c in frames]
    own = [f.function for f in merged if f.kind in ("native", "interpreter")]
    assert own == [call.frames[0].function for call in taken]
    told = [f.function for f in merged if f.kind == "marker"]
    assert told.count("[reason]") == (native_end is not None) + (python_end is not None)
