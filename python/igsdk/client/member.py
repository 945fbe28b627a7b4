# SPDX-License-Identifier: Apache-2.0
"""What a fleet is made of: members, who tells of them, and who is behind a container."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from igsdk.client.remote import RemoteRuntime


@dataclass(frozen=True)
class Member:
    """One daemon of a fleet.

    Attributes:
        name: unique in the fleet, for people: the target, or the node's name.
        connect: makes a connection, in any thread; called again after a break.
        labels: such as ``{"node": …, "pod": …}``; none for plain targets.
    """

    name: str
    connect: Callable[[], RemoteRuntime]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PodRef:
    """A pod, and which of its containers; "" where that is not known yet."""

    namespace: str
    pod: str
    container: str
    node: str
    labels: Mapping[str, str] = field(default_factory=dict)


class Where(Protocol):
    """Who is behind a container."""

    @property
    def notes(self) -> list[str]:
        """What cannot be known, and why, in sentences for people."""

    def pod_of(self, container_id: str, pod_uid: str) -> PodRef | None:
        """The pod of a container, by the container's id or by the pod's uid; None: not known,
        or not yet."""


class Membership(Protocol):
    """Who belongs to a fleet, which may change while it runs."""

    @property
    def where(self) -> Where | None: ...

    def start(self, joined: Callable[[Member], None], left: Callable[[str, str], None]) -> None:
        """Calls `joined` for all that are there before it returns, later from a thread of its
        own; `left` with a name and why."""

    def close(self) -> None:
        """Ends it; no call comes afterwards."""
