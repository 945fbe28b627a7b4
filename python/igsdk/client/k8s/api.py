# SPDX-License-Identifier: Apache-2.0
"""Requests to a cluster's API server: list pods, watch them, open a way to a pod's port."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import ssl
import threading
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3
import websocket
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from igsdk._errors import AnswerInvalid, TargetUnavailable
from igsdk.client.k8s.access import Access
from igsdk.client.k8s.refusals import NotKnown, cannot_reach, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    Answer = TypeVar("Answer")

_CONNECT_TIMEOUT, _ANSWER_TIMEOUT = 10.0, 60.0
#: the API server ends a watch after so long; a dead connection is found by its keepalives
_WATCH_SECONDS, _WATCH_SILENCE = 240, 270.0
_PAGE = 500
_LARGEST_ANSWER = 256 << 20
_SUBPROTOCOL = "v4.channel.k8s.io"
_USER_AGENT = "igsdk"


class ApiServer:
    """One cluster's API server, with our credentials; for any thread.

    Args:
        context: as for `Access`, which has the errors too.

    Attributes:
        name: the context's name.
        namespace: the context's own namespace.
    """

    def __init__(self, context: str = "") -> None:
        self._access = Access(context)
        self.name, self.namespace = self._access.name, self._access.namespace
        self._lock = threading.Lock()
        self._settle()

    def _settle(self) -> None:
        """Takes over addresses and certificates from the credentials."""
        configuration = self._access.configuration
        self.host = configuration.host.rstrip("/")
        try:
            self._tls = _tls(configuration)
        except (OSError, ValueError) as error:
            raise TargetUnavailable(
                f"A certificate or key of {self.name} in the kubeconfig cannot be read: {error}.",
                "Log in again, or check those files.",
            ) from error
        self._proxy = _proxy(configuration)
        self._server_name = configuration.tls_server_name or None
        self._pool = _pool(self._tls, self._proxy, self._server_name, configuration)

    def list_pods(
        self, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Any], str]:
        """The pods of a namespace, or of all, as JSON, and the version to watch from.

        Raises:
            PermissionMissing: 401 or 403.
            TargetUnavailable: it cannot be reached, or cannot answer.
            AnswerInvalid: it is no API server.
        """
        pods: list[Any] = []
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": str(_PAGE)}
        what = f"list pods in {_place(namespace)}"
        while True:
            page = self._json(_pods(namespace), query, what)
            items, meta = page.get("items"), page.get("metadata")
            if page.get("kind") != "PodList" or not isinstance(meta, dict):
                raise self._no_server()
            pods += items if isinstance(items, list) else []
            query["continue"] = str(meta.get("continue") or "")
            if not query["continue"]:
                return pods, str(meta.get("resourceVersion", ""))

    def watch_pods(self, namespace: str, selector: str, fields: str, version: str) -> Watch:
        """What happens to the pods from a version on.

        Raises:
            Gone: the version is too old.
            PermissionMissing, TargetUnavailable, AnswerInvalid: as `list_pods`.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "labelSelector": selector,
            "fieldSelector": fields,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        what = f"watch pods in {_place(namespace)}"
        return Watch(self._ask(_pods(namespace), query, what, _WATCH_SILENCE), what, self)

    def forward(
        self, namespace: str, pod: str, port: int, timeout: float = _CONNECT_TIMEOUT
    ) -> socket.socket:
        """Opens a way to a port of a pod: a connection that speaks websocket frames, see
        `frames.Forward` for what they carry.

        Raises:
            PermissionMissing, TargetUnavailable, AnswerInvalid: as `list_pods`.
        """
        path = f"{_pods(namespace)}/{quote(pod, '')}/portforward"
        url = f"ws{self.host.removeprefix('http')}{path}?ports={port}"
        return self._renewing(lambda headers: self._upgrade(url, headers, pod, timeout))

    def _upgrade(
        self, url: str, headers: Mapping[str, str], pod: str, timeout: float
    ) -> socket.socket:
        opened: Any = websocket.WebSocket(
            sslopt={"context": self._tls, **_named(self._server_name)}
        )
        what = f"forward a port of the pod {pod}"
        try:
            opened.connect(
                url,
                header=dict(headers),
                subprotocols=[_SUBPROTOCOL],
                timeout=timeout,
                suppress_origin=True,
                redirect_limit=0,
                **_websocket_proxy(self._proxy),
            )
        except websocket.WebSocketBadStatusException as error:
            raise refused(error.status_code, error.resp_body or b"", what, self.name) from error
        except (websocket.WebSocketException, OSError, ValueError) as error:
            raise cannot_reach(error, self.host, self.name) from error
        made: socket.socket = opened.sock
        opened.sock = None
        return made

    def _json(self, path: str, query: Mapping[str, str], what: str) -> dict[str, Any]:
        response = self._ask(path, query, what, _ANSWER_TIMEOUT)
        try:
            body = response.read(_LARGEST_ANSWER, decode_content=True)
            response.release_conn()
            answer = json.loads(body)
        except (HTTPError, OSError) as error:
            raise cannot_reach(error, self.host, self.name) from error
        except (ValueError, RecursionError) as error:
            raise self._no_server() from error
        if not isinstance(answer, dict):
            raise self._no_server()
        return answer

    def _ask(
        self, path: str, query: Mapping[str, str], what: str, silence: float
    ) -> urllib3.BaseHTTPResponse:
        known = {key: value for key, value in query.items() if value}
        url = f"{self.host}{path}?{urlencode(known)}"

        def ask(headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
            try:
                answer = self._get(url, {"accept": "application/json", **headers}, silence)
                if answer.status == 200:
                    return answer
                body = answer.read(1 << 20, decode_content=True)
                answer.close()
            except (HTTPError, OSError) as error:
                raise cannot_reach(error, self.host, self.name) from error
            raise refused(answer.status, body, what, self.name)

        return self._renewing(ask)

    def _get(
        self, url: str, headers: Mapping[str, str], silence: float
    ) -> urllib3.BaseHTTPResponse:
        with _unless_safe(self._tls):
            return self._pool.request(
                "GET",
                url,
                headers=headers,
                preload_content=False,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT, read=silence),
            )

    def _renewing(self, ask: Callable[[Mapping[str, str]], Answer]) -> Answer:
        """Asks, and once more with new credentials where the API server takes these no more."""
        access = self._access
        configuration = access.configuration
        try:
            return ask({"user-agent": _USER_AGENT, **access.headers()})
        except NotKnown:
            with self._lock:
                if access.configuration is configuration:
                    access.renew()
                    self._settle()
            return ask({"user-agent": _USER_AGENT, **access.headers()})

    def _no_server(self) -> AnswerInvalid:
        return AnswerInvalid(
            f"What answers at {self.host} ({self.name}) is no Kubernetes API server.",
            "Check the server's address in the kubeconfig.",
        )

    def close(self) -> None:
        self._pool.clear()


class Watch:
    """An open watch; iterate over its events, close it from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str, api: ApiServer) -> None:
        self._response, self._what, self._api = response, what, api
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
            raise cannot_reach(error, self._api.host, self._api.name) from error
        finally:
            self._response.close()

    def _event(self, line: bytes) -> tuple[str, dict[str, Any]]:
        try:
            event = json.loads(line)
            kind, what = event["type"], event["object"]
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            raise AnswerInvalid(
                f"The API server of {self._api.name} sends what is no event of a watch.",
                "Check whether something stands in between.",
            ) from error
        if kind == "ERROR":
            code = what.get("code", 0) if isinstance(what, dict) else 0
            raise refused(code, json.dumps(what).encode(), self._what, self._api.name)
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
        if len(waiting) > _LARGEST_ANSWER:
            raise ValueError("an endless line")


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, '')}/pods" if namespace else "/api/v1/pods"


def _place(namespace: str) -> str:
    return f"the namespace {namespace}" if namespace else "all namespaces"


def _named(server_name: str | None) -> dict[str, str]:
    return {"server_hostname": server_name} if server_name else {}


def _tls(configuration: Any) -> ssl.SSLContext:
    authority = getattr(configuration, "ca_cert_data", None)
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert or None, cadata=authority or None
    )
    # CPython 3.13 asks of certificates what those of many clusters do not have.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _proxy(configuration: Any) -> str:
    """The proxy to use for this API server; "" for none."""
    host = urlsplit(configuration.host).hostname or ""
    return "" if _spared(host, configuration.no_proxy or "") else configuration.proxy or ""


@contextlib.contextmanager
def _unless_safe(tls: ssl.SSLContext) -> Iterator[None]:
    """Silences urllib3 where the kubeconfig says insecure-skip-tls-verify: its owner knows."""
    if tls.verify_mode != ssl.CERT_NONE:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureRequestWarning)
        yield


def _spared(host: str, rules: str) -> bool:
    """Whether NO_PROXY spares a host: by name, domain, address or network."""
    for rule in filter(None, (one.strip().lower() for one in rules.split(","))):
        domain = rule.lstrip("*.")
        if rule == "*" or host == domain or host.endswith(f".{domain}"):
            return True
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False):
                return True
    return False


def _pool(
    tls: ssl.SSLContext, proxy: str, server_name: str | None, configuration: Any
) -> urllib3.PoolManager:
    settings: dict[str, Any] = {
        "ssl_context": tls,
        "maxsize": 8,
        "socket_options": [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            *_keepalive(),
        ],
        **_named(server_name),
    }
    if not configuration.verify_ssl:
        settings["assert_hostname"] = False
    if not proxy:
        return urllib3.PoolManager(**settings)
    return urllib3.ProxyManager(proxy, proxy_headers=configuration.proxy_headers, **settings)


def _keepalive() -> list[tuple[int, int, int]]:
    """A connection whose other end is gone, as after a laptop slept, is found in a minute."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    for name, value in ((idle, 30), (getattr(socket, "TCP_KEEPINTVL", None), 10)):
        if name is not None:
            options.append((socket.IPPROTO_TCP, name, value))
    return options


def _websocket_proxy(proxy: str) -> dict[str, Any]:
    if not proxy:
        return {"http_no_proxy": ["*"]}
    parts = urlsplit(proxy)
    user = (parts.username or "", parts.password or "") if parts.username else None
    return {
        "http_proxy_host": parts.hostname,
        "http_proxy_port": parts.port or 80,
        "http_proxy_auth": user,
        "proxy_type": "http" if parts.scheme.startswith("http") else parts.scheme,
        "http_no_proxy": ["proxy.is.wanted.invalid"],
    }
