# SPDX-License-Identifier: Apache-2.0
"""100,000 pairs a second for 30 s: whether every byte and call is there afterwards."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.support import balance, simdriver

import igsdk
from igsdk._run import Run

from .support import going_first, heading, resident_mib, say

PER_SECOND = 100_000
SECONDS = 30
SCRIPT = f"init; ctx &c 0; rate {PER_SECOND} {SECONDS} 4096; fill a 1000 4096; destroy c"


def run(folder: Path) -> None:
    heading(f"{PER_SECOND:,} pairs a second for {SECONDS} s")
    driver = simdriver.build()
    # by its soname the player finds what is preloaded; by its file name nobody else does
    library = folder / "driver.so"
    shutil.copy(driver.libcuda, library)
    for events, stacks in (("none", False), ("all", True)):
        _once(driver, library, folder / f"books-{events}", events, stacks)


def _once(driver: simdriver.Driver, library: Path, books: Path, events: str, stacks: bool) -> None:
    books.mkdir()
    preloaded = {**os.environ, "LD_PRELOAD": str(library)}
    settings = {"events_mode": 0} if events == "none" else {}
    with igsdk.connect("local:") as gpu:
        # kept events would fill a buffer that nobody reads: they are only replayed
        run = gpu.profile_cuda_memory(
            command="play", events="none", stacks=stacks, settings=settings
        )
        with run:
            run._session.libraries.admit_path(str(library))
            began = time.process_time(), time.monotonic()
            with going_first():
                played = driver.run(SCRIPT, books, timeout=SECONDS * 4, base=preloaded)
            used = time.process_time() - began[0], time.monotonic() - began[1]
        _report(run, played.stdout, books, events, used)
        run.close()


def _report(run: Run, said: str, books: Path, events: str, used: tuple[float, float]) -> None:
    reached = next(line.split() for line in said.splitlines() if line.startswith("rate"))
    found = simdriver.all_books(books)
    wanted = balance.expected(found)
    accounts, losses = balance.booked(run, wanted)
    unlike = balance.differences(accounts, wanted)
    lost = {name: count for name, count in losses.items() if count}
    say(f"  {'stacks, all events drained' if events == 'all' else 'totals only'}:")
    say(f"    {int(reached[1]):,} pairs, {float(reached[2]):,.0f} a second (wanted {PER_SECOND:,})")
    say(f"    against the driver's books: {'; '.join(unlike) or 'equal to the byte and call'}")
    say(f"    losses: {lost or 'none'}; of one core we used {used[0] / used[1]:.1%}")
    say(f"    our resident memory: {resident_mib():.0f} MiB")
