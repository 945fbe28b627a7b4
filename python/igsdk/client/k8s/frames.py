# SPDX-License-Identifier: Apache-2.0
"""One forwarded port on a websocket: frames of RFC 6455, and Kubernetes' channels in them.

The first byte of a message names its channel: 0 carries the port's bytes both ways, 1 says
why there are none. The first message of each channel only repeats the port's number
(`../shared/facts/libraries.md` 1i).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_DATA, _ERROR = 0, 1
#: the kubelet sends 32 KiB a frame
_LONGEST = 16 << 20


class FramesInvalid(Exception):
    """The other side does not speak this."""


class Forward:
    """The protocol of one connection, without its socket.

    Attributes:
        reply: bytes to send because of what came: answers to pings.
        why: what the other side said is wrong with the port; "" so far.
        ended: whether the other side said goodbye.
    """

    def __init__(self) -> None:
        self.reply = b""
        self.why = ""
        self.ended = False
        self._waiting = bytearray()
        self._message = b""
        self._known: set[int] = set()

    def receive(self, data: bytes) -> list[bytes]:
        """The port's bytes in what came.

        Raises:
            FramesInvalid: it is no websocket, or a frame is too long.
        """
        self._waiting += data
        return [part for kind, body in self._frames() if (part := self._take(kind, body))]

    def send(self, data: bytes) -> bytes:
        """The port's bytes as a frame."""
        return _frame(_BINARY, bytes((_DATA,)) + data)

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        start, waiting = 0, self._waiting
        while (found := _header(waiting, start)) is not None:
            body, length = found
            if len(waiting) < body + length:
                break
            first = waiting[start]
            payload = bytes(memoryview(waiting)[body : body + length])
            start = body + length
            yield from self._whole(first & 0x0F, payload, bool(first & 0x80))
        del waiting[:start]

    def _whole(self, kind: int, payload: bytes, last: bool) -> Iterator[tuple[int, bytes]]:
        """Messages may come in several frames; control frames between them."""
        if kind >= _CLOSE:
            yield kind, payload
            return
        self._message += payload
        if len(self._message) > _LONGEST:
            raise FramesInvalid("a message is too long")
        if last:
            payload, self._message = self._message, b""
            yield _BINARY, payload

    def _take(self, kind: int, body: bytes) -> bytes:
        if kind == _PING:
            self.reply += _frame(_PONG, body[:125])
        elif kind == _CLOSE:
            self.ended = True
            self.why = self.why or body[2:125].decode(errors="replace")
        elif kind == _BINARY and body:
            return self._channel(body[0], body)
        return b""

    def _channel(self, channel: int, body: bytes) -> bytes:
        if channel not in self._known:
            self._known.add(channel)
            if len(body) == 3:
                return b""
        if channel == _ERROR:
            self.why = (self.why + body[1:].decode(errors="replace"))[:2000]
        return body[1:] if channel == _DATA else b""


def ping() -> bytes:
    """A frame that keeps what is idle from being ended on the way."""
    return _frame(_PING, b"")


def goodbye() -> bytes:
    return _frame(_CLOSE, (1000).to_bytes(2, "big"))


def _header(data: bytearray, at: int) -> tuple[int, int] | None:
    """Where a frame's body begins, and its length; None where more has to come first."""
    if len(data) < at + 2:
        return None
    short = data[at + 1]
    if short & 0x80 or data[at] & 0x70:
        raise FramesInvalid("these are no frames of a websocket's server")
    size = {126: 2, 127: 8}.get(short, 0)
    if len(data) < at + 2 + size:
        return None
    length = int.from_bytes(data[at + 2 : at + 2 + size], "big") if size else short
    if length > _LONGEST:
        raise FramesInvalid("a frame is too long")
    return at + 2 + size, length


def _frame(kind: int, body: bytes) -> bytes:
    """A client's frame: whole, and masked as the standard demands."""
    length = len(body)
    if length < 126:
        head = bytes((0x80 | kind, 0x80 | length))
    elif length < 1 << 16:
        head = bytes((0x80 | kind, 0x80 | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((0x80 | kind, 0x80 | 127)) + length.to_bytes(8, "big")
    key = os.urandom(4)
    mask = (key * (length // 4 + 1))[:length]
    masked = int.from_bytes(body, "little") ^ int.from_bytes(mask, "little")
    return head + key + masked.to_bytes(length, "little")
