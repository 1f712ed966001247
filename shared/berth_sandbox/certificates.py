"""The keys and certificates of a sandbox: one authority, one server certificate, one certificate per client."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import LOOPBACK

AUTHORITY: Final = "ca"
SERVER: Final = "kube-apiserver"
SERVICE_ACCOUNTS: Final = "service-accounts"

_LIFETIME: Final = dt.timedelta(days=365)
_CLOCK_SKEW: Final = dt.timedelta(minutes=5)
_SERVER_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Who a client certificate speaks for: the file's name, the user and its groups."""

    name: str
    user: str
    groups: tuple[str, ...] = ()


ADMIN: Final = ClientIdentity("admin", "berth-sandbox-admin", ("system:masters",))
CONTROLLER_MANAGER: Final = ClientIdentity("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER: Final = ClientIdentity("kube-scheduler", "system:kube-scheduler")
KWOK: Final = ClientIdentity("kwok", "berth-sandbox-kwok", ("system:masters",))
"""Kwok stands for every kubelet at once, which no node's role allows."""

CLIENTS: Final = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that signs for one sandbox."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def identifier(self) -> x509.AuthorityKeyIdentifier:
        """What a signed certificate points back with; Python 3.13 refuses certificates without it."""
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())


def write_certificates(folder: SandboxFolder, *, now: dt.datetime) -> None:
    """Write everything that the control plane's components need to know one another."""
    authority = _make_authority(now)
    _write(folder, AUTHORITY, authority.key, authority.certificate)
    _write(folder, SERVER, *_sign_server(authority, now))
    for client in CLIENTS:
        _write(folder, client.name, *_sign_client(authority, client, now))
    tokens = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder, SERVICE_ACCOUNTS, tokens)
    folder.certificate(SERVICE_ACCOUNTS).write_bytes(
        tokens.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _make_authority(now: dt.datetime) -> Authority:
    """Make a self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "berth-sandbox")])
    builder = (
        _start_certificate(subject, key, now)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    return Authority(key, builder.sign(key, hashes.SHA256()))


def _sign_server(authority: Authority, now: dt.datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Make the API server's certificate, valid for loopback only."""
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _SERVER_NAMES]
    names.append(x509.IPAddress(ipaddress.ip_address(LOOPBACK)))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER)])
    builder = (
        _start_certificate(subject, key, now)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(authority.identifier, critical=False)
    )
    return key, builder.sign(authority.key, hashes.SHA256())


def _sign_client(
    authority: Authority, client: ClientIdentity, now: dt.datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Make a client certificate; Kubernetes reads the user from the common name, groups from organisations."""
    key = ec.generate_private_key(ec.SECP256R1())
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in client.groups]
    subject = x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, client.user)])
    builder = (
        _start_certificate(subject, key, now)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(authority.identifier, critical=False)
    )
    return key, builder.sign(authority.key, hashes.SHA256())


def _start_certificate(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime
) -> x509.CertificateBuilder:
    """Return what all our certificates have in common."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    """Return what a key may be used for: an authority's signs certificates, any other signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(folder: SandboxFolder, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Write a key and its certificate under one name."""
    _write_key(folder, name, key)
    folder.certificate(name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(folder: SandboxFolder, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner can read."""
    path = folder.key(name)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
