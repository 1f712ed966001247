"""Owns the connections: requests through the official client's pool, credentials, time limits, renewal after a 401.

It does not own what is asked for, nor whether a failed request is made again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError, InsecureRequestWarning
from urllib3.response import BaseHTTPResponse

from berth_core.errors import InputError
from berth_kube.configuration import ConfigurationSource
from berth_kube.errors import (
    Call,
    Failure,
    KubeError,
    UnauthorizedError,
    UnreachableError,
    error_from_answer,
    error_from_transport,
)
from berth_kube.grants import Grants

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_BROKEN: Final = (HTTPError, OSError)
_RENEWAL_PAUSE_SECONDS: Final = 10.0

Query = Sequence[tuple[str, str]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `path` is below the server's address."""

    call: Call
    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How connections are made and kept."""

    user_agent: str = "berth"
    """What the API server's audit log shows; up to the first slash it is the field manager in `managedFields`."""
    request_seconds: float = 30.0
    """Longest silence of the server within a request."""
    connect_seconds: float = 5.0
    """Longest time for a connection to be set up."""
    max_connections: int = 32
    """Requests in flight at once, from all threads; watches have connections of their own."""


class Transport:
    """Sends requests to one API server, from any number of threads."""

    def __init__(self, source: ConfigurationSource, settings: ConnectionSettings) -> None:
        self._source = source
        self._settings = settings
        # Never more requests than the pool keeps connections: urllib3 would log about each that it throws away.
        self._slots = threading.BoundedSemaphore(settings.max_connections)
        self._credentials_lock = threading.Lock()
        self._renewed_at = -_RENEWAL_PAUSE_SECONDS
        self._client = self._make_client()
        self.grants = Grants()
        """What the API server has allowed to whoever this is."""

    @property
    def server_url(self) -> str:
        """Return the API server's address."""
        return str(self._client.configuration.host)

    def send(self, request: Request, *, silence_seconds: float | None = None) -> bytes:
        """Return the body of a 2xx answer; raises a KubeError for everything else, or for too long a silence."""
        with self._slots:
            return self._renewing(
                lambda client: self._send_with(client, request, silence_seconds or self._settings.request_seconds)
            )

    def open_stream(self, request: Request, *, silence_seconds: float) -> BaseHTTPResponse:
        """Return a 2xx answer with its body unread, which the caller closes; raises a KubeError otherwise."""
        return self._renewing(lambda client: self._open_with(client, request, silence_seconds))

    def broken(self, call: Call, error: Exception) -> UnreachableError:
        """Return the KubeError of a stream that broke while it was read."""
        return error_from_transport(call, self.server_url, error)

    def close(self) -> None:
        """Close all idle connections."""
        self._client.rest_client.pool_manager.clear()

    def _send_with(self, client: ApiClient, request: Request, silence_seconds: float) -> bytes:
        """Return the body of a 2xx answer."""
        with self._open_with(client, request, silence_seconds) as answer:
            return self._read(request, answer)

    def _open_with(self, client: ApiClient, request: Request, silence_seconds: float) -> BaseHTTPResponse:
        """Return a 2xx answer with its body unread."""
        answer = self._exchange(client, request, silence_seconds)
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        with answer:
            raise self._refusal(request, answer)

    def _exchange(self, client: ApiClient, request: Request, silence_seconds: float) -> BaseHTTPResponse:
        """Return whatever the server answers; neither urllib3's own retries nor redirects are wanted."""
        url = f"{client.configuration.host}{request.path}"
        if request.query:
            url = f"{url}?{urlencode(request.query)}"
        try:
            answer: BaseHTTPResponse = client.rest_client.pool_manager.urlopen(
                request.method,
                url,
                body=request.body,
                headers=self._headers(client, request),
                timeout=urllib3.Timeout(
                    connect=min(self._settings.connect_seconds, silence_seconds), read=silence_seconds
                ),
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except _BROKEN as error:
            raise self.broken(request.call, error) from error
        return answer

    def _headers(self, client: ApiClient, request: Request) -> dict[str, str]:
        """Return the request's headers; the official client re-reads a token that is about to expire."""
        headers = {"Accept": JSON, "User-Agent": self._settings.user_agent}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            with self._credentials_lock:
                client.update_params_for_auth(headers, [], ["BearerToken"])
        except (ConfigException, OSError) as error:
            raise UnauthorizedError(
                request.call, Failure(message=f"the credentials are unreadable: {error}")
            ) from error
        return headers

    def _read(self, request: Request, answer: BaseHTTPResponse) -> bytes:
        """Return an answer's whole body."""
        try:
            return answer.read()
        except _BROKEN as error:
            raise self.broken(request.call, error) from error

    def _refusal(self, request: Request, answer: BaseHTTPResponse) -> KubeError:
        """Return the error of an answer that is no success."""
        body = self._read(request, answer)
        return error_from_answer(request.call, answer.status, body, answer.headers.get("Retry-After"))

    # --- credentials ----------------------------------------------------------------------------------------------

    def _make_client(self) -> Any:  # noqa: ANN401 - the official client has no types
        """Return an official client with its configuration read anew."""
        configuration = self._source.load()
        configuration.connection_pool_maxsize = self._settings.max_connections
        if not configuration.verify_ssl:
            # The kubeconfig asks for it in so many words; a warning at each request would say nothing new.
            urllib3.disable_warnings(InsecureRequestWarning)
        return ApiClient(configuration)

    def _renewing(self, action: Callable[[ApiClient], T]) -> T:
        """Return what `action` returns, reading the configuration anew if the server no longer knows us.

        The official client renews only what carries an expiry; token files and client certificates change without one.
        """
        client = self._client
        try:
            return action(client)
        except UnauthorizedError:
            renewed = self._renewed_client(client)
            if renewed is None:
                raise
            return action(renewed)

    def _renewed_client(self, refused: ApiClient) -> ApiClient | None:
        """Return another client than the refused one; None if it was made a moment ago or cannot be made."""
        with self._credentials_lock:
            if self._client is not refused:
                return self._client
            if time.monotonic() - self._renewed_at < _RENEWAL_PAUSE_SECONDS:
                return None
            self._renewed_at = time.monotonic()
            try:
                self._client = self._make_client()
            except InputError:
                return None
            return self._client
