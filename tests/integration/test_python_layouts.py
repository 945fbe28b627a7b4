# SPDX-License-Identifier: Apache-2.0
"""Interpreters where other tools put them: as uv and conda lay them out, and environments.

The builds that uv downloads are not to be had from a package index. What is theirs by
layout is made here of this machine's own interpreter: a program that has all of Python in
it, without symbol table, in a folder of its own below a long path; links and copies of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.recording import own_driver, recording, with_environment
from tests.support.simdriver import Driver

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

_SYSTEM = Path("/usr/bin/python3")
_PROGRAM = """\
import ctypes
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
def outer(size):
    return sum(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) for _ in "1")
assert outer(1 << 20) == 0
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return own_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where uv would have put it: ``uv/python/cpython-3.11.2-linux-x86_64-gnu``."""
    if not _SYSTEM.exists():
        pytest.skip("this machine has no interpreter of its distribution's")
    real = _SYSTEM.resolve()
    version = subprocess.run([real, "-V"], capture_output=True, text=True).stdout.split()[1]
    folder = tmp_path_factory.mktemp("share") / f"uv/python/cpython-{version}-linux-x86_64-gnu"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib" / real.name).symlink_to(f"/usr/lib/{real.name}")
    shutil.copy(real, folder / "bin")
    subprocess.run(["strip", "--strip-all", folder / "bin" / real.name], check=True)
    (folder / "bin" / "python3").symlink_to(real.name)
    return folder


def environment(managed: Path, folder: Path, *options: str) -> Path:
    words = [str(managed / "bin/python3"), "-m", "venv", "--without-pip", *options, str(folder)]
    subprocess.run(words, check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("how", ["itself", "an environment of links", "an environment of copies"])
def test_an_interpreter_that_uv_manages(
    how: str, managed: Path, driver: Driver, tmp_path: Path
) -> None:
    python = managed / "bin" / "python3"
    if how != "itself":
        options = ["--copies"] if "copies" in how else []
        python = environment(managed, tmp_path / ".venv", *options)
    script = tmp_path / "train.py"
    script.write_text(_PROGRAM)
    argv = (*with_environment(driver), str(python), str(script))
    with recording(argv=argv) as run:
        assert run.command is not None
        ended = run.command.wait()
        assert ended is not None
        assert ended.status == 0
        (row,) = [row for row in run.profile().samples() if row["alloc_space"]]
    frames = [(frame.function, frame.line) for frame in row["stack"] if frame.kind == "python"]
    assert [(name.rpartition(".")[2], line) for name, line in frames] == [
        ("<genexpr>", 5),
        ("outer", 5),
        ("<module>", 6),
    ]
    assert [frame for frame in row["stack"] if frame.kind == "marker"] == []
