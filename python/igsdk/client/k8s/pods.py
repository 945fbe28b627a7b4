# SPDX-License-Identifier: Apache-2.0
"""What we need to know of a pod, read from what the API server says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Pod:
    """One pod at one moment.

    Attributes:
        phase: Pending, Running, Succeeded, Failed or Unknown; Terminating once it was asked
            to go, as kubectl shows it.
        why: why it is not ready, in a few words; "" when it is.
        containers: name by container id, without the runtime's name before it.
    """

    uid: str
    name: str
    namespace: str
    node: str
    phase: str
    why: str
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return not self.why

    @property
    def gone(self) -> bool:
        """Whether it will never be ready (again)."""
        return self.phase in ("Succeeded", "Failed", "Terminating")


def read_pod(raw: Any) -> Pod | None:
    """A pod from the API's JSON; None where that is none."""
    meta, spec, status = (_part(raw, name) for name in ("metadata", "spec", "status"))
    uid, name = meta.get("uid"), meta.get("name")
    if not isinstance(uid, str) or not isinstance(name, str):
        return None
    leaving = "deletionTimestamp" in meta
    return Pod(
        uid,
        name,
        str(meta.get("namespace", "")),
        str(spec.get("nodeName", "")),
        "Terminating" if leaving else str(status.get("phase", "Unknown")),
        "it is being deleted" if leaving else _why_not(status),
        {str(key): str(value) for key, value in _part(meta, "labels").items()},
        {number: name for number, name in _containers(status) if number},
    )


def _part(raw: Any, name: str) -> dict[str, Any]:
    part = raw.get(name) if isinstance(raw, dict) else None
    return part if isinstance(part, dict) else {}


def _list(raw: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = raw.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _containers(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for one in _list(status, kind):
            yield str(one.get("containerID", "")).rpartition("://")[2], str(one.get("name", ""))


def _why_not(status: dict[str, Any]) -> str:
    """Why a pod is not ready: of all that is said, what helps a person most."""
    conditions = {str(one.get("type")): one for one in _list(status, "conditions")}
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    waits = [why for one in _list(status, "containerStatuses") if (why := _waits(one))]
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        waits.insert(0, f"not scheduled: {_words(scheduled)}")
    return "; ".join(waits) or _words({**conditions.get("Ready", {}), **status})


def _waits(container: dict[str, Any]) -> str:
    name, state = container.get("name", "?"), _part(container, "state")
    if waiting := _part(state, "waiting"):
        return f"container {name} waits: {_words(waiting)}"
    if ended := _part(state, "terminated"):
        return f"container {name} ended: {_words(ended)}, exit code {ended.get('exitCode', '?')}"
    if not container.get("ready"):
        return f"container {name} is not ready yet"
    return ""


def _words(said: dict[str, Any], most: int = 300) -> str:
    words = [str(said[key]) for key in ("reason", "message") if said.get(key)]
    line = " ".join(": ".join(words).split()).rstrip(".")
    return line[:most] or "no reason is given"
