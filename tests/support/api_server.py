# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a Kubernetes API server: pods listed and watched, ports forwarded, rights.

It says what the real one says about pods, and nothing else. The real one, with kubelets and
a container runtime, is in `make cluster-test`; here stands what it can't be made to do on
demand, such as forgetting its history or cutting one tunnel.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.frames import server_frame, unmask

TOKEN = "let-me-in"
_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ApiServer:
    """What the cluster has, and how it answers.

    Attributes:
        backends: where a pod's port leads to: name of the pod -> unix socket.
        tokens: who is let in.
        forbidden: what nobody may: "list", "list-all", "watch", "portforward".
        asked: paths with their query, in order.
        page: most pods in one answer; 0: what the client asks for.
        garbage: what it answers instead, or sends in a watch.
        failing: a code that it answers everything with.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.backends: dict[str, Path] = {}
        self.tokens = {TOKEN}
        self.forbidden: set[str] = set()
        self.asked: list[str] = []
        self.page = 0
        self.garbage: bytes | None = None
        self.failing = 0
        self.changed = threading.Condition()
        self.open: set[socket.socket] = set()
        self.down = False
        self._tls = tls
        self._pods: dict[str, dict[str, Any]] = {}
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._oldest = self.version = 100
        self._server = self._serve(0)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    # what happens in the cluster

    def put(self, name: str, node: str, backend: Path | None = None, **more: Any) -> None:
        """Adds a pod, or changes it; see `pod`."""
        if backend is not None:
            self.backends[name] = backend
        kind = "MODIFIED" if name in self._pods else "ADDED"
        self._pods[name] = pod(name, node, **more)
        self._happens(kind, self._pods[name])

    def delete(self, name: str) -> None:
        self._happens("DELETED", self._pods.pop(name))

    def forget(self) -> None:
        """Compacts the history, so that whoever comes back with an old version is told 410."""
        with self.changed:
            self._history.clear()
            self.version += 10
            self._oldest = self.version

    def cut(self) -> None:
        """Ends all watches and tunnels."""
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Goes away; `start` brings it back on the same port."""
        self.down = True
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def start(self) -> None:
        self.down = False
        self._server = self._serve(self.port)

    def _serve(self, port: int) -> ThreadingHTTPServer:
        ours = self

        class Handler(_Handler):
            api = ours

        server = _Server(("127.0.0.1", port), Handler)
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def _happens(self, kind: str, what: dict[str, Any]) -> None:
        with self.changed:
            self.version += 1
            what["metadata"]["resourceVersion"] = str(self.version)
            self._history.append((self.version, kind, json.loads(json.dumps(what))))
            self.changed.notify_all()

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        return [one for one in self._pods.values() if _chosen(one, namespace, selector)]

    def events(self, version: int) -> list[tuple[int, str, dict[str, Any]]] | None:
        """What happened since; None where that is forgotten."""
        if version < self._oldest:
            return None
        return [event for event in self._history if event[0] > version]


def pod(
    name: str,
    node: str,
    *,
    ready: bool = True,
    phase: str = "Running",
    namespace: str = "gadget",
    labels: dict[str, str] | None = None,
    containers: dict[str, str] | None = None,
    waiting: str = "",
    leaving: bool = False,
    uid: str = "",
) -> dict[str, Any]:
    """A pod as the API has it; `containers` are names by id."""
    held = containers or {f"{name}-container": "gadget"}
    state = {"waiting": {"reason": waiting, "message": "back-off"}} if waiting else {"running": {}}
    statuses = [
        {"name": title, "containerID": f"containerd://{number}", "ready": ready, "state": state}
        for number, title in held.items()
    ]
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-of-{name}",
        "labels": labels if labels is not None else {"k8s-app": "gadget"},
    }
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": meta,
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses},
    }


def _chosen(one: dict[str, Any], namespace: str, selector: str) -> bool:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    meta = one["metadata"]
    fits = all(meta["labels"].get(key) == value for key, value in wanted.items())
    return fits and namespace in ("", meta["namespace"])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: Any) -> None:
        """Clients that go away are nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.api.open.add(self.connection)

    def finish(self) -> None:
        self.api.open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self.api.asked.append(self.path)
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if parts[:2] != ["api", "v1"]:
            self._answer(404, b"404 page not found")
            return
        if self.headers.get("authorization", "").removeprefix("Bearer ") not in self.api.tokens:
            self._refuse(401, "Unauthorized")
            return
        if self.api.failing:
            self._refuse(self.api.failing, "it is raining")
            return
        namespace = parts[3] if parts[2] == "namespaces" else ""
        if parts[-1] == "portforward":
            self._forward(namespace, parts[-2], query)
        elif "watch" in query:
            self._watch(namespace, query)
        else:
            self._list(namespace, query)

    def _allowed(self, verb: str, what: str) -> bool:
        if verb not in self.api.forbidden:
            return True
        self._refuse(403, f'{what} is forbidden: User "weak" cannot do this')
        return False

    def _list(self, namespace: str, query: dict[str, str]) -> None:
        if not self._allowed("list" if namespace else "list-all", "pods"):
            return
        if self.api.garbage is not None:
            self._answer(200, self.api.garbage)
            return
        version = self.api.version
        found = self.api.pods(namespace, query.get("labelSelector", ""))
        start = int(query.get("continue", 0))
        end = start + (self.api.page or int(query.get("limit", 1 << 30)))
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if end < len(found):
            meta["continue"] = str(end)
        body = {"kind": "PodList", "metadata": meta, "items": found[start:end]}
        self._answer(200, json.dumps(body).encode())

    def _watch(self, namespace: str, query: dict[str, str]) -> None:
        if not self._allowed("watch", "pods"):
            return
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("content-type", "application/json")
        self.end_headers()
        version = int(query["resourceVersion"])
        if self.api.garbage is not None:
            self._line(self.api.garbage + b"\n")
            return
        with contextlib.suppress(OSError):
            while not self.api.down:
                with self.api.changed:
                    events = self.api.events(version)
                    if events == []:
                        self.api.changed.wait(0.2)
                        continue
                if events is None:
                    self._event("ERROR", _status(410, "too old resource version"))
                    break
                for number, kind, what in events:
                    version = number
                    if _chosen(what, namespace, query.get("labelSelector", "")):
                        self._event(kind, what)
            self.wfile.write(b"0\r\n\r\n")

    def _event(self, kind: str, what: dict[str, Any]) -> None:
        self._line(json.dumps({"type": kind, "object": what}).encode() + b"\n")

    def _line(self, line: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _forward(self, namespace: str, name: str, query: dict[str, str]) -> None:
        if not self._allowed("portforward", f'pods "{name}"'):
            return
        if not any(one["metadata"]["name"] == name for one in self.api.pods(namespace, "")):
            self._refuse(404, f'pods "{name}" not found')
            return
        key = self.headers["sec-websocket-key"] + _MAGIC
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", accept)
        self.send_header("sec-websocket-protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        port = struct.pack("<H", int(query["ports"]))
        with contextlib.suppress(OSError):
            for channel in (b"\0", b"\1"):
                self._frame(channel + port)
            self._pump(self.api.backends.get(name))

    def _pump(self, backend: Path | None) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
            try:
                there.connect(str(backend))
            except OSError as error:
                self._frame(b"\1" + f"error forwarding port: {error.strerror}".encode())
                return
            back = threading.Thread(target=self._back, args=(there,), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while (data := self._read_frame()) is not None:
                    there.sendall(data)
            with contextlib.suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := there.recv(32 << 10):
                self._frame(b"\0" + data)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _frame(self, data: bytes) -> None:
        self.wfile.write(server_frame(data))

    def _read_frame(self) -> bytes | None:
        """The next data of channel 0; None at the end."""
        while head := self.rfile.read(2):
            size = head[1] & 0x7F
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.rfile.read(8))[0]
            assert head[1] & 0x80, "a client has to mask"
            mask, body = self.rfile.read(4), self.rfile.read(size)
            data = unmask(body, mask)
            kind = head[0] & 0x0F
            if kind == 8:
                return None
            if kind == 2 and data[:1] == b"\0":
                return data[1:]
        return None

    def _refuse(self, code: int, message: str) -> None:
        self._answer(code, json.dumps(_status(code, message)).encode())

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, "code": code}


@contextlib.contextmanager
def api_server(tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """Runs one."""
    made = ApiServer(tls)
    try:
        yield made
    finally:
        made.stop()


def kubeconfig(
    path: Path, server: str, user: dict[str, Any] | None = None, cluster: Any = None
) -> Path:
    """Writes one with a context "test", whose own namespace is "team"."""
    context = {"cluster": "it", "user": "me", "namespace": "team"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": context}],
        "clusters": [{"name": "it", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "me", "user": user if user is not None else {"token": TOKEN}}],
    }
    path.write_text(json.dumps(document))
    return path
