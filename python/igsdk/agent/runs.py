# SPDX-License-Identifier: Apache-2.0
"""Runs: the stream of packets of one client, from its description to the last packet."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from igsdk._errors import RunRefused
from igsdk._proto import gadget_pb2 as pb
from igsdk.agent import packets
from igsdk.agent.feed import Feed
from igsdk.agent.layout import SOURCES
from igsdk.agent.wanted import parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.agent.feed import Packet
    from igsdk.agent.hub import Hub, Subscriber
    from igsdk.agent.wanted import Wanted

MOST_RUNS = 32


class Runs:
    """All runs of an agent; as many as it has threads for.

    Args:
        hub: where rows come from.
        most: how many may go on at once.
    """

    def __init__(self, hub: Hub, most: int = MOST_RUNS) -> None:
        self._hub = hub
        self._most = most
        self._lock = threading.Condition()
        self._open: set[Subscriber] = set()
        self._closed = False

    @contextmanager
    def admitted(self, wanted: Wanted, after: Subscriber | None = None) -> Iterator[Subscriber]:
        """A place for one run, which begins with the events that another one keeps.

        Raises:
            RunRefused: there is none, or the agent is about to end.
        """
        with self._lock:
            if self._closed:
                raise RunRefused("igsdk agent is about to end.", "Start again when it is back")
            if len(self._open) >= self._most:
                raise RunRefused(
                    f"igsdk agent serves {self._most} runs already, which is its limit.",
                    "End one of them, or start the agent with a higher --max-runs",
                )
            subscriber = self._hub.subscribe(wanted, after=after)
            self._open.add(subscriber)
        try:
            yield subscriber
        finally:
            self._hub.unsubscribe(subscriber)
            with self._lock:
                self._open.discard(subscriber)
                self._lock.notify_all()

    def close(self, timeout: float) -> None:
        """Ends all runs, and waits until they have sent their last packets."""
        with self._lock:
            self._closed = True
            for subscriber in self._open:
                subscriber.stop()
            self._lock.wait_for(lambda: not self._open, timeout)

    def stream(
        self,
        wanted: Wanted,
        subscriber: Subscriber,
        info: pb.GadgetInfo,
        deadline: float | None = None,
    ) -> Iterator[bytes]:
        """The events of the service: the description, everything, then what changes.

        Args:
            deadline: when to end by itself, monotonic clock.
        """
        yield packets.description(info)
        sent = self._packets(wanted, subscriber, deadline)
        for seq, (source, payload) in enumerate(sent, 1):
            yield packets.packet(seq + subscriber.skipped, source, payload)

    def _packets(
        self, wanted: Wanted, subscriber: Subscriber, deadline: float | None
    ) -> Iterator[Packet]:
        feed = Feed(self._hub, wanted)
        ticked = time.monotonic()
        yield from feed.tick(self._hub.frame(ticked))
        while not subscriber.stopped:
            due = _next_tick(ticked, wanted.interval)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                break
            if now >= due:
                # as of the last moment that all clients have in common: one frame is for all
                common = _next_tick(now - wanted.interval, wanted.interval)
                yield from feed.tick(self._hub.frame(common), now - ticked)
                ticked = now
                continue
            until = due if deadline is None else min(due, deadline)
            yield from feed.events(subscriber.take(until - now))
        self._hub.settle()
        yield from feed.events(subscriber.take(0))
        yield from feed.tick(self._hub.frame(time.monotonic()))


def _next_tick(after: float, interval: float) -> float:
    """The first moment after another at which all clients with this interval have a tick."""
    return (after // interval + 1) * interval


def described(
    image: str, wanted: Wanted, instance: pb.GadgetInstance | None = None
) -> pb.GadgetInfo:
    """What the gadget takes and gives; with id and name where it is an instance."""
    info = pb.GadgetInfo(imageName=image, params=parameters())
    if instance:
        info.id, info.name = instance.id, instance.name
    info.dataSources.extend(source.describe(wanted.interval) for source in SOURCES)
    return info
