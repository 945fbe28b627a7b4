# SPDX-License-Identifier: Apache-2.0
"""All checks of a gadget, and their findings as one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._errors import GadgetInvalid
from igsdk.image import elf, metadata, sources, traps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from igsdk.image.document import Document


def check(
    document: Document, programs: Mapping[str, bytes], is_open: bool, lenient: bool = False
) -> list[str]:
    """Checks the objects of all architectures against the metadata.

    Args:
        programs: by architecture; nothing where the gadget has no program.
        is_open: something else makes data sources and fields too, of which nothing tells:
            a WebAssembly module, or Inspektor Gadget's own operators.
        lenient: what gadget.yaml says in vain becomes a warning.

    Returns:
        Warnings.

    Raises:
        GadgetInvalid: lists all that is wrong, with lines of gadget.yaml.
    """
    found, doubts = Found(), Found()
    vain = doubts if lenient else found
    shapes = set()
    for architecture, data in sorted(programs.items()):
        program = elf.read(data, f"The program for {architecture}") if data else elf.Object()
        declared = sources.declared(program)
        shapes.add(str([(one.name, one.fields) for one in declared.sources.values()]))
        if data:
            doubts.add(traps.warnings(document, program, declared))
            found.add(declared.problems, traps.check(document, program, declared))
        said = metadata.check(document, program, declared, is_open)
        vain.add(f"{document.where}:{one.line}: {one.text}" for one in said)
    if len(shapes) > 1:
        found.add(["the data sources differ between architectures, which one client can't read"])
    if found:
        raise _invalid(list(found))
    return list(doubts)


class Found(dict[str, None]):
    """Sentences in their order, each once."""

    def add(self, *texts: Iterable[str]) -> None:
        for some in texts:
            self.update(dict.fromkeys(some))


def _invalid(found: list[str]) -> GadgetInvalid:
    remedy = "Mend them and build again."
    if len(found) == 1:
        return GadgetInvalid(f"{found[0]}.", "Mend it and build again.")
    listed = "".join(f"\n  {text}" for text in found)
    return GadgetInvalid(f"{len(found)} things do not fit:{listed}.", remedy)
