# SPDX-License-Identifier: Apache-2.0
"""A daemon for benchmarks, in a process of its own: it sends packets that were made before.

``python -m benchmarks.daemon FOLDER NODES ROWS PACKETS SECONDS KIND``: each of the nodes
has a socket in the folder and sends so many packets, one each so many seconds (0: as fast as
it is read). KIND is ``own`` (the gadget's own fields), ``all`` (with 22 texts), both arrays of
so many rows, ``events``, with one row in each packet, or ``accounts``, as an agent has them.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support import gadget_packets as gp
from tests.support.gadget_server import Run, Session, described, gadget_server

from igsdk._proto import gadget_pb2 as pb

from .accounts import accounts

#: an account: where it belongs, and its totals and changes
OWN = [*(gp.Spec(f"number{place}", gp.UINT64, 8) for place in range(16))]
OWN.append(gp.Spec("proc.comm", gp.CSTRING, 16))
#: an event: half as many numbers
EVENT = [*OWN[:5], *(gp.Spec(f"small{place}", gp.UINT32, 4) for place in range(4)), OWN[-1]]
#: node, pod, container, user, symbols: what the daemon's operators add, each in its own slot
ADDED = [gp.Spec(f"text{place}", gp.STRING) for place in range(22)]
KINDS = {"own": OWN, "all": OWN + ADDED, "events": EVENT}


def element(specs: list[gp.Spec], number: int = 7) -> pb.DataElement:
    """A row; one number in five and one text in three differ from row to row."""
    values = [
        {
            gp.STRING: f"pod-{number}" if place % 3 == 0 else "a-pod-of-some-name",
            gp.CSTRING: "python3",
        }.get(spec.kind, number if place % 5 == 0 else place)
        for place, spec in enumerate(specs)
    ]
    return gp.element(specs, values)


def payload(specs: list[gp.Spec], rows: int) -> bytes:
    """A packet of an array of rows."""
    return gp.packet([element(specs, number) for number in range(rows)], 1).payload


def sending(kind: str, rows: int, packets: int, seconds: float) -> Run:
    """What a node's run sends."""
    specs, array = KINDS[kind], kind != "events"
    first = described(gp.source("rows", specs, array=array)).SerializeToString()
    one = gp.packet([element(specs)], 1, array=False).payload
    packed = payload(specs, rows) if array else one

    def run(session: Session) -> Iterator[bytes]:
        yield first
        began = time.monotonic()
        for number in range(1, packets + 1):
            if session.stop.wait(max(0.0, began + number * seconds - time.monotonic())):
                return
            event = pb.GadgetEvent(type=0, seq=number, payload=packed, dataSourceID=0)
            yield event.SerializeToString()

    return run


@contextmanager
def daemons(
    folder: Path, nodes: int, kind: str, *, rows: int, packets: int, seconds: float
) -> Iterator[list[str]]:
    """Serves in a process of its own; gives the targets, one for each node."""
    argv = [sys.executable, "-m", "benchmarks.daemon", str(folder)]
    argv += [str(nodes), str(rows), str(packets), str(seconds), kind]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the daemon did not start")
            yield [f"unix://{folder}/{node}.socket" for node in range(nodes)]
        finally:
            process.stdin.close()  # it ends then
            process.wait(30)


def main(folder: str, nodes: str, rows: str, packets: str, seconds: str, kind: str) -> None:
    """Serves until its standard input ends."""
    what = int(rows), int(packets), float(seconds)
    plain = sending(kind, *what) if kind in KINDS else None
    with ExitStack() as stack:
        for node in range(int(nodes)):
            server = stack.enter_context(gadget_server(Path(folder) / f"{node}.socket"))
            server.run = plain or accounts(node, *what)
        print("ready", flush=True)
        threading.Thread(target=sys.stdin.read).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
