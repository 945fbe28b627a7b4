# SPDX-License-Identifier: Apache-2.0
"""Several memberships as one: daemons by their targets, beside clusters."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from igsdk.client.member import Member, Membership, PodRef, Where


def together(parts: Sequence[Membership]) -> Membership:
    """The one that there is, or all of them as one."""
    return parts[0] if len(parts) == 1 else Together(parts)


class Together:
    """Members of several memberships; a name that two of them have is numbered."""

    def __init__(self, parts: Sequence[Membership]) -> None:
        self._parts = list(parts)
        self._taken: dict[str, int] = {}  # by name the part that had it first

    @property
    def where(self) -> Where | None:
        """Whoever knows a container; None where nobody knows any."""
        known = [part.where for part in self._parts if part.where is not None]
        return known[0] if len(known) == 1 else Anywhere(known) if known else None

    def start(self, joined: Callable[[Member], None], left: Callable[[str, str], None]) -> None:
        """Starts all; where one cannot, ends those that were started."""
        with ExitStack() as started:
            for number, part in enumerate(self._parts):
                started.callback(part.close)
                part.start(*self._named(number, joined, left))
            started.pop_all()

    def _named(
        self, number: int, joined: Callable[[Member], None], left: Callable[[str, str], None]
    ) -> tuple[Callable[[Member], None], Callable[[str, str], None]]:
        def name_of(name: str) -> str:
            first = self._taken.setdefault(name, number)
            return name if first == number else f"{name} ({number + 1})"

        def join(member: Member) -> None:
            joined(replace(member, name=name_of(member.name)))

        def leave(name: str, why: str) -> None:
            left(name_of(name), why)

        return join, leave

    def close(self) -> None:
        for part in self._parts:
            part.close()


class Anywhere:
    """Asks one after the other; ids of containers and pods are unique everywhere."""

    def __init__(self, parts: Sequence[Where]) -> None:
        self._parts = list(parts)

    @property
    def notes(self) -> list[str]:
        """What none of them can know."""
        return [note for part in self._parts for note in part.notes]

    def pod_of(self, container_id: str, pod_uid: str) -> PodRef | None:
        """See `Where.pod_of`."""
        found = (part.pod_of(container_id, pod_uid) for part in self._parts)
        return next((pod for pod in found if pod is not None), None)
