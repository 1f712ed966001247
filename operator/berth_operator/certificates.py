"""Owns the webhook's certificates: making them, keeping them in a Secret, renewing them in time.

It does not own the server that uses them.
"""

import base64
import ipaddress
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.names import WEBHOOK_SECRET

_AUTHORITY_LIFE: Final = timedelta(days=3650)
_LEAF_LIFE: Final = timedelta(days=365)
_RENEW_BEFORE: Final = timedelta(days=90)
_BACKDATE: Final = timedelta(minutes=5)
_SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """A certificate authority of our own and the server certificate it signed, all PEM."""

    authority: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    def to_secret(self, namespace: str) -> dict[str, Any]:
        """Return the Secret that both replicas share."""
        values = (self.authority, self.authority_key, self.certificate, self.key)
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": WEBHOOK_SECRET,
                "namespace": namespace,
                "labels": {MANAGED_LABEL: MANAGED_BY_OPERATOR},
            },
            "type": "Opaque",
            "data": {key: base64.b64encode(value).decode() for key, value in zip(_KEYS, values, strict=True)},
        }

    @classmethod
    def from_secret(cls, body: dict[str, Any]) -> "CertificateBundle | None":
        """Read a bundle from its Secret; None where it is incomplete or not base64."""
        data = body.get("data") or {}
        try:
            return cls(*(base64.b64decode(data[key], validate=True) for key in _KEYS))
        except (KeyError, ValueError, TypeError):
            return None

    def to_context(self) -> ssl.SSLContext:
        """Return a server context that speaks TLS 1.2 and later with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make a context use this certificate for handshakes from now on."""
        with tempfile.TemporaryDirectory(prefix="berth-webhook-") as folder:
            path = Path(folder) / "tls.pem"
            path.touch(mode=0o600)
            path.write_bytes(self.certificate + self.key)
            context.load_cert_chain(path)


def is_current(bundle: CertificateBundle, hosts: Iterable[str], now: datetime) -> bool:
    """Tell whether a bundle serves all hosts and is far from its end."""
    try:
        leaf = x509.load_pem_x509_certificate(bundle.certificate)
        authority = x509.load_pem_x509_certificate(bundle.authority)
        leaf.verify_directly_issued_by(authority)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    covered = {str(name.value) for name in names}
    return set(hosts) <= covered and min(leaf.not_valid_after_utc, authority.not_valid_after_utc) - now > _RENEW_BEFORE


def issue_bundle(hosts: Iterable[str], now: datetime, *, prior: CertificateBundle | None = None) -> CertificateBundle:
    """Return a new server certificate; a prior authority is kept while it lasts, so that nobody misses a call."""
    authority, authority_key = _kept_authority(prior, now) or _new_authority(now)
    key = ec.generate_private_key(ec.SECP256R1())
    names = sorted(set(hosts))
    leaf = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _LEAF_LIFE)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return CertificateBundle(
        authority=_pem(authority), authority_key=_key_pem(authority_key), certificate=_pem(leaf), key=_key_pem(key)
    )


def _kept_authority(
    prior: CertificateBundle | None, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """Return a prior authority that outlives a new server certificate, None otherwise."""
    if prior is None:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(prior.authority)
        key = serialization.load_pem_private_key(prior.authority_key, password=None)
    except (ValueError, TypeError):
        return None
    lasts = certificate.not_valid_after_utc > now + _LEAF_LIFE
    if not lasts or not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    return certificate, key


def _new_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "berth webhook authority")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS_CERTIFICATES, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
