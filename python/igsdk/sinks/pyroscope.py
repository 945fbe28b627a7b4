# SPDX-License-Identifier: Apache-2.0
"""Profiles into a Pyroscope, each allocation counted once."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from igsdk._errors import PushRefused, UsageError
from igsdk.profile.names import VALUES
from igsdk.profile.table import KEYS
from igsdk.sinks import routes
from igsdk.sinks.changes import Counted
from igsdk.sinks.delivery import Delivery, Piece, Pushed, summary
from igsdk.sinks.http import Login, Sender
from igsdk.sinks.labels import check_labels, check_name, check_tenant
from igsdk.sinks.routes import Moment
from igsdk.sinks.series import BY, named, pieces, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from igsdk.profile import Profile
    from igsdk.profile.shown import View
    from igsdk.profile.table import Table
    from igsdk.sinks.outcome import Outcome
    from igsdk.sinks.routes import Route
    from igsdk.sinks.series import Series

_SHOWN_AFTER = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 3.0, 3.0)


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
        self._pushed_ns = 0
        self._counted = Counted()

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return self._sender.host

    def set_login(self, login: Login) -> None:
        """Another password or token from now on.

        Raises:
            UsageError: one that fits into no header; the one before stays.
        """
        login.fields()
        self._sender.login = login

    def check(self) -> Outcome:
        """Whether a server is there that would take profiles, before there are any."""
        return routes.check(self._sender)

    def count(self, profile: Profile) -> None:
        """Takes what a profile says was allocated for pushed already."""
        self._counted.settle([self._counted.due(self._prepared(profile, ended=True))])

    def push(
        self,
        profile: Profile,
        *,
        ended: bool = True,
        at: float | None = None,
        verify: bool | None = None,
    ) -> Pushed:
        """Sends what is in use, and what was allocated since the last push.

        Args:
            ended: whether processes that have ended are in use with what they held then.
            at: the profile's time, in seconds of the wall clock; else the end of its
                interval. Servers take an hour into the past and ten minutes into the future.
            verify: as for the whole object, this time.

        Raises:
            UsageError: series with more labels than servers take.
            ExtensionMissing: urllib3 is not installed.
        """
        moment = _moment(profile, at, self._pushed_ns)
        rows = self._counted.due(self._prepared(profile, ended))
        parts = [
            piece
            for series in split(rows, self._name, self._labels, self._by)
            for piece in self._pieces(series, moment)
        ]
        until = time.monotonic() + self._patience
        delivery = Delivery(lambda piece: self._send(piece, moment), until)
        try:
            results = delivery.deliver(parts)
        finally:  # after a ctrl-C too, what may be there must not come again
            self._counted.settle([series.rows for series in delivery.sent])
        pushed = summary(results, self._route)
        stored = [series for series, outcome in results if outcome.what == "stored"]
        if not stored:
            return pushed
        self._pushed_ns = moment.end_ns
        asked = self._verify if verify is None else verify
        return self._verified(pushed, stored, moment) if asked else pushed

    def _prepared(self, profile: Profile, ended: bool) -> Table:
        table = named(profile.shown(self._view)._table, self._lines)
        return table if ended else _of_the_living(table, profile)

    def _pieces(self, series: Series, moment: Moment) -> Iterable[Piece]:
        """Only the push service has limits; the old server would average the parts."""
        limited = self._route != "ingest"
        return pieces(series, moment.end_ns, moment.duration_ns, limited)

    def _send(self, piece: Piece, moment: Moment) -> Outcome:
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
            f"{self.host} took the profile and shows nothing of it yet.",
            "Look there before you push again: a new server may need minutes, one that drops "
            "profiles says so in its log.",
        )
        return replace(pushed, shown=False, error=pushed.error or error)


def _moment(profile: Profile, at: float | None, before_ns: int) -> Moment:
    """The end of the profile's interval; it began with the run, or at the push before."""
    metadata = profile.metadata
    end = metadata.time_ns + metadata.duration_ns if metadata.time_ns else time.time_ns()
    if at is not None:
        end = round(at * 10**9)
    since = end - before_ns if 0 < before_ns < end else metadata.duration_ns
    return Moment(end, min(since, metadata.duration_ns or since))


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
