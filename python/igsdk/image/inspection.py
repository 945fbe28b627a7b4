# SPDX-License-Identifier: Apache-2.0
"""What an image consists of and what its gadget shows, with every digest checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from igsdk._errors import ImageUnreadable
from igsdk.image import document, elf, fields, oci, parameters, programs, sources
from igsdk.image.findings import under
from igsdk.image.layout import entry_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igsdk.image.elf import Object
    from igsdk.image.layout import Layout
    from igsdk.image.sources import Source

SIGNATURE = "application/vnd.dev.cosign.simplesigning.v1+json"
_BUILT_ELSEWHERE = "Build it with `igsdk gadget build` or `ig image build`."

#: keys of gadget.yaml that say where to read more
LINKS = ("homepageURL", "documentationURL", "sourceURL")
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
        "digest": top["digest"],
        "size": sum(map(len, layout.blobs.values())),
        "annotations": listed.get("annotations") or {},
        "architectures": images,
        "signatures": signatures(layout),
        **_gadget(layout, images[0]),
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
        if not all(map(oci.is_descriptor, listed)) or not oci.is_texts(found.get("annotations")):
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


def _gadget(layout: Layout, image: dict[str, Any]) -> dict[str, Any]:
    """What the gadget is and shows, from its metadata and its program."""
    metadata = b""
    if image["config"]["media_type"] == oci.CONFIG:
        metadata = layout.blob(image["config"])
    described = document.load(metadata, "gadget.yaml")
    data = [layer for layer in image["layers"] if layer["media_type"] == oci.PROGRAM]
    program = elf.read(layout.blob(data[0]), "the program") if data else None
    found = sources.declared(program) if program else sources.Declared()
    return {
        "metadata": metadata.decode("utf-8", "replace"),
        "title": described.text("name"),
        "description": described.text("description"),
        "links": {key: text for key in LINKS if (text := described.text(key))},
        "defaults": texts(described.root.get("paramDefaults")),
        "programs": [_program(described, one) for one in program.programs] if program else [],
        "maps": [_map(one) for one in program.maps.values()] if program else [],
        "license": program.license if program else "",
        "parameters": list(_parameters(described, found)),
        "datasources": [_source(described, program, one) for one in found.sources.values()],
        "problems": found.problems,
    }


def _program(described: document.Document, one: elf.Program) -> dict[str, str]:
    place = programs.attached_to(described, one.name)
    return {"name": one.name, "section": one.section, "attach_to": place}


def _map(one: elf.Map) -> dict[str, Any]:
    sizes = {"key_size": one.key_size, "value_size": one.value_size}
    return {
        "name": one.name,
        "type": one.type,
        **sizes,
        "max_entries": one.max_entries,
        "programs": list(one.programs),
    }


def _parameters(described: document.Document, found: sources.Declared) -> Iterator[dict[str, str]]:
    """Those of the program, then those that a module or gadget.yaml alone has."""
    for one in found.parameters.values():
        said = parameters.said_of(described, one)
        yield {
            "key": _text(said, "key") or one.key,
            "type": one.kind,
            "default": one.default or _text(said, "defaultValue"),
            "description": _text(said, "description"),
            "variable": one.variable,
        }
    for kind in ("wasm", "custom"):
        listed = under(described.root, "params", kind)
        for name, said in listed.items() if listed else ():
            yield {
                "key": _text(said, "key") or name,
                "type": _text(said, "typeHint") or _text(said, "type"),
                "default": _text(said, "defaultValue"),
                "description": _text(said, "description"),
                "variable": "",
            }


def _text(said: document.Value | None, key: str) -> str:
    value = said.get(key) if said else None
    return value.text() if value else ""


def _source(described: document.Document, program: Object | None, one: Source) -> dict[str, Any]:
    said = under(described.root, "datasources", one.name)
    notes = said.get("annotations") if said else None
    listed = said.get("fields") if said else None
    all_fields = list(one.fields)
    if program:
        all_fields += fields.added(program.btf, one.fields, targets(said))
    return {
        "name": one.name,
        "shape": "array" if one.array else "single",
        "filled_by": one.how,
        "annotations": texts(notes),
        "fields": [_field(each, listed) for each in all_fields],
    }


def _field(one: fields.Field, listed: document.Value | None) -> dict[str, Any]:
    said = listed.get(one.name) if listed else None
    notes = texts(said.get("annotations") if said else None)
    return {
        "name": one.name,
        "kind": one.kind,
        "offset": one.offset,
        "size": one.size,
        "part": one.part,
        "description": notes.get("description", ""),
        "hidden": notes.get("columns.hidden", "").lower() == "true",
        "annotations": notes,
    }


def texts(value: document.Value | None) -> dict[str, str]:
    """A mapping of texts; names in lower case, as they are compared."""
    return {name.lower(): each.text() for name, each in document.flat(value)}


def targets(source: document.Value | None) -> dict[tuple[str, str], str]:
    """The names that gadget.yaml gives to texts beside fields, by (field, annotation)."""
    listed = source.get("fields") if source else None
    return {
        (name, key): text
        for name, value in (listed.items() if listed else ())
        for key, text in texts(value.get("annotations")).items()
    }
