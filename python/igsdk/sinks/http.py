# SPDX-License-Identifier: Apache-2.0
"""HTTP to one server: TLS, logins, proxies, and whether what was sent may have arrived."""

from __future__ import annotations

import base64
import ssl
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode, urlsplit

from igsdk._errors import ExtensionMissing, IgsdkError, TargetUnavailable, UsageError
from igsdk._version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    import urllib3

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: what is read of an answer; errors are short, and so are the answers that we look at
_LARGEST = 1 << 20
_CONNECTIONS = 8


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The content's type, without parameters."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


class Unreached(Exception):
    """No answer.

    Attributes:
        arrived: whether the request may have arrived all the same.
        error: the same for people.
    """

    def __init__(self, error: IgsdkError, arrived: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.arrived = arrived


@dataclass(frozen=True)
class Login:
    """Who we are: a name and password, or a token; the tenant; other headers as they are."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tenant: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def fields(self) -> dict[str, str]:
        """The headers of a request.

        Raises:
            UsageError: a name or token that fits into no header.
        """
        found = {"User-Agent": f"igsdk/{__version__}", **self.headers}
        if self.token is not None:
            found["Authorization"] = f"Bearer {self.token}"
        elif self.user is not None:
            pair = f"{self.user}:{self.password or ''}".encode()
            found["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        if self.tenant:
            found["X-Scope-OrgID"] = self.tenant
        for name, value in found.items():
            if not name.isascii() or not value.isascii() or not (name + value).isprintable():
                raise UsageError(
                    f"The header {name!r} has characters that no header takes.",
                    "Use printable ASCII; a token file has nothing but the token.",
                )
        return found


def check_url(url: str) -> str:
    """The server's address without a slash at the end; it may have a path.

    Raises:
        UsageError: it is not an http or https URL, or has more in it than host and path.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"{url!r} is no server's address.", "Write http://HOST:PORT or https://…")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "The address has a password in it, which ends up in logs and process lists.",
            "Leave it out, and give user and password by themselves.",
        )
    if parts.query or parts.fragment:
        raise UsageError(
            f"{url!r} has more in it than a host and a path.", "Leave out what follows ? or #."
        )
    return url.rstrip("/")


class Sender:
    """Requests to one server; may be used from several threads.

    Args:
        url: with or without a path, which all requests are below.
        timeout: seconds for one whole request.
        ca: file with the certificates that are trusted, instead of the system's.
    """

    def __init__(self, url: str, login: Login, timeout: float, ca: str | None = None) -> None:
        self.url = check_url(url)
        self.login = login
        self.timeout = timeout
        self._ca = ca
        self._lock = threading.Lock()
        self._made: urllib3.PoolManager | None = None

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return urlsplit(self.url).netloc

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; redirects are answers like others, so no password goes elsewhere.

        Raises:
            Unreached: no answer within the timeout.
        """
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        pool, sent = self._pool(), {**self.login.fields(), **(headers or {})}
        import urllib3

        ends = time.monotonic() + self.timeout
        try:
            response = pool.request(
                method,
                url,
                headers=sent,
                body=body,
                redirect=False,
                retries=False,
                preload_content=False,
                timeout=urllib3.Timeout(total=self.timeout),
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._unreached(error) from error
        try:
            content = self._read(response, ends)
        except urllib3.exceptions.HTTPError as error:
            raise Unreached(self._unreached(error).error, arrived=True) from error
        named = {name.lower(): response.headers[name] for name in response.headers}
        return Answer(response.status, named, content)

    def _read(self, response: Any, ends: float) -> bytes:
        """The body, or its start; what trickles has an end too."""
        parts: list[bytes] = []
        size = 0
        while size < _LARGEST and time.monotonic() < ends:
            part = response.read1(65536)
            if not part:
                response.release_conn()
                return b"".join(parts)
            parts.append(part)
            size += len(part)
        response.close()
        return b"".join(parts)

    def _pool(self) -> urllib3.PoolManager:
        """Connections, through the proxy that the environment names."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> urllib3.PoolManager:
        try:
            import urllib3
        except ImportError as error:
            raise ExtensionMissing(
                "The Python package urllib3 is not installed.",
                "Install what pushing needs: pip install 'igsdk[forward]'.",
            ) from error
        parts = urlsplit(self.url)
        proxy = urllib.request.getproxies().get(parts.scheme, "")
        if parts.hostname in _LOOPBACK or (proxy and urllib.request.proxy_bypass(parts.netloc)):
            proxy = ""
        common: dict[str, Any] = {"ssl_context": self._trust(), "maxsize": _CONNECTIONS}
        if not proxy:
            return urllib3.PoolManager(**common)
        return urllib3.ProxyManager(proxy, proxy_headers=_proxy_login(proxy), **common)

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"{self._ca} has no certificates that can be read: {error}.", "Name a PEM file."
            ) from error

    def _unreached(self, error: Exception) -> Unreached:
        import urllib3

        refused = urllib3.exceptions.NewConnectionError  # which is a timeout to urllib3
        before = (
            urllib3.exceptions.NewConnectionError,
            urllib3.exceptions.ConnectTimeoutError,
            urllib3.exceptions.SSLError,
            urllib3.exceptions.ProxyError,
            urllib3.exceptions.LocationParseError,
        )
        if isinstance(error, urllib3.exceptions.SSLError):
            said = TargetUnavailable(
                f"No TLS with {self.host}: {_words(error)}.",
                "Check the address, and name its certificate authority where it is your own.",
            )
        elif isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(error, refused):
            said = TargetUnavailable(
                f"{self.host} did not answer within {self.timeout:g} s.",
                "Check the server, or give it more time.",
            )
        elif isinstance(error, before):
            said = TargetUnavailable(
                f"{self.host} cannot be reached: {_words(error)}.",
                "Check the address, the network and that the server runs.",
            )
        else:
            said = TargetUnavailable(
                f"{self.host} broke the connection off: {_words(error)}.",
                "Look into the log of the server, and of any proxy before it.",
            )
        # A TLS connection that ends in the middle is the one TLS error that may come late.
        late = isinstance(_root(error), ssl.SSLEOFError)
        return Unreached(said, arrived=late or not isinstance(error, before))


def _proxy_login(proxy: str) -> dict[str, str]:
    """What a proxy's address has of a login, which urllib3 leaves out."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair).decode()}


def _root(error: BaseException) -> BaseException:
    """The error that all others came from."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return error


def _words(error: BaseException) -> str:
    """What is behind an error, in the system's own words."""
    root = _root(error)
    text = getattr(root, "strerror", None) or str(root) or type(root).__name__
    return str(text).rstrip(".")
