"""TLS on loopback: an authority, server contexts that it has signed, and client certificates, as files."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from berth_service.certificates import KeyPair, key_to_pem, make_authority, sign_client, sign_server, to_pem

_LIFE: Final = timedelta(days=1)


class TlsFiles:
    """One authority, and what it signs, in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._now = datetime.now(UTC)
        self._authority = make_authority(name, now=self._now, life=_LIFE)
        self.authority_pem = to_pem(self._authority.certificate)
        self.authority = folder / f"{name}.crt"
        self.authority.write_bytes(self.authority_pem)

    def serve(self, *hosts: str, asks_clients: bool = False) -> ssl.SSLContext:
        """Return a server's context for hosts; it may ask for client certificates of the same authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            self._write("server", sign_server(self._authority, "server", hosts, now=self._now, life=_LIFE))
        )
        if asks_clients:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, user: str) -> Path:
        """Return the file with the certificate and the key of a user."""
        return self._write(user, sign_client(self._authority, user, [], now=self._now, life=_LIFE))

    def _write(self, name: str, pair: KeyPair) -> Path:
        path = self._folder / f"{name}.pem"
        path.write_bytes(to_pem(pair.certificate) + key_to_pem(pair.key))
        return path
