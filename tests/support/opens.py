# SPDX-License-Identifier: Apache-2.0
"""A small gadget that says who opens what, for the tests of the client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.support import gadget_packets as gp
from tests.support.gadget_server import Session, described

from igsdk._proto import gadget_pb2 as pb

SPECS = [gp.Spec("pid", gp.UINT32, 4), gp.Spec("path", gp.STRING)]
SOURCE = gp.source("opens", SPECS)
QUIET = dict.fromkeys(
    (
        *("packets", "repeated", "unread", "unreadable_packets", "unreadable_rows"),
        *("unreadable_events", "unknown_events", "log_lines"),
    ),
    0,
)


def opens(*pids: int) -> list[pb.DataElement]:
    return [gp.element(SPECS, [pid, f"/proc/{pid}"]) for pid in pids]


def saying(*events: pb.GadgetEvent | bytes) -> Callable[[Session], Iterator[Any]]:
    """A run that says this and ends."""
    return lambda session: iter((described(SOURCE), *events))


def until_stopped(*events: pb.GadgetEvent | bytes) -> Callable[[Session], Iterator[Any]]:
    """A run that says this, and ends when it is asked to."""

    def run(session: Session) -> Iterator[Any]:
        yield from (described(SOURCE), *events)
        assert session.stop.wait(30)

    return run
