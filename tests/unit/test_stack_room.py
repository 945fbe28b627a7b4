# SPDX-License-Identifier: Apache-2.0
"""The stack table: what is given back, and what happens where there is no room."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.captures import PROCESS, stack_record

from igsdk import _native

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the table makes BPF maps, which needs root"),
]


def is_known(table: _native.StackTable, key: int) -> bool:
    raw = table.stack_numbers(np.uint64(PROCESS).tobytes(), np.uint64(key).tobytes())
    return raw != bytes(4)


def test_what_found_no_room_is_sent_again() -> None:
    table = _native.StackTable(None, {"pending": 1, "keys": 2, "stacks": 2})

    def take(key: int, frame: int) -> bool:
        """Whether it is done, for the kernel and for us."""
        table.mark_sent(PROCESS, key)
        table.take(stack_record(key, python=[(1, 1, 0, frame, 0)]))
        assert table.is_sent(PROCESS, key) == is_known(table, key)
        return bool(table.is_sent(PROCESS, key))

    assert [take(1, 1), take(2, 2)] == [True, False]  # Python has taken none yet
    assert len(table.take_stacks()) == 1
    assert [take(2, 2), take(3, 3), take(4, 1)] == [True, False, False]  # stacks, keys
    assert table.stack_counts()["lost_keys"] == 1


def test_not_all_of_what_found_no_room_is_sent_again() -> None:
    """Where room stays short the workload would pay for it with each call."""
    table = _native.StackTable(None, {"keys": 0, "again": 100})
    for key in range(1000):
        table.mark_sent(PROCESS, key)
        table.take(stack_record(key, python=[(1, 1, 0, 1, 0)]))
    again = sum(not table.is_sent(PROCESS, key) for key in range(1000))
    assert 100 <= again <= 300  # in one second, or in few


def code_of(process: subprocess.Popen[bytes], program: Path) -> int:
    """An address in its program's code, when it has that."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            span, rights, *_, path = line.split()
            if "x" in rights and path == str(program):
                return int(span.partition("-")[0], 16) + 0x100
    raise AssertionError(f"{program} did not start")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the records' registers are x86-64's")
def test_files_of_processes_that_ended_are_closed_after_a_while(tmp_path: Path) -> None:
    """A file system that somebody unmounts must not stay because of us."""
    table = _native.StackTable(None, {"keep_ended_ms": 100, "keep_files_ms": 100})
    program = Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "program"))
    with subprocess.Popen([program, "60"]) as process:
        try:
            pc = code_of(process, program)
            table.take(stack_record(1, pc=pc, words=[0], pid=process.pid))
            [stack] = table.take_stacks()
            (file_id, _, _), *_ = stack.native
            mapped = table.file(file_id)
            assert mapped is not None
            assert mapped.path == str(program)
            del mapped  # who has it keeps it open
            for _ in range(3):
                time.sleep(0.15)
                assert table.close_unused_files() == 0
        finally:
            process.kill()
    kept = table.stack_counts()["kept_files"]
    assert kept >= 2  # the loader is one
    assert table.file(file_id) is not None
    deadline = time.monotonic() + 20
    closed = 0
    while table.stack_counts()["kept_files"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        closed += table.close_unused_files()
    assert closed == kept
    assert table.file(file_id) is None
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert program not in links
