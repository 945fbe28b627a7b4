# SPDX-License-Identifier: Apache-2.0
"""A profile over our own agent: the same books, stacks and events as of a local run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_recorded_clients import CLIENTS, installed
from tests.support.recording import own_driver, paused, recording
from tests.support.remote_books import assert_booked
from tests.support.simdriver import Driver, all_books

import igsdk
from igsdk._events import Event
from igsdk.agent.agent import Agent, Settings
from igsdk.profile import Profile

M = 1 << 20
SCRIPT = """use 0 = 0; depth 3; alloc p 3M = 0; managed m 2M = 0; alloc q 1M = 0; free q = 0
    alloc z 900G = 2; alloc r 5M = 0; free r = 0"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def target(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    socket = tmp_path_factory.mktemp("socket") / "agent.socket"
    with Agent(Settings(listen=(f"unix:{socket}",))) as agent:
        agent.hub.session.libraries.admit_path(str(driver.libcuda))
        yield f"unix://{socket}"


def rows(profile: Profile) -> Counter[str]:
    """The rows of a profile, without what is this run's own: peaks."""
    return Counter(
        json.dumps({k: str(v) for k, v in sample.items() if not k.startswith("peak")})
        for sample in profile.samples()
    )


def told(event: Event) -> tuple[Any, ...]:
    """An event without its times: each program takes its own."""
    return (
        *(event.type, event.process.instance, event.process.pid, event.tid, event.boot),
        *(event.api, event.kind, event.device, event.address, event.bytes, event.result),
        *(event.result_name, event.in_use, event.stack),
    )


def test_books_stacks_and_events_are_those_of_a_local_run(
    target: str, driver: Driver, tmp_path: Path
) -> None:
    with (
        recording(driver, events="all") as local,
        igsdk.connect(target) as gpu,
        gpu.profile_cuda_memory(command=driver.play.name, events="all") as run,
    ):
        with paused(driver, tmp_path, SCRIPT, "free p = 0"):
            assert_booked(run, all_books(tmp_path))
            live, live_here = run.profile(), local.profile()
        run.stop()
        local.stop()
        assert_booked(run, all_books(tmp_path))
        ended, ended_here = run.profile(), local.profile()
        events, events_here = list(run.events(0)), list(local.events(0))
        stacks, stacks_here = run.stacks(), local.stacks()
        notes, attached, processes = run.notes(), run.attached, run.processes()
        nothing = {cause: count for cause, count in run.losses().items() if count}
    assert live.total("inuse_space", "own") == ended.total("inuse_space", "own") + 3 * M == 3 * M
    assert rows(live) == rows(live_here)
    assert rows(ended) == rows(ended_here)
    for event, same in zip(events, events_here, strict=True):
        assert told(event) == told(same)
    assert len(events) == 8
    assert stacks_here
    assert {number: stacks[number] for number in stacks_here} == stacks_here
    assert (live.metadata.peak, live.metadata.driver) == ("interval", "simulated")
    (library,) = local.attached
    assert library.sites in [one.sites for one in attached]
    (process,), (here,) = processes, local.processes()
    assert process.ended_ns is not None
    assert replace(process, ended_ns=here.ended_ns) == here
    assert not [note for note in notes if "not in here" in note]
    assert nothing.keys() <= {"unknown_free", "names_missing", "unwind_ended"}


@pytest.mark.skipif(not installed("cuda.bindings"), reason="cuda.bindings is not installed")
def test_a_real_client_is_profiled_whole(target: str, driver: Driver, tmp_path: Path) -> None:
    environment = driver.environment(tmp_path, devices="8G,8G")
    client = [sys.executable, str(CLIENTS / "bindings_client.py")]
    with igsdk.connect(target) as gpu, gpu.profile_cuda_memory() as run:
        done = subprocess.run(client, env=environment, capture_output=True, text=True, check=True)
        run.stop()
        books = all_books(tmp_path)
        assert_booked(run, books, 0)
        profile = run.profile()
    (row,) = [one for one in profile.metadata.processes if "bindings_client.py" in one.command]
    mine = profile.filter(pid=row.pid)
    allocated: Counter[str] = Counter()
    for sample in mine.samples():
        allocated[sample["kind"]] += sample["alloc_space"]
    expected = json.loads(done.stdout)
    assert {kind: size for kind, size in allocated.items() if size} == expected["allocated"]
    assert mine.total("failed_space") == expected["refused"]
    assert row.peak == books[0].peak
    assert "plain" in {frame.function for frame in mine.frames() if frame.kind == "python"}
    assert profile.metadata.peak == "exact"


def test_the_command_line_records_over_targets(target: str, driver: Driver, tmp_path: Path) -> None:
    """Two of them, of which one is not there: said, and no reason to end."""
    nobody, file = f"unix://{tmp_path}/nobody.socket", tmp_path / "out.pb.gz"
    targets = ("--target", target, "--target", nobody)
    igsdk_command = (sys.executable, "-m", "igsdk.cli")
    with paused(driver, tmp_path, SCRIPT, "free p = 0") as process:
        filters = ("--pid", str(process.pid), "--duration", "1", "-o", str(file))
        done = subprocess.run(
            [*igsdk_command, "record", *targets, *filters], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert f"{nobody}: There is no socket" in done.stderr
    assert "3.00 MiB" in done.stdout
    profile = Profile.read(file)
    assert profile.total("inuse_space", "own") == 3 * M
    assert {row.pid for row in profile.metadata.processes} == {process.pid}
    assert profile.metadata.target == f"{target}, {nobody}"
    refused = subprocess.run(
        [*igsdk_command, "record", "--target", target, "--", "true"], capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "local: only" in refused.stderr
