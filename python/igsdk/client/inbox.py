# SPDX-License-Identifier: Apache-2.0
"""Packets between the thread that reads the stream and whoever iterates: bounded by bytes.

While a run goes on, a full inbox makes the reader wait, so the daemon notices, drops, and
its numbers tell how much. After the end was asked for, the reader must come through to the
stream's end: then a full inbox drops, and counts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from igsdk.client.stream import Packet

#: what one packet takes beside its bytes
_OVERHEAD = 200
_ROOM = 64 << 20


def size_of(packet: Packet) -> int:
    """Bytes that a packet takes while it waits."""
    return len(packet.payload) + _OVERHEAD


class Inbox:
    """A queue with an end.

    Args:
        room: bytes that it may hold.
        changed: the lock, where others share it.
    """

    def __init__(self, room: int = _ROOM, changed: threading.Condition | None = None) -> None:
        self._room = room
        self._packets: deque[Packet] = deque()
        self._held = 0
        self._changed = changed or threading.Condition()
        self._closed = self._hurried = False
        self.dropped = 0

    def put(self, packet: Packet) -> None:
        """Adds a packet; waits while there is no room."""
        size = size_of(packet)
        with self._changed:
            self._changed.wait_for(lambda: self._fits(size) or self._hurried)
            if not self._fits(size):
                self.dropped += 1
                return
            self._packets.append(packet)
            self._held += size
            self._came()

    def get(self, timeout: float | None = None) -> Packet | None:
        """The next packet; None at the end, or when there is none for so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._packets or self._closed, timeout)
            if not self._packets:
                return None
            packet = self._packets.popleft()
            self._held -= size_of(packet)
            self._changed.notify_all()
            return packet

    def hurry(self) -> None:
        """From now on nobody waits for room; there is twice as much, and then none."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing comes any more; what is there stays to be taken."""
        with self._changed:
            self._closed = self._hurried = True
            self._changed.notify_all()

    def wait_closed(self, timeout: float) -> bool:
        """Waits for the end; returns whether it came."""
        until = time.monotonic() + timeout
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, until - time.monotonic())

    @property
    def ended(self) -> bool:
        """Whether it is closed and empty."""
        with self._changed:
            return self._closed and not self._packets

    def _came(self) -> None:
        """Wakes the reader; with the lock held."""
        self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        # One that is larger than all of it has to come through as well.
        return not self._packets or self._has_room(size, 2 if self._hurried else 1)

    def _has_room(self, size: int, times: int) -> bool:
        """Whether so many bytes more fit, with that many times the usual room."""
        return self._held + size <= times * self._room
