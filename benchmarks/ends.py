# SPDX-License-Identifier: Apache-2.0
"""What the end of a context and of a process costs with a million allocations live."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

from igsdk._native import Tracer
from igsdk.runtime.session import Options

from .support import FLOOR, Variant, heading, interleave, say, variants

LIVE = 1_000_000
ROUNDS = 20
_SETTINGS = {"live_max": 1 << 21}
# as `record` has it, and as a stream of failures has it
_FULL = Options(events="all", keep="none", stacks=True, settings=_SETTINGS)
_PLAIN = Options(events="failures", keep="none", stacks=True, settings=_SETTINGS)


def run(folder: Path) -> None:
    heading(f"the end of {LIVE:,} live allocations (median and maximum of {ROUNDS})")
    wanted = {"no probes": None, "floor": FLOOR, "failures": _PLAIN, "all events": _FULL}
    with variants(folder, wanted) as made:
        for order in ("destroy", "exit"):
            for variant in made.values():
                variant.figures.clear()
            interleave(list(made.values()), ROUNDS, lambda variant: _end(variant, order))
            _show("cuCtxDestroy" if order == "destroy" else "exit", made)
        _show_memory(made)


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
    floor = made["floor"].figures
    for variant in made.values():
        more = [mine - theirs for mine, theirs in zip(variant.figures, floor, strict=True)]
        compared = "" if variant.name == "floor" else f"; to floor {median(more) / 1e6:+.3f} ms"
        say(
            f"  {what:12} {variant.name:12} {median(variant.figures) / 1e6:8.3f} ms, "
            f"at most {max(variant.figures) / 1e6:8.3f} ms{compared}"
        )
    for variant in made.values():
        if variant.tracer and variant.name != "floor":
            lost = sum(variant.tracer.losses())
            say(f"  {variant.name}: {lost} losses")


def _show_memory(made: dict[str, Variant]) -> None:
    say(f"  kernel memory of a program's maps with live_max {_SETTINGS['live_max']:,}:")
    maps = _map_bytes()
    largest: dict[str, int] = {}
    for size, name in maps:
        largest[name] = max(largest.get(name, 0), size)
    for name, size in sorted(largest.items(), key=lambda item: -item[1])[:6]:
        say(f"    {name:16} {size / (1 << 20):8.1f} MiB")
    say(f"    {'all':16} {sum(largest.values()) / (1 << 20):8.1f} MiB")
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident = pages * os.sysconf("SC_PAGESIZE") / (1 << 20)
    say(f"  our resident memory, {len(made) - 1} programs in one process: {resident:.0f} MiB")


def _map_bytes() -> list[tuple[int, str]]:
    """(bytes, name) of every map that this process holds."""
    found = []
    for entry in Path("/proc/self/fdinfo").iterdir():
        try:
            text = entry.read_text()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        if "memlock" in fields and "map_id" in fields:
            found.append((int(fields["memlock"]), _map_name(int(fields["map_id"]))))
    return found


def _map_name(number: int) -> str:
    import subprocess

    shown = subprocess.run(
        ["bpftool", "-j", "map", "show", "id", str(number)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    import json

    return str(json.loads(shown).get("name", number))
