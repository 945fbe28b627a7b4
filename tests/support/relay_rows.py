# SPDX-License-Identifier: Apache-2.0
"""Serves the rows of the real BPF program, read by the gadget host, as a daemon would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cuda_packets import Sender, flat, gadget_info
from tests.support.gadget_server import GadgetServer, Session, gadget_server
from tests.support.gadgethost import Host

from igsdk import _abi
from igsdk._proto import gadget_pb2 as pb

INTERVAL = 0.1


def playing(host: Host, lock: threading.Lock) -> Callable[[Session], Iterator[pb.GadgetEvent]]:
    """What a run of the gadget sends: the host's maps each interval, events as they come.

    Its last rows are not sent, as Inspektor Gadget loses them too.
    """

    def run(session: Session) -> Iterator[pb.GadgetEvent]:
        sender = Sender()
        yield sender.begin()
        seen = 0
        while not session.stop.wait(INTERVAL):
            with lock:
                host.drain()
                lines, seen = host.lines[seen:], len(host.lines)
            for source in ("losses", "heap", "processes"):
                yield from sender.send(source, *_rows(lines, source))
            for row in _rows(lines, "events"):
                yield from sender.send("events", row)

    return run


def _rows(lines: list[dict[str, object]], source: str) -> list[dict[str, object]]:
    found = [line["row"] for line in lines if line.get("source") == source and "row" in line]
    rows = [flat(row) for row in found if isinstance(row, dict)]
    for row in rows if source == "losses" else ():
        row["cause_name"] = f"lost_{_abi.LOSSES[row['cause']]}"
    return rows


@contextmanager
def relaying(host: Host, socket: Path) -> Iterator[GadgetServer]:
    """A daemon on a unix socket whose only gadget is the one that the host runs."""
    with gadget_server(socket) as server:
        server.describe = lambda _: gadget_info()
        server.run = playing(host, threading.Lock())
        yield server
