# SPDX-License-Identifier: Apache-2.0
"""Compares rows of the gadget's data sources with the simulated driver's own books."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from igsdk import _abi

from .balance import TOTALS, Figures, Image, differences, expected, identity
from .simdriver import Books

if TYPE_CHECKING:
    from .gadgethost import Host, Row

NS_PER_TICK = 10_000_000


def column(total: str, prefix: str = "total") -> str:
    """The field of a figure: ``implicit_bytes`` is ``total_implicit_free_bytes``."""
    return f"{prefix}_{total.replace('implicit', 'implicit_free')}"


def images(host: Host) -> dict[int, Image]:
    """Process instance -> (pid in its namespace, start in ticks, which image)."""
    known = {row["process"]: row for row in host.rows("processes")}
    order: dict[tuple[int, int], int] = defaultdict(int)
    names = {}
    for instance, row in sorted(known.items(), key=lambda one: one[1]["exec_id"]):
        key = row["ns_pid"], row["started_raw"] // NS_PER_TICK
        names[instance] = identity(*key, order[key])
        order[key] += 1
    return names


def figures(rows: Iterable[Row], names: dict[int, Image]) -> dict[Image, Figures]:
    """Running totals by process image and place; rows of zeros are left out."""
    result: dict[Image, Figures] = defaultdict(dict)
    for row in rows:
        place = _abi.KINDS[row["kind_raw"]], _abi.HOSTS[row["host_raw"]], row["device"]
        sums = {name: row[column(name)] for name in TOTALS}
        if any(sums.values()):
            found = result[names[row["process"]]].setdefault(place, dict.fromkeys(TOTALS, 0))
            for name, value in sums.items():
                found[name] += value
    return result


def unlike(
    host: Host, books: list[Books], sources: tuple[str, ...] = ("heap", "processes")
) -> list[str]:
    """What differs between the books and the last rows of the data sources."""
    wanted, names = expected(books), images(host)
    found = []
    for source in sources:
        booked = figures(host.latest(source).values(), names)
        found += [f"{source}: {line}" for line in differences(booked, wanted)]
    return found


def assert_booked(host: Host, books: list[Books]) -> dict[Image, Figures]:
    """Both sources come to say what the books say; returns the figures."""
    assert books, "a program without the driver proves nothing"
    host.settle(lambda: not unlike(host, books), or_else=lambda: str(unlike(host, books)))
    for source in ("heap", "processes"):
        assert_changes_add_up(host, source)
    names = images(host)
    booked = figures(host.latest("processes").values(), names)
    return {image: booked[image] for image in expected(books)}


def assert_changes_add_up(host: Host, source: str) -> None:
    """Nobody lost a row here: all changes of a row together are its totals."""
    changes = host.changes(source)
    for key, row in host.latest(source).items():
        totals = {name: row[column(name)] for name in TOTALS}
        assert {name: changes[key][column(name, "mem")] for name in TOTALS} == totals


def losses(host: Host) -> dict[str, int]:
    """Counts by cause, as the last rows say."""
    last = {row["cause"]: row["count"] for row in host.rows("losses")}
    return {_abi.LOSSES[cause]: count for cause, count in last.items() if count}


def certain_losses(host: Host) -> dict[str, int]:
    """Without those that chance decides: two stacks may want one place in ``ig_ustack``."""
    return {cause: count for cause, count in losses(host).items() if cause != "stack_table"}


def processes_of(host: Host, book: Books) -> list[dict[str, Any]]:
    """The last rows of `processes` of one process, all images of its pid."""
    return [row for row in host.latest("processes").values() if row["ns_pid"] == book.pid]
