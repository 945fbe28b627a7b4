# SPDX-License-Identifier: Apache-2.0
"""What one machine takes from an image: the program for its architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from igsdk._errors import GadgetInvalid, ImageUnreadable
from igsdk.image import oci
from igsdk.image.inspection import parsed
from igsdk.image.layout import entry_name

if TYPE_CHECKING:
    from igsdk.image.layout import Layout


def program_for(layout: Layout, architecture: str) -> bytes:
    """The object that Inspektor Gadget would load on such a machine.

    Raises:
        ImageUnreadable: it is no gadget image, has nothing for the architecture, or a part
            is missing or has other bytes.
        GadgetInvalid: the gadget has no BPF program.
    """
    entries = parsed(layout, layout.image(), "index")["manifests"]
    wanted = [entry for entry in entries if oci.architecture_of(entry) == architecture]
    if not wanted:
        others = ", ".join(sorted({oci.architecture_of(entry) or "unknown" for entry in entries}))
        raise ImageUnreadable(
            f"{layout.where} has no program for {architecture}, only for {others or 'nothing'}.",
            "Build it again with `igsdk gadget build`, which makes amd64 and arm64.",
        )
    layers = parsed(layout, wanted[0], "manifest")["layers"]
    programs = [layer for layer in layers if layer["mediaType"] == oci.PROGRAM]
    if not programs:
        raise GadgetInvalid(
            f"{layout.where} has no BPF program for {architecture}, so it has no local runtime.",
            "Name an image of igsdk's profile_cuda_memory.",
        )
    return layout.blob(programs[0])


def identity(layout: Layout) -> str:
    """What tells this image from all others: its name, or else its place, and its digest."""
    top = layout.image()
    name = entry_name(top).partition("@")[0] or layout.where
    return f"{name}@{top['digest']}"
