# SPDX-License-Identifier: Apache-2.0
"""A gadget that runs on all members of a fleet at once."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from igsdk._errors import UsageError
from igsdk.client.at_once import none_of
from igsdk.client.feed import ENDED, LEFT, RUNNING, Feed
from igsdk.client.reading import LEAVE_TIMEOUT, STOP_TIMEOUT, Reading, from_now, left_until
from igsdk.client.shared_inbox import SharedInbox, by_source
from igsdk.client.stream import Journal, no_losses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from igsdk._errors import IgsdkError
    from igsdk.client.columns import Columns
    from igsdk.client.feed import Begin, NodeState
    from igsdk.client.gadget import Gadget
    from igsdk.client.member import Member
    from igsdk.client.rows import Row
    from igsdk.client.schema import DataSource
    from igsdk.client.shared_inbox import Share
    from igsdk.client.stream import LogLine, Packet

    Joined = Callable[[Member], None]
    Left = Callable[[str, str], None]

_CUT = 5.0  # seconds that a stream's end may take after it was cut
_PATIENCE = 10.0  # seconds for the other nodes, when the first one runs


class FleetRun(Reading):
    """One gadget on many nodes, to be used as a context manager; as `GadgetRun`.

    Nodes that fail are reported in `nodes` and stop no other. A node whose stream breaks
    is tried again, and what it missed stands in its gaps and in `losses`. Nodes that join
    the fleet join the run; those that leave are let go.

    Args:
        begin: makes the run of one node.
        subscribe, unsubscribe: to the fleet's members, the present ones at once.
        endless: whether a run that ends by itself is started anew.
    """

    def __init__(
        self,
        begin: Begin,
        subscribe: Callable[[FleetRun, Joined, Left], None],
        unsubscribe: Callable[[FleetRun], None],
        endless: bool = False,
    ) -> None:
        super().__init__()
        self._begin = begin
        self._subscribe, self._unsubscribe = subscribe, unsubscribe
        self._endless = endless
        self.inbox = SharedInbox()
        self.journal = Journal()
        self._feeds: dict[str, Feed] = {}
        self._gone: list[Feed] = []  # replaced by others of the same name
        self._lost: Counter[str] = Counter()  # by those that are not even there any more
        self._changed = threading.Condition()
        self._gadget: Gadget | None = None
        self._entered = self._stopped = False
        self._pending: deque[tuple[Share, list[Packet]]] = deque()

    def __enter__(self) -> FleetRun:
        if self._entered:
            raise UsageError("A run starts only once.", "Make another one.")
        self._entered = True
        try:
            self._subscribe(self, self._join, self._leave)
            self._wait_for_start()
        except BaseException:
            self.stop(LEAVE_TIMEOUT)
            raise
        return self

    @property
    def error(self) -> IgsdkError | None:
        """Why no node runs any more; None while one does, or where one ended well."""
        feeds = self._all()
        if any(feed.state == RUNNING or feed.ended_well for feed in feeds):
            return None
        return next((feed.error for feed in feeds if feed.error is not None), None)

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more, and all that came was taken."""
        return self.inbox.is_ended() and not self._pending

    @property
    def logs(self) -> list[LogLine]:
        """What the daemons logged for this run: the latest 1,000 lines, each with its node."""
        return self.journal.lines()

    def nodes(self) -> list[NodeState]:
        """How each node is, those that left included, by name."""
        with self._changed:
            feeds = dict(self._feeds)
        return [feeds[name].node() for name in sorted(feeds)]

    def losses(self) -> dict[str, int]:
        """As `GadgetRun.losses`, of all nodes together; ``gaps`` are times without rows.

        ``gap_seconds`` has how long they were; `nodes` has them one by one.
        """
        lost = Counter(no_losses())
        with self._changed:
            lost.update(self._lost)
        for feed in self._all():
            lost.update(feed.losses())
        return dict(lost)

    def batches(self, timeout: float | None = None) -> Iterator[Columns]:
        """What waits of one node and one data source as columns, as they come.

        ``columns.node`` says whose they are. Ends and raises as `rows`.
        """
        while (waiting := self._next(timeout)) is not None:
            share, packets = waiting
            yield share.columns(packets[0].source, [packet.payload for packet in packets])
        self._complain()

    def collect(self, seconds: float | None = None) -> dict[str, Columns]:
        """All that comes in so many seconds, or until the run ends; as `GadgetRun.collect`.

        The nodes' rows stand one below the other, with a text column ``node`` where the
        gadget has none of that name.
        """
        from igsdk.client.joined import join

        until = from_now(seconds)
        kept: dict[str, dict[Share, tuple[DataSource, list[bytes]]]] = {
            name: {} for name in self.gadget.sources
        }
        while (left := left_until(until)) != 0 and (waiting := self._next(left)) is not None:
            share, packets = waiting
            source = packets[0].source
            of_source = kept.setdefault(source.name, {})
            payloads = of_source.setdefault(share, (source, []))[1]
            payloads += [packet.payload for packet in packets]
        if not any(kept.values()):
            self._complain()
        sources = self.gadget.sources
        return {
            name: join(sources.get(name), [share.columns(*sent) for share, sent in parts.items()])
            for name, parts in kept.items()
        }

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ends the gadget on all nodes and waits for them; what came stays to be taken.

        Args:
            timeout: how many seconds to wait; then streams are cut.
        """
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe(self)
        until = time.monotonic() + timeout
        feeds = self._all()
        for feed in feeds:
            feed.stop(timeout)
        try:
            for feed in feeds:
                # Who is only connecting has nothing to tell; its thread ends by itself.
                if feed.run_now is not None:
                    feed.join(max(0.0, until + _CUT - time.monotonic()))
        finally:  # also where ctrl-C ends the waiting: who reads must see an end
            self.inbox.close()

    def settled(self, feed: Feed) -> None:
        """Called by a feed at each change of its state."""
        with self._changed:
            if feed.state == RUNNING and self._gadget is None and feed.run_now is not None:
                self._gadget = feed.run_now.gadget
            feeds = list(self._feeds.values())
            # A node that left may come again, as a pod's successor; unless runs end by themselves.
            states = {one.state for one in feeds}
            over = all(one.is_over for one in feeds) and (ENDED in states or LEFT not in states)
            self._changed.notify_all()
        if over:
            self.inbox.close()

    def _join(self, member: Member) -> None:
        with self._changed:
            if self._stopped:
                return
            before = self._feeds.get(member.name)
            if before is not None:
                before.leave("another one took its place")
                self._gone.append(before)
            self._forget_old()
            feed = Feed(member, self._begin, self, self._endless, before)
            self._feeds[member.name] = feed
        feed.start()

    def _forget_old(self) -> None:
        """Of members that were replaced long ago only the losses stay."""
        for feed in [one for one in self._gone if one.may_be_forgotten()]:
            self._lost.update(feed.losses())
            self._gone.remove(feed)

    def _leave(self, name: str, why: str) -> None:
        feed = self._feeds.get(name)
        if feed is not None:
            feed.leave(why)

    def _all(self) -> list[Feed]:
        with self._changed:
            return [*self._gone, *self._feeds.values()]

    def _wait_for_start(self) -> None:
        """Until each node has run or failed; not long for the last ones, once one runs."""
        patience: float | None = None
        with self._changed:
            while not all(feed.was_tried for feed in self._feeds.values()):
                self._changed.wait(None if patience is None else patience - time.monotonic())
                if patience is None and self._gadget is not None:
                    patience = time.monotonic() + _PATIENCE
                if patience is not None and time.monotonic() >= patience:
                    break
            feeds = list(self._feeds.values())
        if self._gadget is None:
            errors = [(one.member.name, one.error) for one in feeds]
            raise none_of([(name, error) for name, error in errors if error], "runs the gadget")

    def _next(self, timeout: float | None) -> tuple[Share, list[Packet]] | None:
        """What waits of one node and one data source; None at the end or after `timeout`."""
        if not self._pending:
            taken = self.inbox.take(timeout)
            if taken is None:
                return None
            share, packets = taken
            self._pending.extend((share, same) for same in by_source(packets))
        return self._pending.popleft()

    def _described(self) -> Gadget | None:
        return self._gadget

    def _more_rows(self, timeout: float | None) -> Iterator[Row] | None:
        taken = self._pending.popleft() if self._pending else self.inbox.take(timeout)
        return None if taken is None else _rows_of(*taken)

    def _complain(self) -> None:
        if self.ended and not self._stopped and self.error is not None:
            raise self.error


def _rows_of(share: Share, packets: list[Packet]) -> Iterator[Row]:
    for packet in packets:
        for row in share.run.read_rows(packet):
            row.node = share.name
            yield row
