# SPDX-License-Identifier: Apache-2.0
"""A registry that misbehaves as it is told, which no real one can be made to do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: method and path -> status, headers, body; None leaves the client waiting
Answers = Callable[[str, str, dict[str, str]], "tuple[int, dict[str, str], bytes] | None"]


class Server:
    """What runs, and what it was asked."""

    def __init__(self, answers: Answers) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answers = answers
        self.stopped = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                outer.asked.append((self.command, self.path))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                said = outer.answers(self.command, self.path, dict(self.headers))
                if said is None:
                    outer.stopped.wait(30)
                    self.close_connection = True
                    return
                status, headers, body = said
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        for method in ("GET", "HEAD", "POST", "PUT"):
            setattr(Handler, f"do_{method}", Handler.answer)
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = f"127.0.0.1:{self.http.server_port}"


@contextlib.contextmanager
def unwilling(answers: Answers) -> Iterator[Server]:
    """Runs it for the time of a test."""
    server = Server(answers)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.http.shutdown()
        thread.join()
        server.http.server_close()


def always(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Answers:
    """The same to every request."""
    return lambda *_: (status, headers or {}, body)
