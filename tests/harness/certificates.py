"""Certificates of a test's own authority, for servers on loopback.

They have the extensions that RFC 5280 wants: Python 3.13 and newer trust no others.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
_SERVER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])


def write_certificates(folder: Path) -> tuple[Path, Path]:
    """Write `authority.pem`, and the key and certificate of a server, which are returned."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _certificate(_AUTHORITY, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signs_certificates(), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    certificate = (
        _certificate(_SERVER, key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "authority.pem").write_bytes(authority.public_bytes(pem))
    (folder / "server.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "server.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "server.key", folder / "server.pem"


def _certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(_AUTHORITY)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _signs_certificates() -> x509.KeyUsage:
    return x509.KeyUsage(
        key_cert_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
