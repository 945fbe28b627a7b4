# SPDX-License-Identifier: Apache-2.0
"""``k8s:[//CONTEXT/NAMESPACE][?selector=…&node=…&port=…]`` taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote

from igsdk._errors import UsageError

NAMESPACE, SELECTOR = "gadget", "k8s-app=gadget"
#: where Inspektor Gadget listens in its pod, on the pod's own loopback, and so does our agent
PORT = 8080
_FORM = "k8s:[//CONTEXT/NAMESPACE][?selector=LABELS&node=NAME&port=PORT]"


@dataclass(frozen=True)
class ClusterTarget:
    """Which pods of which cluster.

    Attributes:
        text: as the user wrote it.
        context: of the kubeconfig; "": the current one.
        nodes: names or patterns (``gpu-*``) of nodes; none: all.
        port: where the daemon listens, on the pod's own loopback.
    """

    text: str
    context: str = ""
    namespace: str = NAMESPACE
    selector: str = SELECTOR
    nodes: tuple[str, ...] = ()
    port: int = PORT

    def wants(self, node: str) -> bool:
        return not self.nodes or any(fnmatchcase(node, pattern) for pattern in self.nodes)


def parse(text: str) -> ClusterTarget:
    """Reads such a target.

    Raises:
        UsageError: it is none, or has a part that is not known.
    """
    place, question, query = text.removeprefix("k8s:").partition("?")
    context, namespace = _place(text, place)
    settings = _query(text, query) if question else []
    nodes = [name for key, value in settings if key == "node" for name in value.split(",")]
    single = {key: value for key, value in settings if key != "node"}
    return ClusterTarget(
        text,
        context,
        namespace or NAMESPACE,
        single.get("selector", SELECTOR),
        tuple(name for name in nodes if name),
        _port(text, single.get("port", str(PORT))),
    )


def _place(text: str, place: str) -> tuple[str, str]:
    if not place:
        return "", ""
    parts = place.removeprefix("//").rstrip("/").split("/")
    if not place.startswith("//") or len(parts) > 2:
        raise UsageError(
            f"{text!r} is not a target.", f"Write {_FORM}, with %2F for a / in a context's name."
        )
    context, namespace = (*parts, "")[:2]
    return unquote(context), unquote(namespace)


def _query(text: str, query: str) -> list[tuple[str, str]]:
    settings = parse_qsl(query, keep_blank_values=True)
    unknown = [key for key, _ in settings if key not in ("selector", "node", "port")]
    if unknown:
        raise UsageError(f"{text!r}: there is no setting {unknown[0]!r}.", f"Write {_FORM}.")
    return settings


def _port(text: str, port: str) -> int:
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{text!r}: {port!r} is no port.", "Write one from 1 to 65535.")
    return int(port)
