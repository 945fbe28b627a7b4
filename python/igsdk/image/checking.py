# SPDX-License-Identifier: Apache-2.0
"""All checks of a gadget, and their findings as one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._errors import GadgetInvalid
from igsdk.image import elf, metadata, sources, traps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from igsdk.image.document import Document


def check(document: Document, programs: Mapping[str, bytes], has_wasm: bool) -> list[str]:
    """Checks the objects of all architectures against the metadata.

    A WebAssembly module makes data sources and fields that nothing tells of, so beside
    one the metadata is not compared.

    Returns:
        Warnings.

    Raises:
        GadgetInvalid: lists all that is wrong, with lines of gadget.yaml.
    """
    found: dict[str, None] = {}
    doubts: dict[str, None] = {}
    shapes = {}
    for architecture, data in sorted(programs.items()):
        if not data:
            continue
        program = elf.read(data, f"The program for {architecture}")
        declared = sources.declared(program)
        shapes[architecture] = [(one.name, one.fields) for one in declared.sources.values()]
        doubts |= dict.fromkeys(traps.warnings(program, declared))
        found |= dict.fromkeys(declared.problems + traps.check(document, program, declared))
        if not has_wasm:
            for problem in metadata.check(document, program, declared):
                found[f"{document.where}:{problem.line}: {problem.text}"] = None
    if len({str(shape) for shape in shapes.values()}) > 1:
        found["the data sources differ between architectures, which one client can't read"] = None
    if found:
        raise _invalid(list(found))
    return list(doubts)


def _invalid(found: list[str]) -> GadgetInvalid:
    remedy = "Mend them and build again."
    if len(found) == 1:
        return GadgetInvalid(f"{found[0]}.", "Mend it and build again.")
    listed = "".join(f"\n  {text}" for text in found)
    return GadgetInvalid(f"{len(found)} things do not fit:{listed}.", remedy)
