# SPDX-License-Identifier: Apache-2.0
"""From raw stacks to stacks with names: what is said where something was not taken.

The raw stacks and code objects are made up, the files and their symbols are real.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from igsdk import _abi
from igsdk._events import Frame, Stack, stack_id
from igsdk._native import elf_functions
from igsdk.runtime.stacks import BUSY, LOST, StackResolver

if TYPE_CHECKING:
    from igsdk._events import FrameKind

LIBC, INTERPRETER, DATA, GONE = 1, 2, 3, 9


def library_of(function: Any) -> str:
    """The path of the file that a C function lies in."""

    class Info(ctypes.Structure):
        _fields_ = [(n, ctypes.c_void_p) for n in ("name", "base", "symbol", "address")]

    info = Info()
    address = ctypes.cast(function, ctypes.c_void_p)
    assert ctypes.CDLL(None).dladdr(address, ctypes.byref(info))
    return os.fsdecode(ctypes.string_at(info.name or 0))


@dataclass
class Mapped:
    path: str
    fd: int


@dataclass
class Code:
    name: str
    first_line: int = 10
    file: str = "/srv/x.py"
    version: int = 0x030A
    # 3.10: bytes 0 to 9 are of the first line, 10 to 19 of the next
    table: bytes = bytes([10, 0, 10, 1])
    complete: bool = True


@dataclass
class Raw:
    number: int
    native: list[tuple[int, int, int]]
    python: list[tuple[int, int, int, bool]] = field(default_factory=list)
    end: str = ""
    flags: int = _abi.CAPTURE_PYTHON
    how: str = "unwind tables"
    pid: int = 7
    process: int = 70


class Source:
    """A table of stacks by hand."""

    def __init__(self) -> None:
        self.paths = {
            LIBC: library_of(ctypes.CDLL(None).qsort),
            INTERPRETER: library_of(ctypes.pythonapi.Py_IsInitialized),
            DATA: __file__,
        }
        self.fds: list[int] = []
        self.codes = {1: Code("leaf"), 2: Code("<module>"), 3: Code("", version=0)}
        self.waiting: list[Raw] = []

    def file(self, file_id: int) -> Mapped | None:
        if file_id not in self.paths:
            return None
        self.fds.append(os.open(self.paths[file_id], os.O_RDONLY))
        return Mapped(self.paths[file_id], self.fds[-1])

    def close_unused_files(self) -> int:
        self.paths.clear()
        return 0

    def offset(self, file_id: int, function: str) -> int:
        fd = os.open(self.paths[file_id], os.O_RDONLY)
        ((_, _, offset, _),) = elf_functions(fd, [function])
        os.close(fd)
        return offset

    def code(self, number: int) -> Code:
        return self.codes[number]

    def class_name(self, number: int) -> str:
        return {5: "Model", 6: "torch.Tensor"}[number]

    def take_stacks(self) -> list[Raw]:
        taken, self.waiting = self.waiting, []
        return taken

    def stack_numbers(self, processes: bytes, keys: bytes) -> bytes:
        """Key n is of stack n - 100."""
        wanted = np.frombuffer(keys, "<u8").astype(np.int64) - 100
        return bytes(np.maximum(wanted, 0).astype("<u4").tobytes())


@pytest.fixture
def source() -> Any:
    table = Source()
    yield table
    for fd in table.fds:
        os.close(fd)


def kept(resolver: StackResolver, process: int, key: int) -> Stack | None:
    [number] = resolver.ids_of(np.array([process], np.uint64), np.array([key], np.uint64))
    return resolver.stacks.get(int(number))


def stack_of(source: Source, raw: Raw, **more: Any) -> Stack:
    resolver = StackResolver(cast("Any", source), **more)
    source.waiting.append(raw)
    seen: list[tuple[int, int]] = []
    resolver.take(lambda pid, instance: seen.append((pid, instance)))
    assert seen == [(7, 70)]
    stack = kept(resolver, 70, 100 + raw.number)
    assert stack is not None
    return stack


def names(stack: Stack, *kinds: FrameKind) -> list[str]:
    return [f.function for f in stack.frames if not kinds or f.kind in kinds]


def calls(source: Source, *words: str) -> list[tuple[int, int, int]]:
    """Native calls: functions of the interpreter, `libc:NAME`, or file:offset."""
    found = []
    for word in words:
        file_id, name = (LIBC, word[5:]) if word.startswith("libc:") else (INTERPRETER, word)
        offset = source.offset(file_id, name)
        found.append((file_id, offset + 1, 0x7F0000000000 + offset))
    return found


EVAL = "_PyEval_EvalFrameDefault"


def test_python_frames_have_their_place_names_and_lines(source: Source) -> None:
    native = calls(source, "libc:qsort", EVAL, "PyObject_Call", EVAL, "Py_BytesMain", "libc:clone")
    raw = Raw(1, native, [(1, 12, 5, True), (2, 4, 0, True)])
    stack = stack_of(source, raw)
    assert names(stack, "native", "python") == ["qsort", "Model.leaf", "<module>"]
    assert stack.frames[1] == Frame("Model.leaf", "/srv/x.py", 11, kind="python")
    assert stack.frames[0].mapping == source.paths[LIBC]
    assert stack.frames[0].address == native[0][1]
    hidden = names(stack, "interpreter")
    assert hidden[:4] == [EVAL, "PyObject_Call", EVAL, "Py_BytesMain"]
    assert hidden[4].endswith("clone")
    assert (stack.how, stack.missing) == ("unwind tables, Python frames", None)
    assert stack.id == stack_id(stack.frames)


def test_what_has_no_name_is_called_by_its_place(source: Source) -> None:
    raw = Raw(1, [(DATA, 0x1234, 0), (0, 0xFFFF8000, 0), (GONE, 5, 0)])
    stack = stack_of(source, raw)
    assert names(stack) == [
        f"{Path(__file__).name}+0x1234",
        "[code of no file]",
        "[code of a file that was not kept]",
    ]
    assert [frame.address for frame in stack.frames] == [0x1234, 0, 0]


def test_code_that_nobody_can_name_is_counted_by_stack(source: Source) -> None:
    resolver = StackResolver(cast("Any", source))
    twice, never = [(0, 0x5000, 0x5001), (GONE, 1, 1)], calls(source, "libc:qsort")
    source.waiting += [Raw(1, twice), Raw(2, never)]
    resolver.take()
    assert resolver.losses()["code_unknown"] == 1


def test_code_that_a_process_made_has_the_name_that_it_gave(source: Source) -> None:
    """CPython's own pieces (-X perf) are the interpreter's."""
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.write_text("1000 100 py::leaf:/srv/x.py\n2000 100 kernel_launcher\n")
    try:
        native = [(0, 0x2010, 0x2010), *calls(source, EVAL), (0, 0x1004, 0x1005), (0, 0x9000, 0)]
        raw = Raw(1, native, [(1, 0, 0, True)], pid=os.getpid())
        resolver = StackResolver(cast("Any", source))
        source.waiting.append(raw)
        resolver.take()
        stack = kept(resolver, 70, 101)
        resolver.close()
    finally:
        path.unlink()
    assert stack is not None
    shown = names(stack, "native", "python", "marker")
    assert shown == ["kernel_launcher", "leaf", "[code of no file]"]
    assert names(stack, "interpreter") == [EVAL, "py::leaf:/srv/x.py"]


def test_the_name_of_made_code_is_what_the_process_says_at_that_time(source: Source) -> None:
    """Compilers write their map late, and use memory again."""
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    resolver = StackResolver(cast("Any", source))
    told = []
    try:
        for number, line in enumerate(["", "2000 100 first\n", "2000 100 second\n"], 1):
            with path.open("a") as file:
                file.write(line)
            source.waiting.append(Raw(number, [(0, 0x2010, 0x2010)], pid=os.getpid()))
            resolver.take()
            stack = kept(resolver, 70, 100 + number)
            told += names(stack) if stack else []
    finally:
        resolver.close()
        path.unlink()
    assert told == ["[code of no file]", "first", "second"]
    assert resolver.losses()["code_unknown"] == 1


def test_a_class_of_an_extension_is_named_without_its_module(source: Source) -> None:
    assert names(stack_of(source, Raw(1, [], [(1, 0, 6, True)]))) == ["Tensor.leaf"]


def test_a_code_object_that_is_not_known(source: Source) -> None:
    raw = Raw(1, [], [(3, 0, 0, False), (0, 0, 0, False), (8, 0, 0, True), (2, 0, 99, True)])
    assert names(stack_of(source, raw)) == [
        *["[Python function: its name was not read]"] * 3, "<module>",
    ]  # fmt: skip


def test_lines_are_told_only_where_they_are_certain(source: Source) -> None:
    source.codes[1].version = 0
    source.codes[2].table = b""
    stack = stack_of(source, Raw(1, [], [(1, 4, 0, False), (2, 4, 0, True)]))
    assert [frame.line for frame in stack.frames] == [0, 0]


@pytest.mark.parametrize(
    ("end", "loss"),
    [
        ("cut", "stacks_cut"),
        ("unreadable", "stacks_cut"),
        ("no rules", "unwind_ended"),
        ("not code", "unwind_ended"),
        ("something new", "unwind_ended"),
    ],
)
def test_native_frames_that_end_early_say_so(source: Source, end: str, loss: str) -> None:
    resolver = StackResolver(cast("Any", source))
    source.waiting.append(Raw(1, calls(source, EVAL), [(1, 0, 0, True), (2, 0, 0, True)], end))
    resolver.take()
    stack = kept(resolver, 70, 101)
    assert stack is not None
    shown = names(stack, "python", "marker")
    assert shown[0] == "leaf"
    assert shown[1].startswith("[native frames ")
    assert shown[2] == "<module>"
    assert stack.missing
    assert f"[{stack.missing}]" == shown[1]
    assert {cause for cause, n in resolver.losses().items() if n} == {loss}


def test_a_thread_s_start_without_rules_is_no_loss(source: Source) -> None:
    resolver = StackResolver(cast("Any", source))
    source.waiting.append(Raw(1, calls(source, "libc:qsort", "libc:clone"), [], "no rules", 0))
    resolver.take()
    assert names(cast("Stack", kept(resolver, 70, 101)))[0] == "qsort"
    assert not any(resolver.losses().values())


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (0, "[Python frames not taken: this interpreter is not known]"),
        (_abi.CAPTURE_PYTHON | _abi.CAPTURE_PYTHON_FAULT, "[Python frames end: their memory"),
        (_abi.CAPTURE_PYTHON | _abi.CAPTURE_PYTHON_CUT, "[Python frames cut after 1024]"),
        (_abi.CAPTURE_PYTHON, "[Python frames not known]"),
    ],
)
def test_python_frames_that_were_not_taken(source: Source, flags: int, reason: str) -> None:
    stack = stack_of(source, Raw(1, calls(source, EVAL, "Py_BytesMain"), flags=flags))
    assert stack.frames[0].function.startswith(reason)
    assert names(stack, "native") == [EVAL, "Py_BytesMain"]
    assert stack.missing


def test_an_interpreter_that_is_not_known_yet_needs_no_name_to_be_told(source: Source) -> None:
    """Its file is enough: native frames may end before the function that runs Python."""
    stack = stack_of(source, Raw(1, calls(source, "PyObject_Call"), [], "no rules", 0))
    assert stack.frames[0].function == "PyObject_Call"
    assert "[Python frames not taken: this interpreter is not known]" in names(stack, "marker")


def test_an_interpreter_that_is_not_supported_says_so(source: Source) -> None:
    raw = Raw(1, calls(source, EVAL), flags=0)
    stack = stack_of(source, raw, unsupported=lambda pid: f"free-threaded {pid}")
    assert stack.frames[0].function == "[Python frames not taken: free-threaded 7]"
    plain = Raw(2, calls(source, "libc:qsort"), flags=0)
    assert names(stack_of(source, plain)) == ["qsort"]


def test_only_python_frames(source: Source) -> None:
    raw = Raw(1, [], [(1, 0, 0, False), (2, 0, 0, True)], "no room", how="Python frames only")
    stack = stack_of(source, raw)
    assert names(stack) == ["leaf", "<module>", "[native frames not taken: their buffer was full]"]
    assert stack.how == "Python frames only"


def test_many_keys_at_once(source: Source) -> None:
    resolver = StackResolver(cast("Any", source))
    source.waiting += [Raw(n, [], [(1, n, 0, True)]) for n in range(1, 19)]
    resolver.take()
    keys = np.array([0, 101, 109, 112, _abi.KEY_BUSY, 5000], np.uint64)
    ids = resolver.ids_of(np.full(len(keys), 70, np.uint64), keys)
    assert ids[0] == 0
    assert ids[1] == ids[2] != ids[3]  # two instructions of one line
    assert ids[4:].tolist() == [BUSY.id, LOST.id]
    assert set(ids[1:].tolist()) <= set(resolver.stacks)
    lines = {
        frame.line for key in (101, 112) for frame in resolver.stacks[_id(resolver, key)].frames
    }
    assert lines == {10, 11}


def _id(resolver: StackResolver, key: int) -> int:
    return int(resolver.ids_of(np.array([70], np.uint64), np.array([key], np.uint64))[0])


def test_an_id_is_of_the_content() -> None:
    frames = [Frame("f", "x.py", n, kind="python") for n in (1, 2)]
    one = stack_id(frames)
    assert one == stack_id([Frame("f", "x.py", n, kind="python") for n in (1, 2)]) != 0
    others = [frames[::-1], frames[:1], [*frames, frames[0]], [Frame("f", "x.py", 1), frames[1]]]
    assert len({one, *map(stack_id, others)}) == 5
    assert stack_id([Frame("\ud800\udcff")])


def test_the_interpreter_is_known_under_any_name(source: Source, tmp_path: Path) -> None:
    """A program that has the interpreter linked in; an extension of any name has not."""
    for name, kind in (("server", "interpreter"), ("_ext.so", "native")):
        source.paths[INTERPRETER] = str(tmp_path / name)
        real = library_of(ctypes.pythonapi.Py_IsInitialized)
        (tmp_path / name).symlink_to(real)
        native = calls(source, "PyObject_Call", EVAL)
        stack = stack_of(source, Raw(1, native, [(1, 0, 0, True)]))
        assert next(f.kind for f in stack.frames if f.function == "PyObject_Call") == kind


def test_names_stay_when_files_are_closed(source: Source) -> None:
    resolver = StackResolver(cast("Any", source))
    native = calls(source, "libc:qsort", "Py_IsInitialized")
    source.waiting.append(Raw(1, native))
    resolver.take()
    open_files = len(resolver._native._files)
    resolver.close_unused()
    assert (open_files, len(resolver._native._files)) == (2, 0)
    source.waiting.append(Raw(2, native[:1]))
    resolver.take()
    stack = kept(resolver, 70, 102)
    assert stack is not None
    assert names(stack) == ["qsort"]
