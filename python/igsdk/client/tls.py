# SPDX-License-Identifier: Apache-2.0
"""How a daemon behind TCP shows who it is, and we show it who we are."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import parse_qsl

from igsdk._errors import UsageError

if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True)
class TLS:
    """Files in PEM format, and a name.

    Args:
        ca: certificates of the authorities that may have signed the daemon's; without it
            those of this system.
        cert: our certificate, for a daemon that asks for one, with those between it and its
            authority.
        key: the private key of `cert`, without a password.
        server_name: the name that stands in the daemon's certificate, where it is reached by
            another one.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise UsageError("A certificate and its key go together.", "Name both, or neither.")


def from_query(query: str, target: str) -> TLS:
    """What stands behind the ? of a target.

    Raises:
        UsageError: it is something else, twice the same, or empty.
    """
    known = [field.name for field in fields(TLS)]
    given: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known or name in given or not value:
            raise UsageError(
                f"{name!r} in {target} makes no sense.", f"Once each: {', '.join(known)}, =VALUE."
            )
        given[name] = value
    return TLS(**given)


@dataclass(frozen=True)
class Files:
    """The bytes of what `TLS` names; None where it names nothing."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


def read_files(tls: TLS) -> Files:
    """Reads the files, and sees to it that they are what they are said to be.

    Raises:
        UsageError: one cannot be read or is something else, or they do not fit.
    """
    context_for(tls)
    ca = Path(tls.ca) if tls.ca else _authorities()
    return Files(
        ca.read_bytes() if ca else None,
        Path(tls.cert).read_bytes() if tls.cert else None,
        Path(tls.key).read_bytes() if tls.key else None,
    )


def _authorities() -> Path | None:
    """This system's file of them; gRPC has one of its own where there is none."""
    name = ssl.get_default_verify_paths().cafile
    return Path(name) if name else None


def context_for(tls: TLS) -> ssl.SSLContext:
    """The same for Python's own TLS, which says better what is wrong than gRPC's.

    Raises:
        UsageError: as `read_files`.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    try:
        if tls.ca:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.set_alpn_protocols(["h2"])
            context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        _complain(tls.ca, error, "certificates of authorities")
    try:
        if tls.cert and tls.key:
            Path(tls.key).open("rb").close()
            context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        wrong = tls.key if getattr(error, "filename", None) == tls.key else tls.cert
        _complain(wrong, error, f"a certificate with the key {tls.key}")
    return context


def _no_password() -> NoReturn:
    raise UsageError(
        "The private key has a password.",
        "Take it off: openssl pkey -in KEY -out NEW, into a file that only you may read.",
    )


def _complain(path: str | None, error: OSError, what: str) -> NoReturn:
    if isinstance(error, ssl.SSLError) or error.strerror is None:
        raise UsageError(f"{path} is not {what}.", "Give PEM files that fit.") from error
    raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
