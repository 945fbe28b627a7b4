# SPDX-License-Identifier: Apache-2.0
"""What tests ask of the API server, in plain JSON over HTTPS: not by the client under test."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .services import await_true

Object = dict[str, Any]

_CORE = {"v1": "/api/v1"}
_CLUSTER_WIDE = {"Namespace", "Node", "ClusterRole", "ClusterRoleBinding"}


class ApiError(Exception):
    """The server refused; ``code`` is HTTP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text[:500]}")
        self.code = code


def path_of(thing: Object, *, named: bool) -> str:
    """Where objects of that kind are, or this one is."""
    version, kind = thing["apiVersion"], thing["kind"]
    parts = [_CORE.get(version, f"/apis/{version}")]
    if kind not in _CLUSTER_WIDE:
        parts.append(f"namespaces/{thing['metadata'].get('namespace', 'default')}")
    parts.append(kind.lower() + "s")
    if named:
        parts.append(thing["metadata"]["name"])
    return "/".join(parts)


class Api:
    """Calls with the token of one user."""

    def __init__(self, server: str, authority: Path, token: str) -> None:
        self._server = server
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(authority))

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "json") -> Any:
        """One request; the answer as JSON gives it.

        Raises:
            ApiError: the server refused.
            OSError: there is no server.
        """
        return json.loads(self._text(method, path, body, kind))

    def _text(self, method: str, path: str, body: Object | None = None, kind: str = "json") -> str:
        request = urllib.request.Request(self._server + path, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        data = None
        if body is not None:
            request.add_header("Content-Type", f"application/{kind}")
            data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=20, context=self._tls) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from error

    def ready(self) -> bool:
        try:
            return self._text("GET", "/readyz") == "ok"
        except (OSError, ApiError):
            return False

    def apply(self, things: Iterable[Object]) -> None:
        """Makes these objects, or changes them to be so."""
        for thing in things:
            path = path_of(thing, named=True) + "?fieldManager=tests&force=true"
            self.call("PATCH", path, thing, "apply-patch+yaml")

    def delete(self, thing: Object, grace: int = 0) -> None:
        """Removes an object and waits until it is gone; nothing where it is not there."""
        path = path_of(thing, named=True)
        body = {"gracePeriodSeconds": grace, "propagationPolicy": "Background"}
        if self.exists(thing):
            self.call("DELETE", path, body)
        await_true(f"{path} is gone", lambda: not self.exists(thing))

    def exists(self, thing: Object) -> bool:
        try:
            self.call("GET", path_of(thing, named=True))
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def pods(self, namespace: str, selector: str = "") -> list[Object]:
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"
        return list(self.call("GET", path)["items"])

    def nodes(self) -> list[Object]:
        return list(self.call("GET", "/api/v1/nodes")["items"])

    def logs(self, namespace: str, pod: str) -> str:
        return self._text("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log")


def is_ready(thing: Object) -> bool:
    """Nodes and pods say so in their conditions."""
    conditions = thing.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
