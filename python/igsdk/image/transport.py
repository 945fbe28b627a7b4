# SPDX-License-Identifier: Apache-2.0
"""HTTP to one registry: TLS, logins, waiting when it asks for patience, and time limits."""

from __future__ import annotations

import email.utils
import json
import queue
import re
import ssl
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urljoin, urlsplit

from igsdk._errors import RegistryRefused
from igsdk._version import __version__
from igsdk.image import credentials
from igsdk.image.challenges import Challenge, read_challenge
from igsdk.image.document import extra_missing
from igsdk.image.refusals import endless, refusal, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import urllib3

_PATIENCE = (429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)
_ATTEMPTS = 5
_LONGEST_WAIT = 60.0
#: a whole answer may take so many times what its next piece may
_WHOLE = 10
#: one answer is never larger: gadgets are small, and we hold them in memory
_LARGEST = 1 << 28
#: Docker's own registry answers under another name than images have
_HOSTS = {"docker.io": "registry-1.docker.io"}
_TOKEN = re.compile(r"[!-~]+")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers in lower case, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    def reason(self) -> str:
        """The registry's own words for an error, in brackets, or nothing."""
        try:
            first = json.loads(self.body)["errors"][0]
            words = f"{first.get('code', '')}: {first.get('message', '')}".strip(": ")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return ""
        return f" ({words})" if words else ""


@dataclass
class Transport:
    """Requests to one registry.

    Attributes:
        timeout: seconds that a connection, or the next piece of an answer, may take; all of
            an answer may take ten times as long.
        say: told in a sentence when we wait.
    """

    domain: str
    plain_http: bool = False
    timeout: float = 30.0
    say: Callable[[str], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    _authorization: str = ""
    _pools: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> str:
        scheme = "http" if self.plain_http else "https"
        return f"{scheme}://{_HOSTS.get(self.domain, self.domain)}"

    def ask(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """One request, repeated while the registry asks for patience.

        Args:
            path: below the registry's root, or a whole URL that it named.
            expected: statuses that are returned; all others are errors.

        Raises:
            RegistryRefused: it says no.
            TargetUnavailable: it is not there, is silent, or stays busy.
        """
        url = self._place(f"{self.root}/", path)
        answer = self._patiently(method, url, dict(headers or {}), body)
        if answer.status in expected:
            return answer
        raise refusal(self.domain, answer, method)

    def _patiently(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        waited, start = 0.0, time.monotonic()
        for attempt in range(1, _ATTEMPTS + 1):
            answer = self._authorized(method, url, headers, body)
            wait = _wanted_wait(answer, attempt)
            if answer.status not in _PATIENCE or attempt == _ATTEMPTS:
                return answer
            spent = max(waited, time.monotonic() - start)
            if wait > _LONGEST_WAIT or spent + wait > 2 * _LONGEST_WAIT:
                return answer
            self.say(f"{self.domain} answers {answer.status}; asks again in {wait:.0f} s.")
            self.sleep(wait)
            waited += wait
        raise AssertionError("the last attempt returns")

    def _authorized(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        """Logs in once if that is asked for."""
        answer = self._once(method, url, headers, body)
        if answer.status != 401 or not _same_host(answer.url, self.root):
            return answer
        challenge = read_challenge(answer.headers.get("www-authenticate", ""))
        before, self._authorization = self._authorization, self._login(challenge)
        if not self._authorization or self._authorization == before:
            return answer
        return self._once(method, url, headers, body)

    def _login(self, challenge: Challenge) -> str:
        """The Authorization header that a challenge asks for, or nothing."""
        login = credentials.find(self.domain)
        if login and self.plain_http and urlsplit(self.root).hostname not in _LOOPBACK:
            raise RegistryRefused(
                f"{self.domain} asks for a password over plain HTTP, where all can read it.",
                "Use a registry with TLS, without --plain-http.",
            )
        if challenge.scheme == "basic":
            return login.basic() if login else ""
        realm = challenge.words.get("realm", "")
        if challenge.scheme != "bearer" or not realm:
            return ""
        if not self.plain_http and urlsplit(realm).scheme != "https":
            raise RegistryRefused(
                f"{self.domain} wants its tokens to be fetched without TLS.", "Ask its owner."
            )
        return self._token(realm, challenge, login)

    def _token(self, realm: str, challenge: Challenge, login: credentials.Login | None) -> str:
        """Fetches a token; without a login the server may give one for reading."""
        asked = {
            key: challenge.words[key] for key in ("service", "scope") if challenge.words.get(key)
        }
        headers, body, method = {}, None, "GET"
        if login and login.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": login.identity_token}
            body = urlencode({**asked, **form, "client_id": "igsdk"}).encode()
            method, headers = "POST", {"Content-Type": "application/x-www-form-urlencoded"}
        else:
            joint = "&" if urlsplit(realm).query else "?"
            realm += joint + urlencode(asked) if asked else ""
            headers = {"Authorization": login.basic()} if login else {}
        answer = self._once(method, realm, headers, body, own=False)
        try:
            said = json.loads(answer.body) if answer.status == 200 else {}
            token = str(said.get("token") or said.get("access_token") or "")
        except (ValueError, AttributeError):
            token = ""
        if answer.status in _PATIENCE:
            raise refusal(self.domain, answer, "GET")
        return f"Bearer {token}" if _TOKEN.fullmatch(token) else ""

    def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        own: bool = True,
    ) -> Answer:
        """One exchange, with redirects followed; our login goes to the registry alone."""
        for _ in range(5):
            sent = {"User-Agent": f"igsdk/{__version__}", **headers}
            if own and self._authorization and _same_host(url, self.root):
                sent["Authorization"] = self._authorization
            answer = self._exchange(method, url, sent, body)
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or method not in ("GET", "HEAD") or not target:
                return answer
            headers = {k: v for k, v in headers.items() if k != "Authorization"}
            url = self._place(url, target)
        return answer

    def _place(self, base: str, named: str) -> str:
        """A whole URL for one that the registry may have named."""
        try:
            url = urljoin(base, named)
            parts = urlsplit(url)
        except ValueError as error:
            raise RegistryRefused(
                f"{self.domain} sends us to {named!r}, which is no place.", "Ask its owner."
            ) from error
        if parts.scheme != "https" and not (self.plain_http and parts.scheme == "http"):
            raise RegistryRefused(
                f"{self.domain} sends us to a place without TLS.", "Ask its owner."
            )
        return url

    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """One request in a thread of its own, which is left behind where there is no end to it.

        The limit for the next piece of an answer does not bound what trickles, and nothing
        bounds the search for a name.
        """
        longest = self.timeout * _WHOLE
        answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put(self._wait_for(method, url, headers, body))
            except Exception as error:
                answers.put(error)

        threading.Thread(target=work, daemon=True).start()
        try:
            answer = answers.get(timeout=longest)
        except queue.Empty:
            raise endless(urlsplit(url).netloc, longest) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait_for(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        try:
            import urllib3
        except ImportError as error:
            raise extra_missing("urllib3") from error
        try:
            response = self._pool(url).request(
                method,
                url,
                headers=dict(headers),
                body=body,
                redirect=False,
                retries=False,
                preload_content=False,
            )
            content = response.read(_LARGEST)
            response.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(urlsplit(url).netloc, error, self.timeout) from error
        named = {name.lower(): response.headers[name] for name in response.headers}
        return Answer(response.status, named, content, url)

    def _pool(self, url: str) -> urllib3.PoolManager:
        """Connections, through the proxy that the environment names."""
        import urllib3

        parts = urlsplit(url)
        proxy = urllib.request.getproxies().get(parts.scheme, "")
        if parts.hostname in _LOOPBACK or (proxy and urllib.request.proxy_bypass(parts.netloc)):
            proxy = ""
        if proxy not in self._pools:
            common: dict[str, Any] = {
                "timeout": urllib3.Timeout(connect=min(self.timeout, 10.0), read=self.timeout),
                "ssl_context": ssl.create_default_context(),
            }
            self._pools[proxy] = (
                urllib3.ProxyManager(proxy, **common) if proxy else urllib3.PoolManager(**common)
            )
        pool: urllib3.PoolManager = self._pools[proxy]
        return pool


def _same_host(url: str, other: str) -> bool:
    return urlsplit(url)[:2] == urlsplit(other)[:2]


def _wanted_wait(answer: Answer, attempt: int) -> float:
    """Seconds to wait: what the registry asks for, else 1, 2, 4, 8."""
    said = answer.headers.get("retry-after", "").strip()
    if said.isdecimal():
        return float(said)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return float(2 ** (attempt - 1))
