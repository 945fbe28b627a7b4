# SPDX-License-Identifier: Apache-2.0
"""What an API server's "no", or its silence, means, and what to do about it."""

from __future__ import annotations

import json
import socket
import ssl
from typing import TYPE_CHECKING

from igsdk._errors import AnswerInvalid, IgsdkError, PermissionMissing, TargetUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Gone(TargetUnavailable):
    """What we asked to go on from is too old (410): list anew."""


class NotKnown(PermissionMissing):
    """The API server does not take our credentials (401)."""


def refused(status: int, body: bytes, what: str, cluster: str) -> IgsdkError:
    """An answer that is no success.

    Args:
        what: what we asked for, as in "list pods in the namespace gadget".
        cluster: the context's name.
    """
    said = _message(body)
    if status == 401:
        return NotKnown(
            f"The API server of {cluster} does not take your credentials: "
            "they are missing, wrong or have expired.",
            "Log in again, and check with `kubectl get pods -n gadget`.",
        )
    if status == 403:
        return PermissionMissing(
            f"The API server of {cluster} does not let you {what}: {said}.",
            "Ask for the rights in deploy/rbac.yaml (docs/kubernetes.md).",
        )
    if status == 410:
        return Gone(f"What {cluster} said of its pods is too old to go on from.", "Try again.")
    if status == 404 and not _is_status(body):
        return AnswerInvalid(
            f"What answers at the address of {cluster} is no Kubernetes API server.",
            "Check the server's address in the kubeconfig.",
        )
    return TargetUnavailable(
        f"The API server of {cluster} cannot {what}: {said} ({status}).",
        "Try again, and look at the cluster with kubectl.",
    )


def cannot_reach(error: Exception, host: str, cluster: str) -> TargetUnavailable:
    """A connection that came to nothing."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TargetUnavailable(
                f"The certificate of the API server {host} ({cluster}) is not trusted: "
                f"{cause.verify_message or _line(cause)}.",
                "Check the certificate authority in the kubeconfig, and that nobody is in between.",
            )
        if isinstance(cause, socket.gaierror):
            return TargetUnavailable(
                f"The API server {host} ({cluster}) has no address: {_line(cause)}.",
                "Check the name in the kubeconfig, and your network or VPN.",
            )
    return TargetUnavailable(
        f"The API server {host} ({cluster}) cannot be reached: {_line(causes[-1])}.",
        "Check that the cluster runs, and your network or VPN.",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the innermost one last; urllib3 hides it in arguments."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        inner = [one for one in following.args if isinstance(one, BaseException)]
        reason = getattr(following, "reason", None)
        inner += [reason] if isinstance(reason, BaseException) else []
        following = inner[0] if inner else (following.__cause__ or following.__context__)


def _is_status(body: bytes) -> bool:
    return bool(_status(body))


def _message(body: bytes) -> str:
    said = _status(body).get("message")
    text = said if isinstance(said, str) and said else body.decode(errors="replace")
    return _line(text) or "it gives no reason"


def _status(body: bytes) -> dict[str, object]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) and said.get("kind") == "Status" else {}


def _line(said: object, most: int = 500) -> str:
    line = " ".join(str(said).split()).rstrip(".")
    if not line and isinstance(said, BaseException):
        line = type(said).__name__
    return line if len(line) <= most else f"{line[:most]}…"
