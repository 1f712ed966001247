"""Listening on one address of this machine, or on all of them, of IPv4 and IPv6."""

import errno
import socket
from ipaddress import IPv6Address, ip_address
from typing import Final

_EVERYWHERE: Final = "::"
"""All addresses of both families."""
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
