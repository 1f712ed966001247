"""Relays on loopback: a balancer that forgets its connections, and a proxy that connects to where it is asked."""

import base64
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self

LOOPBACK: Final = "127.0.0.1"
_READ_BYTES: Final = 64 * 1024

Address = tuple[str, int]


class Relay:
    """Passes the bytes of each connection on to one address, until it forgets the connection."""

    def __init__(self, target: Address | None = None, *, host: str = LOOPBACK, port: int = 0) -> None:
        self._target = target
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._lock = threading.Lock()
        self._links: list[_Link] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def forget(self) -> int:
        """Pass on no more bytes of the connections of now, which stay open; return how many there are."""
        with self._lock:
            links = [link for link in self._links if not link.is_over]
        for link in links:
            link.is_forgotten.set()
        return len(links)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError):
            target = self.choose_target(client)
            if target is not None:
                link = _Link(client, socket.create_connection(target))
                with self._lock:
                    self._links.append(link)
                self.greet(client)
                link.start()
                return
        client.close()

    def choose_target(self, client: socket.socket) -> Address | None:  # noqa: ARG002 - a proxy's answer depends on it
        """Return where a client is to be connected to, None if nowhere."""
        return self._target

    def greet(self, client: socket.socket) -> None:
        """Say that the connection stands."""


class ConnectProxy(Relay):
    """Answers CONNECT, to a client that shows the credentials if there are any.

    `hosts` says where names lead; others are not connected to.
    """

    def __init__(self, hosts: Mapping[str, Address], *, credentials: str = "", host: str = LOOPBACK) -> None:
        super().__init__(host=host)
        self._hosts = hosts
        self._wanted = f"Basic {base64.b64encode(credentials.encode()).decode()}" if credentials else ""
        self.asked: list[str] = []
        """What was asked for, `HOST:PORT` each."""
        self.heads: list[str] = []
        """All that was said for it."""

    def choose_target(self, client: socket.socket) -> Address | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            chunk = client.recv(1)
            if not chunk:
                return None
            head += chunk
        request, *headers = head.decode("latin-1").split("\r\n")
        method, place, _ = request.split(" ")
        self.asked.append(place)
        self.heads.append(head.decode("latin-1"))
        shown = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
        if method != "CONNECT" or shown.get("proxy-authorization", "") != self._wanted:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return None
        return self._hosts[place.rpartition(":")[0]]

    def greet(self, client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")


class _Link:
    """Two sockets whose bytes go to each other."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._ends = (client, server)
        self.is_forgotten = threading.Event()
        self.is_over = False

    def start(self) -> None:
        client, server = self._ends
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        self.is_over = True
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_READ_BYTES):
                if not self.is_forgotten.is_set():
                    sink.sendall(chunk)
        if not self.is_forgotten.is_set():
            self.close()
