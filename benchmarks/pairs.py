# SPDX-License-Identifier: Apache-2.0
"""What an allocation and its free cost, by what is collected and by how much is live."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from igsdk._native import RawStack
from igsdk.runtime.session import Options

from .support import FLOOR, Variant, heading, interleave, say, show, variants

ROUNDS = 31
PAIRS = 10_000
DEPTH = 6  # frames of the client's own recursion, below and above which are others
SITES = 4
FULL = {"live_max": 1 << 21}


def run(folder: Path) -> None:
    for live, settings in ((1_000, {}), (1_000_000, FULL)):
        _compare(folder / f"live-{live}", folder, live, settings)


def _choices(settings: dict[str, int]) -> dict[str, Options | None]:
    def choice(events: str, stacks: bool) -> Options:
        return Options(events=events, stacks=stacks, settings=settings)

    return {
        "no probes": None,
        "floor": FLOOR,
        "totals": choice("none", False),
        "totals, events drained": choice("all", False),
        "stacks": choice("none", True),
        "stacks, events drained": choice("all", True),
    }


def _compare(place: Path, folder: Path, live: int, settings: dict[str, int]) -> None:
    heading(f"an allocation and its free, {live:,} live")
    place.mkdir()
    for name in ("stub.so", "client"):
        (place / name).hardlink_to(folder / name)
    with variants(place, _choices(settings)) as made:
        for variant in made.values():
            variant.client.ask(f"fill {live}")
        interleave(list(made.values()), ROUNDS, _pairs)
        show(list(made.values()), made["floor"], 1, "ns a pair")
        _say_events(made)
        _say_sound(made, live)


def _pairs(variant: Variant) -> float:
    return variant.client.ask(f"pairs {PAIRS} {DEPTH} {SITES}")


def _say_events(made: dict[str, Variant]) -> None:
    for name in ("totals", "stacks"):
        rounds = zip(
            made[f"{name}, events drained"].figures,
            made[name].figures,
            made["floor"].figures,
            strict=True,
        )
        added = median((more - less) / floor for more, less, floor in rounds)
        say(f"  the event stream adds to {name}: {added:.2f} x floor")


def _say_sound(made: dict[str, Variant], live: int) -> None:
    """Figures count only if the programs did all their work."""
    import numpy as np

    from igsdk import _abi

    expected = live + (ROUNDS + 1) * PAIRS
    for variant in made.values():
        if variant.tracer is None or variant.name == "floor":
            continue
        rows = np.frombuffer(variant.tracer.usages(), _abi.dtype("usage"))
        booked = int(rows["alloc_calls"].sum())
        lost = sum(variant.tracer.losses())
        frames = _frames(variant.tracer.take_stacks())
        say(
            f"  {variant.name}: booked {booked:,} of {expected:,}, losses {lost}"
            + (f", frames in a stack {frames}" if frames else "")
        )


def _frames(stacks: Sequence[RawStack]) -> str:
    """How many native frames the stacks had."""
    return ", ".join(map(str, sorted({len(stack.native) for stack in stacks})))
