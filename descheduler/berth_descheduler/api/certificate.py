"""Owns the server's certificate: read from two files, and read anew when these change, without a restart.

It does not own where the files come from.
"""

import ssl
from pathlib import Path
from typing import Final

import structlog

from berth_core.errors import InputError
from berth_descheduler import log_keys

_LOG = structlog.get_logger(__name__)
_CERTIFICATE: Final = "--rest-certificate"


class Certificate:
    """A TLS context with the certificate of two PEM files; raises `InputError` where they are no such."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._seen = self._stamps()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(certificate, key, error) from error

    async def look(self) -> None:
        """Read the files anew if they have changed; what cannot be used is told, and the one before goes on."""
        try:
            found = self._stamps()
            if found == self._seen:
                return
            self._seen = found
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError, InputError) as error:
            _LOG.error(log_keys.CERTIFICATE_FAILED, **{log_keys.KEY_ERROR: str(error)})
        else:
            _LOG.info(log_keys.CERTIFICATE_LOADED)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        """Return what changes when a file does."""
        certificate, key = self._files
        try:
            stats = [path.stat() for path in self._files]
        except OSError as error:
            raise _unusable(certificate, key, error) from error
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)


def _unusable(certificate: Path, key: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(_CERTIFICATE, str(certificate), f"a PEM file with the certificate of the key in {key} ({reason})")
