# SPDX-License-Identifier: Apache-2.0
"""What an image consists of and what its gadget shows, with every digest checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from igsdk._errors import ImageUnreadable
from igsdk.image import contents, oci
from igsdk.image.layout import entry_name

if TYPE_CHECKING:
    from igsdk.image.layout import Layout

SIGNATURE = "application/vnd.dev.cosign.simplesigning.v1+json"
_BUILT_ELSEWHERE = "Build it with `igsdk gadget build` or `ig image build`."

#: what one document may list; each is asked for, and gadgets have two of each at most
_MOST = 256
#: media type -> what it holds
MEANINGS = {
    oci.PROGRAM: "BPF program",
    oci.WASM: "WebAssembly module",
    oci.BTFGEN: "types of kernels that have none",
    oci.CONFIG: "metadata: gadget.yaml",
    oci.EMPTY: "no metadata",
}


def inspect(layout: Layout) -> dict[str, Any]:
    """Everything that can be said of an image without running it; the keys are stable.

    Raises:
        ImageUnreadable: it is no gadget image, or a part is missing or has other bytes.
        GadgetInvalid: its program or its metadata cannot be read.
    """
    top = layout.image()
    listed = parsed(layout, top, "index")
    images = [_image(layout, entry) for entry in listed["manifests"]]
    if not images:
        raise ImageUnreadable(f"{layout.where} lists no architecture.", _BUILT_ELSEWHERE)
    return {
        "name": entry_name(top),
        "file": layout.where if Path(layout.where).exists() else "",
        "digest": top["digest"],
        "size": sum(map(len, layout.blobs.values())),
        "annotations": listed.get("annotations") or {},
        "architectures": images,
        "signatures": signatures(layout),
        **contents.describe(*_first(layout, images[0])),
    }


def parsed(layout: Layout, descriptor: oci.Json, what: str) -> oci.Json:
    """A JSON document that lists others.

    Raises:
        ImageUnreadable: it is something else.
    """
    data = layout.blob(descriptor)
    try:
        found = json.loads(data)
        listed = list(found["manifests" if what == "index" else "layers"])
        if what == "manifest":
            listed.append(found["config"])
        if (
            len(listed) > _MOST
            or not all(map(oci.is_descriptor, listed))
            or not oci.is_texts(found.get("annotations"))
        ):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        cause = f"{layout.where}: {descriptor['digest']} is no image {what}."
        raise ImageUnreadable(cause, _BUILT_ELSEWHERE) from error
    if descriptor.get("size", len(data)) != len(data):
        raise ImageUnreadable(
            f"{layout.where}: {descriptor['digest']} has {len(data)} bytes, not the "
            f"{descriptor['size']} that are said of it.",
            _BUILT_ELSEWHERE,
        )
    return dict(found)


def _image(layout: Layout, entry: oci.Json) -> dict[str, Any]:
    """One architecture."""
    platform = entry.get("platform") or {}
    if not platform.get("architecture"):
        raise ImageUnreadable(
            f"{layout.where}: {entry['digest']} is listed without its architecture, at which "
            "Inspektor Gadget crashes.",
            _BUILT_ELSEWHERE,
        )
    found = parsed(layout, entry, "manifest")
    layers = [_layer(layout, layer) for layer in found["layers"]]
    return {
        "architecture": platform["architecture"],
        "os": platform.get("os", ""),
        "digest": entry["digest"],
        "config": _layer(layout, found["config"]),
        "layers": layers,
        "annotations": found.get("annotations") or {},
    }


def _layer(layout: Layout, layer: oci.Json) -> dict[str, Any]:
    data, kind = layout.blob(layer), layer.get("mediaType", "")
    if layer.get("size", len(data)) != len(data):
        raise ImageUnreadable(
            f"{layout.where}: {layer['digest']} has another length than is said of it.",
            _BUILT_ELSEWHERE,
        )
    meaning = MEANINGS.get(kind, "unknown to Inspektor Gadget, which passes it over")
    return {"media_type": kind, "digest": layer["digest"], "size": len(data), "meaning": meaning}


def check_whole(layout: Layout) -> None:
    """Finds out whether all parts of the image are there and have the bytes of their digests.

    Raises:
        ImageUnreadable: one is not.
    """
    for entry in parsed(layout, layout.image(), "index")["manifests"]:
        found = parsed(layout, entry, "manifest")
        for part in (found["config"], *found["layers"]):
            _layer(layout, part)


def signatures(layout: Layout) -> list[dict[str, str]]:
    """The cosign signatures in it, by the tag that names what is signed."""
    found = []
    for entry in layout.entries:
        tag = entry_name(entry).rpartition(":")[2]
        if tag.startswith("sha256-") and tag.endswith(".sig"):
            signed = tag.removesuffix(".sig").replace("-", ":", 1)
            found.append({"of": signed, "digest": str(entry["digest"])})
    return found


def _first(layout: Layout, image: dict[str, Any]) -> tuple[bytes, bytes, bool]:
    """Metadata and program of one architecture, empty where there is none; and if it is all."""
    config, kinds = image["config"], [layer["media_type"] for layer in image["layers"]]
    metadata = layout.blob(config) if config["media_type"] == oci.CONFIG else b""
    found = [layer for layer in image["layers"] if layer["media_type"] == oci.PROGRAM]
    is_open = not found or oci.WASM in kinds
    return metadata, layout.blob(found[0]) if found else b"", is_open
