# SPDX-License-Identifier: Apache-2.0
"""How long it takes to put all probes on a libcuda that is mapped, and to take them off."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.support import simdriver

from .support import TOTALS, attach, going_first, heading, say, tracing

MODES = {"session": 1, "multi": 2, "single": 3}
ROUNDS = {"session": 7, "multi": 7, "single": 1}


def run(folder: Path) -> None:
    heading("all probes on one mapped libcuda file, by kind of link")
    driver = simdriver.build()
    library = folder / "driver.so"
    library.write_bytes(driver.libcuda.read_bytes())
    holder = ["python3", "-c", f"import ctypes; ctypes.CDLL({str(library)!r}); print(); input()"]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for mode in MODES:
            _measure(mode, library)
        process.communicate(b"\n")


def _measure(mode: str, library: Path) -> None:
    with going_first():
        figures = [_once(MODES[mode], library) for _ in range(ROUNDS[mode])]
    sites = figures[0][0]
    load, on, call, off = (median(row[i] for row in figures) * 1e3 for i in range(1, 5))
    say(
        f"  {mode:8} {sites} functions: attach {on:8.1f} ms, detach: the caller waits "
        f"{call:5.1f} ms, the last probe is gone after {off:9.1f} ms (program loaded in "
        f"{load:.0f} ms; {ROUNDS[mode]} rounds)"
    )


def _once(mode: int, library: Path) -> tuple[float, ...]:
    options = replace(TOTALS, settings={"link_mode": mode})
    began = time.monotonic()
    with tracing(options) as tracer:
        loaded = time.monotonic()
        sites = attach(tracer, library)
        attached = time.monotonic()
        tracer.detach_all()
        returned = time.monotonic()
        while tracer.detaching:
            time.sleep(0.0005)
        gone = time.monotonic()
    return sites, loaded - began, attached - loaded, returned - attached, gone - attached
