"""Connects kopf to the API server with the same configuration as the operator's own client."""

import asyncio
import ssl
import time
from contextlib import suppress
from ipaddress import ip_address
from socket import socket
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import kopf
from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

from berth_kube import KEEP_ALIVE, ConfigurationSource
from berth_kube.proxies import PORTS
from berth_operator.runtime.kopf_runtime import ReadableAnswer, ReservationStream

_LOGIN_SECONDS: Final = 1.0
"""Between two logins: an API server that refuses the credentials needs a pause."""


class Connection:
    """Logs kopf in, with a session whose requests are traced.

    Each login reads the source anew: another authority, address, proxy or token counts from then on.
    """

    def __init__(self, source: ConfigurationSource, stream: ReservationStream) -> None:
        self._source = source
        self._stream = stream
        self._last_login = -_LOGIN_SECONDS

    async def log_in(self) -> kopf.AiohttpSession:
        """Return a session with the current credentials."""
        await asyncio.sleep(max(0.0, self._last_login + _LOGIN_SECONDS - time.monotonic()))
        self._last_login = time.monotonic()
        # In a thread: the kubeconfig may name an exec plugin, which runs a program and may wait for a network.
        configuration = await asyncio.to_thread(self._source.load)
        info = connection_info(configuration)
        context = await asyncio.to_thread(_tls_context, info, configuration.tls_server_name)
        session = aiohttp.ClientSession(
            # No limit of connections: each watch occupies one for its whole life, and kopf's other requests would queue
            # behind.
            connector=aiohttp.TCPConnector(limit=0, ssl=context, socket_factory=_make_socket),
            middlewares=(_authorize(info),),
            proxy=info.proxy_url,
            response_class=ReadableAnswer,
            trace_configs=[self._stream.build_trace()],
        )
        return kopf.AiohttpSession(server=info.server, aiohttp_session=session)


def connection_info(configuration: Any) -> kopf.ConnectionInfo:  # noqa: ANN401 - the official client has no types
    """Return kopf's form of a configuration."""
    header = next((setting["value"] or "" for setting in configuration.auth_settings().values()), "")
    scheme, _, token = header.rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme or None,
        token=token or None,
        proxy_url=configuration.proxy,
    )


def _authorize(info: kopf.ConnectionInfo) -> ClientMiddlewareType:
    """Return the middleware that adds the credentials to each request to the API server."""
    # As headers of the session they would go to the proxy, too, and to any host that the API server redirects to.
    credentials, server = info.as_http_headers(), urlsplit(info.server)
    origin = _origin(server.scheme, server.hostname, server.port)

    async def authorize(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
        if _origin(request.url.scheme, request.url.raw_host, request.url.port) == origin:
            request.headers.update(credentials)
        return await send(request)

    return authorize


def _origin(scheme: str, host: str | None, port: int | None) -> tuple[str, str, int | None]:
    """Return scheme, host and port in canonical form, however the address is written."""
    name = host or ""
    with suppress(ValueError):
        name = ip_address(name).compressed
    return scheme, name.lower(), port or PORTS.get(scheme)


class _NamedServer(ssl.SSLContext):
    """A context that expects a certificate for one name, whatever the address is, as kubeconfig's `tls-server-name`."""

    server_name: str

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as ssl has it
        server_hostname: str | bytes | None = None,  # noqa: ARG002 - the address
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection, with the name in place of the address."""
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name, session)


def _tls_context(info: kopf.ConnectionInfo, server_name: str | None) -> ssl.SSLContext:
    if not server_name:
        return info.as_ssl_context()
    context = _NamedServer(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = server_name
    context.load_default_certs() if info.ca_path is None else context.load_verify_locations(cafile=info.ca_path)
    if info.certificate_path:
        context.load_cert_chain(info.certificate_path, info.private_key_path)
    if info.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _make_socket(address: Any) -> socket:  # noqa: ANN401 - a tuple of getaddrinfo
    """Return a socket that notices a silent peer."""
    family, kind, protocol, *_ = address
    made = socket(family, kind, protocol)
    for option in KEEP_ALIVE:
        made.setsockopt(*option)
    return made
