# SPDX-License-Identifier: Apache-2.0
"""Profiles into a Pyroscope, each allocation counted once."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from igsdk._errors import PushRefused, UsageError
from igsdk.profile.names import VALUES
from igsdk.profile.table import KEYS
from igsdk.sinks import routes
from igsdk.sinks.changes import Counted
from igsdk.sinks.http import Login, Sender
from igsdk.sinks.labels import check_labels, check_name, check_tenant
from igsdk.sinks.routes import Moment
from igsdk.sinks.series import BY, named, pieces, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from igsdk._errors import IgsdkError
    from igsdk.profile import Profile
    from igsdk.profile.shown import View
    from igsdk.profile.table import Table
    from igsdk.sinks.outcome import Outcome
    from igsdk.sinks.routes import Route
    from igsdk.sinks.series import Series

Piece = tuple["Series", bytes]

_AT_ONCE = 8
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0
_SHOWN_AFTER = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 3.0, 3.0)


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


class Pyroscope:
    """A server that profiles are pushed to; remembers what it was sent.

    Profiles of one run, pushed one after the other, arrive as what is in use at each of
    these moments, and as what was allocated between them.

    Args:
        url: ``http://HOST:4040`` or ``https://…``, with a path where a proxy has one.
        name: first part of the profile types: ``gpu_memory:inuse_space:bytes:space:bytes``.
        labels: for every series; they win over a profile's own.
        by: a profile's labels that series have, ``pid`` and ``start_ns`` among the choices;
            more labels are more series.
        tenant: for a server with several (``X-Scope-OrgID``).
        user, password: for a proxy before the server, or Grafana Cloud.
        token: instead of them, as ``Authorization: Bearer``.
        headers: others, as they are.
        timeout: seconds for one request.
        patience: seconds in which a push is tried again where it is sure not to have arrived.
        ca: PEM file with the certificates that are trusted, instead of the system's.
        view: which frames: see :meth:`Profile.shown`.
        lines: names of frames have file and line, so that each line is a box of its own.
        verify: ask the server whether it shows what it took, where it lets us.

    Raises:
        UsageError: an address, name, label or header that can't be.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "gpu_memory",
        labels: Mapping[str, str] | None = None,
        by: Sequence[str] = BY,
        tenant: str | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        patience: float = 0.0,
        ca: str | None = None,
        view: View = "default",
        lines: bool = False,
        verify: bool = False,
    ) -> None:
        if token is not None and user is not None:
            raise UsageError("A token and a user exclude one another.", "Give one of the two.")
        if timeout <= 0 or patience < 0:
            raise UsageError("A time limit is no positive number.", "Give seconds.")
        unknown = [label for label in by if label not in KEYS]
        if unknown:
            raise UsageError(f"A profile has no {unknown[0]!r}.", f"Use {', '.join(KEYS)}.")
        login = Login(user, password, token, check_tenant(tenant), dict(headers or {}))
        login.fields()
        self._sender = Sender(url, login, timeout, ca)
        self._name = check_name(name)
        self._labels = check_labels(labels or {})
        self._by = tuple(by)
        self._patience = patience
        self._view: View = view
        self._lines = lines
        self._verify = verify
        self._route: Route | None = None
        self._counted = Counted()

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return self._sender.host

    def set_login(self, login: Login) -> None:
        """Another password or token from now on."""
        self._sender.login = login

    def count(self, profile: Profile) -> None:
        """Takes what a profile says was allocated for pushed already."""
        self._counted.settle(self._counted.due(self._prepared(profile, ended=True)))

    def push(self, profile: Profile, *, ended: bool = True, at: float | None = None) -> Pushed:
        """Sends what is in use, and what was allocated since the last push.

        Args:
            ended: whether processes that have ended are in use with what they held then.
            at: the profile's time, in seconds of the wall clock; else the end of its
                interval. Servers take an hour into the past and ten minutes into the future.

        Raises:
            UsageError: series with more labels than servers take.
            ExtensionMissing: urllib3 is not installed.
        """
        moment = _moment(profile, at)
        rows = self._counted.due(self._prepared(profile, ended))
        parts = [
            piece
            for series in split(rows, self._name, self._labels, self._by)
            for piece in self._pieces(series, moment)
        ]
        delivery = _Delivery(self, moment, time.monotonic() + self._patience)
        results = delivery.deliver(parts)
        pushed = _summary(results, self._route)
        for series, outcome in results:
            if outcome.what in ("stored", "unknown"):
                self._counted.settle(series.rows)
        stored = [series for series, outcome in results if outcome.what == "stored"]
        return self._verified(pushed, stored, moment) if self._verify and stored else pushed

    def _prepared(self, profile: Profile, ended: bool) -> Table:
        table = named(profile.shown(self._view)._table, self._lines)
        return table if ended else _of_the_living(table, profile)

    def _pieces(self, series: Series, moment: Moment) -> Iterable[Piece]:
        """Only the push service has limits; the old server would average the parts."""
        limited = self._route != "ingest"
        return pieces(series, moment.end_ns, moment.duration_ns, limited)

    def send(self, piece: Piece, moment: Moment) -> Outcome:
        """One request, by the way that the server is known or found to have."""
        series, content = piece
        if self._route != "ingest":
            outcome = routes.push(self._sender, series, content)
            if outcome is not None:
                self._route = "push" if outcome.what == "stored" else self._route
                return outcome
        outcome = routes.ingest(self._sender, series, content, moment)
        if outcome.what == "stored":
            self._route = "ingest"
        return outcome

    def _verified(self, pushed: Pushed, stored: list[Series], moment: Moment) -> Pushed:
        """Asks for the largest series, again and again for ten seconds."""
        largest = max(stored, key=lambda s: (s.total("inuse_space"), s.total("alloc_space")))
        if not (largest.total("inuse_space") or largest.total("alloc_space")):
            return pushed
        for wait in _SHOWN_AFTER:
            time.sleep(wait)
            total = routes.shown(self._sender, largest, moment, self._route or "push")
            if total is None:
                return pushed
            if total > 0:
                return replace(pushed, shown=True)
        error = PushRefused(
            f"{self.host} took the profile and shows nothing of it.",
            "Look into the server's log: it may drop profiles, or be no Pyroscope at all.",
        )
        return replace(pushed, shown=False, error=pushed.error or error)


class _Delivery:
    """All requests of one push.

    The first one goes alone: where it fails for a reason that holds for all, so that
    nothing more is at stake than that one.
    """

    def __init__(self, server: Pyroscope, moment: Moment, until: float) -> None:
        self._server = server
        self._moment = moment
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
            outcome = self._server.send(piece, self._moment)
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


def _summary(results: list[tuple[Series, Outcome]], route: Route | None) -> Pushed:
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


def _moment(profile: Profile, at: float | None) -> Moment:
    metadata = profile.metadata
    if at is not None:
        return Moment(round(at * 10**9), metadata.duration_ns)
    end = metadata.time_ns + metadata.duration_ns if metadata.time_ns else time.time_ns()
    return Moment(end, metadata.duration_ns)


def _of_the_living(table: Table, profile: Profile) -> Table:
    """The rows without what ended processes held: nobody holds it now."""
    over = {
        (row.pid, row.start_ns, row.node)
        for row in profile.metadata.processes
        if row.state == "ended"
    }
    columns = (table.labels["pid"].tolist(), table.labels["start_ns"].tolist(), table.text("node"))
    gone = np.array([key in over for key in zip(*columns, strict=True)], dtype=bool)
    values = table.values.copy()
    for unit in ("space", "objects"):
        values[gone, VALUES.index(f"inuse_{unit}")] = 0
    return replace(table, values=values)


def push_once(
    profile: Profile, url: str, *, since: Profile | None, at: float | None, **settings: Any
) -> Pushed:
    """See :meth:`Profile.push`."""
    server = Pyroscope(url, **settings)
    if since is not None:
        server.count(since)
    pushed = server.push(profile, at=at)
    if pushed.error is not None:
        raise pushed.error
    return pushed
