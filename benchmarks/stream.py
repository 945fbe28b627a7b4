# SPDX-License-Identifier: Apache-2.0
"""An hour's packets of a daemon, sent as fast as they are read: is memory flat?

And what a stream costs from the socket on, beside gRPC alone, which only receives the bytes.
The daemon is a process of its own; CPU and memory are the client's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import grpc

import igsdk
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.fleet_run import FleetRun
from igsdk.client.run import GadgetRun

from .daemon import daemons
from .support import heading, resident_mib, say

PACKETS, ROWS = 3_600, 1_000
EVENTS = 10_000
#: after these parts of an hour the memory is told
TOLD = (0.1, 0.25, 0.5, 0.75, 1.0)

Read = Callable[[GadgetRun | FleetRun], Iterator[int]]


def run(_folder: Path) -> None:
    heading(f"an hour of packets, one a second of {ROWS:,} rows with 22 texts, sent at once")
    _gadget("batches", "all", PACKETS, _batches)
    _gadget("rows", "all", PACKETS, _rows)
    heading(f"{EVENTS:,} packets of one row")
    _floor()
    _gadget("rows", "events", EVENTS, _rows)


def _batches(run: GadgetRun | FleetRun) -> Iterator[int]:
    for batch in run.batches():
        yield batch.rows


def _rows(run: GadgetRun | FleetRun) -> Iterator[int]:
    for _ in run.rows():
        yield 1


def _gadget(name: str, kind: str, packets: int, read: Read) -> None:
    expected = packets * (1 if kind == "events" else ROWS)
    told = [round(part * expected) for part in TOLD]
    memory = []
    with (
        _served(kind, packets) as target,
        igsdk.connect(target) as host,
        host.run("benchmark") as stream,
    ):
        began, count = time.process_time(), 0
        for rows in read(stream):
            count += rows
            if told and count >= told[0]:
                told.pop(0)
                memory.append(f"{resident_mib():.0f}")
        taken = time.process_time() - began
        lost = sum(stream.losses().values())
    say(
        f"  {name:<20} {count:>9,} rows, {count / taken:>9,.0f} a second of a core, lost {lost};"
        f" MiB at {', '.join(f'{part:.0%}' for part in TOLD)}: {' '.join(memory)}"
    )


@contextmanager
def _served(kind: str, packets: int) -> Iterator[str]:
    """The target of one daemon."""
    with (
        TemporaryDirectory(prefix="igsdk-bench-") as folder,
        daemons(Path(folder), 1, kind, rows=ROWS, packets=packets, seconds=0) as targets,
    ):
        yield targets[0]


def _floor() -> None:
    """gRPC alone: the bytes of each message, and nothing done with them."""
    with _served("events", EVENTS) as target:
        channel = grpc.insecure_channel(target.replace("unix://", "unix:"))
        requests: SimpleQueue[bytes | None] = SimpleQueue()
        asked = pb.GadgetRunRequest(imageName="benchmark", version=1)
        requests.put(pb.GadgetControlRequest(runRequest=asked).SerializeToString())
        began = time.process_time()
        method: Any = channel.stream_stream("/api.GadgetManager/RunGadget")
        call = method(iter(requests.get, None))
        count = sum(1 for _ in call)
        taken = time.process_time() - began
        requests.put(None)
        channel.close()
    say(
        f"  {'floor: gRPC alone':<20} {count:>9,} messages, {count / taken:,.0f} a second of a core"
    )
