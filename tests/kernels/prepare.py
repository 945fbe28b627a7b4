# SPDX-License-Identifier: Apache-2.0
"""Before the machines start: builds the simulated driver and draws the programs to play.

    prepare.py PROGRAMS

An emulated processor is slow, so it only plays what is drawn here; always the same ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from tests.support import simdriver
from tests.support.programs import programs

DRAWN, PLAYED = 150, 25


def draw() -> list[str]:
    """The longest of the drawn ones: the first of them are small."""
    drawn: set[str] = set()

    @seed(5)
    @settings(
        max_examples=DRAWN,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def take(script: str) -> None:
        drawn.add(script)

    take()
    return sorted(drawn, key=lambda script: (len(script), script))[-PLAYED:]


def main() -> None:
    simdriver.build()
    Path(sys.argv[1]).write_text(json.dumps(draw()))


if __name__ == "__main__":
    main()
