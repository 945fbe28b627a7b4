# SPDX-License-Identifier: Apache-2.0
"""A gadget's folder becomes an OCI image."""

from __future__ import annotations

import contextlib
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from igsdk._errors import ExtensionMissing, GadgetInvalid, UsageError
from igsdk._version import __version__
from igsdk.image import checking, clang, document, names, oci, vocabulary
from igsdk.image.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULTS = {"ebpfsource": "program.bpf.c", "wasm": "", "metadata": "gadget.yaml"}
#: keys of gadget.yaml -> the annotation that repeats them
_REPEATED = {
    "name": oci.TITLE,
    "description": "org.opencontainers.image.description",
    "homepageURL": "org.opencontainers.image.url",
    "documentationURL": "org.opencontainers.image.documentation",
    "sourceURL": "org.opencontainers.image.source",
}

#: beginnings of headers that gadgets need -> where people get them
_HEADERS = {
    "vmlinux.h": "; kernels' types by architecture lie in DIR/amd64 and DIR/arm64, as in the "
    "folder include/gadget of Inspektor Gadget's source",
    "gadget/": "; it is the folder include of Inspektor Gadget's source",
    "bpf/": ", or install libbpf's: apt-get install libbpf-dev",
    "linux/": ", or install the kernel's: apt-get install linux-libc-dev",
    "asm/": ", or install the kernel's: apt-get install linux-libc-dev",
}


@dataclass(frozen=True)
class Recipe:
    """What build.yaml says, with files that exist: whole paths without links."""

    program: Path | None
    wasm: Path | None
    metadata: Path


@dataclass
class Built:
    """An image, and what is worth saying about it."""

    layout: Layout
    name: str
    digest: str
    created: int
    warnings: list[str] = field(default_factory=list)


def build(folder: str, includes: Sequence[str] = (), tag: str = "", lenient: bool = False) -> Built:
    """Compiles, checks and packs a gadget.

    Args:
        folder: holds build.yaml or just program.bpf.c and gadget.yaml.
        includes: further folders of headers.
        tag: the image's name; without it the name in gadget.yaml.
        lenient: what gadget.yaml says in vain becomes a warning.

    Raises:
        GadgetInvalid: it does not compile, or metadata and program do not fit.
        UsageError: a folder is none, or the name is no image name.
        ExtensionMissing: there is no clang.
    """
    recipe = read_recipe(folder)
    text = _content(recipe.metadata)
    described = document.load(text, _shown(recipe.metadata))
    if recipe.program is None and recipe.wasm is None and not _is_program_less(described):
        raise GadgetInvalid(
            f"{folder} has no program.bpf.c.", "Name the program in build.yaml as ebpfsource."
        )
    name = str(names.parse(tag or image_name(described.text("name"), folder)))
    programs, warnings = _compiled(recipe, [_folder(place) for place in includes])
    created = creation_time()
    is_open = recipe.program is None or recipe.wasm is not None
    warnings += checking.check(described, programs, is_open, lenient)
    built = Built(Layout(), name, "", created, warnings)
    _pack(built, text, _annotations(described, created), programs, recipe.wasm)
    return built


def _is_program_less(described: document.Document) -> bool:
    """Whether Inspektor Gadget's own operators make all data, as gadget.yaml asks for."""
    asked = {key.lower() for key in described.texts("annotations")}
    return described.root.get("operator") is not None or vocabulary.CONTAINERS in asked


def image_name(title: str, folder: str) -> str:
    """The image's name where none is asked for: `trace open` becomes `trace_open`.

    Names in gadget.yaml are for people; most of Inspektor Gadget's own have spaces.
    """
    with contextlib.suppress(UsageError):
        return str(names.parse(title))
    usual = re.sub(r"[^a-z0-9-]+", "_", title.lower()).strip("_-")
    return usual or Path(folder).resolve().name


def read_recipe(folder: str) -> Recipe:
    """Reads build.yaml, which may be missing: then all is where it usually is.

    Raises:
        UsageError: there is no such folder.
        GadgetInvalid: build.yaml names what is not there or cannot be built here.
    """
    root = _folder(folder)
    path = root / "build.yaml"
    said = {}
    if path.is_file():
        recipe = document.load(_content(path), _shown(path))
        said = {key: recipe.text(key) for key in recipe.check_keys(_DEFAULTS)}
    found = {key: _file(root, key, said.get(key), usual) for key, usual in _DEFAULTS.items()}
    metadata, program, wasm = found["metadata"], found["ebpfsource"], found["wasm"]
    if metadata is None:
        raise GadgetInvalid(
            f"{folder} has no gadget.yaml.",
            "Write one, it names the gadget and its fields; or name it in build.yaml as metadata.",
        )
    if wasm and wasm.suffix != ".wasm":
        raise GadgetInvalid(
            f"{wasm.name} would have to be compiled to WebAssembly, which igsdk does not do.",
            "Compile it yourself and name the .wasm file in build.yaml.",
        )
    return Recipe(program, wasm, metadata)


def _folder(place: str) -> Path:
    path = Path(place).resolve()
    if not path.is_dir():
        raise UsageError(f"{place} is no folder.", "Check the path.")
    return path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        cause = f"{_shown(path)} cannot be read: {error.strerror or error}."
        raise GadgetInvalid(cause, "Check its permissions.") from error


def _shown(path: Path) -> str:
    """A path as short as it can be said here."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def _file(root: Path, key: str, said: str | None, usual: str) -> Path | None:
    """The file that a key stands for; only the usual ones may be missing.

    It may lie outside the folder. Links are followed, so that what the compiler is told
    of paths is true.
    """
    path = (root / (said or usual)).resolve()
    if path.is_file():
        return path
    if said:
        raise GadgetInvalid(
            f"build.yaml: {key} names {said}, which is not there.", "Mend the path."
        )
    return None


def creation_time() -> int:
    """Seconds since 1970: SOURCE_DATE_EPOCH, else now.

    Raises:
        UsageError: SOURCE_DATE_EPOCH is no number.
    """
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not said:
        return int(time.time())
    if not said.isdecimal() or int(said) >= 1 << 33:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {said!r}.", "Set it to seconds since 1970, or not at all."
        )
    return int(said)


def _compiled(recipe: Recipe, includes: list[Path]) -> tuple[dict[str, bytes], list[str]]:
    """Objects by architecture, and the compiler's warnings."""
    if recipe.program is None:
        return dict.fromkeys(clang.ARCHITECTURES, b""), []
    compiler = clang.find_clang()
    strip = clang.find_strip(compiler) if compiler else None
    if compiler is None or strip is None:
        what = "clang" if compiler is None else "llvm-strip"
        raise ExtensionMissing(
            f"{what} is not installed.", "Install it: apt-get install clang llvm."
        )
    program = recipe.program

    def compiled(architecture: str) -> clang.Compiled:
        return clang.compile_object(compiler, strip, program, architecture, includes)

    with ThreadPoolExecutor() as pool:
        made = dict(zip(clang.ARCHITECTURES, pool.map(compiled, clang.ARCHITECTURES), strict=True))
    for one in made.values():
        if not one.data:
            raise _uncompilable(program, one.messages)
    said = "\n".join(one.messages for one in made.values()).splitlines()
    warnings = dict.fromkeys(line for line in said if "warning:" in line)
    return {architecture: one.data for architecture, one in made.items()}, list(warnings)


def _uncompilable(program: Path, messages: str) -> GadgetInvalid:
    """The first error of the compiler, with the remedy that it asks for."""
    lines = messages.strip().splitlines()
    first = next((line for line in lines if "error:" in line), lines[-1] if lines else "no reason")
    remedy = "Mend it; clang's own words follow the file's name."
    lacking = re.search(r"'([^']+)' file not found", first)
    if lacking:
        known = next((say for start, say in _HEADERS.items() if lacking[1].startswith(start)), "")
        remedy = f"Name the folder that holds this header with -I DIR{known}."
    return GadgetInvalid(f"{program.name} does not compile: {first.strip(' .')}.", remedy)


def _annotations(described: document.Document, created: int) -> dict[str, str]:
    """What describes the image on its manifests, its config and its index."""
    said = {name: described.text(key) for key, name in _REPEATED.items()}
    said[oci.CREATED] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
    # No version number: Inspektor Gadget would take it for one of its own builds.
    said[oci.BUILDER] = f"igsdk-{__version__}"
    said |= described.texts("annotations")
    return {key: value for key, value in sorted(said.items()) if value}


def _pack(
    built: Built,
    metadata: bytes,
    annotations: dict[str, str],
    programs: dict[str, bytes],
    wasm: Path | None,
) -> None:
    layout = built.layout
    config = layout.add(oci.CONFIG, metadata, annotations=annotations)
    manifests = []
    for architecture, program in sorted(programs.items()):
        layers = [layout.add(oci.PROGRAM, program)] if program else []
        layers += [layout.add(oci.WASM, _content(wasm))] if wasm else []
        platform = {"architecture": architecture, "os": "linux"}
        data = oci.manifest(config, layers, annotations)
        more = {"artifactType": oci.GADGET, "platform": platform, "annotations": annotations}
        manifests.append(layout.add(oci.MANIFEST, data, **more))
    top = layout.add(oci.INDEX, oci.index(manifests, annotations))
    layout.name(top, built.name)
    built.digest = top["digest"]
