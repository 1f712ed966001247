"""Keys and certificates of an authority, servers and clients; the authority signs its own certificate, too."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATE: Final = timedelta(minutes=5)
"""A certificate is valid from so long before it is made, for machines whose clock is behind."""

_LONGEST_NAME: Final = 64
"""Maximum length of a common name (`ub-common-name` of RFC 5280)."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and the certificate of its public key."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def from_pem(cls, certificate: bytes, key: bytes) -> "KeyPair":
        """Read a key and its certificate, the first in `certificate`.

        Raises ValueError or TypeError if they cannot be read, ValueError if they do not belong together.
        """
        loaded = x509.load_pem_x509_certificate(certificate)
        private_key = serialization.load_pem_private_key(key, password=None)
        if not isinstance(private_key, ec.EllipticCurvePrivateKey) or private_key.public_key() != loaded.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(private_key, loaded)


def to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key in PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def make_authority(name: str, *, now: datetime, life: timedelta) -> KeyPair:
    """Make an authority, which cannot sign other authorities."""
    key, subject = make_key(), _subject(name)
    builder = (
        _start_certificate(key, subject, subject, now=now, life=life)
        # It goes into caBundle, so whoever got hold of the key could sign servers, but no further authorities.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    return KeyPair(key, builder.sign(key, hashes.SHA256()))


def sign_server(authority: KeyPair, name: str, hosts: Sequence[str], *, now: datetime, life: timedelta) -> KeyPair:
    """Make a server's certificate for the names and addresses by which clients call it."""
    key = make_key()
    builder = _start_leaf(key, _subject(name[:_LONGEST_NAME]), authority, now=now, life=life)
    extensions = (
        x509.SubjectAlternativeName([_general_name(host) for host in hosts]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(key, builder.sign(authority.key, hashes.SHA256()))


def sign_client(authority: KeyPair, user: str, groups: Sequence[str], *, now: datetime, life: timedelta) -> KeyPair:
    """Make a client's certificate: Kubernetes reads the user from the common name, groups from organisations."""
    key = make_key()
    builder = _start_leaf(key, _subject(user, groups), authority, now=now, life=life)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    return KeyPair(key, builder.add_extension(usage, critical=False).sign(authority.key, hashes.SHA256()))


def _start_leaf(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, authority: KeyPair, *, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    """Return a builder with the fields that certificates of servers and clients share."""
    # Python 3.13 verifies strictly (VERIFY_X509_STRICT, python/cpython#107361), and so asks for this extension.
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _start_certificate(key, subject, authority.certificate.subject, now=now, life=life)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(issuer_key, critical=False)
    )


def _start_certificate(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, *, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    """Return a builder with the fields that all certificates share."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # API servers on nodes whose clock is behind would refuse a certificate of this moment.
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    """Return the permitted uses of a key: an authority's key signs certificates, any other signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        # Go verifies an address against IP entries alone, and ignores the common name (since 1.15).
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
