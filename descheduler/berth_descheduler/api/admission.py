"""Owns how many requests and streams are worked on at once, in all and for one caller, and how fast they may come.

It does not own what they ask for.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from berth_core.clock import Clock
from berth_descheduler.api.problems import overloaded, too_many
from berth_descheduler.api.settings import RestLimits, RestTimes

_STREAM_RETRY_SECONDS: Final = 10


class _Places:
    """A number of places, in all and for one caller."""

    def __init__(self, what: str, most: int, per_caller: int, retry_seconds: float) -> None:
        self._what = what
        self._most = most
        self._per_caller = per_caller
        self._retry_seconds = retry_seconds
        self._taken: Counter[str] = Counter()
        self.open = 0

    def enter(self) -> None:
        """Take a place for somebody unknown yet; raises `ProblemError`."""
        if self.open >= self._most:
            raise overloaded(f"{self._most} {self._what} are open, which is the most", self._retry_seconds)
        self.open += 1

    def name(self, caller: str) -> None:
        """Count a place for a caller; raises `ProblemError`."""
        if self._taken[caller] >= self._per_caller:
            text = f"{caller} has {self._per_caller} {self._what} open, which is the most for one caller"
            raise too_many(text, self._retry_seconds)
        self._taken[caller] += 1

    def leave(self, caller: str | None) -> None:
        """Give a place back, and the caller's."""
        self.open -= 1
        if caller is not None:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


@dataclass(slots=True)
class _Line:
    """Where the requests of one peer wait in turn."""

    places: asyncio.Semaphore
    length: int = 0


class _UnauthenticatedRequests:
    """Places of requests that are not authenticated yet: few at once, so that the others keep theirs.

    A peer with many of them waits for itself alone, as long as there are places for others.
    """

    def __init__(self, limits: RestLimits, wait_seconds: float) -> None:
        self._all = asyncio.Semaphore(limits.unauthenticated_requests)
        self._per_peer = limits.unauthenticated_per_peer
        self._wait_seconds = wait_seconds
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Hold a place for one request of a peer; raises `ProblemError` where none becomes free in time."""
        line = self._lines.setdefault(peer, _Line(asyncio.Semaphore(self._per_peer)))
        line.length += 1
        try:
            await self._wait(line)
            try:
                yield
            finally:
                self._all.release()
                line.places.release()
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[peer]

    async def _wait(self, line: _Line) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await line.places.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    line.places.release()
                    raise
        except TimeoutError as error:
            text = f"too many requests of unknown callers came before this one, for more than {self._wait_seconds:g} s"
            raise too_many(text) from error


class _Pace:
    """A bucket of permits for each caller, which fills up with time."""

    def __init__(self, clock: Clock, limits: RestLimits) -> None:
        self._clock = clock
        self._rate = limits.rate_per_second
        self._burst = limits.burst
        self._size = limits.remembered
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take one permit; raises `ProblemError` where there is none."""
        now = self._clock.monotonic()
        level, at = self._levels.pop(caller, (float(self._burst), now))
        level = min(float(self._burst), level + (now - at) * self._rate)
        enough = level >= 1
        self._levels[caller] = (level - 1 if enough else level, now)
        if len(self._levels) > self._size:
            self._levels.popitem(last=False)
        if not enough:
            raise too_many(f"{caller} asks more than {self._rate:g} times a second", (1 - level) / self._rate)


class Admission:
    """Lets requests and streams in; for one event loop."""

    def __init__(self, clock: Clock, limits: RestLimits, times: RestTimes) -> None:
        self._unauthenticated = _UnauthenticatedRequests(limits, times.authentication_wait_seconds)
        self._requests = _Places("requests", limits.requests, limits.requests_per_caller, 1)
        self._streams = _Places("streams", limits.streams, limits.streams_per_caller, _STREAM_RETRY_SECONDS)
        self._pace = _Pace(clock, limits)

    @property
    def open_requests(self) -> int:
        """Return how many requests are worked on."""
        return self._requests.open

    @property
    def open_streams(self) -> int:
        """Return how many streams are open."""
        return self._streams.open

    def unauthenticated_request(self, peer: str) -> AbstractAsyncContextManager[None]:
        """Hold a place for a request that is not authenticated yet; raises `ProblemError`."""
        return self._unauthenticated.place(peer)

    @contextmanager
    def request(self) -> Iterator["Visit"]:
        """Hold a place for one request; raises `ProblemError` where there is none."""
        self._requests.enter()
        visit = Visit(self._requests, self._streams, self._pace)
        try:
            yield visit
        finally:
            visit.end()


class Visit:
    """The place of one request, which may become that of a stream."""

    def __init__(self, requests: _Places, streams: _Places, pace: _Pace) -> None:
        self._place = requests
        self._streams = streams
        self._pace = pace
        self._caller: str | None = None

    def name(self, caller: str) -> None:
        """Say whose request it is; raises `ProblemError` where they ask too much."""
        self._pace.take(caller)
        self._place.name(caller)
        self._caller = caller

    def become_stream(self) -> None:
        """Change the place of a request for that of a stream; raises `ProblemError` where there is none."""
        caller, streams = self._caller, self._streams
        streams.enter()
        try:
            if caller is not None:
                streams.name(caller)
        except BaseException:
            streams.leave(None)
            raise
        self._place.leave(caller)
        self._place = streams

    def end(self) -> None:
        """Give the place back."""
        self._place.leave(self._caller)
