# SPDX-License-Identifier: Apache-2.0
"""Signatures as cosign makes them with a key: simple signing, under the tag `….sig`.

Inspektor Gadget refuses images without one by default. It looks for the tag
`sha256-HEX.sig` beside the image, takes exactly one layer there, and compares the
digest in its payload with the image's index.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from igsdk._errors import UsageError
from igsdk.image import oci
from igsdk.image.document import extra_missing
from igsdk.image.inspection import SIGNATURE
from igsdk.image.layout import entry_name
from igsdk.image.registry import signature_tag

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from igsdk.image.layout import Layout

ANNOTATION = "dev.cosignproject.cosign/signature"
PASSWORD = "COSIGN_PASSWORD"  # noqa: S105
_CONFIG = "application/vnd.oci.image.config.v1+json"
_NEVER = "0001-01-01T00:00:00Z"
_MAKE_ONE = "Make one: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem."


def sign(layout: Layout, key: EllipticCurvePrivateKey, repository: str) -> oci.Json:
    """Adds a signature of the image to its layout; an older one goes.

    Args:
        repository: the image's name without a tag, which the payload repeats.

    Returns:
        The descriptor of the signature's manifest.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    digest = layout.image()["digest"]
    said = payload(repository, digest)
    signature = base64.b64encode(key.sign(said, ECDSA(SHA256()))).decode()
    layer = layout.add(SIGNATURE, said, annotations={ANNOTATION: signature})
    config = layout.add(_CONFIG, _config(layer["digest"]))
    manifest = {"schemaVersion": 2, "mediaType": oci.MANIFEST, "config": config, "layers": [layer]}
    data = oci.encode(manifest)
    made = oci.descriptor(oci.MANIFEST, data)
    tag = signature_tag(digest)
    for old in [one for one in layout.entries if entry_name(one).endswith(tag)]:
        layout.entries.remove(old)
        layout.blobs.pop(old["digest"], None)
    layout.blobs[made["digest"]] = data
    # Without the image's name: so Inspektor Gadget looks it up in its own store.
    layout.name(made, tag)
    return made


def payload(repository: str, digest: str) -> bytes:
    """What is signed."""
    return oci.encode(
        {
            "critical": {
                "identity": {"docker-reference": repository},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    )


def _config(layer: str) -> bytes:
    """An image config that says nothing, as cosign writes it."""
    return oci.encode(
        {
            "architecture": "",
            "created": _NEVER,
            "history": [{"created": _NEVER}],
            "os": "",
            "rootfs": {"type": "layers", "diff_ids": [layer]},
            "config": {},
        }
    )


def read_key(path: str) -> EllipticCurvePrivateKey:
    """Reads a private key; the variable COSIGN_PASSWORD opens one with a password.

    Raises:
        UsageError: it is no private ECDSA key on the curve P-256, or does not open.
        ExtensionMissing: the package that knows keys is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise extra_missing("cryptography") from error
    data = _read(path)
    password = os.environ.get(PASSWORD)
    is_open = b"ENCRYPTED" not in data
    try:
        key = load_pem_private_key(data, None if is_open else (password or "").encode())
    except Exception as error:
        raise _unreadable(path, data, password) from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise UsageError(f"{path} is no ECDSA key on the curve P-256.", _MAKE_ONE)
    return key


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        cause = f"{path} cannot be read: {error.strerror or error}."
        raise UsageError(cause, "Name the file that holds your private key.") from error
    if b"SIGSTORE PRIVATE KEY" in data or b"COSIGN PRIVATE KEY" in data:
        raise UsageError(
            f"{path} is a key as `cosign generate-key-pair` encrypts them, which igsdk can't open.",
            f"Sign with cosign, or with a key in PKCS#8. {_MAKE_ONE}",
        )
    if b"PRIVATE KEY" not in data and b"PUBLIC KEY" in data:
        raise UsageError(f"{path} is a public key.", "Name the private one, which signs.")
    return data


def _unreadable(path: str, data: bytes, password: str | None) -> UsageError:
    if b"ENCRYPTED" in data and password is None:
        return UsageError(f"{path} has a password.", f"Put it into the variable {PASSWORD}.")
    if b"ENCRYPTED" in data:
        return UsageError(f"The password in {PASSWORD} does not open {path}.", "Mend it.")
    return UsageError(f"{path} is no private key in PEM.", _MAKE_ONE)
