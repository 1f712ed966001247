"""The relay between the nodes' network and the machine's, on loopback sockets in the place of both networks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth_sandbox.real_nodes.relay import Streams, parse_connect, relay_connect, relay_to_api_server

LOOPBACK = "127.0.0.1"
BOUND_SECONDS = 60.0
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what came, once its end has come: only a relay that passes on half-closed streams gets an answer."""
    writer.write(b"echo of " + await reader.read())
    writer.close()


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def relaying(tmp_path: Path, dialled: list[tuple[str, int]], port: int) -> AsyncIterator[Path]:
    async def dial(host: str, node_port: int) -> Streams:
        dialled.append((host, node_port))
        if node_port != 10250:
            raise ConnectionRefusedError
        return await asyncio.open_connection(LOOPBACK, port)

    file = tmp_path / "relay.sock"
    async with await asyncio.start_unix_server(lambda *near: relay_connect(near, dial), file):
        yield file


async def exchange(streams: Streams, request: bytes) -> bytes:
    reader, writer = streams
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), BOUND_SECONDS)
    writer.close()
    return answer


@pytest.mark.asyncio
async def test_the_api_server_reaches_a_node_by_connect(tmp_path: Path) -> None:
    dialled: list[tuple[str, int]] = []
    async with listening(echo) as port, relaying(tmp_path, dialled, port) as file:
        streams = await asyncio.open_unix_connection(file)
        request = b"CONNECT 192.0.2.11:10250 HTTP/1.1\r\nHost: 192.0.2.11:10250\r\n\r\n"
        answer = await exchange(streams, request + b"hello")
    assert dialled == [("192.0.2.11", 10250)]
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\necho of hello"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_text", "want_status"),
    [
        (b"CONNECT 192.0.2.11:1 HTTP/1.1\r\n\r\n", b"502 Bad Gateway"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"CONNECT nonsense HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"CONNECT 192", b"400 Bad Request"),
        (b"", b"400 Bad Request"),
    ],
)
async def test_what_cannot_be_connected_is_refused(tmp_path: Path, request_text: bytes, want_status: bytes) -> None:
    async with relaying(tmp_path, [], 0) as file:
        answer = await exchange(await asyncio.open_unix_connection(file), request_text)
    assert answer == b"HTTP/1.1 " + want_status + b"\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.asyncio
async def test_a_kubelet_reaches_the_api_server() -> None:
    async with listening(echo) as port, listening(lambda *near: relay_to_api_server(near, port)) as near_port:
        answer = await exchange(await asyncio.open_connection(LOOPBACK, near_port), b"hello")
    assert answer == b"echo of hello"


@pytest.mark.asyncio
async def test_a_kubelets_connection_ends_while_the_api_server_is_down() -> None:
    async with listening(echo) as port:
        pass
    async with listening(lambda *near: relay_to_api_server(near, port)) as near_port:
        reader, writer = await asyncio.open_connection(LOOPBACK, near_port)
        assert await asyncio.wait_for(reader.read(), BOUND_SECONDS) == b""
        writer.close()


def test_a_target_is_an_address_and_a_port() -> None:
    assert parse_connect(b"CONNECT 192.0.2.12:10250 HTTP/1.1\r\nHost: x\r\n\r\n") == ("192.0.2.12", 10250)
    with pytest.raises(ValueError, match="no CONNECT"):
        parse_connect(b"CONNECT\r\n\r\n")
