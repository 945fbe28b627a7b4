# SPDX-License-Identifier: Apache-2.0
"""An authority of the cluster's own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=2)


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Makes a key and writes it, and its public half beside it as ``.pub``."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(pem, public))
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """Signs; its own certificate is ``ca.crt`` in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = write_key(folder / "ca.key")
        self._subject = _name("igsdk's test cluster")
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._subject, self._key).add_extension(constraints, critical=True)
        self.certificate = folder / "ca.crt"
        self._sign(builder, self.certificate)

    def issue(self, name: str, common: str, *addresses: str) -> tuple[Path, Path]:
        """``name``.crt and ``name``.key, for a client or for a server at these addresses."""
        key = write_key(self._folder / f"{name}.key")
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_name(common), key)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if addresses:
            listed = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
            names = x509.SubjectAlternativeName(listed)
            builder = builder.add_extension(names, critical=False)
        certificate = self._folder / f"{name}.crt"
        self._sign(builder, certificate)
        return certificate, self._folder / f"{name}.key"

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _LIFE)
        )

    def _sign(self, builder: x509.CertificateBuilder, path: Path) -> None:
        signed = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
