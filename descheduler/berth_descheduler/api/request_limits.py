"""Limits on how many requests and streams there are at once, and on their rate."""

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from berth_core import Clock
from berth_descheduler.api.problems import overloaded, too_many
from berth_descheduler.api.settings import RestLimits, RestTimes

_STREAM_RETRY_SECONDS: Final = 10
_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+):[^:]+")


def caller_of(user: str) -> str:
    """Return the name under which a user's requests are counted: for a ServiceAccount that of its namespace's group."""
    # Whoever may create one ServiceAccount in a namespace may create many, so they count as one.
    match = _SERVICE_ACCOUNT.fullmatch(user)
    return user if match is None else f"system:serviceaccounts:{match[1]}"


class _ConcurrencyLimit:
    """Bounds how many are open at once, in all and per caller."""

    def __init__(self, subject: str, max_open: int, per_caller: int, retry_seconds: float) -> None:
        self._subject = subject
        self._max_open = max_open
        self._per_caller = per_caller
        self._retry_seconds = retry_seconds
        self._taken: Counter[str] = Counter()
        self.open = 0

    def enter(self) -> None:
        """Count one whose caller is not known yet; raises `ProblemError` at the limit."""
        if self.open >= self._max_open:
            raise overloaded(f"{self._max_open} {self._subject} are open, which is the most", self._retry_seconds)
        self.open += 1

    def enter_for(self, caller: str) -> None:
        """Count one for a caller; raises `ProblemError` at the limit."""
        if self._taken[caller] >= self._per_caller:
            text = f"{caller} has {self._per_caller} {self._subject} open, which is the most for one caller"
            raise too_many(text, self._retry_seconds)
        self._taken[caller] += 1

    def leave(self) -> None:
        """Count one less."""
        self.open -= 1

    def leave_for(self, caller: str) -> None:
        """Count one less for a caller."""
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


@dataclass(slots=True)
class _Queue:
    """The queue in which the requests of one peer wait for a place."""

    places: asyncio.Semaphore
    length: int = 0


class _UnauthenticatedRequests:
    """Bounds requests without authentication, so that they do not crowd out the others.

    A peer with many of them delays only itself while there are places for others.
    """

    def __init__(self, limits: RestLimits, wait_seconds: float) -> None:
        self._all = asyncio.Semaphore(limits.unauthenticated_requests)
        self._per_peer = limits.unauthenticated_per_peer
        self._wait_seconds = wait_seconds
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Hold a place for a request; raises `ProblemError` if none frees up in time."""
        peer_queue = self._queues.setdefault(peer, _Queue(asyncio.Semaphore(self._per_peer)))
        peer_queue.length += 1
        try:
            await self._wait(peer_queue)
            try:
                yield
            finally:
                self._all.release()
                peer_queue.places.release()
        finally:
            peer_queue.length -= 1
            if not peer_queue.length:
                del self._queues[peer]

    async def _wait(self, peer_queue: _Queue) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await peer_queue.places.acquire()
                try:
                    await self._all.acquire()
                # A cancellation as well, which is how the time-out ends the wait.
                except BaseException:
                    peer_queue.places.release()
                    raise
        except TimeoutError as error:
            text = f"too many requests of unknown callers came before this one, for more than {self._wait_seconds:g} s"
            raise too_many(text) from error


class _TokenBucket:
    """Limits the rate of each caller, with bursts."""

    def __init__(self, clock: Clock, limits: RestLimits) -> None:
        self._clock = clock
        self._rate = limits.rate_per_second
        self._burst = limits.burst
        self._size = limits.remembered
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take one token; raises `ProblemError` if there is none."""
        now = self._clock.monotonic()
        level, taken_at = self._levels.pop(caller, (float(self._burst), now))
        # A token bucket is filled when it is looked at, so that idle callers cost no timer.
        level = min(float(self._burst), level + (now - taken_at) * self._rate)
        has_token = level >= 1
        self._levels[caller] = (level - 1 if has_token else level, now)
        if len(self._levels) > self._size:
            self._levels.popitem(last=False)
        if not has_token:
            raise too_many(f"{caller} asks more than {self._rate:g} times a second", (1 - level) / self._rate)


class RequestAdmission:
    """Admits requests and streams; for one event loop."""

    def __init__(self, clock: Clock, limits: RestLimits, times: RestTimes) -> None:
        self._unauthenticated = _UnauthenticatedRequests(limits, times.authentication_wait_seconds)
        self._requests = _ConcurrencyLimit("requests", limits.requests, limits.requests_per_caller, 1)
        self._streams = _ConcurrencyLimit("streams", limits.streams, limits.streams_per_caller, _STREAM_RETRY_SECONDS)
        self._bucket = _TokenBucket(clock, limits)

    @property
    def open_requests(self) -> int:
        return self._requests.open

    @property
    def open_streams(self) -> int:
        return self._streams.open

    def unauthenticated_request(self, peer: str) -> AbstractAsyncContextManager[None]:
        """Hold a place for a request that is not authenticated yet; raises `ProblemError`."""
        return self._unauthenticated.place(peer)

    @contextmanager
    def visit(self) -> Iterator["Ticket"]:
        """Yield a ticket that counts nothing yet; the request is counted for its caller and among all as it goes on."""
        ticket = Ticket(self._requests, self._streams, self._bucket)
        try:
            yield ticket
        finally:
            ticket.end()

    @contextmanager
    def request(self) -> Iterator["Ticket"]:
        """Hold a place for one request; raises `ProblemError` if there is none."""
        with self.visit() as ticket:
            ticket.take_place()
            yield ticket


class Ticket:
    """What one request counts for, or the stream it becomes."""

    def __init__(self, requests: _ConcurrencyLimit, streams: _ConcurrencyLimit, bucket: _TokenBucket) -> None:
        self._counted = requests
        self._streams = streams
        self._bucket = bucket
        self._caller: str | None = None
        self._has_place = False

    def count_for(self, caller: str) -> None:
        """Count the request for its caller; raises `ProblemError` at a limit."""
        self._bucket.take(caller)
        self._counted.enter_for(caller)
        self._caller = caller

    def take_place(self) -> None:
        """Count the request among all that are worked on; raises `ProblemError` at the limit."""
        self._counted.enter()
        self._has_place = True

    def become_stream(self) -> None:
        """Take the place of a stream instead; raises `ProblemError` if none is free."""
        caller, streams = self._caller, self._streams
        streams.enter()
        try:
            if caller is not None:
                streams.enter_for(caller)
        except BaseException:
            streams.leave()
            raise
        # Only now: a request that gets no stream is answered in its own place.
        self.end()
        self._counted, self._caller, self._has_place = streams, caller, True

    def end(self) -> None:
        if self._has_place:
            self._counted.leave()
        if self._caller is not None:
            self._counted.leave_for(self._caller)
        self._has_place, self._caller = False, None
