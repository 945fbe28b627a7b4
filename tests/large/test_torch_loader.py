# SPDX-License-Identifier: Apache-2.0
"""A DataLoader: a forked worker, a thread that pins what it sends, and a copy to the device."""

from __future__ import annotations

from pathlib import Path

from tests.support.balance import assert_balanced
from tests.support.recording import recording
from tests.support.simdriver import all_books
from tests.support.torch_runtime import PyTorch

CLIENT = Path(__file__).parent / "clients/loads.py"
#: whose Python frames, leaf first, ask for memory of which kind
EXPECTED = {
    "pinned": (
        "pin_memory",
        "_pin_memory_loop.<locals>.do_one_step",
        "_pin_memory_loop",
        "Thread.run",
        "Thread._bootstrap_inner",
        "Thread._bootstrap",
    ),
    "device": ("train", "<module>"),
}


def test_what_a_data_loader_pins_is_its_threads(pytorch: PyTorch, tmp_path: Path) -> None:
    with recording(argv=pytorch.command(CLIENT, books=tmp_path)) as run:
        assert run.command is not None
        ended = run.command.wait()
        assert ended is not None
        assert ended.status == 0
        run.stop()
        assert_balanced(run, all_books(tmp_path))
        rows = [row for row in run.profile().samples() if row["alloc_space"]]
    stacks = {(row["kind"], tuple(row["stack"])) for row in rows}
    seen = {
        (kind, tuple(frame.function for frame in stack if frame.kind == "python"))
        for kind, stack in stacks
    }
    assert seen == set(EXPECTED.items())
    assert not any(frame.kind == "marker" for _, stack in stacks for frame in stack)
