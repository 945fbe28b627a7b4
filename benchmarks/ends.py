# SPDX-License-Identifier: Apache-2.0
"""What the end of a context and of a process costs with a million allocations live."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from igsdk._native import Tracer
from igsdk.runtime.session import Options

from .support import FLOOR, Variant, heading, interleave, resident_mib, say, variants

LIVE = 1_000_000
ROUNDS = 20
_SETTINGS = {"live_max": 1 << 21}
# as `record` has it: stacks, and every event replayed
_RECORD = Options(events="all", stacks=True, settings=_SETTINGS)


def run(folder: Path) -> None:
    heading(f"the end of {LIVE:,} live allocations (median and maximum of {ROUNDS})")
    with variants(folder, {"floor": FLOOR, "record": _RECORD}) as made:
        for order in ("exit", "destroy"):
            for variant in made.values():
                variant.figures.clear()
            interleave(list(made.values()), ROUNDS, partial(_end, order=order))
            _show(order, made)
        _show_memory(len(made))


def _end(variant: Variant, order: str) -> float:
    figure = variant.client.ask(f"{order} {LIVE}")
    if variant.tracer and variant.name != "floor":
        _sweep(variant.tracer)
    return figure


def _sweep(tracer: Tracer) -> None:
    """Makes room for the next million, outside of what is measured."""
    before = tracer.swept
    for _ in range(3):  # the first may have begun before the process had ended
        tracer.sweep()
        deadline = time.monotonic() + 10
        while tracer.swept == before and time.monotonic() < deadline:
            time.sleep(0.02)
        if tracer.swept - before >= LIVE:
            return


def _show(what: str, made: dict[str, Variant]) -> None:
    floor, ours = made["floor"], made["record"]
    more = [mine - theirs for mine, theirs in zip(ours.figures, floor.figures, strict=True)]
    for variant in (floor, ours):
        say(
            f"  {what:8} {variant.name:8} {variant.median / 1e6:7.3f} ms, "
            f"at most {max(variant.figures) / 1e6:7.3f} ms"
        )
    assert ours.tracer is not None
    lost = sum(ours.tracer.losses())
    say(f"  {what:8} ours is longer by {median(more) / 1e6:.3f} ms; losses so far: {lost}")


def _show_memory(programs: int) -> None:
    say(f"  the maps of a program with live_max {_SETTINGS['live_max']:,}, in kernel memory:")
    largest: dict[str, int] = {}
    for name, size in _maps():
        largest[name] = max(largest.get(name, 0), size)
    for name, size in sorted(largest.items(), key=lambda item: -item[1])[:5]:
        say(f"    {name:16} {size / (1 << 20):7.1f} MiB")
    say(f"    {'all of them':16} {sum(largest.values()) / (1 << 20):7.1f} MiB")
    resident = resident_mib()
    say(f"  our resident memory, with {programs} programs in one process: {resident:.0f} MiB")


def _maps() -> Iterator[tuple[str, int]]:
    """Name and bytes of every map that this process holds."""
    for entry in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            lines = entry.read_text().splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            if "map_id" in fields and "memlock" in fields:
                yield _map_name(fields["map_id"]), int(fields["memlock"])


def _map_name(number: str) -> str:
    command = ["bpftool", "-j", "map", "show", "id", number]
    shown = subprocess.run(command, capture_output=True, check=True).stdout
    return str(json.loads(shown)["name"])
