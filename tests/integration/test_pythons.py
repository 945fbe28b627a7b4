# SPDX-License-Identifier: Apache-2.0
"""The extension builds and imports on every CPython that the package supports."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
BUILDERS = ("setuptools", "pybind11", "_distutils_hack")
USABLE = """
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_paths()["include"], "Python.h").stat()
print("%d.%d" % sys.version_info[:2])
"""


def find_python(version: str) -> str | None:
    """Returns an interpreter of that version that has its headers."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*pyenv.glob(f"versions/{version}.*/bin/python{version}")]
    for candidate in (shutil.which(f"python{version}"), *map(str, candidates)):
        if candidate is None:
            continue
        tried = subprocess.run([candidate, "-c", USABLE], capture_output=True, text=True)
        if tried.returncode == 0 and tried.stdout.strip() == version:
            return candidate
    return None


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the build's own packages, pure Python, for any interpreter."""
    folder = tmp_path_factory.mktemp("builders")
    for name in BUILDERS:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent)
    return folder


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled sources lie; most of them are the same for all interpreters."""
    return tmp_path_factory.mktemp("objects")


def forget_those_of_another_python(objects: Path) -> None:
    for noted in objects.rglob("*.d"):
        if "Python.h" in noted.read_text():
            noted.with_suffix(".o").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_builds_and_imports(version: str, builders: Path, objects: Path, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"CPython {version} with headers is not on this machine")
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        # The one of the environment was built by the set-up, all tests use it.
        import igsdk._native

        assert igsdk._native.__file__
        return
    # Unoptimised: whether it compiles, links and imports is the question.
    environment = {
        **os.environ,
        "PYTHONPATH": str(builders),
        "IGSDK_REQUIRE_NATIVE": "1",
        "CXXFLAGS": "-O0",
    }
    command = [
        python,
        "setup.py",
        "-q",
        "build_ext",
        "-b",
        str(tmp_path),
        "-t",
        str(objects),
    ]
    forget_those_of_another_python(objects)
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    look = "import igsdk._native as native; print(native.__file__)"
    found = subprocess.run(
        [python, "-c", look],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(str(tmp_path))
