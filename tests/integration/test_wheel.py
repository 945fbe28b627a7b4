# SPDX-License-Identifier: Apache-2.0
"""The wheel imports where neither clang nor libbpf is, and the package builds without them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What a machine without the packages looks like: their files are empty.
HIDE = """
for file in /usr/lib/*/libbpf.so* /usr/lib/*/libelf*.so* /usr/lib/*/libdw*.so* \\
    /usr/bin/clang* /usr/bin/llvm-*; do
    [ ! -e "$file" ] || mount --bind /dev/null "$(readlink -f "$file")" || exit 99
done
exec "$@"
"""

LOOK = """
import ctypes
for name in ("libbpf.so.1", "libelf.so.1", "libdw.so.1"):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    raise SystemExit(f"{name} is not hidden")
import igsdk._native, importlib.resources
mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
names = ("libbpf", "libelf", "libdw")
print(*sorted(path for path in mapped if any(name in path for name in names)), sep="\\n")
objects = importlib.resources.files("igsdk") / "_bpf"
assert (objects / "local.amd64.bpf.o").read_bytes()[:4] == b"\\x7fELF"
"""


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(run("build/wheel.sh", tmp_path_factory.mktemp("dist")).stdout.strip())


def install(wheel: Path, folder: Path) -> Path:
    """Puts the wheel into an environment of its own; returns that one's Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
    return python


def test_says_which_glibc_it_needs(wheel: Path) -> None:
    assert f"-manylinux_2_34_{os.uname().machine}.whl" in wheel.name


def test_holds_programs_libraries_and_licences(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "igsdk/_bpf/local.amd64.bpf.o",
        "igsdk/_bpf/local.arm64.bpf.o",
        "igsdk/_bpf/mappings.amd64.bpf.o",
        "igsdk/_bpf/mappings.arm64.bpf.o",
        "igsdk/py.typed",
        "igsdk.libs/libbpf",
        "igsdk.libs/libelf",
        "igsdk.libs/libdw",
        "licenses/NOTICE",
        "licenses/LICENSES/GPL-2.0-only.txt",
    ):
        assert any(wanted in name for name in names), wanted


def test_imports_without_clang_and_libbpf(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, tmp_path / "venv")
    command = ("unshare", "-m", "sh", "-c", HIDE, "sh", python, "-I", "-c", LOOK)
    mapped = run(*command).stdout.splitlines()
    assert len(mapped) == 3
    assert all("/igsdk.libs/" in path for path in mapped), mapped


def test_builds_without_the_extension_where_clang_is_missing(tmp_path: Path) -> None:
    sources = tmp_path / "igsdk"
    run("git", "clone", "-q", "--no-hardlinks", ROOT, sources)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-v",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
    )
    done = run(
        *pip, "-w", tmp_path, sources, IGSDK_CLANG="/nowhere/clang", IGSDK_REQUIRE_NATIVE="0"
    )
    assert len(list(tmp_path.glob("igsdk-*-py3-none-any.whl"))) == 1
    assert "apt-get install clang" in done.stdout + done.stderr


def test_refuses_to_build_without_clang_when_told_to() -> None:
    environment = {**os.environ, "IGSDK_CLANG": "/nowhere/clang", "IGSDK_REQUIRE_NATIVE": "1"}
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "apt-get install clang" in done.stderr
