"""Listening on one address of this machine, or on all of them, of IPv4 and IPv6."""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

_EVERYWHERE: Final = "::"
"""All addresses of both families."""

_MAX_AT_ONCE: Final = 16
"""Connections that are accepted before those that have begun go on."""
_EVERYWHERE_OF_IPV4: Final = "0.0.0.0"  # noqa: S104 - what an operator of a cluster asks for
_WITHOUT_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


def join_address(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_host(host: str) -> str:
    """Return a peer's address; an IPv4 address that a socket of both families reports as IPv6 becomes IPv4 again."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return host if mapped is None else str(mapped)


class HandshakeLimit(socket.socket):
    """A listening socket that ends TLS handshakes where there are too many, the oldest of the busiest address first.

    asyncio makes no protocol's connection before its handshake is over, so limits of a protocol do not count those that
    have begun and go on no further; each has a file of the process meanwhile. It accepts as many connections at once as
    the backlog has, too: in a flood, all handshakes would be ended before they could go on.
    """

    def __init__(
        self, listener: socket.socket, max_handshakes: int, established: Callable[[], Collection[int]]
    ) -> None:
        """Take the place of a listening socket.

        `established` returns the file descriptors of the connections whose handshakes are over.
        """
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._max_handshakes = max_handshakes
        self._established = established
        self._begun: list[tuple[str, socket.socket]] = []
        """Accepted connections with the addresses of their peers, oldest first; the handshakes of some are over."""
        self._at_once = 0
        """Connections accepted since the last BlockingIOError."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; at the limit, another one makes room for it.

        Raises BlockingIOError where none waits, and after each few, so that the loop looks at the others before it
        comes back.
        """
        if self._at_once >= _MAX_AT_ONCE:
            self._at_once = 0
            raise BlockingIOError(errno.EAGAIN, "others go on first")
        try:
            connection, address = super().accept()
        except BlockingIOError:
            self._at_once = 0
            raise
        self._at_once += 1
        if len(self._begun) >= self._max_handshakes:
            self._make_room()
        self._begun.append((str(address[0]), connection))
        return connection, address

    def _make_room(self) -> None:
        established = self._established()
        self._begun = [
            (peer, connection)
            for peer, connection in self._begun
            if connection.fileno() >= 0 and connection.fileno() not in established
        ]
        if len(self._begun) < self._max_handshakes:
            return
        peers = Counter(peer for peer, _ in self._begun)
        busiest = peers.most_common(1)[0][0]
        index = next(index for index, (peer, _) in enumerate(self._begun) if peer == busiest)
        _, connection = self._begun.pop(index)
        with suppress(OSError):  # its peer has ended it
            connection.shutdown(socket.SHUT_RDWR)  # asyncio closes it then


def file_descriptors(transports: Iterable[asyncio.BaseTransport | None]) -> frozenset[int]:
    """Return the file descriptors of the sockets of transports, -1 for closed ones."""
    sockets = (None if transport is None else transport.get_extra_info("socket") for transport in transports)
    return frozenset(connection.fileno() for connection in sockets if connection is not None)


def listen(host: str, port: int, *, backlog: int) -> socket.socket:
    """Return a listening socket; raises OSError.

    `::` means all addresses of this machine, whichever of the two families it has. For a name its IPv4 address is
    preferred: `localhost` is 127.0.0.1 even if it is ::1 as well.
    """
    if host == _EVERYWHERE:
        return _listen_everywhere(port, backlog)
    candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    candidates.sort(key=lambda candidate: candidate[0] != socket.AF_INET)
    family, *_, address = candidates[0]
    return _bind(family, address, backlog)


def _listen_everywhere(port: int, backlog: int) -> socket.socket:
    try:
        return _bind(socket.AF_INET6, (_EVERYWHERE, port), backlog)
    except OSError as error:
        if error.errno not in _WITHOUT_IPV6:
            raise
        return _bind(socket.AF_INET, (_EVERYWHERE_OF_IPV4, port), backlog)


def _bind(family: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of the process before this one may still be in TIME_WAIT, by which Linux refuses the port for a
        # minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Otherwise the host decides whether `::` means both families (net.ipv6.bindv6only).
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != _EVERYWHERE))
        listener.bind(address)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener
