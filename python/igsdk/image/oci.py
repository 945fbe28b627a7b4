# SPDX-License-Identifier: Apache-2.0
"""The documents of an OCI image, as Inspektor Gadget reads them.

Documents are bytes from the moment that they are made: their digest is what names
them, so nothing is ever parsed and written again.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
GADGET = "application/vnd.gadget.v1+binary"
CONFIG = "application/vnd.gadget.config.v1+yaml"
PROGRAM = "application/vnd.gadget.ebpf.program.v1+binary"
WASM = "application/vnd.gadget.wasm.program.v1+binary"
BTFGEN = "application/vnd.gadget.btfgen.v1+binary"
REF_NAME = "org.opencontainers.image.ref.name"
CREATED = "org.opencontainers.image.created"
TITLE = "org.opencontainers.image.title"
BUILDER = "io.inspektor-gadget.builder.version"

Json = dict[str, Any]


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def encode(document: Mapping[str, Any]) -> bytes:
    """One document as bytes, the same for the same content."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def descriptor(media_type: str, data: bytes, **more: Any) -> Json:
    """What one document says of another; empty fields are left out."""
    named = {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}
    return named | {key: value for key, value in more.items() if value}


def manifest(config: Json, layers: list[Json], annotations: Mapping[str, str]) -> bytes:
    """The image of one architecture."""
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": GADGET,
            "config": config,
            "layers": layers,
            "annotations": dict(annotations),
        }
    )


def index(manifests: list[Json], annotations: Mapping[str, str]) -> bytes:
    """What a tag stands for; each manifest has its platform."""
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": manifests,
            "annotations": dict(annotations),
        }
    )


def is_descriptor(found: Any) -> bool:
    """Whether something read from JSON may be used as a descriptor."""
    return (
        isinstance(found, dict)
        and isinstance(found.get("mediaType"), str)
        and isinstance(found.get("digest"), str)
        and type(found.get("size")) is int
        and is_texts(found.get("annotations"))
        and _is_platform(found.get("platform"))
    )


def _is_platform(found: Any) -> bool:
    if not isinstance(found or {}, dict):
        return False
    return all(isinstance((found or {}).get(key, ""), str) for key in ("architecture", "os"))


def architecture_of(entry: Mapping[str, Any]) -> str:
    """For which machines the image is that an index lists, or nothing."""
    return str((entry.get("platform") or {}).get("architecture", ""))


def is_texts(found: Any) -> bool:
    """Whether something is a mapping of texts, or left out."""
    return found is None or (
        isinstance(found, dict) and all(isinstance(text, str) for text in found.values())
    )
