# SPDX-License-Identifier: Apache-2.0
"""One connection through a tunnel: bytes from a local socket to a pod's port, and back."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
from typing import TYPE_CHECKING

from igsdk.client.k8s.frames import Forward, FramesInvalid, goodbye

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk.client.k8s.way import Way

_PIECE = 256 << 10
#: what may wait for one side before the other one is no longer read
_ROOM = 1 << 20
#: pieces that one connection may move before others have their turn
_TURN = 16
_LATER = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Link:
    """Belongs to the one thread that has the selector.

    Args:
        selector: where it registers its sockets.
        local: the accepted connection, non-blocking.
        wanted: called once, as soon as the client says something.

    Attributes:
        done: whether it came to its end, and waits to be closed.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        local: socket.socket,
        wanted: Callable[[], None],
    ) -> None:
        self.done = False
        self._selector, self._local, self._wanted = selector, local, wanted
        self._way: socket.socket | None = None
        self._protocol = Forward()
        self._to_pod, self._to_client = bytearray(), bytearray()
        self._why = ""
        self._ended = False
        self._watched: dict[socket.socket, int] = {}
        self._watch(local, _READ, self._hear_first)

    def begin(self, way: Way) -> None:
        """Connects the client with the pod."""
        if self.done:
            way.close()
            return
        way.socket.setblocking(False)
        self._way, self._protocol = way.socket, way.protocol
        self._to_client += way.said
        self._move(0)

    def push(self, frame: bytes) -> None:
        """Sends a frame that is none of the client's."""
        if self._way is not None and not self.done:
            self._to_pod += frame
            self._move(0)

    def end(self) -> None:
        self.done = True

    def close(self) -> str:
        """Ends both sides.

        Returns:
            Why the way ended, in the other side's words; "" where it gave none.
        """
        self.done = True
        for side in list(self._watched):
            self._watch(side, 0)
        self._local.close()
        if self._way is not None:
            with contextlib.suppress(OSError, ValueError):
                self._way.send(goodbye())
            self._way.close()
        return self._protocol.why or self._why

    def _hear_first(self, _: int) -> None:
        self._watch(self._local, 0)
        try:
            known = self._local.recv(1, socket.MSG_PEEK)
        except OSError:
            known = b""
        if known:
            self._wanted()
        else:
            self.done = True

    def _move(self, _: int) -> None:
        """Moves what can be moved, then says what it waits for."""
        if self.done or self._way is None:
            return
        try:
            self._from_pod(self._way)
            self._from_client()
            _flush(self._local, self._to_client)
        except OSError:  # the client's side: what it does not take is nobody's
            self.done = True
        self._send(self._way)
        # What came before the end of the way still belongs to the client.
        if self._ended and not self._to_client:
            self.done = True
        if not self.done:
            self._await(self._way)

    def _await(self, way: socket.socket) -> None:
        open_still = not self._ended
        hears, tells = open_still and len(self._to_pod) < _ROOM, bool(self._to_client)
        self._watch(self._local, _READ * hears | _WRITE * tells, self._move)
        hears, tells = open_still and len(self._to_client) < _ROOM, bool(self._to_pod)
        self._watch(way, _READ * hears | _WRITE * tells, self._move)

    def _from_pod(self, way: socket.socket) -> None:
        """Reads what there is; of TLS also what no selector sees any more."""
        turns = 0
        while not self._ended and len(self._to_client) < _ROOM:
            if turns >= _TURN and not _decrypted(way):
                return
            turns += 1
            try:
                data = way.recv(_PIECE)
                for part in self._protocol.receive(data):
                    self._to_client += part
            except _LATER:
                return
            except FramesInvalid as error:
                self._end_way(f"the API server sends no port-forward: {error}")
            except (OSError, ValueError) as error:
                self._end_way(str(error))
            else:
                if len(self._to_pod) < _ROOM:  # or who pings and never reads would fill memory
                    self._to_pod += self._protocol.reply
                self._protocol.reply = b""
                if not data or self._protocol.ended or self._protocol.why:
                    self._end_way("")
                _flush(self._local, self._to_client)

    def _from_client(self) -> None:
        while not self._ended and not self.done and len(self._to_pod) < _ROOM:
            try:
                data = self._local.recv(_PIECE)
            except _LATER:
                return
            if data:
                self._to_pod += self._protocol.send(data)
            else:
                self.done = True

    def _send(self, way: socket.socket) -> None:
        """A pod that no longer listens may still have something to say."""
        try:
            _flush(way, self._to_pod)
        except (OSError, ValueError) as error:
            self._why = self._why or str(error)
            self._to_pod.clear()

    def _end_way(self, why: str) -> None:
        self._why = self._why or why
        self._ended = True
        self._to_pod.clear()

    def _watch(
        self, side: socket.socket, events: int, then: Callable[[int], None] | None = None
    ) -> None:
        if self._watched.get(side, 0) == events:
            return
        if not events:
            self._selector.unregister(side)
            del self._watched[side]
        elif side in self._watched:
            self._selector.modify(side, events, then)
            self._watched[side] = events
        else:
            self._selector.register(side, events, then)
            self._watched[side] = events


def _decrypted(way: socket.socket) -> bool:
    return isinstance(way, ssl.SSLSocket) and way.pending() > 0


def _flush(side: socket.socket, waiting: bytearray) -> None:
    """Sends as much as goes at once."""
    while waiting:
        try:
            sent = side.send(waiting)
        except _LATER:
            return
        del waiting[:sent]
