# SPDX-License-Identifier: Apache-2.0
"""Events of a run, each once, and what was in use when an allocation failed."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from igsdk._remote.books import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._events import Event

_MOST_WAITING = 1 << 17  # events that nobody has asked for yet
_MOST_SEEN = 1 << 14  # events that are known again when they come again
_MOST_MOMENTS = 64
_MOST_HELD = 64 << 20  # bytes of what was in use at failures
_KEPT_FAILURES = 100

EventKey = tuple[int, int, int, int]
Came = tuple["Event", int]


@dataclass
class Moment:
    """What was in use after one batch, by (boot, epoch)."""

    held: dict[tuple[int, int], Held]

    def at(self, boot: int, epoch: int) -> Held:
        """Nothing was in use in a run of the gadget that began later."""
        return self.held.get((boot, epoch)) or Held.nothing()

    @property
    def size(self) -> int:
        """In bytes of ours."""
        return sum(one.size for one in self.held.values())


@dataclass
class Occurrences:
    """Events as they come, each with the id of its stack: the stack may come after it.

    Attributes:
        wants: "all", "failures" or "none" of them wait to be taken.
        now: makes the moment that a failure is kept with.
        waiting: events to be given, oldest first.
        unread: events that found no room there.
        failures: the latest failures.
    """

    wants: str
    now: Callable[[], Moment]
    waiting: deque[Came] = field(default_factory=deque)
    unread: int = 0
    failures: deque[Came] = field(default_factory=lambda: deque(maxlen=_KEPT_FAILURES))
    _latest: Moment | None = None
    _moments: OrderedDict[EventKey, Moment] = field(default_factory=OrderedDict)
    _seen: OrderedDict[tuple[int, ...], None] = field(default_factory=OrderedDict)

    def moved(self) -> None:
        """What is in use has changed since the last failure."""
        self._latest = None

    def take(self, came: Came) -> None:
        """Keeps an event, unless it came before: after a break a daemon may repeat some."""
        event = came[0]
        if not self._is_new(event):
            return
        if event.type == "failure":
            self.failures.append(came)
            self._remember(event)
        if self.wants == "none" or (self.wants == "failures" and event.type != "failure"):
            return
        if len(self.waiting) >= _MOST_WAITING:
            self.unread += 1
            return
        self.waiting.append(came)

    def moment(self, event: Event) -> Moment | None:
        """What was in use at the last batch before a failure, None where it was not kept."""
        return self._moments.get(_key(event))

    def _is_new(self, event: Event) -> bool:
        key = (*_key(event), event.address)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return True

    def _remember(self, event: Event) -> None:
        """Between two batches it is the same for all failures."""
        if len(self._moments) >= _MOST_MOMENTS:
            return
        latest = self._latest or self.now()
        kept = {id(one): one.size for one in (*self._moments.values(), latest)}
        if sum(kept.values()) > _MOST_HELD:
            return
        self._latest = self._moments[_key(event)] = latest


def _key(event: Event) -> EventKey:
    return (event.boot, event.time_ns, event.process.instance, event.tid)
