"""Callers without any right, who hold the extender's connections and bodies, do not keep Volcano's scheduler out."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from berth_operator.admission import request_limits
from berth_operator.admission.request_limits import LARGEST_BODY_BYTES
from berth_operator.capabilities.extender.server import VERBS, VolcanoExtender
from berth_operator.capabilities.extender.verbs import Held

PATIENT_SECONDS: Final = 600.0
"""More than a slow machine needs for a test."""
BODY: Final = b'{"evictees":[]}'
MAX_CONNECTIONS: Final = 5
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_BODY_SECONDS", PATIENT_SECONDS)
    monkeypatch.setattr(request_limits, "_FIRST_REQUEST_SECONDS", PATIENT_SECONDS)
    monkeypatch.setattr(request_limits, "_MAX_CONNECTIONS", MAX_CONNECTIONS)


@pytest.mark.asyncio
async def test_bodies_that_do_not_come_keep_no_other_out() -> None:
    async with extender() as connect:
        connections = [await connect() for _ in range(3 * MAX_CONNECTIONS)]
        for _, writer in connections:
            writer.write(head(LARGEST_BODY_BYTES) + b"{")
        assert await ask(await connect()) == 200


@pytest.mark.asyncio
async def test_connections_without_a_request_keep_no_other_out_and_those_that_asked_stay() -> None:
    async with extender() as connect:
        first = await connect()
        assert await ask(first) == 200
        silent = [await connect() for _ in range(3 * MAX_CONNECTIONS)]
        assert await is_ended(silent[0])
        assert await ask(await connect()) == 200
        assert await ask(first) == 200


@pytest.mark.asyncio
async def test_connections_that_have_asked_once_keep_no_other_out() -> None:
    async with extender() as connect:
        connections = [await connect() for _ in range(MAX_CONNECTIONS)]
        for connection in connections:
            assert await ask(connection) == 200
        assert await ask(await connect()) == 200
        assert await is_ended(connections[0])
        assert await ask(connections[1]) == 200


@pytest.mark.asyncio
async def test_a_connection_whose_body_was_refused_is_closed() -> None:
    async with extender() as connect:
        connection = await connect()
        connection[1].write(head(LARGEST_BODY_BYTES + 1))
        assert await status_of(connection) == 413
        assert await is_ended(connection)


@pytest.mark.asyncio
async def test_callers_that_go_in_the_middle_of_a_body_leave_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with extender() as connect:
        for end in ("abort", "close"):
            _, writer = await connect()
            writer.write(head(LARGEST_BODY_BYTES) + b"{")
            await writer.drain()
            getattr(writer.transport, end)()
        chunked = await connect()
        chunked[1].write(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"zz\r\n")
        assert await status_of(chunked) == 400
        assert await ask(await connect()) == 200
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@asynccontextmanager
async def extender() -> AsyncIterator[Callable[[], Awaitable[Connection]]]:
    """Run an extender, and yield what connects to it; the connections end with it."""
    server = VolcanoExtender(
        ("127.0.0.1", 0), "berth-system", has_slot=lambda *_: False, awaits=lambda _: False, held_in=lambda _: Held()
    )
    await server.start()
    port = int(server.address.rpartition(":")[2])
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in writers:
            writer.transport.abort()
        await server.stop()


def head(length: int) -> bytes:
    return f"POST /{VERBS[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


async def ask(connection: Connection) -> int:
    """Ask on a connection that stays open; return the status."""
    connection[1].write(head(len(BODY)) + BODY)
    return await status_of(connection)


async def status_of(connection: Connection) -> int:
    """Read an answer to its end; return its status."""
    answer = await asyncio.wait_for(connection[0].readuntil(b"\r\n\r\n"), 60)
    length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await asyncio.wait_for(connection[0].readexactly(length), 60)
    return int(answer.split(b" ", 2)[1])


async def is_ended(connection: Connection) -> bool:
    """Return whether the server ends a connection without an answer."""
    try:
        return await asyncio.wait_for(connection[0].read(), 60) == b""
    except ConnectionError:
        return True
