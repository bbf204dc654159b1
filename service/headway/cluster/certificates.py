"""A self-signed serving certificate, for clusters in which nobody else makes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=120)
CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM, both."""

    certificate: str
    key: str


def make_certificate(names: Sequence[str], now: datetime) -> KeyPair:
    """For the DNS ``names``; its own authority, so whoever trusts it trusts nothing else by that."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(_pem(certificate), _key_pem(key))


def is_due(certificate_pem: str, names: Sequence[str], now: datetime) -> bool:
    """Whether it should be made anew: soon over, or for other names. Raises ``ValueError`` if it is no certificate."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return True
    has_names = set(extension.value.get_values_for_type(x509.DNSName)) >= set(names)
    return not has_names or now > certificate.not_valid_after_utc - RENEW_BEFORE


def utc_now() -> datetime:
    return datetime.now(UTC)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    no_password = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password).decode()
