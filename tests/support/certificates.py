# SPDX-License-Identifier: Apache-2.0
"""An authority for tests, and certificates by it."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """One that signs; `file` is its own certificate."""

    folder: Path
    file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def sign(self, name: str, *others: str, days: int = 30) -> tuple[Path, Path]:
        """A certificate for these names and addresses, and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_name(one) for one in (name, *others)])
        built = _builder(name, key, self.certificate.subject, days).add_extension(
            alternatives, critical=False
        )
        stem = self.folder / name.replace(":", "-")
        return _write(stem, built.sign(self.key, hashes.SHA256()), key)


def authority(folder: Path, name: str = "tests") -> Authority:
    """Makes one."""
    key = ec.generate_private_key(ec.SECP256R1())
    built = _builder(name, key, _subject(name), 30).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    certificate = built.sign(key, hashes.SHA256())
    file, _ = _write(folder / f"authority-{name}", certificate, key)
    return Authority(folder, file, certificate, key)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _write(
    stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    files = stem.with_suffix(".pem"), stem.with_suffix(".key")
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
