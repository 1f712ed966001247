"""Writes the keys and certificates of a sandbox.

Needs cryptography, which an extra brings, and so is imported only when a sandbox is started.
"""

import datetime as dt

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from berth_sandbox.certificates import (
    AUTHORITY,
    CLIENTS,
    LIFETIME,
    SERVER,
    SERVER_NAMES,
    SERVICE_ACCOUNTS,
    ClientIdentity,
)
from berth_sandbox.folders import SandboxFolder
from berth_service.certificates import KeyPair, key_to_pem, make_authority, make_key, sign_client, sign_server, to_pem


def write_certificates(folder: SandboxFolder, *, now: dt.datetime) -> None:
    """Write all keys and certificates of the control plane's components."""
    authority = make_authority("berth-sandbox", now=now, life=LIFETIME)
    _write(folder, AUTHORITY, authority)
    _write(folder, SERVER, sign_server(authority, SERVER, SERVER_NAMES, now=now, life=LIFETIME))
    for client in CLIENTS:
        _write(folder, client.name, sign_client(authority, client.user, client.groups, now=now, life=LIFETIME))
    tokens = make_key()
    _write_key(folder, SERVICE_ACCOUNTS, tokens)
    folder.certificate(SERVICE_ACCOUNTS).write_bytes(
        tokens.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def write_client(folder: SandboxFolder, client: ClientIdentity, *, now: dt.datetime) -> None:
    """Write the key and certificate of one more client, signed by the sandbox's authority."""
    pem = folder.certificate(AUTHORITY).read_bytes(), folder.key(AUTHORITY).read_bytes()
    signed = sign_client(KeyPair.from_pem(*pem), client.user, client.groups, now=now, life=LIFETIME)
    _write(folder, client.name, signed)


def _write(folder: SandboxFolder, name: str, pair: KeyPair) -> None:
    _write_key(folder, name, pair.key)
    folder.certificate(name).write_bytes(to_pem(pair.certificate))


def _write_key(folder: SandboxFolder, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner can read."""
    path = folder.key(name)
    # Made with its mode while it is empty: the key must not be readable for others even for a moment.
    path.touch(mode=0o600)
    path.write_bytes(key_to_pem(key))
