"""Connections: the official client's pool, credentials, timeouts, renewal.

Three clients reach the API server, and all by one `Configuration` that a `ConfigurationSource` loads:

| what | own client (`Transport`) | official client | kopf |
|---|---|---|---|
| server, authority, client certificate, `tls-server-name` | the official client's pool | its pool | its session |
| token, also of a plugin or a file | the header of each request | the same | the headers of its session |
| proxy (see `berth_kube.proxies`) | the official client's pool | its pool | its session |
| socket options against silent peers | the official client's pool | its pool | its session |
| read anew | after a 401, an untrusted server, failures in a row | when loaded | after the same, in a new run |

No client reads the environment's proxies or a kubeconfig by itself.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ClosedPoolError, HTTPError, InsecureRequestWarning
from urllib3.response import BaseHTTPResponse

from berth_core import InputError
from berth_kube.configuration import ConfigurationSource
from berth_kube.connections import use_lean_connections
from berth_kube.errors import (
    Call,
    Failure,
    KubeError,
    UnauthorizedError,
    UnreachableError,
    UntrustedServerError,
    error_from_answer,
    error_from_transport,
)
from berth_kube.grants import Grants

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_BROKEN: Final = (HTTPError, OSError)
# Each renewal reads the kubeconfig again and may run its exec plugin.
_RENEWAL_PAUSE_SECONDS: Final = 10.0
_NO_RETRIES: Final = urllib3.Retry.from_int(retries=False, redirect=False)
_FAILURES_BEFORE_RENEWAL: Final = 3
"""After so many failed connections in a row the address, authority or proxy may have changed."""

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
    is_packed: bool = False
    """Whether the answer may be compressed; the API server compresses from 128 KiB on (`defaultGzipThresholdBytes`)."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How connections are made and kept."""

    user_agent: str = "berth"
    """Shown in the API server's audit log; up to the first slash it is the field manager."""
    request_seconds: float = 30.0
    """Longest silence of the server within a request."""
    connect_seconds: float = 5.0
    """Longest time for a connection to be set up."""
    max_connections: int = 32
    """Requests in flight at once, from all threads; watches have their own connections."""
    impersonated_user: str = ""
    """User in whose name requests are made, beside the credentials' own user, who must be allowed to; "": none."""


@dataclass(frozen=True, slots=True)
class _Route:
    """How the requests of one client reach its server."""

    client: "ApiClient"
    pool: HTTPConnectionPool
    base_path: str
    """Path of the server's address, which comes before that of each request."""


class Transport:
    """Sends requests to one API server, from any number of threads."""

    def __init__(self, source: ConfigurationSource, settings: ConnectionSettings) -> None:
        self._source = source
        self._settings = settings
        # Never more requests than the pool keeps connections: urllib3 would log each one that it discards.
        self._slots = threading.BoundedSemaphore(settings.max_connections)
        self._credentials_lock = threading.Lock()
        self._renewed_at = -_RENEWAL_PAUSE_SECONDS
        self._failures = 0
        self._answered_at = time.monotonic()
        self._client = self._make_client()
        self._route: _Route | None = None
        """That of the last request; the client's pool manager would look the pool up anew for each one."""
        self.grants = Grants()
        """What the API server has allowed to this client's user."""

    @property
    def server_url(self) -> str:
        return str(self._client.configuration.host)

    def apart(self, connections: int) -> "Transport":
        """Return a transport to the same server with connections of its own."""
        return Transport(self._source, replace(self._settings, max_connections=connections))

    def impersonating(self, user: str, connections: int) -> "Transport":
        """Return a transport to the same server, with connections of its own, whose requests are another user's.

        The user's groups are those that the API server gives a ServiceAccount.
        """
        return Transport(self._source, replace(self._settings, max_connections=connections, impersonated_user=user))

    def send(self, request: Request, *, silence_seconds: float | None = None) -> bytes:
        """Return the body of a 2xx answer; raises a KubeError otherwise or after a long silence."""
        with self._slots:
            return self._renewing(
                lambda client: self._send_with(client, request, silence_seconds or self._settings.request_seconds)
            )

    def open_stream(self, request: Request, *, silence_seconds: float) -> BaseHTTPResponse:
        """Return a 2xx answer with its body unread, for the caller to close; raises a KubeError otherwise."""
        return self._renewing(lambda client: self._open_with(client, request, silence_seconds))

    def broken(self, call: Call, error: Exception) -> UnreachableError:
        """Return the KubeError of a stream or an answer that broke, and drop the idle connections.

        Whatever has forgotten one connection has forgotten the others, too, and each would cost a call the whole wait.
        """
        self.close()
        return error_from_transport(call, self.server_url, error)

    def silent_seconds(self) -> float:
        """Return how long ago the API server last answered anything."""
        return time.monotonic() - self._answered_at

    def close(self) -> None:
        """Close all idle connections."""
        self._route = None
        pools = self._client.rest_client.pool_manager.pools
        known_pools = [pools.get(key) for key in pools.keys()]  # noqa: SIM118 - it cannot be iterated, being shared
        pools.clear()
        # Only idle ones: a connection in use belongs to its request until that ends. A pool that is merely forgotten
        # keeps them open for as long as a watch holds the pool.
        for pool in known_pools:
            if pool is not None:
                pool.close()

    def _send_with(self, client: "ApiClient", request: Request, silence_seconds: float) -> bytes:
        with self._open_with(client, request, silence_seconds) as answer:
            return self._read(request, answer)

    def _open_with(self, client: "ApiClient", request: Request, silence_seconds: float) -> BaseHTTPResponse:
        """Return a 2xx answer with its body unread."""
        answer = self._exchange(client, request, silence_seconds)
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        with answer:
            raise self._refusal(request, answer)

    def _exchange(self, client: "ApiClient", request: Request, silence_seconds: float) -> BaseHTTPResponse:
        """Return the server's answer, without urllib3's own retries and redirects."""
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        options = {
            "body": request.body,
            "headers": self._headers(client, request),
            "timeout": urllib3.Timeout(
                connect=min(self._settings.connect_seconds, silence_seconds), read=silence_seconds
            ),
            "preload_content": False,
            # Ours decide: urllib3's would repeat a POST that may have been carried out.
            "retries": _NO_RETRIES,
            # A redirect could lead the request, with its token, to another server.
            "redirect": False,
        }
        try:
            answer = self._answer(client, request.method, target, options)
        except _BROKEN as error:
            raise self.broken(request.call, error) from error
        self._answered_at = time.monotonic()
        return answer

    def _answer(self, client: "ApiClient", method: str, target: str, options: dict[str, Any]) -> BaseHTTPResponse:
        """Return the answer to a request; a proxy's pool manager writes what a plain proxy has to see."""
        manager = client.rest_client.pool_manager
        answer: BaseHTTPResponse
        try:
            if isinstance(manager, urllib3.ProxyManager):
                answer = manager.urlopen(method, f"{client.configuration.host}{target}", **options)
            else:
                route = self._route_of(client)
                answer = route.pool.urlopen(method, f"{route.base_path}{target}", **options)
        except ClosedPoolError:  # closed since it was looked up, and nothing was sent
            answer = manager.urlopen(method, f"{client.configuration.host}{target}", **options)
        return answer

    def _route_of(self, client: "ApiClient") -> _Route:
        route = self._route
        if route is None or route.client is not client:
            host = client.configuration.host
            pool = client.rest_client.pool_manager.connection_from_url(host)
            route = self._route = _Route(client, pool, urlsplit(host).path.rstrip("/"))
        return route

    def _headers(self, client: "ApiClient", request: Request) -> dict[str, str]:
        """Return the request's headers; the official client renews a token that is about to expire."""
        headers = {"Accept": JSON, "User-Agent": self._settings.user_agent}
        if request.is_packed:
            headers["Accept-Encoding"] = "gzip"
        if self._settings.impersonated_user:
            headers["Impersonate-User"] = self._settings.impersonated_user
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        from kubernetes.config import ConfigException  # noqa: PLC0415 - see `berth_kube.configuration`

        try:
            with self._credentials_lock:
                client.update_params_for_auth(headers, [], ["BearerToken"])
        except (ConfigException, OSError) as error:
            raise UnauthorizedError(
                request.call, Failure(message=f"the credentials are unreadable: {error}")
            ) from error
        return headers

    def _read(self, request: Request, answer: BaseHTTPResponse) -> bytes:
        try:
            return answer.read()
        except _BROKEN as error:
            raise self.broken(request.call, error) from error

    def _refusal(self, request: Request, answer: BaseHTTPResponse) -> KubeError:
        """Return the error of a failed answer."""
        body = self._read(request, answer)
        return error_from_answer(request.call, answer.status, body, answer.headers.get("Retry-After"))

    def _make_client(self) -> Any:  # noqa: ANN401 - the official client has no types
        """Return an official client with a freshly read configuration."""
        from kubernetes.client import ApiClient  # noqa: PLC0415 - see `berth_kube.configuration`

        configuration = self._source.load()
        configuration.connection_pool_maxsize = self._settings.max_connections
        if not configuration.verify_ssl:
            # The kubeconfig asks for it explicitly; a warning at each request would say nothing new.
            urllib3.disable_warnings(InsecureRequestWarning)
        client = ApiClient(configuration)
        use_lean_connections(client.rest_client.pool_manager)
        return client

    def _renewing(self, action: Callable[["ApiClient"], T]) -> T:
        """Run an action; if the credentials or the server's certificate are rejected, renew them and repeat.

        The official client renews only credentials with an expiry; token files, client certificates and authorities
        change without one. After failed connections in a row the next action gets a new client: the server's address or
        its proxy may have changed.
        """
        client = self._client
        try:
            answer = action(client)
        # The kubelet rotates a pod's token in its file, and the old one is answered 401
        # (kubernetes-client/python#1768).
        except (UnauthorizedError, UntrustedServerError):
            renewed = self._renewed_client(client)
            if renewed is None:
                raise
            return action(renewed)
        except UnreachableError:
            self._failures += 1
            if self._failures >= _FAILURES_BEFORE_RENEWAL:
                self._renewed_client(client)
            raise
        except KubeError:
            self._failures = 0
            raise
        self._failures = 0
        return answer

    def _renewed_client(self, refused: "ApiClient") -> "ApiClient | None":
        """Return a new client in place of the refused one.

        None if the refused one is too recent, or a new one cannot be made.
        """
        with self._credentials_lock:
            # Another thread has renewed it meanwhile: many calls fail at once when a token is rotated.
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
