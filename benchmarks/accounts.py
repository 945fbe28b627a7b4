# SPDX-License-Identifier: Apache-2.0
"""What agents say of accounts, for benchmarks: each second all of them have changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from tests.support import gadget_packets as gp
from tests.support.cuda_packets import AGENT, Sender
from tests.support.gadget_server import Session

from igsdk._proto import gadget_pb2 as pb

PROCESSES, STACKS, FRAMES = 10, 200, 20
_BYTES, _EPOCH = 1 << 20, 1_000
_SPECS = [gp.Spec(name, kind, size) for name, (kind, size) in AGENT["heap"].items()]
_NUMBERS = {name: number for number, name in enumerate(sorted(AGENT))}


def accounts(node: int, rows: int, packets: int, seconds: float) -> Callable[..., Iterator[bytes]]:
    """The run of one node: so many accounts, in ten processes, with 200 stacks."""

    def run(session: Session) -> Iterator[bytes]:
        sender, heap = Sender(AGENT), _Heap(node + 1, rows)
        yield sender.begin().SerializeToString()
        first = 0
        for event in _first(sender, node + 1):
            first = event.seq
            yield event.SerializeToString()
        began = time.monotonic()
        for number in range(1, packets + 1):
            heap.grow(number)
            packet = pb.GadgetEvent(
                seq=first + number, payload=heap.payload, dataSourceID=_NUMBERS["heap"]
            )
            yield packet.SerializeToString()
            if session.stop.wait(max(0.0, began + number * seconds - time.monotonic())):
                return

    return run


def _first(sender: Sender, boot: int) -> Iterator[pb.GadgetEvent]:
    """What stands before the first account: stacks, processes, the report."""
    callers = [_frame(f"function_{place}") for place in range(1, FRAMES)]
    for stack in range(1, STACKS + 1):
        frames = json.dumps([_frame(f"caller_{stack}"), *callers])
        yield from sender.send("stacks", {"id": stack, "frames": frames})
    owners = [
        {"row": one, "boot": boot, "epoch": _EPOCH, "process": one, "proc.pid": one}
        | {"proc.comm": "python3", "cmdline": "python3 serve.py", "kind_raw": 1}
        for one in range(1, PROCESSES + 1)
    ]
    yield from sender.send("processes", *owners)
    yield from sender.send("report", {"json": json.dumps({"node": f"node-{boot}"})})


def _frame(function: str) -> list[object]:
    return [function, "model.py", 7, 0, "", "", "python"]


class _Heap:
    """A packet of accounts whose numbers change in place, since 64 nodes are one process here."""

    def __init__(self, boot: int, rows: int) -> None:
        elements = [
            gp.element(_SPECS, [self._first(boot, row).get(spec.name, 0) for spec in _SPECS])
            for row in range(rows)
        ]
        packed = gp.packet(elements, 1).payload
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(bytearray(packed), np.uint8)
        self._rows = self._bytes.reshape(rows, -1)
        # in front of the struct stand tags and lengths, the same for all
        self._head = self._rows.shape[1] - sum(spec.size for spec in _SPECS)
        fields = gp.source("heap", _SPECS).fields
        self._places = {field.name: self._head + field.offs for field in fields}

    @staticmethod
    def _first(boot: int, row: int) -> dict[str, object]:
        return {
            "row": row + 1,
            "proc.comm": "python3",
            "boot": boot,
            "epoch": _EPOCH,
            "process": row % PROCESSES + 1,
            "stack": row % STACKS + 1,
            "kind_raw": 1,
        }

    def grow(self, times: int) -> None:
        """One allocation more in each account since the last time."""
        self._write("time_raw", times * 10**9)
        self._write("total_alloc_calls", times)
        self._write("total_alloc_bytes", times * _BYTES)
        self._write("in_use_raw", times * _BYTES)

    def _write(self, name: str, value: int) -> None:
        place = self._places[name]
        self._rows[:, place : place + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)

    @property
    def payload(self) -> bytes:
        return self._bytes.tobytes()
