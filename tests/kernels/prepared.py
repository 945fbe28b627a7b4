# SPDX-License-Identifier: Apache-2.0
"""What the machines are given, from prepare.py to guest.py."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

from tests.support.gadgethost import Gadget
from tests.support.verifier import Loading


@dataclass(frozen=True)
class Verification:
    """An object, and how it is to be loaded.

    Attributes:
        user: who loads so, as in tests/support/loadings.py.
    """

    name: str
    user: str
    data: bytes
    ways: list[Loading]


@dataclass(frozen=True)
class Prepared:
    """Programs to play, objects to verify, and the gadget's image.

    Attributes:
        image: as `igsdk gadget build` makes it.
        gadget: the image's object for this machine, None where nothing can host it.
        no_host: why that is.
        path: where programs are found, as the variable PATH has it.
    """

    scripts: list[str]
    verifications: list[Verification]
    image: Path
    gadget: Gadget | None
    no_host: str
    path: str

    def write(self, folder: Path) -> None:
        (folder / "prepared").write_bytes(pickle.dumps(self))


def read(folder: Path) -> Prepared:
    found = pickle.loads((folder / "prepared").read_bytes())
    assert isinstance(found, Prepared)
    return found
