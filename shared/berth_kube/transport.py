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

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME
from urllib3.exceptions import HTTPError, InsecureRequestWarning
from urllib3.response import BaseHTTPResponse

from berth_core import InputError
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
from berth_kube.proxies import find_proxy, proxy_headers, usable_address
from berth_kube.retries import Grants
from berth_kube.yaml_documents import load_documents, read_bounded

# --- configuration ---------------------------------------------------------------------------------------------------
# The API server and the credentials: kubeconfig files, contexts, the service account in a cluster.

HOME_KUBECONFIG: Final = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """One kubeconfig and a context.

    `files` are separated as in KUBECONFIG; `context` None is the current one.
    """

    files: str
    context: str | None = None

    def load(self) -> Configuration:
        """Return the official client's configuration; raises InputError with file and context."""
        documents = self._documents()
        context = self._chosen_context(documents)
        configuration = Configuration()
        try:
            load_kube_config(config_file=self.files, context=context, client_configuration=configuration)
        except (ConfigException, LookupError, TypeError, ValueError, AttributeError, OSError) as error:
            raise InputError("kubeconfig", self.files, f"a usable kubeconfig ({error})") from error
        user = _chosen_entry(documents, context, "user")
        if not configuration.api_key and not configuration.cert_file and "exec" in user:
            # The official client only logs that a plugin failed, and goes on without credentials.
            raise InputError("kubeconfig", self.files, f"a credentials plugin that works for the context {context}")
        # The official client does not know of a cluster's own proxy.
        proxy_url = _chosen_entry(documents, context, "cluster").get("proxy-url") or ""
        return _checked(configuration, self.files, str(proxy_url))

    def _documents(self) -> list[Mapping[str, Any]]:
        """Return the contents of the existing files; raises InputError without any."""
        paths = [Path(name).expanduser() for name in self.files.split(os.pathsep) if name]
        existing_paths = [path for path in paths if path.exists()]
        if not existing_paths:
            raise InputError("kubeconfig", self.files, "a file that exists")
        return [_read_yaml(path) for path in existing_paths]

    def context_names(self) -> tuple[str, ...]:
        """Return the names of the contexts, sorted; raises `InputError`."""
        return tuple(sorted(set(_context_names(self._documents()))))

    def _chosen_context(self, documents: Sequence[Mapping[str, Any]]) -> str:
        """Return the context's name; raises InputError if the files lack it.

        Of several files the first with a current context counts, as for kubectl.
        """
        contexts = _context_names(documents)
        current = next((document["current-context"] for document in documents if document.get("current-context")), None)
        wanted_context = self.context or current
        if wanted_context not in contexts:
            known_contexts = ", ".join(sorted(contexts)) or "none"
            problem = "" if wanted_context else "not given and the kubeconfig has no current one"
            raise InputError(
                "context", wanted_context, f"a context of {self.files} (it has: {known_contexts})", said=problem
            )
        return str(wanted_context)


@dataclass(frozen=True, slots=True)
class InClusterSource:
    """The service account of this program's pod.

    Its token is read again every minute.
    """

    def load(self) -> Configuration:
        """Return the official client's configuration; raises InputError if it is incomplete."""
        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise InputError("service account", SERVICE_TOKEN_FILENAME, f"that of a pod ({error})") from error
        return _checked(configuration, "the pod's environment")


ConfigurationSource = KubeconfigSource | InClusterSource


def find_source(kubeconfig: str | None = None, context: str | None = None) -> ConfigurationSource:
    """Return the source: the given file, KUBECONFIG, the service account, or ~/.kube/config.

    Raises InputError without any of them.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG")
    if files:
        return KubeconfigSource(files, context)
    if context is None and os.environ.get(SERVICE_HOST_ENV_NAME) and Path(SERVICE_TOKEN_FILENAME).exists():
        return InClusterSource()
    if Path(HOME_KUBECONFIG).expanduser().exists():
        return KubeconfigSource(HOME_KUBECONFIG, context)
    raise InputError(
        "kubeconfig", HOME_KUBECONFIG, "a file that exists; name one with --kubeconfig or KUBECONFIG, or run in a pod"
    )


def context_names(kubeconfig: str | None = None) -> tuple[str, ...]:
    """Return the contexts of the kubeconfig, none in a pod; raises `InputError`."""
    source = find_source(kubeconfig)
    return source.context_names() if isinstance(source, KubeconfigSource) else ()


def _context_names(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for document in documents for name in _named(document, "contexts")]


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """Return a kubeconfig file's content.

    Raises InputError if it is not a YAML mapping.
    """
    try:
        documents = load_documents(read_bounded(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError("kubeconfig", str(path), f"a readable YAML file ({reason})") from error
    document = documents[0] if len(documents) == 1 else None
    if not isinstance(document, dict):
        raise InputError("kubeconfig", str(path), "a YAML mapping with clusters, users and contexts")
    return document


def _named(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the entries of a kubeconfig's section by name, skipping malformed ones."""
    entries = document.get(section)
    named_entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {str(entry["name"]): entry for entry in named_entries if "name" in entry}


def _chosen_entry(documents: Sequence[Mapping[str, Any]], context: str, kind: str) -> Mapping[str, Any]:
    """Return the cluster or the user that a context names, empty without one.

    Of several files the first with an entry of that name counts, as for kubectl.
    """
    contexts = {name: entry for document in reversed(documents) for name, entry in _named(document, "contexts").items()}
    entries = {name: entry for document in reversed(documents) for name, entry in _named(document, f"{kind}s").items()}
    chosen_context = contexts[context].get("context") or {}
    entry = entries.get(str(chosen_context.get(kind)), {}).get(kind)
    return entry if isinstance(entry, dict) else {}


# --- settings on top of the official client's configuration ---------------------------------------------------------


def _checked(configuration: Configuration, origin: str, proxy_url: str = "") -> Configuration:
    """Return the configuration with a checked address, our proxy rule and keep-alive."""
    address = usable_address(configuration.host)
    if address is None:
        raise InputError("server", configuration.host, f"an http or https address (in {origin})")
    configuration.proxy = find_proxy(address, proxy_url)
    configuration.no_proxy = None  # what the environment excludes is left out already
    configuration.proxy_headers = proxy_headers(configuration.proxy) if configuration.proxy else None
    configuration.socket_options = KEEP_ALIVE
    return configuration


_SILENT_PEER_SECONDS: Final = 30
"""After so long without a word from the other side's kernel a connection is given up."""


def _keep_alive_options() -> list[tuple[int, int, int]]:
    """Return socket options that detect a dead peer, also one that has forgotten the connection."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    probes = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    # What was sent and is not acknowledged is repeated for a quarter of an hour otherwise.
    for name, value in {**probes, "TCP_USER_TIMEOUT": 1000 * _SILENT_PEER_SECONDS}.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


KEEP_ALIVE: Final = _keep_alive_options()
"""Socket options of each connection to the API server: level, name, value."""


JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_BROKEN: Final = (HTTPError, OSError)
_RENEWAL_PAUSE_SECONDS: Final = 10.0
_FAILURES_BEFORE_RENEWAL: Final = 3
"""So many failed connections in a row may mean another address, authority or proxy."""

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
    """Whether the answer may come compressed; the API server compresses from 128 KiB on."""


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
        self.grants = Grants()
        """What the API server has allowed to this client's user."""

    @property
    def server_url(self) -> str:
        """Return the API server's address."""
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
        """Return the body of a 2xx answer.

        Raises a KubeError otherwise or after a long silence.
        """
        with self._slots:
            return self._renewing(
                lambda client: self._send_with(client, request, silence_seconds or self._settings.request_seconds)
            )

    def open_stream(self, request: Request, *, silence_seconds: float) -> BaseHTTPResponse:
        """Return a 2xx answer with its body unread.

        The caller closes it. Raises a KubeError otherwise.
        """
        return self._renewing(lambda client: self._open_with(client, request, silence_seconds))

    def broken(self, call: Call, error: Exception) -> UnreachableError:
        """Return the KubeError of a stream or an answer that broke.

        The idle connections are dropped: what has forgotten one has forgotten the others, too, and each would cost a
        call the whole wait.
        """
        self.close()
        return error_from_transport(call, self.server_url, error)

    def silent_seconds(self) -> float:
        """Return how long ago the API server last answered anything."""
        return time.monotonic() - self._answered_at

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
        """Return the server's answer, without urllib3's own retries and redirects."""
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
        self._answered_at = time.monotonic()
        return answer

    def _headers(self, client: ApiClient, request: Request) -> dict[str, str]:
        """Return the request's headers.

        The official client renews a token that is about to expire.
        """
        headers = {"Accept": JSON, "User-Agent": self._settings.user_agent}
        if request.is_packed:
            headers["Accept-Encoding"] = "gzip"
        if self._settings.impersonated_user:
            headers["Impersonate-User"] = self._settings.impersonated_user
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
        """Return the error of a failed answer."""
        body = self._read(request, answer)
        return error_from_answer(request.call, answer.status, body, answer.headers.get("Retry-After"))

    # --- credentials ----------------------------------------------------------------------------------------------

    def _make_client(self) -> Any:  # noqa: ANN401 - the official client has no types
        """Return an official client with a freshly read configuration."""
        configuration = self._source.load()
        configuration.connection_pool_maxsize = self._settings.max_connections
        if not configuration.verify_ssl:
            # The kubeconfig asks for it explicitly; a warning at each request would say nothing new.
            urllib3.disable_warnings(InsecureRequestWarning)
        return ApiClient(configuration)

    def _renewing(self, action: Callable[[ApiClient], T]) -> T:
        """Run an action; if the credentials or the server's certificate are rejected, renew them and repeat.

        The official client renews only credentials with an expiry; token files, client certificates and authorities
        change without one. After failed connections in a row the next action has a new client: the server's address or
        its proxy may have changed.
        """
        client = self._client
        try:
            answer = action(client)
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

    def _renewed_client(self, refused: ApiClient) -> ApiClient | None:
        """Return a new client in place of the refused one.

        Returns None if the refused one is too recent or a new one impossible.
        """
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
