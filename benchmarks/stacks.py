# SPDX-License-Identifier: Apache-2.0
"""Whole stacks: what they cost at the probe, how often they are recognised, how fast named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import igsdk
from igsdk._events import Frame
from igsdk._run import Run

from .support import HERE, Client, compile_source, heading, say

COUNT = 20_000
ROUNDS = 5
PYTHON = 40
NATIVE = 22  # of our own; the interpreter's, libffi's and libc's bring it to 40
#: another interpreter than ours may be the client's
PYTHON_PROGRAM = os.environ.get("IGSDK_BENCH_PYTHON", sys.executable)
PAUSE_US = 1_000  # for stacks that all go up the ring


@dataclass
class Case:
    """One client under one way of tracing."""

    name: str
    client: DeepClient
    run: Run | None
    pause_us: int = 0

    def measure(self, count: int) -> list[int]:
        return self.client.measure(count, self.pause_us)


class DeepClient(Client):
    """deep.py, on a copy of the stub of its own."""

    def command(self, folder: Path) -> list[Path | str]:
        return [PYTHON_PROGRAM, HERE / "deep.py", self.library, folder / "deep.so"]

    def measure(self, count: int, pause_us: int = 0) -> list[int]:
        """The ns that each of so many allocations took."""
        answer = self.answer(f"{count} {PYTHON} {NATIVE} {pause_us}")
        return [int(word) for word in answer.split()]


@contextmanager
def _cases(folder: Path) -> Iterator[list[Case]]:
    ways: dict[str, tuple[dict[str, int] | None, int]] = {
        "no probes": (None, 0),
        "empty probes": ({"floor": 1}, 0),
        "no stacks": ({"collect_ustack": 0}, 0),
        "whole stacks, recognised": ({}, 0),
        "whole stacks, each copied": ({"use_templates": 0}, PAUSE_US),
        "empty probes, paced as those": ({"floor": 1}, PAUSE_US),
    }
    with ExitStack() as stack:
        gpu = stack.enter_context(igsdk.connect("local:"))
        cases = []
        for number, (name, (settings, pause)) in enumerate(ways.items()):
            client = stack.enter_context(DeepClient(folder, f"deep-{number}"))
            run = None
            if settings is not None:
                run = gpu.profile_cuda_memory(pid=client.pid, events="none", settings=settings)
                stack.enter_context(run)
                run._session.libraries.admit_path(str(client.library))
            cases.append(Case(name, client, run, pause))
        yield cases


def run(folder: Path) -> None:
    heading(f"an allocation below {PYTHON} Python and about {PYTHON} native frames")
    compile_source(folder / "deep.so", "deep.c", "-fPIC", "-shared", "-fomit-frame-pointer")
    with _cases(folder) as cases:
        for case in cases:
            case.measure(500)
        took: dict[str, list[int]] = {case.name: [] for case in cases}
        for _ in range(ROUNDS):
            for case in cases:
                took[case.name] += case.measure(COUNT // 50 if case.pause_us else COUNT)
        _say_cost(took)
        for case in cases:
            _say_stacks(case)


def _percentile(sorted_figures: list[int], share: float) -> int:
    return sorted_figures[min(len(sorted_figures) - 1, int(len(sorted_figures) * share))]


def _say_cost(took: dict[str, list[int]]) -> None:
    ordered = {name: sorted(figures) for name, figures in took.items()}
    for name, figures in ordered.items():
        floor = ordered["empty probes, paced as those" if "copied" in name else "empty probes"]
        added = median(figures) - median(floor)
        p99 = _percentile(figures, 0.99)
        say(
            f"  {name:30} p50 {median(figures) / 1000:7.2f} µs (+{added / 1000:6.2f})  "
            f"p99 {p99 / 1000:7.2f} µs (empty probes {_percentile(floor, 0.99) / 1000:.2f})"
        )


def _say_stacks(case: Case) -> None:
    """How deep the stacks were, and how many calls were recognised."""
    if case.run is None or "whole" not in case.name:
        return
    profile = case.run.profile()
    rows = list(profile.samples())
    calls = sum(row["alloc_objects"] for row in rows)
    depths = {_depths(row["stack"]) for row in rows}
    told = ", ".join(f"{python} Python and {native} native" for python, native in sorted(depths))
    hits = 1 - case.run._session.tracer.fresh_stacks / max(calls, 1)
    say(f"  {case.name}: {calls:,} calls, {hits:.2%} recognised; frames {told}")


def _depths(stack: tuple[Frame, ...]) -> tuple[int, int]:
    python = sum(frame.kind == "python" for frame in stack)
    return python, sum(frame.kind in ("native", "interpreter") for frame in stack)
