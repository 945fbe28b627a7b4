# SPDX-License-Identifier: Apache-2.0
"""64 nodes of 1,000 rows a second, merged: what the client takes of a core, and of memory.

The nodes are sockets of one process of its own, whose CPU time does not count. It takes a
core to itself, though, so on a machine of two the client has what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import igsdk
from igsdk.client.fleet import Fleet, ListedMembers
from igsdk.client.fleet_run import FleetRun

from .daemon import daemons
from .support import heading, resident_mib, say

NODES, ROWS_A_SECOND = 64, 1_000
WARM, SECONDS = 3.0, 15.0

Read = Callable[[FleetRun], Iterator[int]]


def run(_folder: Path) -> None:
    heading(f"{NODES} nodes, {ROWS_A_SECOND:,} rows a second each; goals: one core, 1,024 MiB")
    _measure("batches, own fields, a packet a second", "own", 1, _batches)
    _measure("batches, 22 texts, a packet a second", "all", 1, _batches)
    _measure("batches, 22 texts, ten packets a second", "all", 10, _batches)
    _measure("rows, 22 texts, a packet a second", "all", 1, _rows)
    heading(f"profile_cuda_memory on {NODES} nodes, {ROWS_A_SECOND:,} accounts each, all changed")
    _profile()


def _batches(run: FleetRun) -> Iterator[int]:
    for batch in run.batches():
        yield batch.rows


def _rows(run: FleetRun) -> Iterator[int]:
    for _ in run.rows():
        yield 1


def _measure(name: str, kind: str, a_second: int, read: Read) -> None:
    rows = ROWS_A_SECOND // a_second
    with (
        TemporaryDirectory(prefix="igsdk-bench-") as folder,
        daemons(
            Path(folder), NODES, kind, rows=rows, packets=10**6, seconds=1 / a_second
        ) as targets,
        Fleet(ListedMembers(targets), f"{NODES} nodes") as fleet,
        fleet.run("benchmark") as stream,
    ):
        count, cpu, wall = _count(read(stream))
        memory = resident_mib()
        lost = sum(stream.losses().values())
        running = sum(node.state == "running" for node in stream.nodes())
    say(
        f"  {name:<40} {cpu / wall:5.2f} of a core, {memory:4.0f} MiB;"
        f" {count / wall:8,.0f} rows a second, lost {lost}, {running} nodes running"
    )


def _count(rows: Iterator[int]) -> tuple[int, float, float]:
    """Rows, seconds of CPU and seconds, after some seconds that do not count."""
    began, count, cpu, start = time.monotonic(), 0, 0.0, 0.0
    for more in rows:
        now = time.monotonic()
        if start:
            count += more
            if now - start >= SECONDS:
                break
        elif now - began >= WARM:
            start, cpu = now, time.process_time()
    return count, time.process_time() - cpu, time.monotonic() - start


def _profile() -> None:
    """Ledgers of accounts that all change each second, and what a profile of them takes."""
    with (
        TemporaryDirectory(prefix="igsdk-bench-") as folder,
        daemons(
            Path(folder), NODES, "accounts", rows=ROWS_A_SECOND, packets=10**6, seconds=1
        ) as targets,
        igsdk.connect(targets) as fleet,
        fleet.profile_cuda_memory() as run,
    ):
        time.sleep(WARM)
        start, cpu = time.monotonic(), time.process_time()
        time.sleep(SECONDS)
        share = (time.process_time() - cpu) / (time.monotonic() - start)
        memory, cpu = resident_mib(), time.process_time()
        profile = run.profile()
        taken = time.process_time() - cpu
        running = sum(node.state == "running" for node in run.nodes())
        lost = {cause: count for cause, count in run.losses().items() if count}
    rows = len(profile)
    say(f"  {share:.2f} of a core, {memory:.0f} MiB; {running} nodes running, lost {lost}")
    say(f"  a profile of {rows:,} rows: {taken:.2f} s of CPU, then {resident_mib():.0f} MiB")
