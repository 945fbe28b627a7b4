# SPDX-License-Identifier: Apache-2.0
"""What a person waits for: import, help, the first event on the screen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from tests.support import simdriver

from igsdk.runtime.session import Options

from .support import going_first, heading, say, tracing

ROUNDS = 15
_FAILING = "init; ctx &c 0; alloc &p 900G; sleep 2000"
_IGSDK = (sys.executable, "-m", "igsdk.cli")


def run(folder: Path) -> None:
    heading(f"start (median and maximum of {ROUNDS})")
    del folder
    _show("python -c pass, for comparison", _repeat([sys.executable, "-c", "pass"]))
    _show("python -c 'import igsdk'", _repeat([sys.executable, "-c", "import igsdk"]))
    _show("igsdk --help", _repeat([*_IGSDK, "--help"]))
    _show("BPF program: load and verify", _times(_load))
    _show("igsdk events -- CMD: first event", _times(_first_event))


def _show(what: str, seconds: Sequence[float]) -> None:
    say(f"  {what:36} {median(seconds) * 1e3:7.0f} ms, at most {max(seconds) * 1e3:7.0f} ms")


def _times(measure: Callable[[], float]) -> list[float]:
    with going_first():
        return [measure() for _ in range(ROUNDS)]


def _repeat(command: Sequence[str]) -> list[float]:
    return _times(lambda: _wall(command))


def _wall(command: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _load() -> float:
    began = time.monotonic()
    with tracing(Options()):
        return time.monotonic() - began


def _first_event() -> float:
    """From the start of igsdk to the line that tells of an allocation that failed."""
    driver = simdriver.build()
    command = [*_IGSDK, "events", "--", str(driver.play), "-e", _FAILING]
    began = time.monotonic()
    with subprocess.Popen(
        command,
        env=driver.environment(base=os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "cuMemAlloc" in line:
                break
        else:
            raise RuntimeError("no event was printed")
        took = time.monotonic() - began
        process.terminate()
        process.stderr.read()
    return took
