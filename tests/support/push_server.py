# SPDX-License-Identifier: Apache-2.0
"""A Connect server of our own with Pyroscope's push service, and whatever mood a test wants.

It stands for current servers, which can't be built where tests run. What it takes and how it
answers is what `../shared/facts/pyroscope-grafana.md` §1.2 tells of them; messages are the
shape that pyroscope-io 1.4.0 sends (§6).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from igsdk._proto import pprof_pb2, push_pb2

PUSH = "/push.v1.PusherService/Push"
MERGE = "/querier.v1.QuerierService/SelectMergeStacktraces"


@dataclass
class Sample:
    """One profile as it came: labels, and values by stack (names, leaf first) and type."""

    labels: dict[str, str]
    values: dict[tuple[str, ...], dict[str, int]]
    message: pprof_pb2.Profile
    ID: str

    def total(self, value: str) -> int:
        return sum(values[value] for values in self.values.values())


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """What the server says instead of taking the profile; ``cut``: nothing at all."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    store: bool = False


def refusal(status: int, code: str, message: str, **headers: str) -> Answer:
    """An error as Connect has them."""
    body = json.dumps({"code": code, "message": message}).encode()
    return Answer(status, body, headers={k.replace("_", "-"): v for k, v in headers.items()})


@dataclass
class PushServer:
    """What it got, and what it does next."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    #: asked before a push is taken; None takes it
    mood: Callable[[Request], Answer | None] = lambda _: None
    #: whether queries show what was stored; None: they are refused
    shows: bool | None = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pushes(self) -> list[Request]:
        return [request for request in self.requests if request.path.endswith(PUSH)]

    def total(self, value: str, **labels: str) -> int:
        """All that was taken, added up as a flame graph does."""
        return sum(
            sample.total(value)
            for sample in self.samples
            if labels.items() <= sample.labels.items()
        )

    def answer(self, request: Request) -> Answer:
        with self.lock:
            self.requests.append(request)
            if request.path.endswith(MERGE):
                return self._merged(json.loads(request.body))
            if not request.path.endswith(PUSH):
                return Answer(404, b"404 page not found", "text/plain")
            mood = self.mood(request)
            if mood is None and not request.body:
                return refusal(400, "invalid_argument", "no profiles received")
            if mood is None or mood.store:
                self.samples += read(request)
            return mood or Answer(200, b"", "application/proto")

    def _merged(self, asked: dict[str, Any]) -> Answer:
        if self.shows is None:
            return refusal(401, "unauthenticated", "no org id")
        name, value = asked["profileTypeID"].split(":")[:2]
        total = sum(
            sample.total(value)
            for sample in self.samples
            if sample.labels["__name__"] == name
            and asked["start"] <= sample.message.time_nanos // 10**6 <= asked["end"]
        )
        found = {"flamegraph": {"total": str(total * self.shows)}}
        return Answer(200, json.dumps(found).encode())


def read(request: Request) -> list[Sample]:
    """The samples of a push."""
    assert request.headers["content-type"] == "application/proto"
    assert request.headers["content-encoding"] == "gzip"
    message = push_pb2.PushRequest.FromString(gzip.decompress(request.body))
    found = []
    for series in message.series:
        labels = {label.name: label.value for label in series.labels}
        assert len(labels) == len(series.labels)
        for raw in series.samples:
            profile = pprof_pb2.Profile.FromString(raw.raw_profile)
            found.append(Sample(labels, values_of(profile), profile, raw.ID))
    return found


def values_of(profile: pprof_pb2.Profile) -> dict[tuple[str, ...], dict[str, int]]:
    """Values by stack; dropped as a server drops them: negative, or nothing but zeros."""
    texts = profile.string_table
    names = {function.id: texts[function.name] for function in profile.function}
    locations = {
        location.id: tuple(names[line.function_id] for line in location.line)
        for location in profile.location
    }
    types = [texts[kind.type] for kind in profile.sample_type]
    found: dict[tuple[str, ...], dict[str, int]] = {}
    for sample in profile.sample:
        assert not sample.label
        if min(sample.value) < 0 or not any(sample.value):
            continue
        stack = tuple(name for number in sample.location_id for name in locations[number])
        sums = found.setdefault(stack, dict.fromkeys(types, 0))
        for kind, value in zip(types, sample.value, strict=True):
            sums[kind] += value
    return found


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@contextlib.contextmanager
def push_server() -> Iterator[PushServer]:
    """The server, on loopback."""
    state = PushServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = state.answer(Request(self.command, self.path, headers, body))
            if answer.cut:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: Any) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
