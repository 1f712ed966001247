"""Bodies that are refused at the moment at which others come cost these nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from berth_operator.admission import request_limits
from berth_operator.admission.request_limits import BodyReader, BodyRefusedError


class ScriptedRequest:
    """A request whose body comes in the chunks of an iterator."""

    content_length = None

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    @property
    def content(self) -> "ScriptedRequest":
        return self

    async def readany(self) -> bytes:
        return await anext(self._chunks, b"")


async def read(reader: BodyReader, chunks: AsyncIterator[bytes]) -> bytes | int:
    """Return the body, or the status with which it was refused."""
    request: Any = ScriptedRequest(chunks)
    try:
        return await reader.read(request)
    except BodyRefusedError as refusal:
        return refusal.status


@pytest.mark.asyncio
async def test_a_body_that_runs_out_of_time_as_another_needs_room_costs_that_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limits, "_MAX_BODY_BYTES", 8)
    monkeypatch.setattr(request_limits, "_BODY_SECONDS", 0)
    reader = BodyReader()

    async def first() -> AsyncIterator[bytes]:
        monkeypatch.setattr(request_limits, "_BODY_SECONDS", 600)  # of the other
        yield b"first"
        await asyncio.Event().wait()

    async def other() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)  # the time of the first is over, and it has not run since
        yield b"other"

    assert await asyncio.gather(read(reader, first()), read(reader, other())) == [503, b"other"]


@pytest.mark.asyncio
async def test_a_body_that_ends_as_it_has_to_make_room_is_refused_and_not_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limits, "_MAX_BODY_BYTES", 8)
    reader, has_come = BodyReader(), asyncio.Event()

    async def first() -> AsyncIterator[bytes]:
        yield b"first"
        await has_come.wait()

    async def other() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        has_come.set()  # the end of the first and this are there together
        yield b"other"

    assert await asyncio.gather(read(reader, first()), read(reader, other())) == [503, b"other"]
