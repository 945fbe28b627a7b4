# SPDX-License-Identifier: Apache-2.0
"""Requests to a cluster's API server: list pods, watch them, open a way to a pod's port."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from urllib3.exceptions import HTTPError

from igsdk._errors import AnswerInvalid
from igsdk.client.k8s.access import Access
from igsdk.client.k8s.refusals import NotKnown, cannot_reach
from igsdk.client.k8s.watch import Watch
from igsdk.client.k8s.wiring import CONNECT_TIMEOUT, Wiring

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    import urllib3

    Answer = TypeVar("Answer")

_ANSWER_TIMEOUT = 60.0
#: the API server ends a watch after so long; a dead connection is found by its keepalives
_WATCH_SECONDS, _WATCH_SILENCE = 240, 270.0
_PAGE = 500
_LARGEST_ANSWER = 256 << 20
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
        self._wiring = Wiring(self._access.configuration, self.name)

    @property
    def host(self) -> str:
        """The API server's URL."""
        return self._wiring.host

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
        answer = self._ask(_pods(namespace), query, what, _WATCH_SILENCE)
        return Watch(answer, what, self.host, self.name)

    def forward(
        self, namespace: str, pod: str, port: int, timeout: float = CONNECT_TIMEOUT
    ) -> socket.socket:
        """Opens a way to a port of a pod: a connection that speaks websocket frames, see
        `frames.Forward` for what they carry.

        Raises:
            PermissionMissing, TargetUnavailable, AnswerInvalid: as `list_pods`.
        """
        path = f"{_pods(namespace)}/{quote(pod, '')}/portforward"
        what = f"forward a port of the pod {pod}"

        def open_way(headers: Mapping[str, str]) -> socket.socket:
            return self._wiring.upgrade(f"{path}?ports={port}", headers, what, timeout)

        return self._renewing(open_way)

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
        url = f"{path}?{urlencode(known)}"
        return self._renewing(lambda headers: self._wiring.get(url, headers, what, silence))

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
                    self._wiring = Wiring(access.configuration, self.name)
            return ask({"user-agent": _USER_AGENT, **access.headers()})

    def _no_server(self) -> AnswerInvalid:
        return AnswerInvalid(
            f"What answers at {self.host} ({self.name}) is no Kubernetes API server.",
            "Check the server's address in the kubeconfig.",
        )

    def close(self) -> None:
        self._wiring.close()


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, '')}/pods" if namespace else "/api/v1/pods"


def _place(namespace: str) -> str:
    return f"the namespace {namespace}" if namespace else "all namespaces"
