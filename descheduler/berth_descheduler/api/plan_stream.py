"""A stream of server-sent events about one plan: what is sent when, and when it ends."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from berth_core import Clock
from berth_descheduler.api.plan_events import PlanEvent
from berth_descheduler.api.plan_feeds import PlanFeed, PlanFeeds
from berth_descheduler.api.problems import ProblemError, from_error
from berth_descheduler.api.schemas import EventKind
from berth_descheduler.api.settings import RestTimes

MEDIA_TYPE: Final = "text/event-stream"
# Without it each browser chooses for itself how long it waits before it asks again.
_RECONNECT: Final = b"retry: 2000\n\n"
# A comment, which readers skip. Proxies close a connection on which nothing comes for long, nginx after a minute
# (`proxy_read_timeout`).
_HEARTBEAT: Final = b": the plan goes on\n\n"
_SERVICE_ENDS: Final = b": the service ends, ask again\n\n"


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What a stream uses while it is open."""

    feeds: PlanFeeds
    clock: Clock
    times: RestTimes
    still_allowed: Callable[[], Awaitable[None]]
    """Raises `ProblemError` once the reader has lost the right."""


async def stream_events(feed: PlanFeed, last_id: str, context: StreamContext) -> AsyncGenerator[bytes, None]:
    """Yield the plan, or what followed `last_id`, then every change."""
    clock, times = context.clock, context.times
    ends_at = clock.monotonic() + times.stream_seconds
    ask_at = clock.monotonic() + times.heartbeat_seconds
    position = feed.position_after(last_id) if last_id else None
    with feed.reading() as plan_changed:
        yield _RECONNECT
        while True:
            # Cleared before the state is read: a change from here on sets it again, and the wait below ends at once.
            plan_changed.clear()
            # Asked before the events are taken, so that the last of them cannot come between the two and stay unsent.
            is_over = feed.over
            events, position = feed.events_from(position)
            for event in events:
                yield event.encode()
            if (ending_event := _ending(feed, context.feeds)) is not None:
                yield ending_event
            if is_over or context.feeds.closing or clock.monotonic() >= ends_at:
                return
            if clock.monotonic() >= ask_at:
                if (refusal := await _refusal(context)) is not None:
                    yield refusal
                    return
                ask_at = clock.monotonic() + times.heartbeat_seconds
                yield _HEARTBEAT
            await _wait_for(plan_changed, min(ask_at, ends_at) - clock.monotonic())


def _ending(feed: PlanFeed, feeds: PlanFeeds) -> bytes | None:
    """Return the last message of a stream that ends before its plan."""
    if feed.error is not None:
        return _problem_event(from_error(feed.error))
    return _SERVICE_ENDS if feeds.closing else None


async def _refusal(context: StreamContext) -> bytes | None:
    """Return the last message to a reader who has lost the right."""
    try:
        await context.still_allowed()
    except ProblemError as error:
        return _problem_event(error)
    return None


async def _wait_for(changed: asyncio.Event, seconds: float) -> None:
    """Wait for a change, at most for these seconds."""
    try:
        await asyncio.wait_for(changed.wait(), max(0.0, seconds))
    except TimeoutError:
        return


def _problem_event(error: ProblemError) -> bytes:
    return PlanEvent(EventKind.PROBLEM, "", error.body()).encode()


class EventStream(Response):
    """Sends chunks until they or the reader end, then calls `at_end`."""

    media_type = MEDIA_TYPE

    def __init__(self, chunks: AsyncGenerator[bytes, None], at_end: Callable[[], None]) -> None:
        # nginx would collect events until its buffer is full (`proxy_buffering`).
        super().__init__(headers={"X-Accel-Buffering": "no"})
        # Starlette sets it to the length of the body that it is given, which is none.
        del self.headers["content-length"]
        self._chunks = chunks
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the protocol's
        tasks = (asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_disconnected(receive)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            sending_result, _ = await asyncio.gather(*tasks, return_exceptions=True)
            self._at_end()
        if isinstance(sending_result, Exception):
            raise sending_result

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
