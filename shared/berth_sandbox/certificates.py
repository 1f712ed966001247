"""Keys and certificates of a sandbox.

A sandbox has one authority, one server, and one certificate per client.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import LOOPBACK
from berth_service.certificates import KeyPair, key_to_pem, make_authority, make_key, sign_client, sign_server, to_pem

AUTHORITY: Final = "ca"
SERVER: Final = "kube-apiserver"
SERVICE_ACCOUNTS: Final = "service-accounts"

_LIFETIME: Final = dt.timedelta(days=365)
_SERVER_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", LOOPBACK)


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Identity in a client certificate: file name, user and groups."""

    name: str
    user: str
    groups: tuple[str, ...] = ()


ADMIN: Final = ClientIdentity("admin", "berth-sandbox-admin", ("system:masters",))
CONTROLLER_MANAGER: Final = ClientIdentity("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER: Final = ClientIdentity("kube-scheduler", "system:kube-scheduler")
KWOK: Final = ClientIdentity("kwok", "berth-sandbox-kwok", ("system:masters",))
"""Kwok plays every kubelet at once, which no node's role allows."""
VOLCANO: Final = ClientIdentity("volcano", "berth-sandbox-volcano", ("system:masters",))
"""Volcano's chart, which has its roles, is not installed."""

CLIENTS: Final = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK, VOLCANO)


def write_certificates(folder: SandboxFolder, *, now: dt.datetime) -> None:
    """Write all keys and certificates of the control plane's components."""
    authority = make_authority("berth-sandbox", now=now, life=_LIFETIME)
    _write(folder, AUTHORITY, authority)
    _write(folder, SERVER, sign_server(authority, SERVER, _SERVER_NAMES, now=now, life=_LIFETIME))
    for client in CLIENTS:
        _write(folder, client.name, sign_client(authority, client.user, client.groups, now=now, life=_LIFETIME))
    tokens = make_key()
    _write_key(folder, SERVICE_ACCOUNTS, tokens)
    folder.certificate(SERVICE_ACCOUNTS).write_bytes(
        tokens.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def write_client(folder: SandboxFolder, client: ClientIdentity, *, now: dt.datetime) -> None:
    """Write the key and certificate of one more client, signed by the sandbox's authority."""
    pem = folder.certificate(AUTHORITY).read_bytes(), folder.key(AUTHORITY).read_bytes()
    signed = sign_client(KeyPair.from_pem(*pem), client.user, client.groups, now=now, life=_LIFETIME)
    _write(folder, client.name, signed)


def _write(folder: SandboxFolder, name: str, pair: KeyPair) -> None:
    _write_key(folder, name, pair.key)
    folder.certificate(name).write_bytes(to_pem(pair.certificate))


def _write_key(folder: SandboxFolder, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner can read."""
    path = folder.key(name)
    path.touch(mode=0o600)
    path.write_bytes(key_to_pem(key))
