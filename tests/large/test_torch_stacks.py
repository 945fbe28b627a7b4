# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the simulated driver: each request shows the Python line that asked for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.balance import assert_balanced
from tests.support.recording import recording
from tests.support.simdriver import all_books
from tests.support.torch_runtime import PyTorch

from igsdk._events import Frame

CLIENT = Path(__file__).parent / "clients/allocates.py"
MIB = 1 << 20
#: what PYTORCH_CUDA_ALLOC_CONF says -> the kind of memory that tensors then are
ALLOCATORS = {
    "": "device",
    "expandable_segments:True": "vmm",
    "backend:cudaMallocAsync": "pool",
}
#: whose native calls go through at::detail::empty_cuda itself
PLAIN = {"function", "constructor", "method", "generator", "lambda", "thread", "backward"}


@dataclass(frozen=True)
class Recorded:
    """A whole run of the client: the profile's rows, and the true stacks that it noted."""

    allocator: str
    rows: list[dict[str, Any]]
    notes: list[dict[str, Any]]

    def rows_of(self, note: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows whose Python frames are those noted, leaf first, function, file and line."""
        wanted = [tuple(frame) for frame in note["frames"]]
        return [row for row in self.rows if python_frames(row) == wanted and row["alloc_space"]]


def python_frames(row: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    return [(f.function, f.file, f.line) for f in row["stack"] if f.kind == "python"]


def native_above(row: dict[str, Any]) -> list[Frame]:
    """The native frames between the driver's entry and the innermost Python frame."""
    frames = row["stack"]
    first = next((at for at, f in enumerate(frames) if f.kind == "python"), len(frames))
    return [frame for frame in frames[:first] if frame.kind == "native"]


def text(row: dict[str, Any]) -> str:
    return "\n".join(f"  {f.kind:11} {f.name}  {f.place}" for f in row["stack"])


@pytest.fixture(scope="module", params=ALLOCATORS, ids=lambda name: name or "default")
def recorded(
    request: pytest.FixtureRequest, pytorch: PyTorch, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    folder = tmp_path_factory.mktemp("torch")
    told = folder / "notes.json"
    command = pytorch.command(CLIENT, str(told), books=folder, allocator=request.param)
    with recording(argv=command) as run:
        assert run.command is not None
        ended = run.command.wait()
        assert ended is not None
        assert ended.status == 0
        run.stop()
        # every byte and every call, against the driver's own books
        assert_balanced(run, all_books(folder))
        rows = list(run.profile().samples())
    return Recorded(request.param, rows, json.loads(told.read_text()))


def test_every_request_is_at_its_python_line(recorded: Recorded) -> None:
    lost = [
        f"{note['name']}: {note['frames'][0]}"
        for note in recorded.notes
        if note["name"] != "too much" and not recorded.rows_of(note)
    ]
    assert not lost, "\n".join(map(text, recorded.rows))


def test_the_bytes_are_those_asked_for(recorded: Recorded) -> None:
    for note in recorded.notes:
        rows = recorded.rows_of(note)
        kinds = {"pinned" if note["name"] == "pinned" else ALLOCATORS[recorded.allocator]}
        # the backward pass takes first what its gradients have given back to torch's cache
        if note["name"] in PLAIN - {"backward"} | {"pinned"}:
            same = [other for other in recorded.notes if other["frames"] == note["frames"]]
            asked = sum(other["bytes"] for other in same)
            assert {row["kind"] for row in rows} == kinds, note["name"]
            assert sum(row["alloc_space"] for row in rows) == asked, note["name"]


def test_native_frames_of_torch_stand_between(recorded: Recorded) -> None:
    for note in recorded.notes:
        for row in recorded.rows_of(note):
            frames = native_above(row)
            assert "/libcuda.so" in (frames[0].mapping or ""), text(row)
            if note["name"] in PLAIN:
                names = [frame.function for frame in frames]
                assert any(name.startswith("at::detail::empty_cuda") for name in names), text(row)
                assert any(name.startswith("THPVariable_empty") for name in names) or any(
                    "THPVariable_empty" in name for name in names
                ), text(row)


def test_no_stack_lacks_anything(recorded: Recorded) -> None:
    marked = [row for row in recorded.rows if any(f.kind == "marker" for f in row["stack"])]
    assert not marked, "\n\n".join(map(text, marked))


def test_the_autograd_thread_shows_its_own_calls(recorded: Recorded) -> None:
    gradients = [
        row
        for row in recorded.rows
        if row["alloc_space"]
        and not python_frames(row)
        and any("torch::autograd::Engine" in f.function for f in row["stack"])
    ]
    assert sum(row["alloc_space"] for row in gradients) >= 200 * MIB, "\n\n".join(
        map(text, recorded.rows)
    )


def test_a_refused_request_is_at_its_line(recorded: Recorded) -> None:
    (note,) = [note for note in recorded.notes if note["name"] == "too much"]
    wanted = [tuple(frame) for frame in note["frames"]]
    refused = [row for row in recorded.rows if row["failed_space"]]
    assert refused
    assert all(python_frames(row) == wanted for row in refused), "\n\n".join(map(text, refused))
