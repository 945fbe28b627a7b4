# SPDX-License-Identifier: Apache-2.0
"""An open watch: what happens to pods, as the API server tells it line by line."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from igsdk._errors import AnswerInvalid
from igsdk.client.k8s.refusals import cannot_reach, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import urllib3

#: etcd keeps no object above some MiB
_LONGEST_LINE = 16 << 20


class Watch:
    """An open watch; iterate over its events, close it from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str, host: str, name: str) -> None:
        self._response, self._what = response, what
        self._host, self._name = host, name
        self._socket: socket.socket | None = getattr(response.connection, "sock", None)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Type (ADDED, MODIFIED, DELETED, BOOKMARK) and object of each event.

        It ends when the API server ends it.

        Raises:
            Gone: what we go on from is too old.
            TargetUnavailable, AnswerInvalid: the connection broke, or sends what is no event.
        """
        try:
            for line in _lines(self._response):
                yield self._event(line)
        except (HTTPError, OSError, ValueError) as error:
            raise cannot_reach(error, self._host, self._name) from error
        finally:
            self._response.close()

    def _event(self, line: bytes) -> tuple[str, dict[str, Any]]:
        try:
            event = json.loads(line)
            kind, what = event["type"], event["object"]
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise AnswerInvalid(
                f"The API server of {self._name} sends what is no event of a watch.",
                "Check whether something stands in between.",
            ) from error
        if kind == "ERROR":
            code = what.get("code", 0) if isinstance(what, dict) else 0
            raise refused(code, json.dumps(what).encode(), self._what, self._name)
        return str(kind), what if isinstance(what, dict) else {}

    def close(self) -> None:
        """Ends it; the thread that reads comes back at once."""
        with contextlib.suppress(OSError):
            if self._socket is not None:
                # Not TLS's own shutdown, which would wait for the reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    waiting = b""
    for piece in response.stream(1 << 16, decode_content=True):
        *whole, waiting = (waiting + piece).split(b"\n")
        yield from filter(None, whole)
        if len(waiting) > _LONGEST_LINE:
            raise ValueError("an endless line")
