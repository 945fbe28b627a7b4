# SPDX-License-Identifier: Apache-2.0
"""Packets of many streams for one reader: bounded as a whole, and fair to each stream.

Each stream fills a share of its own, so that one that is flooded holds up no other, and the
streams have their turns. A turn is one packet of many rows, or all packets of one row that
wait: with many nodes that costs far less than to go from row to row.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from igsdk.client.inbox import Inbox, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from igsdk.client.columns import Columns
    from igsdk.client.run import GadgetRun
    from igsdk.client.schema import DataSource
    from igsdk.client.stream import Packet

_ROOM = 256 << 20
_LEAST = 1 << 20
_MOST = 64 << 20


class SharedInbox:
    """Where the shares of many streams come together.

    Attributes:
        changed: the lock of all of it.
        held: bytes in all shares, also in those of streams that ended and were not read yet.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        self.changed = threading.Condition()
        self.held = 0
        self._waiting: deque[Share] = deque()
        self._shares = 0
        self._closed = False

    def share(self, name: str, run: GadgetRun, closed: Callable[[], None]) -> Share:
        """The inbox of one more stream; `closed` is called when that stream has ended."""
        with self.changed:
            self._shares += 1
        return Share(self, name, run, closed)

    def give_back(self) -> None:
        """A share is not used any more."""
        with self.changed:
            self._shares -= 1
            self.changed.notify_all()

    @property
    def room(self) -> int:
        """Bytes that one share may hold."""
        return min(_MOST, max(_LEAST, self._room // max(1, self._shares)))

    def has(self, size: int, times: int) -> bool:
        """Whether so many bytes more find room in so many times of what there is."""
        return self.held + size <= times * self._room

    def fill(self, share: Share) -> None:
        """Called with `changed` held: this share has its first packet."""
        self._waiting.append(share)
        self.changed.notify_all()

    def take(self, timeout: float | None) -> tuple[Share, list[Packet]] | None:
        """The turn of one stream; None at the end or after `timeout`."""
        with self.changed:
            self.changed.wait_for(lambda: self._waiting or self._closed, timeout)
            if not self._waiting:
                return None
            share = self._waiting.popleft()
            packets = share.turn()
            if share.waits:
                self._waiting.append(share)
            self.changed.notify_all()
            return share, packets

    def close(self) -> None:
        """Nothing comes any more; what is there stays to be taken."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def is_ended(self) -> bool:
        """Whether it is closed and empty."""
        with self.changed:
            return self._closed and not self._waiting


class Share(Inbox):
    """The inbox of one stream, as its run sees it.

    Attributes:
        name: whose stream it is.
        run: what reads its packets.
    """

    def __init__(
        self, whole: SharedInbox, name: str, run: GadgetRun, closed: Callable[[], None]
    ) -> None:
        super().__init__(changed=whole.changed)
        self.name = name
        self.run = run
        self._whole = whole
        self._tell_closed = closed

    @property
    def waits(self) -> bool:
        """Whether there is something to be read."""
        return bool(self._packets)

    def turn(self) -> list[Packet]:
        """Takes a packet of many rows, or all of one row before the next such; with the lock
        held."""
        taken = [self._packets.popleft()]
        while self._packets and not (taken[0].source.array or self._packets[0].source.array):
            taken.append(self._packets.popleft())
        size = sum(map(size_of, taken))
        self._held -= size
        self._whole.held -= size
        return taken

    def columns(self, source: DataSource, payloads: list[bytes]) -> Columns:
        """Packets of this stream, read, with its name."""
        columns = self.run.read_columns(source, payloads)
        columns.node = self.name
        return columns

    def close(self) -> None:
        already = self._closed
        super().close()
        if not already:
            self._tell_closed()

    def _came(self) -> None:
        self._whole.held += size_of(self._packets[-1])
        if len(self._packets) == 1:
            self._whole.fill(self)

    def _has_room(self, size: int, times: int) -> bool:
        return self._held + size <= times * self._whole.room and self._whole.has(size, times)


def by_source(packets: Iterable[Packet]) -> list[list[Packet]]:
    """The packets of each data source, in the order in which the sources first appear."""
    groups: dict[str, list[Packet]] = {}
    for packet in packets:
        groups.setdefault(packet.source.name, []).append(packet)
    return list(groups.values())
