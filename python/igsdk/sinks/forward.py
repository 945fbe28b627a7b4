# SPDX-License-Identifier: Apache-2.0
"""Profiles of a run into a Pyroscope, one each interval, through outages.

Nothing waits in a queue: the run keeps its totals, so a push after an outage has all that was
allocated meanwhile. What such a time costs is the states in between, and it is said.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._units import format_bytes, format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._errors import IgsdkError
    from igsdk.profile import Profile
    from igsdk.sinks.delivery import Pushed
    from igsdk.sinks.pyroscope import Pyroscope

_LONGEST_WAIT = 300.0


@dataclass(slots=True)
class Tally:
    """What became of all pushes.

    Attributes:
        pushed: how often; ``series`` in all. ``skipped``: states that were not sent.
        unknown_bytes: allocations of which nobody knows whether they arrived.
    """

    pushed: int = 0
    series: int = 0
    skipped: int = 0
    unknown_bytes: int = 0


class Forwarder:
    """Pushes when it is asked to, and says what changes.

    Args:
        take: the run's profile at this moment.
        interval: seconds from one push to the next.
        say: told in sentences when the server fails, refuses or is back.
    """

    def __init__(
        self,
        take: Callable[[], Profile],
        server: Pyroscope,
        interval: float,
        say: Callable[[str], None],
        verify: bool = True,
    ) -> None:
        self.tally = Tally()
        #: why the last push was not whole; None: it was
        self.error: IgsdkError | None = None
        self._take = take
        self._server = server
        self._interval = interval
        self._say = say
        self._verify = verify
        self._next = time.monotonic() + interval
        self._failing_since = 0.0

    def left(self) -> float:
        """Seconds until the next push."""
        return max(0.0, self._next - time.monotonic())

    def push(self) -> None:
        """One push, now.

        Raises:
            PushRefused, AnswerInvalid: the server refused the very first one, so that
                going on is of no use.
        """
        now = time.monotonic()
        profile, at = self._take(), time.time()  # by our clock: nodes may have their own
        pushed = self._server.push(profile, ended=False, at=at, verify=self._verify)
        self.tally.unknown_bytes += pushed.unknown_bytes
        self.tally.series += pushed.stored
        self.tally.pushed += pushed.stored > 0
        self._verify &= pushed.shown is False or pushed.stored == 0
        wait = max(self._interval, min(pushed.wait or 0.0, _LONGEST_WAIT))
        # Late ones are left out, so that a slow server is not asked without a pause.
        self._next = max(self._next + wait, time.monotonic() + wait / 2)
        self._judge(pushed, now)

    def _judge(self, pushed: Pushed, now: float) -> None:
        """Says what is new; a failure that goes on is said once."""
        before, self.error = self.error, pushed.error
        if pushed.error is None:
            if before is not None:
                self._back(now)
            return
        if pushed.permanent and self.tally.pushed == 0:
            raise pushed.error
        self.tally.skipped += pushed.stored == 0
        if before is None:
            self._failing_since = now
        if before is None or type(before) is not type(pushed.error):
            kept = "" if pushed.shown is False else "; what is allocated meanwhile is kept"
            self._say(f"{pushed.error} Goes on trying{kept}.")

    def _back(self, now: float) -> None:
        spent = format_duration(round((now - self._failing_since) * 1e9))
        what = "takes profiles again" if self.tally.skipped else "has all of it now"
        said = [f"{self._server.host} {what}, after {spent}"]
        if self.tally.skipped:
            said.append(f"{plural(self.tally.skipped, 'state')} in all could not be sent")
        self._say("; ".join(said) + "; allocations are complete" * (not self.tally.unknown_bytes))

    def summary(self) -> str:
        """What was pushed, and what is missing, in a sentence."""
        tally = self.tally
        said = [f"pushed {plural(tally.pushed, 'profile')} in {tally.series} series"]
        if tally.skipped:
            said.append(f"{plural(tally.skipped, 'state')} could not be sent")
        if tally.unknown_bytes:
            size = format_bytes(tally.unknown_bytes)
            said.append(f"allocations of {size} may be missing, as answers to them were lost")
        return "; ".join(said) + "."
