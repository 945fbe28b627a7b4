# SPDX-License-Identifier: Apache-2.0
"""Python frames equal what the program itself sees: function, file and line, every time.

One recording for each interpreter, of several programs at the same time: as it is, with
its library stripped, with -X perf, with -X dev. All of them have ended when their stacks
are compared, some of their processes right after their allocation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import shapes, sid
from tests.support.recording import own_driver
from tests.support.shapes import Recorded, Variant
from tests.support.simdriver import Driver

PYENV = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
INTERPRETERS = (
    *(f"pyenv {version}" for version in PYENV),
    "debian",
    *(f"sid {version}" for version in sid.VERSIONS),
)
VARIANTS = ("plain", "stripped", "perf", "dev")
ASK = """
import os, sys, sysconfig
print(".".join(map(str, sys.version_info[:3])))
print(os.path.join(*map(sysconfig.get_config_var, ("LIBDIR", "INSTSONAME"))))
print(bool(sysconfig.get_config_var("Py_ENABLE_SHARED")))
"""


def find_python(name: str) -> str:
    """The interpreter's path, in Debian sid's root for those; skips where there is none."""
    source, _, version = name.partition(" ")
    if source == "sid":
        try:
            return sid.python(version)
        except sid.Unavailable as error:
            pytest.skip(f"no Debian sid here: {error}")
    if source == "debian":
        found = [Path("/usr/bin/python3")]
    elif sys.version.startswith(f"{version}."):
        found = [Path(sys.executable)]  # it may have greenlet
    else:
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        found = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    for path in found:
        if path.exists():
            return str(path)
    pytest.skip(f"{name} is not on this machine")


def about(name: str, python: str) -> tuple[str, Path | None]:
    """Its version in full, and the shared library that it runs from, if it does."""
    inside = ("chroot", str(sid.root())) if name.startswith("sid") else ()
    asked = subprocess.run([*inside, python, "-c", ASK], capture_output=True, text=True, check=True)
    version, library, is_shared = asked.stdout.splitlines()
    return version, Path(library) if is_shared == "True" else None


def variants_of(version: str, library: Path | None, folder: Path) -> list[Variant]:
    numbers = tuple(map(int, version.split(".")))
    made = [Variant("plain"), Variant("dev", ("-X", "dev"))]
    if library:
        made.append(Variant("stripped", library=shapes.stripped(library, folder / "stripped")))
    if numbers >= (3, 12):
        made.append(Variant("perf", ("-X", "perf")))
    return made


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module", params=INTERPRETERS)
def recorded(
    request: pytest.FixtureRequest, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Recorded]]:
    """The interpreter's version, and what its recording gave."""
    name: str = request.param
    python = find_python(name)
    version, library = about(name, python)
    folder = tmp_path_factory.mktemp("shapes")
    variants = variants_of(version, library, folder)
    done = shapes.record(python, variants, driver, folder, chroot=name.startswith("sid"))
    yield version, done
    for told in done.told.values():  # -X perf leaves a map for each process
        for pid in {sample.pid for sample in told.samples}:
            Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_frame_is_the_program_s_own(
    variant: str, recorded: tuple[str, Recorded], capsys: pytest.CaptureFixture[str]
) -> None:
    version, done = recorded
    if variant not in done.told:
        why = "-X perf came with 3.12" if variant == "perf" else "this build is stripped already"
        pytest.skip(why)
    told, wrong = done.told[variant], done.wrong(variant)
    with capsys.disabled():
        right = len(told.samples) - len(wrong)
        print(f"\n{version} {variant}: {right} of {len(told.samples)}", end=" ")
        for shape, why in told.skipped.items():
            print(f"\n  without {shape}: {why}", end=" ")
    assert wrong == []
