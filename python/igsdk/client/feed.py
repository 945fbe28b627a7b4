# SPDX-License-Identifier: Apache-2.0
"""One member's part in a fleet's run: connect, run, and do it again after a break."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from igsdk._errors import AnswerInvalid, IgsdkError, TargetUnavailable
from igsdk.client.reading import STOP_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from igsdk.client.member import Member
    from igsdk.client.remote import RemoteRuntime
    from igsdk.client.run import GadgetRun
    from igsdk.client.shared_inbox import Share, SharedInbox
    from igsdk.client.stream import Journal

    Begin = Callable[[RemoteRuntime], GadgetRun]
    _Moment = tuple[float, float]  # wall and monotonic, in seconds

CONNECTING, RUNNING, BROKEN = "connecting", "running", "broken"
FAILED, LEFT, ENDED = "failed", "left", "ended"
_OVER = (FAILED, LEFT, ENDED)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_SHORT_RUN = 5.0  # who breaks sooner than that is not tried again at once
_LAST_WORDS = 2.0  # seconds for the rest of a member that leaves
_KEPT_GAPS = 100


@dataclass(frozen=True)
class Gap:
    """A time in which a node's rows did not come.

    Attributes:
        from_time: when it began, seconds since 1970.
        seconds: how long it was, until now where it goes on.
    """

    from_time: float
    seconds: float


@dataclass(frozen=True)
class NodeState:
    """How one member of a fleet is.

    Attributes:
        name: of the member.
        state: connecting, running, broken (tried again and again), failed, left, ended.
        labels: of the member.
        version: of its daemon, empty where it never answered.
        error: what is wrong, or was last; None on a good day.
        gaps: when its rows did not come; the latest 100.
    """

    name: str
    state: str
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    error: IgsdkError | None = None
    gaps: tuple[Gap, ...] = ()


class Owner(Protocol):
    """Whose feed it is.

    Attributes:
        inbox, journal: where packets and log lines go.
    """

    inbox: SharedInbox
    journal: Journal

    def settled(self, feed: Feed) -> None:
        """It runs, or failed, or is over; called at each change."""


class Feed(threading.Thread):
    """The thread that looks after one member.

    What cannot be reached is tried again until the run ends, also if it never answered;
    what was refused at the first try is not.

    Args:
        begin: makes the run on a connection.
        endless: whether a run that ends by itself is a break too.
        before: who looked after this member's predecessor of the same name, such as the
            pod that was there before; the time without either is a gap.
    """

    def __init__(
        self,
        member: Member,
        begin: Begin,
        owner: Owner,
        endless: bool,
        before: Feed | None = None,
    ) -> None:
        super().__init__(name=f"igsdk {member.name}", daemon=True)
        self.member = member
        self.state = CONNECTING
        self.error: IgsdkError | None = None
        self.run_now: GadgetRun | None = None
        self.version = ""
        self._begin, self._owner, self._endless = begin, owner, endless
        self._followed: GadgetRun | None = None
        self._wake = threading.Event()
        self._leaving = ""  # why
        self._stopping = False
        self._until = 0.0  # when a stop has to be done
        self._ran = False
        self._started_at = 0.0  # this connection's run
        self._over_at: _Moment | None = None
        self._broken_at: _Moment | None = before.left_at() if before else None
        self._follows = self._broken_at is not None  # one that had rows
        self._gaps: list[Gap] = before.gaps() if before else []
        self._gap_count, self._gap_seconds = 0, 0.0
        self._lost: Counter[str] = Counter()  # by earlier runs
        self._shares: list[Share] = []

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def ended_well(self) -> bool:
        return self.state in (ENDED, LEFT) and self._ran and self.error is None

    @property
    def was_tried(self) -> bool:
        """Whether the first try has an outcome."""
        return self.state != CONNECTING

    def node(self) -> NodeState:
        return NodeState(
            self.member.name,
            self.state,
            self.member.labels,
            self.version,
            self.error,
            tuple(self.gaps()),
        )

    def gaps(self) -> list[Gap]:
        """Those that are over, and the one that goes on."""
        return [*self._gaps, *self._open_gap()]

    def left_at(self) -> _Moment | None:
        """Since when there are no rows of it any more; None where there never were any."""
        if not (self._ran or self._follows):
            return None
        return self._over_at or _now()

    def may_be_forgotten(self) -> bool:
        """Whether it is over, and all of its packets were read."""
        return not self.is_alive() and all(share.ended for share in list(self._shares))

    def losses(self) -> dict[str, int]:
        """By cause; gaps and their whole seconds among them."""
        lost = Counter(self._lost)
        for share in list(self._shares):
            lost.update(share.run.losses())
        open_gap = self._open_gap()
        lost["gaps"] += self._gap_count + len(open_gap)
        lost["gap_seconds"] += round(self._gap_seconds + sum(gap.seconds for gap in open_gap))
        return dict(lost)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Asks for the end, and for the stream's cut after so many seconds; does not wait."""
        self._until = time.monotonic() + timeout
        self._stopping = True
        self._wake.set()

    def leave(self, why: str) -> None:
        """The member is gone, or goes."""
        self._leaving = why or "it left"
        self._wake.set()

    def run(self) -> None:
        """The thread's work."""
        pause = _FIRST_PAUSE
        while not self._is_wanted_no_more():
            ran = self._once()
            if self.is_over:
                break
            pause = _FIRST_PAUSE if ran > _SHORT_RUN else min(2 * pause, _LONGEST_PAUSE)
            self._wake.clear()  # the end of the stream had set it
            if not self._is_wanted_no_more():
                self.run_now = None
                self._wake.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        self._close_gap()  # what a successor misses begins where this ends
        self._over_at = _now()
        if not self.is_over:
            self._be(LEFT if self._leaving else ENDED)

    def _is_wanted_no_more(self) -> bool:
        return self._stopping or bool(self._leaving)

    def _once(self) -> float:
        """One connection and its run, to its end; returns how many seconds it ran."""
        self._wake.clear()
        self._started_at = 0.0
        try:
            with self.member.connect() as runtime:
                self.version = runtime.version
                run = self._begin(runtime)
                if not self._is_wanted_no_more():
                    self._follow(run)
        except IgsdkError as error:
            self._fail(error)
        except Exception as error:  # whatever it is, the other nodes go on
            said = f"What {self.member.name} does is beyond igsdk: {error!r}."
            self._fail(AnswerInvalid(said, "Report it."))
        return time.monotonic() - self._started_at if self._started_at else 0.0

    def _follow(self, run: GadgetRun) -> None:
        self._followed = run
        share = self._owner.inbox.share(self.member.name, run, lambda: self._closed(run))
        run.deliver_to(share, self._owner.journal, self.member.name)
        self._remember(share)
        try:
            with run:
                self.run_now, self.error, self._ran = run, None, True
                self._started_at = time.monotonic()
                self._close_gap()
                self._be(RUNNING)
                self._wake.wait()
                run.stop(self._time_left())
        finally:
            self._owner.inbox.give_back()
        if self._is_wanted_no_more():
            return
        if run.error is None and not self._endless:
            self._be(ENDED)
        else:
            self._fail(run.error or _ended(self.member.name))

    def _closed(self, run: GadgetRun) -> None:
        """A stream is over; of one that was cut long ago nobody wants to know."""
        if run is self._followed:
            self._wake.set()

    def _time_left(self) -> float:
        if self._stopping:
            return max(0.0, self._until - time.monotonic())
        return _LAST_WORDS if self._leaving else STOP_TIMEOUT

    def _remember(self, share: Share) -> None:
        """Of runs whose packets were all read only the losses are kept."""
        for old in [one for one in self._shares if one.ended]:
            self._lost.update(old.run.losses())
            self._shares.remove(old)
        self._shares.append(share)

    def _fail(self, error: IgsdkError) -> None:
        self.error = error
        again = self._ran or isinstance(error, TargetUnavailable)
        if self._ran and self._broken_at is None:
            self._broken_at = _now()
        if not self._is_wanted_no_more():
            self._be(BROKEN if again else FAILED)

    def _be(self, state: str) -> None:
        self.state = state
        self._owner.settled(self)

    def _open_gap(self) -> tuple[Gap, ...]:
        began = self._broken_at
        return () if began is None else (Gap(began[0], time.monotonic() - began[1]),)

    def _close_gap(self) -> None:
        for gap in self._open_gap():
            self._gaps = [*self._gaps[1 - _KEPT_GAPS :], gap]
            self._gap_count += 1
            self._gap_seconds += gap.seconds
        self._broken_at = None


def _now() -> _Moment:
    return time.time(), time.monotonic()


def _ended(name: str) -> TargetUnavailable:
    return TargetUnavailable(
        f"{name} ended the run.", "Nothing: it is started again as soon as the daemon is there."
    )
