"""A relay between the nodes' network and this machine's loopback, in both directions.

Kubelets reach the API server by it: it listens in their network on the address that their kubeconfigs have. The API
server reaches kubelets by it, for logs and exec: it listens on a socket file, and a connection there begins with an
HTTP CONNECT for an address in the nodes' network, as API servers do for an egress selector.

Run as a program with the pid of the network's holder, the API server's port and the socket file.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from berth_sandbox.real_nodes.namespaces import API_ADDRESS, open_socket

_CHUNK_BYTES: Final = 64 * 1024
_REQUEST_WITHIN_SECONDS: Final = 10.0
_CONNECTED_WITHIN_SECONDS: Final = 10.0
_CONNECT: Final = "CONNECT"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str, int], Awaitable[Streams]]


async def dial_node(holder: int, host: str, port: int) -> Streams:
    """Connect to an address in the nodes' network."""
    stream = open_socket(holder)
    stream.setblocking(False)  # noqa: FBT003 - the standard library's signature
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(stream, (host, port)), _CONNECTED_WITHIN_SECONDS)
    except BaseException:
        stream.close()
        raise
    return await asyncio.open_connection(sock=stream)


async def relay_to_api_server(near: Streams, port: int) -> None:
    """Join a kubelet's connection with a new one to the API server."""
    try:
        far = await asyncio.open_connection(API_ADDRESS, port)
    except OSError:  # the API server is down: the kubelet sees its connection end, and tries again
        near[1].close()
        return
    await join(near, far)


async def relay_connect(near: Streams, dial: Dial) -> None:
    """Answer one CONNECT and join both connections."""
    reader, writer = near
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_WITHIN_SECONDS)
        host, port = parse_connect(head)
    except (ValueError, OSError, EOFError, asyncio.LimitOverrunError, TimeoutError):
        await _refuse(writer, "400 Bad Request")
        return
    try:
        far = await dial(host, port)
    except (OSError, TimeoutError):
        await _refuse(writer, "502 Bad Gateway")
        return
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await join(near, far)


def parse_connect(head: bytes) -> tuple[str, int]:
    """Return host and port of a CONNECT request; raise ValueError if it is none."""
    words = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    if len(words) != 3 or words[0] != _CONNECT:  # noqa: PLR2004 - method, target and version
        raise ValueError(f"no CONNECT request: {words}")
    host, _, port = words[1].rpartition(":")
    return host, int(port)


async def _refuse(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    with suppress(OSError):
        await writer.drain()
    writer.close()


async def join(near: Streams, far: Streams) -> None:
    """Copy both ways until both ends have said that they are done, or one of them fails."""
    try:
        async with asyncio.TaskGroup() as copies:
            copies.create_task(_copy(near[0], far[1]))
            copies.create_task(_copy(far[0], near[1]))
    except* OSError:
        pass
    finally:
        near[1].close()
        far[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    # One direction may end before the other: of `kubectl exec` the input does, and the output still comes.
    if writer.can_write_eof():
        writer.write_eof()


async def serve(holder: int, port: int, socket_file: Path) -> None:
    """Relay until the process is ended."""

    async def dial(host: str, node_port: int) -> Streams:
        return await dial_node(holder, host, node_port)

    listener = open_socket(holder)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((API_ADDRESS, port))
    to_api_server = await asyncio.start_server(lambda *near: relay_to_api_server(near, port), sock=listener)
    to_nodes = await asyncio.start_unix_server(lambda *near: relay_connect(near, dial), socket_file)
    async with to_api_server, to_nodes:
        await asyncio.gather(to_api_server.serve_forever(), to_nodes.serve_forever())


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
