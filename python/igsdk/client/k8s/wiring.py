# SPDX-License-Identifier: Apache-2.0
"""Connections to an API server as the credentials say: TLS, proxy, certificates."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import urllib3
import websocket
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from igsdk._errors import TargetUnavailable
from igsdk.client.k8s.refusals import cannot_reach, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONNECT_TIMEOUT = 10.0
_SUBPROTOCOL = "v4.channel.k8s.io"
_LARGEST_REFUSAL = 1 << 20
# A connection that was kept may have been ended by the other side meanwhile.
_RETRIES = urllib3.Retry(1, connect=0, redirect=0, status=0, other=0, raise_on_redirect=False)


class Wiring:
    """How to connect.

    Args:
        configuration: the kubernetes package's.
        name: of the context, for messages.

    Raises:
        TargetUnavailable: a certificate or key cannot be read.
    """

    def __init__(self, configuration: Any, name: str) -> None:
        self.host: str = configuration.host.rstrip("/")
        self.name = name
        try:
            self._tls = _tls(configuration)
        except (OSError, ValueError) as error:
            raise TargetUnavailable(
                f"A certificate or key of {name} in the kubeconfig cannot be read: {error}.",
                "Log in again, or check those files.",
            ) from error
        self._proxy = _proxy(configuration)
        self._server_name = configuration.tls_server_name or None
        self._pool = _pool(self._tls, self._proxy, self._server_name, configuration)

    def get(
        self, path: str, headers: Mapping[str, str], what: str, silence: float
    ) -> urllib3.BaseHTTPResponse:
        """Asks for something; the answer's body is still to be read.

        Args:
            what: we ask for, for messages: "list pods".
            silence: seconds without a byte after which the connection counts as dead.

        Raises:
            PermissionMissing, TargetUnavailable, AnswerInvalid: see `refusals`.
        """
        try:
            with _unless_safe(self._tls):
                answer = self._pool.request(
                    "GET",
                    self.host + path,
                    headers={"accept": "application/json", **headers},
                    preload_content=False,
                    retries=_RETRIES,
                    timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=silence),
                )
            if answer.status == 200:
                return answer
            body = answer.read(_LARGEST_REFUSAL, decode_content=True)
            answer.close()
        except (HTTPError, OSError) as error:
            raise cannot_reach(error, self.host, self.name) from error
        raise refused(answer.status, body, what, self.name)

    def upgrade(
        self, path: str, headers: Mapping[str, str], what: str, timeout: float
    ) -> socket.socket:
        """Opens a websocket, and gives its connection.

        Raises:
            PermissionMissing, TargetUnavailable, AnswerInvalid: as `get`.
        """
        options = {"context": self._tls, **_named(self._server_name)}
        opened: Any = websocket.WebSocket(sslopt=options)
        try:
            opened.connect(
                f"ws{self.host.removeprefix('http')}{path}",
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

    def close(self) -> None:
        self._pool.clear()


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
    headers = configuration.proxy_headers or {}
    if login := _login(proxy):
        headers = {**urllib3.make_headers(proxy_basic_auth=":".join(login)), **headers}
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **settings)


def _login(proxy: str) -> tuple[str, str] | None:
    """Name and password in a proxy's address."""
    parts = urlsplit(proxy)
    if not parts.username:
        return None
    return unquote(parts.username), unquote(parts.password or "")


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
    return {
        "http_proxy_host": parts.hostname,
        "http_proxy_port": parts.port or 80,
        "http_proxy_auth": _login(proxy),
        "proxy_type": "http" if parts.scheme.startswith("http") else parts.scheme,
        "http_no_proxy": ["proxy.is.wanted.invalid"],
    }
