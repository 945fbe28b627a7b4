# SPDX-License-Identifier: Apache-2.0
"""An open port-forward: the connection, its protocol, and what the pod said already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from igsdk.client.k8s.frames import Forward, FramesInvalid

if TYPE_CHECKING:
    import socket

_PIECE = 64 << 10


class Way:
    """A connection to a pod's port.

    Attributes:
        socket: it speaks frames.
        protocol: what the frames mean.
        said: bytes that the pod sent, and nobody took yet.
        why: why it is of no use; "" where nothing was said.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.protocol = Forward()
        self.said = b""
        self.why = ""

    def hear(self, seconds: float) -> None:
        """Waits until the pod says something, or the API server why it can't.

        A gRPC server speaks first, so this costs no time where all is well.
        """
        until = time.monotonic() + seconds
        while not self.said and not self.why and (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(_PIECE)
                self.said += b"".join(self.protocol.receive(data))
            except TimeoutError:
                return
            except (OSError, ValueError, FramesInvalid) as error:
                self.why = str(error)
            else:
                if not data or self.protocol.ended:
                    self.why = self.protocol.why or "the port-forward was ended"
            self.why = self.protocol.why or self.why

    def close(self) -> None:
        self.socket.close()
