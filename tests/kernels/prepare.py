# SPDX-License-Identifier: Apache-2.0
"""Before the machines start: builds and draws all that is too slow on an emulated processor.

    prepare.py FOLDER [--all]

The simulated driver, the programs to play (always the same ones), the BPF objects of each
compiler with the ways to load them, the gadget's image, and what runs an image by Inspektor
Gadget's rules. --all: all combinations for all compilers, which takes many times as long.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from tests.kernels.prepared import Prepared, Verification
from tests.support import gadgethost, simdriver
from tests.support.loadings import USERS, all_of, compilers, few_of, object_of
from tests.support.programs import programs

from igsdk.image import places
from igsdk.image.machine import program_for
from igsdk.runtime.program import architecture

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


def verifications(everything: bool) -> list[Verification]:
    """All combinations for the package's compiler, and each switch for the others."""
    made = []
    for number, by in enumerate(compilers()):
        for user in USERS:
            data = object_of(user, by)
            ways = all_of(user, data) if everything or not number else few_of(user, data)
            made.append(Verification(f"{user}, {by}", user, data, ways))
    return made


def build_image(folder: Path) -> Path:
    """The gadget's image, as a user builds it."""
    image = folder / "gadget.tar"
    igsdk = Path(sys.executable).parent / "igsdk"
    command = [str(igsdk), "gadget", "build", "gadget", "-o", str(image)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the image does not build:\n{done.stderr}")
    return image


def program_of(image: Path, folder: Path) -> Path:
    """The object for this machine, taken out of the image."""
    path = folder / "gadget.bpf.o"
    path.write_bytes(program_for(places.read(str(image)), architecture()))
    return path


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    simdriver.build()
    image = build_image(folder)
    no_host = gadgethost.why_not()
    gadget = None
    if not no_host:
        gadgethost.build()
        gadget = replace(gadgethost.ours(), object=program_of(image, folder))
    checked = verifications("--all" in sys.argv)
    path = os.environ["PATH"]
    Prepared(draw(), checked, image, gadget, no_host, path).write(folder)


if __name__ == "__main__":
    main()
