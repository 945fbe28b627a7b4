# SPDX-License-Identifier: Apache-2.0
"""Builds what pyproject.toml cannot say: the native extension and the BPF objects.

Environment:
    IGSDK_CLANG           the clang to compile BPF with, instead of the newest found
    IGSDK_REQUIRE_NATIVE  1: stop where the extension cannot be built, instead of
                          building the package without it
    IGSDK_SKIP_NATIVE     1: leave the extension out without asking
    IGSDK_BUILD_JOBS      how many compilers may run at once (default: all cores)
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import Command, setup
from setuptools.command.build import build

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.resolve()
#: sources in bpf/ that the package carries as objects: the tracer, and what lists mappings
BPF_PROGRAMS = ("local", "mappings")
PACKAGES = "clang llvm libbpf-dev libelf-dev libdw-dev liblzma-dev zlib1g-dev gcc g++ python3-dev"
#: libbpf 1.1 is Debian 12's; older ones lack calls that the extension makes
PROBE = """
#include <bpf/libbpf.h>
#include <bpf/libbpf_version.h>
#include <elfutils/libdw.h>
#include <gelf.h>
#include <lzma.h>
#include <zlib.h>
#if LIBBPF_MAJOR_VERSION < 1 || (LIBBPF_MAJOR_VERSION == 1 && LIBBPF_MINOR_VERSION < 1)
#error libbpf is older than 1.1
#endif
"""


def load_clang() -> ModuleType:
    """Returns igsdk.image.clang, alone: the package it is part of is not installed yet."""
    path = ROOT / "python/igsdk/image/clang.py"
    spec = importlib.util.spec_from_file_location("_igsdk_clang", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


clang_tools = load_clang()


def missing_for_native() -> str | None:
    """Returns what keeps the extension from being built here, or None."""
    if not sys.platform.startswith("linux"):
        return f"the kernel of {sys.platform} has no BPF"
    if clang_tools.find_clang() is None:
        return (
            "clang is not installed"
            if "IGSDK_CLANG" not in os.environ
            else "IGSDK_CLANG is not a program"
        )
    compiler = os.environ.get("CXX", "g++").split()
    if shutil.which(compiler[0]) is None:
        return f"the C++ compiler {compiler[0]} is not installed"
    tried = subprocess.run(
        [*compiler, "-E", "-x", "c++", "-", "-o", os.devnull],
        input=PROBE,
        text=True,
        capture_output=True,
    )
    if tried.returncode:
        errors = [line for line in tried.stderr.splitlines() if "error:" in line]
        return errors[0].split("error:", 1)[1].strip() if errors else "a header does not compile"
    try:
        import pybind11  # noqa: F401
    except ImportError:
        return "pybind11 is not installed"
    return None


def flag(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def native_wanted() -> bool:
    """Says whether to build the extension; explains on standard error when not."""
    if flag("IGSDK_SKIP_NATIVE"):
        return False
    cause = missing_for_native()
    if cause is None:
        return True
    message = (
        f"igsdk: the native extension cannot be built: {cause}.\n"
        f"igsdk: on Debian and Ubuntu, install it with: apt-get install {PACKAGES}"
    )
    if flag("IGSDK_REQUIRE_NATIVE"):
        raise SystemExit(message)
    print(f"{message}\nigsdk: going on without it: everything but `local:` works.", file=sys.stderr)
    return False


class BuildBpf(Command):
    """Compiles the local runtime's programs into the package's data, once per architecture."""

    description = "compile the BPF objects"
    user_options = [
        ("build-lib=", "d", "folder to build into"),
        ("inplace", "i", "put the objects beside the Python sources"),
    ]
    boolean_options = ["inplace"]

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.inplace = False
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        clang = clang_tools.find_clang()
        if clang is None:
            raise SystemExit(f"build_bpf: clang is not installed; apt-get install {PACKAGES}")
        newest = max(path.stat().st_mtime for path in (ROOT / "bpf").iterdir())
        for program, architecture, output in self._objects():
            if not output.exists() or output.stat().st_mtime < newest:
                compile_bpf(clang, ROOT / f"bpf/{program}.bpf.c", output, architecture)

    def _objects(self) -> list[tuple[str, str, Path]]:
        """(program, architecture, object) of all that is made."""
        base = "python" if self.inplace or self.editable_mode else str(self.build_lib)
        folder = Path(base) / "igsdk/_bpf"
        return [
            (program, architecture, folder / f"{program}.{architecture}.bpf.o")
            for program in BPF_PROGRAMS
            for architecture in clang_tools.ARCHITECTURES
        ]

    def get_source_files(self) -> list[str]:
        return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "bpf").glob("*.[ch]"))

    def get_outputs(self) -> list[str]:
        return [str(output) for _, _, output in self._objects()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


def compile_bpf(clang: str, source: Path, output: Path, architecture: str) -> None:
    """Compiles one object whole or not at all; DWARF goes, BTF stays."""
    strip = clang_tools.find_strip(clang)
    if strip is None:
        print("build_bpf: llvm-strip is not installed; the object keeps its DWARF", file=sys.stderr)
    warnings = ("-Wall", "-Wextra", "-Wno-unused-parameter")
    made = clang_tools.compile_object(
        clang, strip, source, architecture, warnings=warnings, root=ROOT
    )
    print(made.messages, end="", file=sys.stderr)
    if not made.data:
        raise SystemExit(f"build_bpf: {Path(clang).name} could not compile {source.name}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        fresh = Path(folder) / output.name
        fresh.write_bytes(made.data)
        fresh.replace(output)


class Build(build):
    """The stock build, with the BPF objects made first."""

    sub_commands = [("build_bpf", None), *build.sub_commands]


def native_options() -> dict[str, object]:
    """Returns what the extension adds to setup()."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "python/native").glob("*.cpp"))
    headers = [*(ROOT / "python/native").glob("*.h*"), ROOT / "bpf/abi.h"]
    if not sources or not native_wanted():
        return {}
    from pybind11.setup_helpers import (
        ParallelCompile,
        Pybind11Extension,
        build_ext,
        naive_recompile,
    )

    depends = sorted(str(path.relative_to(ROOT)) for path in headers)

    def outdated(made: str, source: str) -> bool:
        """Whether a source, or a header that the compiler noted for it, is newer."""
        noted = Path(made).with_suffix(".d")
        if naive_recompile(made, source) or not noted.exists():
            return True
        headers = noted.read_text().replace("\\\n", " ").split()[1:]
        built = Path(made).stat().st_mtime
        return any(not Path(h).exists() or Path(h).stat().st_mtime > built for h in headers)

    ParallelCompile(
        "IGSDK_BUILD_JOBS", default=os.cpu_count() or 1, needs_recompile=outdated
    ).install()
    extension = Pybind11Extension(
        "igsdk._native",
        sources,
        include_dirs=["bpf", "python/native"],
        libraries=["bpf", "dw", "elf", "lzma", "z"],
        depends=depends,
        cxx_std=17,
        extra_compile_args=["-g0", "-MMD", "-Wall", "-Wextra", f"-ffile-prefix-map={ROOT}=."],
    )
    commands = {"build": Build, "build_bpf": BuildBpf, "build_ext": build_ext}
    return {"ext_modules": [extension], "cmdclass": commands}


setup(**native_options())
