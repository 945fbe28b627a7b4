# SPDX-License-Identifier: Apache-2.0
"""Finds out what answers at an address before gRPC does, which only says "unavailable".

A connection of its own: as far as the daemon shows that it speaks HTTP/2, over TLS or not.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from igsdk._errors import TargetUnavailable
from igsdk.client.address import knock_socket
from igsdk.client.tls import context_for

if TYPE_CHECKING:
    from igsdk.client.address import Address
    from igsdk.client.tls import TLS

#: how a client of HTTP/2 begins, with settings that change nothing
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME = 9
_SETTINGS = 4
# A server says its settings at once; one that takes longer is left to gRPC's patience.
_PATIENCE = 1.0


@dataclass(frozen=True)
class Handshake:
    """What a daemon showed.

    Attributes:
        version: such as "TLSv1.3".
        names: whom its certificate is for.
        until: when that ends, seconds since 1970.
    """

    version: str
    names: tuple[str, ...]
    until: int


def knock(address: Address, timeout: float) -> Handshake | None:
    """Connects, over TLS where the address says so.

    Returns:
        What the daemon showed, of TLS only.

    Raises:
        TargetUnavailable: nobody is there, it speaks with TLS and we without or the other way
            round, one of us does not know the other's certificate.
        PermissionMissing: a socket that is not for us.
        UsageError: our own files are no good.
    """
    if address.path:
        knock_socket(address.path)
        return None
    if address.tls is not None:
        context = context_for(address.tls)
        with _connected(address, timeout) as raw:
            return _over_tls(raw, address, address.tls, context)
    with _connected(address, timeout) as raw:
        frame = _first_frame(raw)
        if frame is not None and not _is_http2(frame) and _speaks_tls(address, timeout):
            raise TargetUnavailable(
                f"{address.shown} speaks over TLS.",
                "Write tcp+tls:// with ?ca=FILE, the authority of its certificate.",
            )
    return None


def _connected(address: Address, timeout: float) -> socket.socket:
    where = address.shown
    try:
        return socket.create_connection((address.host, address.port), timeout)
    except (socket.gaierror, UnicodeError) as error:  # no such name, or none at all
        raise TargetUnavailable(
            f"There is no host {address.host}.", "Check the name, and the network."
        ) from error
    except ConnectionRefusedError as error:
        raise TargetUnavailable(
            f"Nobody listens at {where}.", "Start the daemon there, or check the port."
        ) from error
    except TimeoutError as error:
        raise TargetUnavailable(
            f"{where} did not let us connect within {timeout:g} s.",
            "Check the address, and firewalls on the way.",
        ) from error
    except OSError as error:
        raise TargetUnavailable(
            f"{where} cannot be reached: {error.strerror or error}.", "Check the network."
        ) from error


def _first_frame(stream: socket.socket) -> bytes | None:
    """The head of its first frame; empty where it ends the connection, None: it says nothing."""
    stream.settimeout(_PATIENCE)
    try:
        stream.sendall(_PREFACE)
        return stream.recv(_FRAME)
    except TimeoutError:
        return None
    except ssl.SSLError:
        raise
    except OSError:
        return b""


def _is_http2(frame: bytes) -> bool:
    return len(frame) > 3 and frame[3] == _SETTINGS


def _speaks_tls(address: Address, timeout: float) -> bool:
    """Whether it does, whoever it is: nothing is told to it and nothing of it is believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connected(address, timeout) as raw, context.wrap_socket(raw):
            return True
    except (OSError, TargetUnavailable):
        return False


def _over_tls(raw: socket.socket, address: Address, tls: TLS, context: ssl.SSLContext) -> Handshake:
    name = tls.server_name or address.host
    try:
        with context.wrap_socket(raw, server_hostname=name) as stream:
            shown = _handshake(stream)
            # With TLS 1.3 a daemon looks at our certificate after we took the connection
            # for made, and its complaint comes when we read; or it just ends the connection.
            if _first_frame(stream) == b"":
                raise _refusing("it ends the connection", address, tls)
            return shown
    except ssl.SSLCertVerificationError as error:
        raise _not_believed(error, address, tls, name) from error
    except ssl.SSLError as error:
        raise _refused(error, address, tls) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it ends the connection"
        raise TargetUnavailable(
            f"{address.shown} does not answer over TLS: {reason}.",
            "Check that the daemon has a certificate (tcp:// is without one).",
        ) from error


def _handshake(stream: ssl.SSLSocket) -> Handshake:
    shown = stream.getpeercert() or {}
    alternatives: tuple[tuple[str, str], ...] = shown.get("subjectAltName", ())  # type: ignore[assignment]
    until = ssl.cert_time_to_seconds(str(shown["notAfter"])) if "notAfter" in shown else 0
    return Handshake(stream.version() or "TLS", tuple(name for _, name in alternatives), until)


def _not_believed(
    error: ssl.SSLCertVerificationError, address: Address, tls: TLS, name: str
) -> TargetUnavailable:
    why = (error.verify_message or str(error)).rstrip(".")
    if "mismatch" in why or "not valid for" in why:
        return TargetUnavailable(
            f"The certificate of {address.shown} is not for {name!r}: {why}.",
            "Give the name that stands in it as server_name.",
        )
    if "expired" in why or "not yet valid" in why:
        return TargetUnavailable(
            f"The certificate of {address.shown}: {why}.",
            "Renew it on the daemon's machine, and check both clocks.",
        )
    whose = f"an authority in {tls.ca}" if tls.ca else "an authority that this system knows"
    return TargetUnavailable(
        f"The certificate of {address.shown} is not by {whose}: {why}.",
        "Name the file with the daemon's authority as ca.",
    )


def _refused(error: ssl.SSLError, address: Address, tls: TLS) -> TargetUnavailable:
    why = (error.reason or str(error)).lower().replace("_", " ")
    if "wrong version number" in why or "record layer" in why:
        return TargetUnavailable(
            f"{address.shown} speaks without TLS.",
            "Write tcp://, or give the daemon a certificate.",
        )
    return _refusing(why, address, tls)


def _refusing(why: str, address: Address, tls: TLS) -> TargetUnavailable:
    """After its own certificate was good."""
    if tls.cert is None:
        return TargetUnavailable(
            f"{address.shown} asks for a certificate of ours: {why}.",
            "Name it and its key as cert and key.",
        )
    return TargetUnavailable(
        f"{address.shown} does not take our connection: {why}.",
        "Use a certificate by the authority that the daemon knows (tls-client-ca-file).",
    )
