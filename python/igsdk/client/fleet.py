# SPDX-License-Identifier: Apache-2.0
"""Many daemons as one runtime: what is asked of it is asked of each of them."""

from __future__ import annotations

import secrets
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from igsdk._errors import IgsdkError, UsageError
from igsdk.client.at_once import ask_all, none_of
from igsdk.client.feed import FAILED, RUNNING, NodeState
from igsdk.client.fleet_run import FleetRun
from igsdk.client.member import Member
from igsdk.client.remote import RemoteRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from igsdk.client.gadget import Gadget
    from igsdk.client.instances import Instance
    from igsdk.client.member import Membership, Where
    from igsdk.client.remote import Params
    from igsdk.client.run import GadgetRun

    Answer = TypeVar("Answer")
    Self = TypeVar("Self", bound="Fleet")


class ListedMembers:
    """A membership that does not change: daemons by their targets.

    Raises:
        UsageError: there is none, or one is named twice.
    """

    where: Where | None = None

    def __init__(
        self, targets: Sequence[str], connect: Callable[[str], RemoteRuntime] = RemoteRuntime
    ) -> None:
        if not targets:
            raise UsageError("There is no target.", "Name one or more.")
        if len(set(targets)) < len(targets):
            raise UsageError("A target is there twice.", "Name each one once.")
        self._members = [_listed(target, connect) for target in targets]

    def start(
        self,
        joined: Callable[[Member], None],
        left: Callable[[str, str], None],  # noqa: ARG002 - nobody leaves a list
    ) -> None:
        for member in self._members:
            joined(member)

    def close(self) -> None:
        """Nothing is open."""


def _listed(target: str, connect: Callable[[str], RemoteRuntime]) -> Member:
    return Member(target, lambda: connect(target))


class Fleet:
    """Many daemons, to be used as a context manager; as `RemoteRuntime` where it can be.

    Nothing is connected before something is asked. A node that fails stops no other: an
    error is raised only where none could do what was asked.

    Args:
        membership: who belongs to it, which may change.
        target: for messages.

    Attributes:
        errors: what went wrong at the latest question, by the member's name. A run says
            this in its own `nodes`.
    """

    def __init__(self, membership: Membership, target: str) -> None:
        self.target = target
        self._membership = membership
        self._members: dict[str, Member] = {}
        self._runs: dict[FleetRun, tuple[Callable[..., None], Callable[..., None]]] = {}
        self._lock = threading.RLock()
        self.errors: dict[str, IgsdkError] = {}
        membership.start(self._joined, self._left)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends runs that still go on, and the membership."""
        try:
            for run in list(self._runs):
                run.stop()
        finally:  # also where ctrl-C ends the waiting
            self._membership.close()

    @property
    def members(self) -> list[Member]:
        """Those that belong to it now, by name."""
        with self._lock:
            return [self._members[name] for name in sorted(self._members)]

    @property
    def where(self) -> Where | None:
        """Who is behind a container; None where nobody knows."""
        return self._membership.where

    def nodes(self) -> list[NodeState]:
        """Connects to each member, and says how it is."""
        return [
            NodeState(member.name, FAILED, member.labels, error=answer)
            if isinstance(answer, IgsdkError)
            else NodeState(member.name, RUNNING, member.labels, answer)
            for member, answer in self._ask(lambda runtime: runtime.version)
        ]

    def describe(self, image: str, params: Mapping[str, Any] | None = None) -> Gadget:
        """What a gadget takes and gives, as the first node that knows it says.

        Raises:
            IgsdkError: no node does.
        """
        answers = self._ask(lambda runtime: runtime.describe(image, params), first=True)
        return self._first(answers, "describes the gadget")

    def run(
        self,
        image: str,
        params: Params = None,
        *,
        timeout: float | None = None,
        log_level: str = "info",
        endless: bool = False,
    ) -> FleetRun:
        """Makes a run on all nodes, to be used as a context manager; see `RemoteRuntime.run`.

        Args:
            params: as there; what makes values of a description is asked for each node.
            endless: whether a run that ends by itself is a break, after which it is run again.
        """

        def begin(runtime: RemoteRuntime) -> GadgetRun:
            return runtime.run(image, params, timeout=timeout, log_level=log_level)

        return FleetRun(begin, self._subscribe, self._unsubscribe, endless)

    def create(
        self,
        image: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        tags: Sequence[str] = (),
    ) -> Instance:
        """Makes an instance of one name on every node; see `RemoteRuntime.create`.

        Returns:
            The first node's; ``nodes`` has the names of all where it was made, ``errors``
            of this what went wrong on others.
        """
        name = name or f"igsdk-{secrets.token_hex(4)}"
        answers = self._ask(lambda runtime: runtime.create(image, params, name=name, tags=tags))
        first = self._first(answers, "makes the instance")
        made = [member.name for member, one in answers if not isinstance(one, IgsdkError)]
        return replace(first, nodes=tuple(made))

    def instances(self) -> list[Instance]:
        """The instances of all nodes; ``nodes`` has the name of each one's.

        Raises:
            IgsdkError: no node lists its own.
        """
        answers = self._ask(lambda runtime: runtime.instances())
        self._first(answers, "lists its instances")
        return [
            replace(instance, nodes=(member.name,))
            for member, found in answers
            if not isinstance(found, IgsdkError)
            for instance in found
        ]

    def attach(self, instance: Instance | str) -> FleetRun:
        """Makes a run of the rows of an instance, on all nodes that have one of this name.

        Args:
            instance: one, or its name; an id is one node's only.
        """
        which = instance if isinstance(instance, str) else instance.name
        return FleetRun(lambda runtime: runtime.attach(which), self._subscribe, self._unsubscribe)

    def remove(self, instance: Instance | str) -> None:
        """Ends an instance on all nodes that have it.

        Raises:
            IgsdkError: none of them has, or could.
        """
        which = instance if isinstance(instance, str) else instance.name

        def gone(runtime: RemoteRuntime) -> bool:
            runtime.remove(which)
            return True

        self._first(self._ask(gone), "removes the instance")
        # Who never had it is not wrong.
        self.errors = {
            name: error for name, error in self.errors.items() if not isinstance(error, UsageError)
        }

    def _ask(
        self, question: Callable[[RemoteRuntime], Answer], *, first: bool = False
    ) -> list[tuple[Member, Answer | IgsdkError]]:
        """The answers of all nodes, or their errors; `first`: one that answers is enough."""

        def ask(member: Member) -> Answer:
            with member.connect() as runtime:
                return question(runtime)

        answers = ask_all(self.members, ask, first=first)
        self.errors = {
            member.name: answer for member, answer in answers if isinstance(answer, IgsdkError)
        }
        return answers

    def _first(self, answers: list[tuple[Member, Answer | IgsdkError]], does: str) -> Answer:
        for _, answer in answers:
            if not isinstance(answer, IgsdkError):
                return answer
        raise none_of(list(self.errors.items()), does)

    def _subscribe(
        self, run: FleetRun, joined: Callable[[Member], None], left: Callable[[str, str], None]
    ) -> None:
        with self._lock:
            self._runs[run] = (joined, left)
            for member in self.members:
                joined(member)

    def _unsubscribe(self, run: FleetRun) -> None:
        with self._lock:
            self._runs.pop(run, None)

    def _joined(self, member: Member) -> None:
        with self._lock:
            self._members[member.name] = member
            for joined, _ in self._runs.values():
                joined(member)

    def _left(self, name: str, why: str) -> None:
        with self._lock:
            self._members.pop(name, None)
            for _, left in self._runs.values():
                left(name, why)
