# SPDX-License-Identifier: Apache-2.0
"""What reading a run is like, of one daemon or of many."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from igsdk._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.client.gadget import Gadget
    from igsdk.client.rows import Row

#: after a stop the daemon detaches probes and reads maps a last time
STOP_TIMEOUT = 30.0
LEAVE_TIMEOUT = 5.0


class Reading(ABC):
    """A run that is read row by row, and that leaving its ``with`` stops."""

    def __init__(self) -> None:
        self._rows: Iterator[Row] = iter(())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop(STOP_TIMEOUT if kind is None else LEAVE_TIMEOUT)

    @property
    def gadget(self) -> Gadget:
        """What runs: its data sources and their fields; of a fleet, as its first node says.

        Raises:
            UsageError: it has not started.
        """
        found = self._described()
        if found is None:
            raise UsageError("The run has not started.", "Use it in a with statement.")
        return found

    @abstractmethod
    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ends the gadget; what came stays to be taken."""

    def rows(self, source: str | None = None, timeout: float | None = None) -> Iterator[Row]:
        """Rows as they come, until the run ends or is stopped.

        Of a fleet, ``row.node`` says whose each is.

        Args:
            source: only those of this data source; rows of others are passed over for good.
            timeout: end after so many seconds without a row.

        Raises:
            UsageError: there is no such data source.
            IgsdkError: the stream broke, of a fleet all of them; all that came before was
                given.
        """
        self._known(source)
        until = from_now(timeout)
        while True:
            for row in self._rows:  # who stops in between goes on here the next time
                if source is None or row.source == source:
                    yield row
                    until = from_now(timeout)
            left = left_until(until)
            if timeout and left == 0:  # packets came, without rows
                return
            more = self._more_rows(left)
            if more is None:
                self._complain()
                return
            self._rows = more

    @abstractmethod
    def _described(self) -> Gadget | None:
        """What runs; None before it does."""

    @abstractmethod
    def _more_rows(self, timeout: float | None) -> Iterator[Row] | None:
        """Those of what came next; None at the end or after so many seconds."""

    @abstractmethod
    def _complain(self) -> None:
        """Raises what ended the run before its time, when all that came was taken."""

    def _known(self, source: str | None) -> None:
        if source is not None and source not in self.gadget.sources:
            names = ", ".join(self.gadget.sources) or "none"
            raise UsageError(f"The gadget has no data source {source!r}.", f"There are: {names}.")


def from_now(seconds: float | None) -> float | None:
    """A moment of the monotonic clock; None: never."""
    return None if seconds is None else time.monotonic() + seconds


def left_until(until: float | None) -> float | None:
    """Seconds until then, at least 0; None: without end."""
    return None if until is None else max(0.0, until - time.monotonic())
