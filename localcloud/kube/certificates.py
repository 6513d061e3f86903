# SPDX-License-Identifier: Apache-2.0
"""The local cloud's one certificate authority, made once per state folder; it issues what the servers show."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=3650)
CLOCK_SKEW: Final = timedelta(minutes=5)
LOOPBACK_NAMES: Final = ("localhost",)
LOOPBACK_ADDRESSES: Final = ("127.0.0.1",)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate:
    """Two PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAuthority:
    """An authority whose files are `certificate_path` and `key_path`."""

    certificate_path: Path
    key_path: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def in_folder(cls, folder: Path) -> "CertificateAuthority":
        """The authority `ca.crt`, `ca.key` of `folder`, made if either is missing."""
        certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
        if not (certificate_path.exists() and key_path.exists()):
            _make(certificate_path, key_path)
        key = load_pem_private_key(key_path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_path} is not an elliptic-curve key: delete it, and a new one is made")
        return cls(
            certificate_path=certificate_path,
            key_path=key_path,
            certificate=x509.load_pem_x509_certificate(certificate_path.read_bytes()),
            key=key,
        )

    def issue(
        self, folder: Path, name: str, *, dns_names: Sequence[str] = (), addresses: Sequence[str] = ()
    ) -> IssuedCertificate:
        """A server certificate for loopback and what is given, as `<name>.crt` and `<name>.key`."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [
            *(x509.DNSName(text) for text in (*LOOPBACK_NAMES, *dns_names)),
            *(x509.IPAddress(ipaddress.ip_address(text)) for text in (*LOOPBACK_ADDRESSES, *addresses)),
        ]
        authority = self.key.public_key()
        certificate = (
            _builder(_name(name), self.certificate.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            # Python 3.13 and later verify strictly and want it.
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        issued = IssuedCertificate(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
        issued.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        write_private(issued.key, _private_pem(key))
        return issued


def make_signing_key(private: Path, public: Path) -> None:
    """A key pair for ServiceAccount tokens. RSA: what the controller manager accepts in every version."""
    key = rsa.generate_private_key(65537, 2048)
    write_private(private, _private_pem(key))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _make(certificate_path: Path, key_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    name = _name("gpuheap local cloud")
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _private_pem(key))
    certificate_path.write_bytes(certificate.public_bytes(Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
