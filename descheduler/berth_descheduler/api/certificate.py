"""The server's certificate, reloaded when its files change."""

import ssl
from pathlib import Path
from typing import Final

import structlog

from berth_core import InputError
from berth_descheduler import telemetry

_LOG = structlog.get_logger(__name__)
_CERTIFICATE: Final = "--rest-certificate"


class Certificate:
    """A TLS context of two PEM files; raises `InputError` if they are bad."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A client that offers HTTP/2 as well has to be told which of the two is spoken here: h11 knows HTTP/1.1 only.
        self.context.set_alpn_protocols(["http/1.1"])
        self._seen = self._stamps()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(certificate, key, error) from error

    async def look(self) -> None:
        """Reload changed files; a bad pair is logged, and the old one stays in use."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            # Noted before loading, so that a bad pair is logged once and not at every look.
            self._seen = stamps
            # Tried on another context first: in the one in use, a certificate without its key would replace a good
            # pair.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError, InputError) as error:
            _LOG.error(telemetry.CERTIFICATE_FAILED, **{telemetry.KEY_ERROR: str(error)})
        else:
            _LOG.info(telemetry.CERTIFICATE_LOADED)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        """Return a value that changes with either file."""
        certificate, key = self._files
        try:
            file_stats = [path.stat() for path in self._files]
        except OSError as error:
            raise _unusable(certificate, key, error) from error
        # The kubelet renews a mounted Secret by turning a symbolic link (pkg/volume/util/atomic_writer.go): the file
        # behind the path is another one then.
        return tuple((file_stat.st_mtime_ns, file_stat.st_ino) for file_stat in file_stats)


def _unusable(certificate: Path, key: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(_CERTIFICATE, str(certificate), f"a PEM file with the certificate of the key in {key} ({reason})")
