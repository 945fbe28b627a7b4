# SPDX-License-Identifier: Apache-2.0
"""Who we are to a cluster's API server: kubeconfig, credential plugins, or a pod's own account.

The kubernetes package reads the credentials. Three of its habits are mended here: of several
files in $KUBECONFIG it takes the last one's current context (kubectl: the first one's); it
logs what a credential plugin says and goes on without credentials; and it renews those only
that say when they expire.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from igsdk._errors import (
    ExtensionMissing,
    IgsdkError,
    PermissionMissing,
    TargetUnavailable,
    UsageError,
)

try:
    import yaml
    from kubernetes import client, config
except ImportError as error:
    raise ExtensionMissing(
        "The Python package kubernetes is not installed.",
        "Install what clusters need: pip install 'igsdk[k8s]'.",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes.client import Configuration

_DEFAULT_FILE = "~/.kube/config"
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


class Access:
    """Credentials for one API server.

    Args:
        context: a context's name; "": the current one, or the pod's own account where there
            is no kubeconfig and we run in a cluster.

    Attributes:
        name: of the context, for people.
        namespace: the context's own.

    Raises:
        TargetUnavailable: there is no kubeconfig, or it makes no sense.
        UsageError: there is no such context.
        PermissionMissing: the credentials cannot be had.
    """

    def __init__(self, context: str = "") -> None:
        self._lock = threading.Lock()
        paths = [path for path in _paths() if path.exists()]
        if not paths and not context and os.environ.get(_IN_CLUSTER):
            self.name, self.namespace, self._files = "in-cluster", _own_namespace(), ""
        else:
            self.name, self.namespace = _choose(context, paths)
            self._files = os.pathsep.join(map(str, paths))
        self.configuration = self._load()

    def headers(self) -> dict[str, str]:
        """The headers that say who we are, renewed if they say themselves that they expired."""
        with self._lock, _spoken() as said:
            settings: Any = self.configuration.auth_settings()
        _refuse_silence(said, self.name)
        return {str(one["key"]): str(one["value"]) for one in settings.values() if one.get("value")}

    def renew(self) -> None:
        """Gets the credentials anew, since the API server does not take them.

        Raises:
            PermissionMissing, TargetUnavailable: as the constructor.
        """
        with self._lock:
            self.configuration = self._load()

    def _load(self) -> Configuration:
        made = client.Configuration()
        of_files: Any = config.load_kube_config
        of_pod: Any = config.load_incluster_config
        with _spoken() as said:
            try:
                if self._files:
                    of_files(self._files, self.name, made)
                else:
                    of_pod(made)
            except Exception as error:  # whatever a file made it stumble over
                raise TargetUnavailable(
                    f"The kubeconfig's context {self.name} cannot be used: {_line(error)}.",
                    "Check it with `kubectl config view`.",
                ) from error
        _refuse_silence(said, self.name)
        return made


def _paths() -> list[Path]:
    """The files that make up the kubeconfig, in kubectl's order."""
    named = os.environ.get("KUBECONFIG") or _DEFAULT_FILE
    return [Path(one).expanduser() for one in named.split(os.pathsep) if one]


def _choose(context: str, paths: list[Path]) -> tuple[str, str]:
    """The context to use, and its namespace."""
    if not paths:
        raise TargetUnavailable(
            f"There is no kubeconfig: {', '.join(map(str, _paths()))} is missing.",
            "Name yours in KUBECONFIG, or let your cloud's command line write one.",
        )
    documents = [_read(path) for path in paths]
    known = {
        str(entry["name"]): entry.get("context")
        for document in reversed(documents)
        for entry in _entries(document)
    }
    current = next((one for it in documents if (one := it.get("current-context"))), "")
    chosen = context or str(current)
    if not chosen:
        raise UsageError(
            "The kubeconfig has no current context.",
            f"Name one, as in k8s://CONTEXT/gadget: {_listed(known)}.",
        )
    if chosen not in known:
        raise UsageError(
            f"The kubeconfig has no context {chosen!r}.",
            f"It has {_listed(known)}; write %2F for a / in a name.",
        )
    settings = known[chosen]
    namespace = settings.get("namespace") if isinstance(settings, dict) else None
    return chosen, str(namespace or "default")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, RecursionError, yaml.YAMLError) as error:
        raise TargetUnavailable(
            f"The kubeconfig {path} cannot be read: {_unreadable(error)}.",
            "Check it, or name another one in KUBECONFIG.",
        ) from error
    if not isinstance(document, dict):
        raise TargetUnavailable(
            f"{path} is no kubeconfig.", "Check it, or name another one in KUBECONFIG."
        )
    return document


def _unreadable(error: Exception) -> str:
    """Why, without yaml's quotation of the line, which may be a token."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if isinstance(error, yaml.YAMLError):
        where = f" in line {mark.line + 1}" if mark else ""
        return f"{_line(problem or 'it is no YAML')}{where}"
    return _line(getattr(error, "reason", None) or error)


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    contexts = document.get("contexts")
    entries = contexts if isinstance(contexts, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and "name" in entry]


def _listed(names: dict[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"


def _own_namespace() -> str:
    with contextlib.suppress(OSError):
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
    return "default"


@contextlib.contextmanager
def _spoken() -> Iterator[list[str]]:
    """Catches what the kubernetes package only logs: why a credential plugin failed.

    It logs by the root logger, which without a handler would get one, and with it a line on
    standard error.
    """
    said: list[str] = []
    handler = _Listener(said)
    logging.getLogger().addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger().removeHandler(handler)


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._said = said
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "root" and record.thread == self._thread:
            self._said.append(record.getMessage())


def _refuse_silence(said: list[str], name: str) -> None:
    if said:
        raise PermissionMissing(
            f"The credentials of the context {name} cannot be had: {_line(said[0])}.",
            "Log in again, and try the plugin that the kubeconfig names by hand.",
        )


def _line(error: object, most: int = 500) -> str:
    cause = error.cause if isinstance(error, IgsdkError) else str(error)
    return (" ".join(cause.split()) or type(error).__name__)[:most].rstrip(".")
