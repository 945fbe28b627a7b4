# SPDX-License-Identifier: Apache-2.0
"""The requests of one push: some at once, again where that is safe, and what became of them."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._errors import IgsdkError
    from igsdk.sinks.outcome import Outcome
    from igsdk.sinks.routes import Route
    from igsdk.sinks.series import Series

Piece = tuple["Series", bytes]

_AT_ONCE = 8
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of one push.

    Attributes:
        route: ``push`` or ``ingest``, the old way; empty where nothing was stored.
        stored: series that the server took. ``refused``: those that it did not, or that
            were not tried after it had refused others for a reason that holds for all.
        unknown: series that may be stored or not; they are not sent again.
        unknown_bytes: allocations in them, which are missing if they are not.
        bytes: in-use bytes of what was stored.
        error: the first reason why something was not stored.
        wait: seconds that the server asked us to wait.
        shown: whether the server shows what it took; None: not asked, or it does not say.
    """

    route: Route | Literal[""] = ""
    stored: int = 0
    refused: int = 0
    unknown: int = 0
    unknown_bytes: int = 0
    bytes: int = 0
    error: IgsdkError | None = None
    wait: float | None = None
    permanent: bool = False
    shown: bool | None = None


class Delivery:
    """All requests of one push; ``until`` (monotonic) is when patience ends.

    The first one goes alone: where it fails for a reason that holds for all, so that
    nothing more is at stake than that one.

    Attributes:
        sent: what is stored, or may be.
    """

    def __init__(self, send: Callable[[Piece], Outcome], until: float) -> None:
        self.sent: list[Series] = []
        self._send = send
        self._until = until
        self._stop: Outcome | None = None
        self._lock = threading.Lock()

    def deliver(self, parts: list[Piece]) -> list[tuple[Series, Outcome]]:
        """What became of each part."""
        if not parts:
            return []
        results = [self._one(parts[0])]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            results += threads.map(self._one, parts[1:])
        return [(piece[0], result) for piece, result in zip(parts, results, strict=True)]

    def _one(self, piece: Piece) -> Outcome:
        wait = _FIRST_WAIT
        while True:
            stop = self._stop
            if stop is not None:  # not tried: so it is sure not to be stored
                return replace(stop, what="refused" if stop.what == "refused" else "later")
            outcome = self._try(piece)
            if outcome.what == "later":
                pause = max(wait * random.uniform(0.5, 1.0), outcome.wait or 0.0)  # noqa: S311
                if time.monotonic() + pause < self._until:
                    time.sleep(pause)
                    wait = min(2 * wait, _LONGEST_WAIT)
                    continue
            if outcome.everywhere:
                with self._lock:
                    self._stop = self._stop or outcome
            return outcome

    def _try(self, piece: Piece) -> Outcome:
        what = "unknown"  # whatever ends it
        try:
            outcome = self._send(piece)
            what = outcome.what
        finally:
            if what in ("stored", "unknown"):
                self.sent.append(piece[0])
        return outcome


def summary(results: list[tuple[Series, Outcome]], route: Route | None) -> Pushed:
    failed = [outcome for _, outcome in results if outcome.what != "stored"]
    # A reason that needs a person comes before one that time heals.
    failed.sort(key=lambda outcome: ("refused", "unknown", "later").index(outcome.what))
    unknown = [series for series, outcome in results if outcome.what == "unknown"]
    stored = [series for series, outcome in results if outcome.what == "stored"]
    return Pushed(
        route=(route or "") if stored else "",
        stored=len(stored),
        refused=sum(outcome.what in ("refused", "later") for outcome in failed),
        unknown=len(unknown),
        unknown_bytes=sum(series.total("alloc_space") for series in unknown),
        bytes=sum(series.total("inuse_space") for series in stored),
        error=failed[0].error if failed else None,
        wait=max((outcome.wait or 0.0 for outcome in failed), default=0.0) or None,
        permanent=bool(failed) and failed[0].what == "refused",
    )
