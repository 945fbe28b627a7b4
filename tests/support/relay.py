# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and a server on this machine, and acts when enough went through."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

_PIECE = 1024


class Relay:
    """Counts what clients send.

    Attributes:
        sent: bytes so far, of all connections.
    """

    def __init__(self, server: str, limit: int, act: Callable[[], None]) -> None:
        host, _, port = server.rpartition(":")
        self.sent = 0
        self._server, self._limit, self._act = (host, int(port)), limit, act
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                threading.Thread(target=self._both, args=(client, server), daemon=True).start()

    def _both(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._pump, args=(server, client, False), daemon=True)
            back.start()
            self._pump(client, server, True)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                if is_client and self.sent <= self._limit < self.sent + len(piece):
                    self._act()
                self.sent += len(piece) if is_client else 0
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(server: str, limit: int, act: Callable[[], None]) -> Iterator[Relay]:
    """Runs one; `act` is called once, before the byte behind `limit` goes on."""
    made = Relay(server, limit, act)
    try:
        yield made
    finally:
        made.close()
