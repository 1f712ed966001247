"""Owns the loopback ports of a sandbox, chosen so that sandboxes started at the same time never get the same one.

It does not own who listens on them.
"""

import socket
import sys
from dataclasses import asdict, dataclass, fields
from typing import Self

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """One loopback port per listener."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    second_scheduler: int
    kwok: int

    def as_dict(self) -> dict[str, int]:
        """Return the ports by name."""
        return asdict(self)


class PortReservation:
    """Holds free ports until the components listen on them.

    A socket that is bound but does not listen keeps the kernel from giving its port to anyone who asks for a free
    one, while a listener that names the port and sets SO_REUSEADDR, as Go's do, still gets it. Elsewhere than on
    Linux the second bind is refused, so there the ports are let go at once and a small window stays.
    """

    def __init__(self, sockets: tuple[socket.socket, ...], ports: Ports) -> None:
        self._sockets = sockets
        self.ports = ports

    @classmethod
    def make(cls) -> Self:
        """Take one free port for each listener."""
        names = [field.name for field in fields(Ports)]
        sockets = tuple(_bind_free_port() for _ in names)
        ports = Ports(**{name: bound.getsockname()[1] for name, bound in zip(names, sockets, strict=True)})
        reservation = cls(sockets, ports)
        if sys.platform != "linux":
            reservation.release()
        return reservation

    def release(self) -> None:
        """Let go of the ports; whoever listens by now keeps them."""
        for bound in self._sockets:
            bound.close()


def _bind_free_port() -> socket.socket:
    """Return a socket bound to a free loopback port, not listening and not inherited by children."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((LOOPBACK, 0))
    return bound
