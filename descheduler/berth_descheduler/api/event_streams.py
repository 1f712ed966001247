"""Owns a stream of server-sent events about one plan: what is sent when, and when it ends.

It does not own the events (`plan_events`) nor where they come from (`plan_feeds`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from berth_core.clock import Clock
from berth_descheduler.api.documents import EventKind
from berth_descheduler.api.plan_events import PlanEvent
from berth_descheduler.api.plan_feeds import PlanFeed, PlanFeeds
from berth_descheduler.api.problems import ProblemError, from_error
from berth_descheduler.api.settings import RestTimes

MEDIA_TYPE: Final = "text/event-stream"
_RECONNECT: Final = b"retry: 2000\n\n"
_HEARTBEAT: Final = b": the plan goes on\n\n"
_SERVICE_ENDS: Final = b": the service ends, ask again\n\n"


@dataclass(frozen=True, slots=True)
class Following:
    """What a stream needs while it lasts."""

    feeds: PlanFeeds
    clock: Clock
    times: RestTimes
    still_allowed: Callable[[], Awaitable[None]]
    """Raises `ProblemError` once the reader may not read on."""


async def stream_events(feed: PlanFeed, last_id: str, around: Following) -> AsyncGenerator[bytes, None]:
    """Yield the plan as it is, or what came after `last_id`, then every change, until the plan or the time is over."""
    clock, times = around.clock, around.times
    ends_at = clock.monotonic() + times.stream_seconds
    ask_at = clock.monotonic() + times.heartbeat_seconds
    place = feed.place_after(last_id) if last_id else None
    with feed.reading() as changed:
        yield _RECONNECT
        while True:
            changed.clear()
            over = feed.over
            events, place = feed.events_from(place)
            for event in events:
                yield event.encode()
            if (ending := _ending(feed, around.feeds)) is not None:
                yield ending
            if over or around.feeds.closing or clock.monotonic() >= ends_at:
                return
            if clock.monotonic() >= ask_at:
                if (refusal := await _refusal(around)) is not None:
                    yield refusal
                    return
                ask_at = clock.monotonic() + times.heartbeat_seconds
                yield _HEARTBEAT
            await _wait_for(changed, min(ask_at, ends_at) - clock.monotonic())


def _ending(feed: PlanFeed, feeds: PlanFeeds) -> bytes | None:
    """Return what is said to a reader whose stream ends though the plan goes on."""
    if feed.error is not None:
        return _problem_event(from_error(feed.error))
    return _SERVICE_ENDS if feeds.closing else None


async def _refusal(around: Following) -> bytes | None:
    """Return what is said to a reader who may not read on."""
    try:
        await around.still_allowed()
    except ProblemError as error:
        return _problem_event(error)
    return None


async def _wait_for(changed: asyncio.Event, seconds: float) -> None:
    """Wait until something changes, or so long."""
    try:
        await asyncio.wait_for(changed.wait(), max(0.0, seconds))
    except TimeoutError:
        return


def _problem_event(error: ProblemError) -> bytes:
    return PlanEvent(EventKind.PROBLEM, "", error.body()).encode()


class EventStream(Response):
    """Sends chunks until they end or the reader is gone; then, in any case, does what is to be done `at_end`."""

    media_type = MEDIA_TYPE

    def __init__(self, chunks: AsyncGenerator[bytes, None], at_end: Callable[[], None]) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the protocol's
        """Send the stream."""
        tasks = (asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_disconnected(receive)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            sent, _ = await asyncio.gather(*tasks, return_exceptions=True)
            self._at_end()
        if isinstance(sent, Exception):
            raise sent

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
