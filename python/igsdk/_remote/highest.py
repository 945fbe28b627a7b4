# SPDX-License-Identifier: Apache-2.0
"""The moment at which most was in use, as far as batches show it, over all machines of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from igsdk._remote.books import Books


@dataclass
class Highest:
    """Follows the sum over the books that count.

    The sum rises mostly, and what each account had at the highest moment is only written
    down when it falls, so a batch costs what it is long.

    Attributes:
        counted: gives the books that count.
        bytes: the highest sum so far.
        time_ns: time of a row of the batch that brought it there.
    """

    counted: Callable[[], list[Books]]
    bytes: int = 0
    time_ns: int = 0
    _is_now: bool = True

    def rise(self, time_ns: int) -> None:
        """To be called after each change."""
        live = self._live()
        if live > self.bytes:
            self.bytes, self.time_ns, self._is_now = live, time_ns, True

    def before_fall(self) -> None:
        """To be called before the sum becomes less, while the accounts have what they had."""
        self.settle()
        self._is_now = False

    def settle(self) -> None:
        """Has the accounts' columns say what was in use at the highest moment."""
        if self._is_now:
            for books in self.counted():
                books.mark()

    def begin_anew(self) -> None:
        """Something else counts than before: what was highest so far is no sum of these."""
        self.bytes, self._is_now = self._live(), True

    def shifted(self) -> None:
        """Which processes are wanted has changed, and nothing that they did."""
        if self._is_now:
            self.bytes = self._live()

    def _live(self) -> int:
        return sum(books.live for books in self.counted())
