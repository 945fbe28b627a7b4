# SPDX-License-Identifier: Apache-2.0
"""The stack table: records made by hand, of this process and of none."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from tests.support.captures import (
    PROCESS,
    class_record,
    code_record,
    function_address,
    stack_record,
    start_address,
    string_fields,
    table_fields,
)

from igsdk import _abi, _native
from igsdk.runtime.pythons import offsets

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the table makes BPF maps, which needs root"),
]
ON_X86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="elsewhere a leaf's return address is in a register"
)
NOWHERE = 1 << 46  # no memory of ours is there


def numbers_of(table: Any, *keys: int, process: int = PROCESS) -> list[int]:
    processes = np.full(len(keys), process, "<u8")
    raw = table.stack_numbers(processes.tobytes(), np.array(keys, "<u8").tobytes())
    return np.frombuffer(raw, "<u4").tolist()


@pytest.fixture
def table() -> Any:
    return _native.StackTable()


@pytest.fixture(scope="module")
def layout() -> bytes:
    """Of the interpreter that runs this test."""
    version = sys.version_info[0] << 8 | sys.version_info[1]
    runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
    description = ctypes.string_at(ctypes.addressof(runtime), offsets.DESCRIPTION_BYTES)
    known = offsets.layout(version, platform.machine(), description)
    return known.pack(ctypes.addressof(runtime), "glibc", platform.machine())


def chain(*names: str) -> tuple[int, list[int]]:
    """Registers and stack as if each function had called the one before at its first byte.

    There the rule is the same everywhere: the return address is on top of the stack.
    """
    leaf, *callers = (function_address(name) for name in names)
    return leaf, [address + 1 for address in callers]


def test_the_layouts_are_those_that_the_extension_was_compiled_with() -> None:
    compiled = _native.layouts()
    sizes = {name: _abi.dtype(name).itemsize for name in _abi.LAYOUTS}
    assert sizes == {name: compiled[name] for name in sizes}
    assert compiled["losses"] == len(_abi.LOSSES)
    assert compiled["calls"] == len(_abi.CALLS)


def test_python_frames_find_their_code_in_either_order(table: Any) -> None:
    frames = [(0xC0DE, 7, 0, 4, 0), (0xC0DF, 8, 0, 6, _abi.FRAME_ENTRY)]
    table.take(code_record(0xC0DE, 7))
    table.take(stack_record(5, python=frames, flags=_abi.CAPTURE_PYTHON))
    table.take(code_record(0xC0DF, 8, version=0x30D, **string_fields("name", "later", 1)))
    [stack] = table.take_stacks()
    assert (stack.number, stack.how, stack.end) == (1, "Python frames only", "busy")
    assert (stack.pid, stack.process, stack.flags) == (os.getpid(), PROCESS, _abi.CAPTURE_PYTHON)
    assert stack.native == []
    first, second = stack.python
    assert first[1:] == (4, 0, False)
    assert second[1:] == (6, 0, True)
    assert [table.code(frame[0]).name for frame in stack.python] == ["f", "later"]
    assert [table.code(frame[0]).version for frame in stack.python] == [0, 0x30D]
    assert table.code(first[0]).file == "f.py"
    assert table.take_stacks() == []
    assert numbers_of(table, 5, 6) == [1, 0]
    assert numbers_of(table, 5, process=1) == [0]


def test_a_stack_is_told_once_and_every_key_finds_it(table: Any) -> None:
    for key in range(1, 1001):
        table.take(stack_record(_abi.KEY_FRESH | key, python=[(1, 2, 0, 3, 0)]))
    assert len(table.take_stacks()) == 1
    keys = [_abi.KEY_FRESH | key for key in (1, 500, 1000)]
    assert numbers_of(table, *keys) == [1, 1, 1]
    table.take(stack_record(7, python=[(1, 2, 0, 3, 0)], process=99))
    table.take(stack_record(8, python=[(1, 2, 0, 5, 0)]))
    table.take(stack_record(9, python=[(1, 2, 0, 3, 0)], flags=_abi.CAPTURE_PYTHON_CUT))
    assert [stack.number for stack in table.take_stacks()] == [2, 3, 4]


def test_no_room_is_said(table: Any) -> None:
    table.take(stack_record(3, flags=_abi.CAPTURE_NO_ROOM))
    table.take(stack_record(4, flags=_abi.CAPTURE_NO_ROOM, python=[(1, 2, 0, 3, 0)]))
    bare, python = table.take_stacks()
    assert (bare.how, bare.end) == ("not taken", "no room")
    assert (python.how, python.end) == ("Python frames only", "no room")
    assert table.stack_counts()["python_only"] == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", 1),
        ("Größe.<lambda>", 1),
        ("módulo.Класс.f", 2),
        ("名前" * 60, 2),
        ("f🐍𐍈", 4),
        ("/srv/\udcff\udc80.py", 2),
    ],
)
def test_text_of_every_kind(table: Any, text: str, kind: int) -> None:
    table.take(code_record(**string_fields("name", text, kind)))
    table.take(stack_record(python=[(0xC0DE, 7, 0, 0, 0)]))
    code = table.code(1)
    assert (code.name, code.complete) == (text, True)


def test_what_is_no_text_is_replaced(table: Any) -> None:
    broken = np.array([0x110000, 0xD800, 0x61, 0xFFFFFFFF], "<u4").tobytes()
    fields = string_fields("name", "abcd", 4)
    table.take(code_record(**fields | {"name_bytes": np.void(broken.ljust(256, b"\0"))}))
    assert table.code(1).name == "\ufffd\ufffda\ufffd"
    table.take(code_record(2, **fields | {"name_kind": 3}))
    assert (table.code(2).name, table.code(2).complete) == ("\u2026", False)


def test_long_text_is_read_from_the_living_process(table: Any, layout: bytes) -> None:
    table.set_python(os.getpid(), layout)
    names = ["n" * 5000, "é" * 700, "имя" * 300, "🐍" * 200]
    kinds = [1, 1, 2, 4]
    lines = bytes(range(256)) * 40
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        fields = string_fields("name", name, kind, id(name)) | table_fields(lines, id(lines))
        table.take(code_record(number, **fields))
        code = table.code(number + 1)
        assert (code.name, code.table, code.complete) == (name, lines, True)


def test_what_is_another_object_by_now_is_not_read(table: Any, layout: bytes) -> None:
    table.set_python(os.getpid(), layout)
    name = "n" * 1000
    lies: dict[str, dict[str, Any]] = {
        "another length": {"name_length": 1001},
        "another kind": {"name_kind": 2},
        "another text": {"name_bytes": np.void(b"x" * 256)},
        "no memory": {"name_object": NOWHERE},
        "no process": {"pid": 0x7FFFFFFF},
        "too long": {"name_length": 1 << 62},
    }
    for number, lie in enumerate(lies.values()):
        table.take(code_record(number, **string_fields("name", name, 1, id(name)) | lie))
        code = table.code(number + 1)
        assert not code.complete
        assert len(code.name) <= 257
        assert code.name.endswith("\u2026")


def test_classes(table: Any) -> None:
    long = "C" * 3000
    memory = ctypes.create_string_buffer(long.encode())
    table.take(class_record(0xAA, "Model"))
    table.take(class_record(0xBB, long, ctypes.addressof(memory)))
    table.take(class_record(0xCC, long, NOWHERE))
    table.take(class_record(0xDD, "", taken=0))
    python = [(1, 2, kind, 0, 0) for kind in (0xAA, 0xBB, 0xCC, 0xDD)]
    table.take(stack_record(python=python))
    [stack] = table.take_stacks()
    names = [table.class_name(frame[2]) for frame in stack.python]
    assert names == ["Model", long, "C" * 255, ""]


def test_a_class_whose_address_another_one_has_keeps_its_name(table: Any) -> None:
    table.take(class_record(0xAA, "First"))
    table.take(stack_record(1, python=[(1, 2, 0xAA, 0, 0)]))
    table.take(class_record(0xAA, "Second"))
    table.take(stack_record(2, python=[(1, 2, 0xAA, 0, 0)]))
    first, second = table.take_stacks()
    assert table.class_name(first.python[0][2]) == "First"
    assert table.class_name(second.python[0][2]) == "Second"


def test_what_was_never_told(table: Any) -> None:
    table.take(stack_record(python=[(1, 2, 0xAA, 0, 0)]))
    with pytest.raises(KeyError):
        table.code(1)
    with pytest.raises(KeyError):
        table.class_name(1)
    assert table.file(77) is None
    with pytest.raises(ValueError, match="u64"):
        table.stack_numbers(b"1234567", b"")
    with pytest.raises(ValueError, match="as many"):
        table.stack_numbers(bytes(8), bytes(16))
    with pytest.raises(ValueError, match="bytes"):
        table.set_python(1, b"short")


@ON_X86
def test_native_frames_and_their_template(table: Any) -> None:
    leaf, returns = chain("malloc", "free", "getenv")
    words = [returns[0], returns[1]]
    fields: dict[str, Any] = {"place": 0x91ACE, "space": 3, "pc": leaf, "words": words}
    table.take(stack_record(_abi.KEY_FRESH | 1, **fields))
    [stack] = table.take_stacks()
    assert (stack.how, stack.end) == ("unwind tables", "cut")
    assert [address for _, _, address in stack.native] == [leaf, *returns]
    file = table.file(stack.native[0][0])
    assert "libc" in file.path
    assert os.fstat(file.fd).st_ino == file.inode

    [(key, value)] = table.templates()
    place = np.frombuffer(key, _abi.dtype("template_key"))[0]
    assert place.tolist() == (PROCESS, 0x91ACE, 3, 0)
    template = np.frombuffer(value, _abi.dtype("template"))[0]
    assert template["n_slots"] == 2
    assert template["slots"][:2].tolist() == [0, 1]
    assert template["bytes"] == 16
    assert int(template["hash"]) == chained(words)

    # a hit names the template only, and is the same stack
    hit: dict[str, Any] = {"flags": _abi.CAPTURE_TEMPLATE, "template_id": int(template["id"])}
    table.take(stack_record(2, **hit))
    assert numbers_of(table, _abi.KEY_FRESH | 1, 2) == [1, 1]
    table.take(stack_record(3, **hit, python=[(1, 2, 0, 3, 0)]))
    [other] = table.take_stacks()
    assert other.native == stack.native
    # the same again is no second way
    table.take(stack_record(_abi.KEY_FRESH | 2, **fields))
    assert len(table.templates()) == 1


def chained(words: list[int]) -> int:
    """igsdk_template_hash, once more."""
    whole, value = (1 << 64) - 1, _abi.TEMPLATE_SEED
    for word in words:
        value = (value ^ word) * 0x9E3779B97F4A7C15 & whole
        value ^= value >> 29
    return value


@ON_X86
def test_a_whole_stack_ends_at_its_start(table: Any) -> None:
    leaf, returns = chain("malloc", "free")
    words = [returns[0], start_address() + 1, 1, 0, 0]
    table.take(stack_record(1, pc=leaf, words=words))
    [stack] = table.take_stacks()
    assert (len(stack.native), stack.end) == (3, "")
    [(_, value)] = table.templates()
    assert np.frombuffer(value, _abi.dtype("template"))[0]["n_slots"] == 2


@ON_X86
def test_what_another_probe_put_on_the_stack_is_hashed_as_it_stands(table: Any) -> None:
    leaf, [caller] = chain("malloc", "free")
    sp, trampoline = 0x7FFD_0000_2000, 0x7FFF_FFFF_F000
    returns = np.zeros((8, 2), "<u8")
    returns[0] = sp, caller
    fields: dict[str, Any] = {"returns": returns, "n_returns": 1}
    table.take(stack_record(1, pc=leaf, sp=sp, words=[trampoline], **fields))
    [stack] = table.take_stacks()
    assert [address for _, _, address in stack.native] == [leaf, caller]
    [(_, value)] = table.templates()
    assert int(np.frombuffer(value, _abi.dtype("template"))[0]["hash"]) == chained([trampoline])


@ON_X86
def test_four_ways_then_the_oldest_is_replaced(table: Any) -> None:
    leaf = function_address("malloc")
    callers = ["free", "getenv", "setenv", "calloc", "realloc"]
    for key, caller in enumerate(callers):
        words = [function_address(caller) + 1]
        table.take(stack_record(_abi.KEY_FRESH | key, pc=leaf, words=words, place=5))
    ways = {
        int(np.frombuffer(key, _abi.dtype("template_key"))[0]["way"]): int(
            np.frombuffer(value, _abi.dtype("template"))[0]["hash"]
        )
        for key, value in table.templates()
    }
    assert sorted(ways) == [0, 1, 2, 3]
    assert ways[0] == chained([function_address("realloc") + 1])
    assert ways[1] == chained([function_address("getenv") + 1])


@ON_X86
def test_what_ends_in_garbage_gets_no_template(table: Any) -> None:
    leaf, [caller] = chain("malloc", "free")
    table.take(stack_record(1, pc=leaf, words=[caller, 0x1234_5678]))
    table.take(stack_record(2, pc=leaf, words=[0xDEAD_BEEF_0000]))
    table.take(stack_record(3, pc=0x10, words=[caller]))
    ends = {stack.end for stack in table.take_stacks()}
    assert "" not in ends
    assert table.templates() == []


def test_an_unknown_template_is_said(table: Any) -> None:
    table.take(stack_record(1, flags=_abi.CAPTURE_TEMPLATE, template_id=12345))
    [stack] = table.take_stacks()
    assert (stack.native, stack.end) == ([], "lost")
    assert table.stack_counts()["lost_template_stacks"] == 1


def damaged_records() -> list[bytes]:
    whole = stack_record(1, words=[1, 2, 3], python=[(1, 2, 0, 3, 0)] * 3)
    code, kind = code_record(), class_record(1, "C")
    return [
        b"",
        b"\1",
        whole[:7],
        whole[:8],
        whole[:-1],
        code[:-1],
        kind[:-1],
        stack_record(1, words=[1], size=0),
        stack_record(1, words=[1], size=100),
        stack_record(1, words=[1], stack_bytes=1 << 31),
        stack_record(1, words=[1], n_python=65535),
        stack_record(1, words=[1], n_python=1024, stack_bytes=0xFFFFFFFF),
        stack_record(1, words=[1], record=9),
        code_record(size=8),
        class_record(1, "C", size=4),
    ]


@pytest.mark.parametrize("number", range(len(damaged_records())))
def test_records_that_lie_about_their_size_are_counted(table: Any, number: int) -> None:
    table.take(damaged_records()[number])
    assert table.take_stacks() == []
    assert table.stack_counts()["lost_damaged"] == 1


def test_hostile_fields_of_whole_records(table: Any, layout: bytes) -> None:
    """Sizes inside are cut to what there is; nothing is read outside."""
    huge = (1 << 64) - 1
    table.set_python(os.getpid(), layout)
    table.take(code_record(1, name_taken=0xFFFFFFFF, name_length=huge, name_kind=4))
    table.take(code_record(2, table_taken=0xFFFFFFFF, table_length=huge, table=huge))
    table.take(code_record(3, file_taken=0xFFFFFFFF, file_length=3, file_kind=1))
    table.take(code_record(4, name_object=huge, name_length=300, name_kind=1, name_taken=0))
    table.take(class_record(7, "C" * 300, huge, taken=0xFFFFFFFF))
    table.take(class_record(8, "C" * 300, NOWHERE, taken=256))
    table.take(stack_record(1, words=[0] * 8, n_returns=65535))
    table.take(stack_record(2, words=[huge] * 8, sp=huge - 7, pc=huge))
    assert [table.code(number).complete for number in (1, 2, 3, 4)] == [False, False, True, False]
    assert table.code(3).file == "f.p"
    assert table.stack_counts()["lost_damaged"] == 0


def test_random_records_do_no_harm(table: Any, layout: bytes) -> None:
    seed = random.Random(4)
    table.set_python(os.getpid(), layout)
    leaf, returns = chain("malloc", "free", "getenv")
    good = [
        stack_record(1, pc=leaf, words=returns * 20, python=[(1, 2, 3, 4, 0)] * 5),
        code_record(),
        class_record(1, "C"),
    ]
    for _ in range(3000):
        record = bytearray(seed.choice(good))
        for _ in range(seed.randrange(1, 12)):
            at = seed.randrange(8, len(record))
            record[at] = seed.randrange(256)
        table.take(bytes(record))
    table.take(good[0])
    assert table.stack_counts()["native"] > 100


def test_it_stays_within_its_limits() -> None:
    limits = {"stacks": 50, "keys": 80, "pending": 40, "codes": 60, "text_bytes": 100, "places": 4}
    table = _native.StackTable(None, limits)
    for key in range(200):
        table.take(code_record(key, key, **string_fields("name", "name" * 10, 1)))
        table.take(stack_record(key + 1, python=[(key, key, 0, key, 0)]))
    first = table.take_stacks()
    assert len(first) == 40
    for key in range(200, 300):
        table.take(stack_record(key + 1, python=[(1, 1, 0, key, 0)]))
    for key in range(300, 500):
        table.take(stack_record(key + 1, python=[(1, 1, 0, 1, 0)]))
    counts = table.stack_counts()
    assert len(table.take_stacks()) == 10
    assert counts["kept_stacks"] == 50
    assert counts["kept_keys"] == 80
    assert counts["kept_codes"] == 60
    assert counts["kept_text_bytes"] <= 100
    for loss in ("stacks", "keys", "pending", "codes"):
        assert counts[f"lost_{loss}"] > 0


@ON_X86
def test_the_oldest_place_goes_first() -> None:
    table = _native.StackTable(None, {"places": 4})
    leaf, [caller] = chain("malloc", "free")
    for place in range(10):
        table.take(stack_record(place + 1, pc=leaf, words=[caller], place=place))
    kept = {
        int(np.frombuffer(key, _abi.dtype("template_key"))[0]["place"])
        for key, _ in table.templates()
    }
    assert kept == {6, 7, 8, 9}


@ON_X86
def test_a_process_that_was_forgotten(table: Any) -> None:
    leaf, [caller] = chain("malloc", "free")
    python = [(0xC0DE, 7, 0, 0, 0)]
    table.take(code_record())
    table.take(stack_record(1, pc=leaf, words=[caller], python=python))
    table.take(stack_record(1, process=2, python=python))
    table.forget_process(PROCESS)
    assert len(table.take_stacks()) == 2
    assert table.code(1).name == "f"  # who took the stacks may still ask
    assert numbers_of(table, 1) == [0]
    assert numbers_of(table, 1, process=2) == [2]
    assert table.templates() == []
    table.take_stacks()
    with pytest.raises(KeyError):
        table.code(1)


def test_keys_that_no_account_has_any_more(table: Any) -> None:
    for key in (1, 2, 3):
        table.take(stack_record(key, python=[(1, 2, 0, 3, 0)]))
    gone = np.array([1, 3, 9], "<u8").tobytes()
    table.forget_keys(np.full(3, PROCESS, "<u8").tobytes(), gone)
    assert numbers_of(table, 1, 2, 3) == [0, 1, 0]
    assert table.stack_counts()["kept_keys"] == 1


def test_old_keys_of_calls_without_an_account() -> None:
    """Where there are many: those of accounts stay, and those that all calls share."""
    limits = {"keys": 100, "key_seconds": 0}
    table = _native.StackTable(None, limits)
    fresh = [_abi.KEY_FRESH | key for key in range(1, 81)]
    for key in (*fresh[:40], 1, 2):
        table.take(stack_record(key, python=[(1, 2, 0, 3, 0)]))
    table.keep_fresh_keys(b"")
    assert table.stack_counts()["kept_keys"] == 42
    for key in fresh[40:]:
        table.take(stack_record(key, python=[(1, 2, 0, 3, 0)]))
    table.keep_fresh_keys(np.array(fresh[70:], "<u8").tobytes())
    assert table.stack_counts()["kept_keys"] == 12
    assert numbers_of(table, fresh[69], fresh[70], 1) == [0, 1, 1]
    lasting = _native.StackTable(None, {"keys": 10})
    for key in fresh[:10]:
        lasting.take(stack_record(key, python=[(1, 2, 0, 3, 0)]))
    lasting.keep_fresh_keys(b"")
    assert lasting.stack_counts()["kept_keys"] == 10


def test_nothing_is_said_of_a_process_that_is_gone(table: Any, layout: bytes) -> None:
    """It would stay for ever, and be said of the next one that has its number."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        table.set_python(process.pid, layout)
        assert table.space(process.pid) != b""
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        table.set_python(process.pid, layout)
        assert table.space(process.pid) == b""


def test_stacks_of_a_process_that_is_forgotten_make_room() -> None:
    table = _native.StackTable(None, {"stacks": 2})
    for process in range(1, 4):
        for lasti in range(3):
            frames = [(1, 2, 0, lasti, 0)]
            table.take(stack_record(7 + lasti, python=frames, process=process))
        assert [bool(n) for n in numbers_of(table, 7, 8, 9, process=process)] == [True, True, False]
        table.forget_process(process)
        assert table.stack_counts()["kept_stacks"] == 0
    assert table.stack_counts()["lost_stacks"] == 3


# Pages of its own that it lets nobody read: who asks for one waits for an answer.
NEVER = """
import ctypes, fcntl, mmap, struct, sys, time
size = 16 * mmap.PAGESIZE
memory = mmap.mmap(-1, size)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
handler = ctypes.CDLL(None).syscall(323, 0)
if handler >= 0:
    fcntl.ioctl(handler, 0xC018AA3F, struct.pack("3Q", 0xAA, 0, 0))
    fcntl.ioctl(handler, 0xC020AA00, struct.pack("4Q", start, size, 1, 0))
print(start if handler >= 0 else 0, flush=True)
time.sleep(1000)
"""


@ON_X86
def test_memory_that_never_comes_is_not_waited_for(table: Any, layout: bytes) -> None:
    with subprocess.Popen([sys.executable, "-c", NEVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = int(process.stdout.readline())
        if not address:
            process.kill()
            pytest.skip("this kernel has no userfaultfd")
        table.set_python(process.pid, layout)
        begin = time.monotonic()
        for number in range(1, 41):
            fields = string_fields("name", "n" * 300, 1, address)
            table.take(code_record(number, pid=process.pid, **fields))
            assert not table.code(number).complete
        # 16 reads of 0.1 s each, then none
        assert time.monotonic() - begin < 10
        long = "n" * 300
        table.set_python(os.getpid(), layout)
        table.take(code_record(100, **string_fields("name", long, 1, id(long))))
        assert table.code(41).complete  # what is there can be read still
        process.kill()


def test_an_interpreter_keeps_the_generation(table: Any, layout: bytes) -> None:
    pid = os.getpid()
    assert table.space(pid) == b""
    table.set_python(pid, layout)
    space = np.frombuffer(table.space(pid), _abi.dtype("space"))[0]
    assert space["generation"] == 0
    assert table.space(pid)[8:] == layout


@ON_X86
@pytest.mark.slow
def test_rates(table: Any) -> None:
    """Of one core: 20,000 known and 2,000 new stacks a second; here with room to spare."""
    leaf, returns = chain("malloc", *["free", "getenv", "calloc", "setenv"] * 10)
    python = [(code, code, 0, 2, 0) for code in range(40)]
    table.take(stack_record(1, pc=leaf, words=returns, python=python))
    [(_, value)] = table.templates()
    template = int(np.frombuffer(value, _abi.dtype("template"))[0]["id"])
    hit: dict[str, Any] = {"flags": _abi.CAPTURE_TEMPLATE, "template_id": template}
    known = [stack_record(key, python=python, **hit) for key in range(2, 2002)]
    miss = [stack_record(key, pc=leaf, words=returns, python=python) for key in range(3000, 5000)]
    fresh = [
        stack_record(
            key, pc=leaf, words=returns, python=[(code, key, 0, 2, 0) for code in range(40)]
        )
        for key in range(5000, 6000)
    ]
    for records, goal in ((known, 20_000), (miss, 2_000), (fresh, 2_000)):
        began = time.thread_time()
        for record in records:
            table.take(record)
        rate = len(records) / (time.thread_time() - began)
        print(f"{rate:,.0f} a second")
        assert rate > goal
    began = time.thread_time()
    stacks = table.take_stacks()
    frames = sum(len(stack.native) + len(stack.python) for stack in stacks)
    print(f"{len(stacks) / (time.thread_time() - began):,.0f} handed over a second")
    assert frames == len(stacks) * 81


def test_an_interpreter_that_is_none(table: Any, layout: bytes) -> None:
    pid = os.getpid()
    table.clear_python(pid)
    assert table.space(pid) == b""
    table.set_python(pid, layout)
    table.clear_python(pid)
    assert not any(table.space(pid))
