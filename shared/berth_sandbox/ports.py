"""Loopback ports of a sandbox; sandboxes that start together never share one."""

import random
import socket
import sys
from dataclasses import dataclass, fields
from typing import Final, Self

from berth_sandbox.errors import SandboxError

LOOPBACK: Final = "127.0.0.1"

_RANGE: Final = range(20_000, 30_000)
_ATTEMPTS: Final = 1_000
_CHANCE: Final = random.SystemRandom()
"""Not seedable, so that two processes never choose the same ports in the same order."""
_handed_out: Final[set[int]] = set()
"""Ports that this process has chosen, listening or not; cleared when half of the range is used."""


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
    volcano_scheduler: int
    volcano_controllers: int
    operator: int
    descheduler: int


class PortReservation:
    """Holds free ports until the components listen on them.

    A port is first bound exclusively, so that of two processes one fails, and then marked as shareable, so that a
    listener that names it and sets SO_REUSEADDR, as Go's do, still gets it. Only Linux allows that second bind:
    elsewhere the ports are released at once, and a small window remains.
    """

    def __init__(self, sockets: tuple[socket.socket, ...], ports: Ports) -> None:
        self._sockets = sockets
        self.ports = ports

    @classmethod
    def make(cls) -> Self:
        names = [field.name for field in fields(Ports)]
        sockets = tuple(_bind_free_port() for _ in names)
        ports = Ports(**{name: bound.getsockname()[1] for name, bound in zip(names, sockets, strict=True)})
        reservation = cls(sockets, ports)
        if sys.platform != "linux":
            reservation.release()
        return reservation

    def release(self) -> None:
        """Release the ports; a component that listens by now keeps its port."""
        for bound in self._sockets:
            bound.close()


def free_port() -> int:
    """Return a free loopback port not given to this process before."""
    with _bind_free_port() as bound:
        return int(bound.getsockname()[1])


def _bind_free_port() -> socket.socket:
    """Return a socket bound to a free loopback port.

    It does not listen, and children do not inherit it. The port lies below the ephemeral ports, which the kernel gives
    to outgoing connections: while a component is down, such a connection could take its port for good, even by
    connecting to itself (TCP simultaneous open).
    """
    if len(_handed_out) > len(_RANGE) // 2:
        _handed_out.clear()
    for _ in range(_ATTEMPTS):
        port = _CHANCE.choice(_RANGE)
        if port in _handed_out:
            continue
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.bind((LOOPBACK, port))
        except OSError:
            bound.close()
            continue
        _handed_out.add(port)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return bound
    raise SandboxError(f"no free loopback port among {_RANGE.start} to {_RANGE.stop - 1}")
