# SPDX-License-Identifier: Apache-2.0
"""The peak, the profile as it stood there and at a failure, against a model of a program.

The program is single-threaded and random; the model replays it in Python. Stacks are
told apart by the pattern of two functions between the player and the driver.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.recording import own_driver, play, recording
from tests.support.simdriver import Driver

from igsdk._run import Run
from igsdk.profile import Profile

M = 1 << 20
DEPTH = 3
BRANCHES = {"allocate_middle": 0, "allocate_other": 1}

Blocks = dict[int, tuple[int, int]]
"""Pattern -> bytes and blocks."""


@dataclass
class Model:
    """What a program holds, by variable; and by pattern at its peak and its failures."""

    random: random.Random
    held: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> pattern, bytes
    peak: int = 0
    at_peak: Blocks = field(default_factory=dict)
    at_failures: list[Blocks] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def blocks(self) -> Blocks:
        sums: Blocks = {}
        for pattern, size in self.held.values():
            before = sums.get(pattern, (0, 0))
            sums[pattern] = before[0] + size, before[1] + 1
        return sums

    def allocate(self, name: str) -> None:
        pattern, size = self.random.randrange(8), self.random.randrange(1, 8 * M)
        self.lines.append(f"pattern {pattern}; alloc {name} {size} = 0")
        self.held[name] = pattern, size
        in_use = sum(size for _, size in self.held.values())
        if in_use > self.peak:
            self.peak, self.at_peak = in_use, self.blocks()

    def free(self, name: str) -> None:
        self.lines.append(f"free {name} = 0")
        del self.held[name]

    def fail(self) -> None:
        self.lines.append("alloc x 100G = 2")
        self.at_failures.append(self.blocks())

    def play(self, steps: int) -> str:
        for step in range(steps):
            names = [f"v{number}" for number in range(12)]
            name = self.random.choice(names)
            if name in self.held:
                self.free(name)
            else:
                self.allocate(name)
            if step % 50 == 49:
                self.fail()
        return f"use 0 = 0; depth {DEPTH}\n" + "\n".join(self.lines)


def by_pattern(profile: Profile, value: str) -> Blocks:
    """Bytes and blocks by the functions that the stack went through."""
    sums: Blocks = {}
    for row in profile.samples():
        names = [frame.name for frame in row["stack"]]
        branches = [BRANCHES[name] for name in names if name in BRANCHES]
        assert len(branches) == DEPTH, names
        # leaf first: the last branch that was taken is the highest bit
        pattern = sum(bit << (DEPTH - 1 - place) for place, bit in enumerate(branches))
        before = sums.get(pattern, (0, 0))
        moved = row[f"{value}_space"], row[f"{value}_objects"]
        sums[pattern] = before[0] + moved[0], before[1] + moved[1]
    return {pattern: moved for pattern, moved in sums.items() if moved[1]}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def run(driver: Driver) -> Iterator[Run]:
    with recording(driver) as run:
        yield run


@pytest.mark.parametrize("seed", range(4))
def test_a_random_program(seed: int, run: Run, driver: Driver, tmp_path: Path) -> None:
    model = Model(random.Random(seed))
    played = play(run, driver, model.play(200), tmp_path)
    profile = run.profile()
    assert profile.metadata.peak == "exact"
    assert profile.total("peak_space") == model.peak == played.infos[0].peak
    assert by_pattern(profile, "peak") == model.at_peak
    assert by_pattern(profile, "inuse") == model.blocks(), "held at its exit"
    failures = [event for event in run.events(0.3) if event.type == "failure"]
    assert len(failures) == len(model.at_failures) == 4
    for event, expected in zip(failures, model.at_failures, strict=True):
        assert event.result_name == "CUDA_ERROR_OUT_OF_MEMORY"
        assert event.in_use == sum(size for size, _ in expected.values())
        assert by_pattern(run.at(event), "peak") == expected


@pytest.mark.parametrize("seed", range(2))
def test_accounts_of_single_calls_that_were_moved_out(
    seed: int, driver: Driver, tmp_path: Path
) -> None:
    """Without templates each call has its own; peak and failures find what it held."""
    model = Model(random.Random(seed))
    script = model.play(200).replace("\n", "\nsleep 12\n")
    with recording(driver, settings={"use_templates": 0}) as run:
        played = play(run, driver, script, tmp_path)
        assert len(run._session._attic.settled) > 0
        profile = run.profile()
        failures = [event for event in run.events(0.3) if event.type == "failure"]
        at_failures = [by_pattern(run.at(event), "peak") for event in failures]
    assert profile.total("peak_space") == model.peak == played.infos[0].peak
    assert by_pattern(profile, "peak") == model.at_peak
    assert by_pattern(profile, "inuse") == model.blocks(), "held at its exit"
    assert at_failures == model.at_failures


def test_the_peak_of_several_processes_is_theirs_together(
    run: Run, driver: Driver, tmp_path: Path
) -> None:
    """Each has its own, which need not be at the same moment."""
    script = """use 0 = 0; depth 3; pattern 0; alloc p 8M = 0; free p = 0; pattern 1; alloc q 2M = 0
        fork { use 1 = 0; depth 3; pattern 2; alloc r 7M = 0; free r = 0; pattern 3
        alloc s 1M = 0 }
        wait = 0; pattern 4; alloc t 1M = 0"""
    played = play(run, driver, script, tmp_path)
    assert [info.peak for info in played.infos] == [8 * M, 7 * M]
    profile = run.profile()
    assert profile.total("peak_space") == 9 * M
    assert by_pattern(profile, "peak") == {1: (2 * M, 1), 2: (7 * M, 1)}
    assert by_pattern(profile, "inuse") == {1: (2 * M, 1), 3: (M, 1), 4: (M, 1)}


def test_the_peak_of_a_context_that_ended(run: Run, driver: Driver, tmp_path: Path) -> None:
    """What an end gives back is gone for the next peak; host memory was never part of it."""
    script = """init = 0; depth 3; ctx c 0 = 0; pattern 1; alloc p 8M = 0; hostalloc h 100M = 0
        destroy c = 0; ctx d 0 = 0; pattern 2; alloc q 5M = 0; alloc r 4M = 0"""
    play(run, driver, script, tmp_path)
    profile = run.profile().filter(kind="device")
    assert profile.total("peak_space") == 9 * M
    assert by_pattern(profile, "peak") == {2: (9 * M, 2)}


def test_failures_that_are_many(run: Run, driver: Driver, tmp_path: Path) -> None:
    """The state of the first 64 is kept; of a later one it is said that it was not."""
    play(run, driver, "use 0 = 0; alloc p 1M = 0; repeat 80 { alloc x 100G = 2 }", tmp_path)
    events: list[Any] = list(run.events(0.3))
    assert len(events) == 80
    assert run.at(events[63]).total() == M
    with pytest.raises(Exception, match="not kept"):
        run.at(events[64])
