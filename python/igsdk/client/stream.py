# SPDX-License-Identifier: Apache-2.0
"""The events of one stream, sorted: the description, packets, log lines, and what is missing.

Nothing here waits or talks to anybody: bytes come in, and what they mean comes out. All that
a daemon may send wrongly ends as a count in `Stream.losses`, except a description that
contradicts itself, without which nothing can be read.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from igsdk._errors import AnswerInvalid
from igsdk._proto import gadget_pb2 as pb
from igsdk.client.gadget import Gadget, parse_gadget

if TYPE_CHECKING:
    from igsdk.client.schema import DataSource

LEVELS = ("panic", "fatal", "error", "warning", "info", "debug", "trace")
_PACKET, _GADGET = 0, 4
#: results, ends and job numbers, which daemons of old sent and nobody needs
_SILENT = (1, 2, 3)
_LEVEL_SHIFT = 16
_KEPT_LINES = 1000
_LONGEST_LINE = 16384
_WRAP = 1 << 32


@dataclass(frozen=True)
class LogLine:
    """One line of the daemon's log for this run.

    Attributes:
        level: panic, fatal, error, warning, info, debug or trace.
        text: the line, at most 16,384 bytes of it.
        node: name of the fleet's member that wrote it; empty where there is one daemon only.
    """

    level: str
    text: str
    node: str = ""


class Journal:
    """The newest 1,000 log lines, of one stream or of several."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)
        self._lock = threading.Lock()

    def add(self, line: LogLine) -> bool:
        """Adds a line; returns whether an older one had to make room."""
        with self._lock:
            full = len(self._lines) == _KEPT_LINES
            self._lines.append(line)
            return full

    def lines(self) -> list[LogLine]:
        with self._lock:
            return list(self._lines)


@dataclass(frozen=True)
class Packet:
    """One packet, not read yet.

    Attributes:
        source: whose rows it has.
        seq: its number in the stream.
        payload: the bytes.
    """

    source: DataSource
    seq: int
    payload: bytes


def no_losses() -> dict[str, int]:
    """Every cause that is counted, at zero.

    packets: numbers that never came; the daemon drops when a reader is slow.
    repeated: packets whose number came before; their rows are given nevertheless.
    unreadable_packets, unreadable_rows, unreadable_events: bytes that do not fit.
    unknown_events: of a type that this version does not know.
    unread: packets that came after the end was asked for, and found no room.
    log_lines: older lines that made room for newer ones.
    """
    return dict.fromkeys(
        (
            *("packets", "repeated", "unread", "unreadable_packets", "unreadable_rows"),
            *("unreadable_events", "unknown_events", "log_lines"),
        ),
        0,
    )


class Stream:
    """What one stream has said so far.

    Attributes:
        gadget: its description, None before it came.
        journal: the newest log lines, which several streams may share.
        node: whose lines they are.
        losses: counts by cause, see `no_losses`.
    """

    def __init__(self, image: str = "") -> None:
        self.gadget: Gadget | None = None
        self.journal = Journal()
        self.node = ""
        self.losses = no_losses()
        self._image = image
        self._sources: dict[int, DataSource] = {}
        self._seq = 0

    def take(self, data: bytes) -> Packet | None:
        """Takes the bytes of one event in; returns the packet if it is one.

        Raises:
            AnswerInvalid: it is a description that contradicts itself.
        """
        try:
            event = pb.GadgetEvent.FromString(data)
        except DecodeError:
            self.losses["unreadable_events"] += 1
            return None
        if event.type == _PACKET and (event.seq or not self._is_panic(event)):
            return self._packet(event)
        if event.type == _GADGET:
            self._describe(event)
        elif event.type == _PACKET or event.type % (1 << _LEVEL_SHIFT) == 0:
            self._log(event)
        elif event.type not in _SILENT:
            self.losses["unknown_events"] += 1
        return None

    def _is_panic(self, event: pb.GadgetEvent) -> bool:
        """A log line of level 0 looks like a packet, but packets are counted from 1 on."""
        return self._seq != _WRAP - 1 and bool(event.payload)

    def _packet(self, event: pb.GadgetEvent) -> Packet | None:
        self._count(event.seq)
        source = self._sources.get(event.dataSourceID)
        if source is None:
            self.losses["unreadable_packets"] += 1
            return None
        return Packet(source, event.seq, event.payload)

    def _count(self, seq: int) -> None:
        ahead = (seq - self._seq - 1) % _WRAP
        if ahead < _WRAP // 2:
            self.losses["packets"] += ahead
            self._seq = seq
        else:
            self.losses["repeated"] += 1

    def _describe(self, event: pb.GadgetEvent) -> None:
        if self.gadget is not None:
            self.losses["unknown_events"] += 1
            return
        gadget = parse_gadget(event.payload, self._image)
        self._sources = sources_by_id(gadget)
        self.gadget = gadget

    def _log(self, event: pb.GadgetEvent) -> None:
        level = event.type >> _LEVEL_SHIFT
        if level >= len(LEVELS):
            self.losses["unknown_events"] += 1
            return
        text = event.payload[:_LONGEST_LINE].decode("utf-8", "backslashreplace")
        self.losses["log_lines"] += self.journal.add(LogLine(LEVELS[level], text, self.node))


def sources_by_id(gadget: Gadget) -> dict[int, DataSource]:
    """The data sources by the number that packets have.

    Raises:
        AnswerInvalid: two have the same.
    """
    sources = {source.id: source for source in gadget.sources.values()}
    if len(sources) < len(gadget.sources):
        raise AnswerInvalid(
            "The daemon gives the same number to several data sources.",
            "Report it to whoever made the daemon; another version may be right.",
        )
    return sources
