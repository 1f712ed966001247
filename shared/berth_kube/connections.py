"""Connections on which an exchange costs less processor time than on those of urllib3 and the standard library.

That matters in a program that makes thousands of small requests from many threads.
"""

from typing import Any

from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


def use_lean_connections(manager: PoolManager) -> None:
    """Make a pool manager create lean connections; it must have no connection yet, and no SOCKS proxy."""
    manager.pool_classes_by_scheme = {"http": _LeanPool, "https": _LeanTlsPool}


class _OneWrite:
    """Writes each request at once.

    `http.client` writes its head and its body apart: two system calls and two TLS records, and in between the thread
    gives up the interpreter lock.
    """

    _held: list[bytes] | None = None
    """Parts of the request that is being put together; None while there is none."""

    def request(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - what urllib3 passes
        self._held = []
        try:
            super().request(*args, **options)  # type: ignore[misc]  # it is mixed into a connection
            whole_request = b"".join(self._held)
        finally:
            self._held = None
        self.send(whole_request)

    def send(self, data: Any) -> None:  # noqa: ANN401 - what http.client sends
        """Send bytes, or hold them back while a request is being put together."""
        if self._held is None:
            super().send(data)  # type: ignore[misc]  # it is mixed into a connection
        else:
            self._held.append(data)


class _LeanConnection(_OneWrite, HTTPConnection):
    pass


class _LeanTlsConnection(_OneWrite, HTTPSConnection):
    pass


class _LeanPool(HTTPConnectionPool):
    ConnectionCls = _LeanConnection


class _LeanTlsPool(HTTPSConnectionPool):
    ConnectionCls = _LeanTlsConnection
