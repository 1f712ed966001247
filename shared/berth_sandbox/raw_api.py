"""Owns the few API calls that bring a new control plane to life, before anything else can talk to it.

It does not own API access in general: that is `berth_kube`.
"""

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import urllib3

from berth_sandbox import certificates
from berth_sandbox.errors import SandboxError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import LOOPBACK, Ports

_OK: Final = 200
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_FIRST_FAILURE: Final = 300


class RawApi:
    """The API server as the administrator sees it, by path."""

    def __init__(self, folder: SandboxFolder, ports: Ports) -> None:
        self._base = f"https://{LOOPBACK}:{ports.api_server}"
        self._pool = urllib3.PoolManager(
            ca_certs=str(folder.certificate(certificates.AUTHORITY)),
            cert_file=str(folder.certificate(certificates.ADMIN.name)),
            key_file=str(folder.key(certificates.ADMIN.name)),
            maxsize=16,
            retries=urllib3.Retry(connect=3, read=0, backoff_factor=0.1, respect_retry_after_header=False),
            timeout=30.0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.clear()

    def serves(self, path: str) -> bool:
        """Tell whether something is served at a path; a CRD's storage answers 429 while it begins."""
        return self._pool.request("GET", self._base + path).status == _OK

    def get(self, path: str) -> dict[str, Any] | None:
        """Return an object, None when there is none."""
        answer = self._pool.request("GET", self._base + path)
        return None if answer.status == _NOT_FOUND else _decode("GET", path, answer)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object; one that exists already is left as it is."""
        answer = self._pool.request("POST", self._base + path, json=dict(body))
        if answer.status == _CONFLICT:
            return dict(body)
        return _decode("POST", path, answer)


def _decode(verb: str, path: str, answer: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    """Return the object that the server sent; raise `SandboxError` with its message otherwise."""
    body: dict[str, Any] = json.loads(answer.data)
    if answer.status >= _FIRST_FAILURE:
        raise SandboxError(f"{verb} {path}: {body.get('message', answer.status)}")
    return body
