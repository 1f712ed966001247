import socket
import ssl
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from berth_sandbox.certificates import ADMIN, AUTHORITY, CLIENTS, KWOK, SERVER, VOLCANO
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.key_files import write_certificates


@pytest.fixture
def folder(tmp_path: Path) -> SandboxFolder:
    made = SandboxFolder(tmp_path / "sandbox")
    made.make()
    write_certificates(made, now=datetime.now(UTC))
    return made


def strict_context(purpose: ssl.Purpose, folder: SandboxFolder, name: str) -> ssl.SSLContext:
    """Return a context as strict as Python 3.13's default, which refuses certificates without key identifiers."""
    context = ssl.create_default_context(purpose, cafile=str(folder.certificate(AUTHORITY)))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder.certificate(name), folder.key(name))
    return context


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_server_and_client_accept_one_another(folder: SandboxFolder, client: object) -> None:
    name = client.name  # type: ignore[attr-defined]
    serving = strict_context(ssl.Purpose.CLIENT_AUTH, folder, SERVER)
    asking = strict_context(ssl.Purpose.SERVER_AUTH, folder, name)
    left, right = socket.socketpair()
    seen: list[object] = []

    def serve() -> None:
        with serving.wrap_socket(left, server_side=True) as wrapped:
            seen.append(wrapped.getpeercert())
            wrapped.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with asking.wrap_socket(right, server_hostname="127.0.0.1") as wrapped:
        wrapped.send(b"x")
    thread.join(60)
    assert len(seen) == 1


def subject(folder: SandboxFolder, name: str) -> dict[str, list[str]]:
    certificate = x509.load_pem_x509_certificate(folder.certificate(name).read_bytes())
    found: dict[str, list[str]] = {}
    for attribute in certificate.subject:
        found.setdefault(attribute.oid._name, []).append(str(attribute.value))
    return found


def test_only_the_administrator_kwok_and_volcano_may_do_everything(folder: SandboxFolder) -> None:
    masters = {
        client.name
        for client in CLIENTS
        if "system:masters" in subject(folder, client.name).get("organizationName", [])
    }
    assert masters == {ADMIN.name, KWOK.name, VOLCANO.name}


def test_private_keys_are_for_their_owner_only(folder: SandboxFolder) -> None:
    keys = list((folder.root / "pki").glob("*.key"))
    assert len(keys) == len(CLIENTS) + 3
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
