"""Admission of requests: who asks, how much at once, and the checks in front of every path."""

import asyncio
import hashlib
import hmac
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth_core import BerthError, Clock
from berth_descheduler import telemetry
from berth_descheduler.api.concurrency import TtlCache, Workers
from berth_descheduler.api.problems import (
    MEDIA_TYPE,
    ProblemError,
    ProblemKind,
    fault,
    overloaded,
    too_many,
    unavailable,
)
from berth_descheduler.api.settings import RestLimits, RestSettings, RestTimes
from berth_kube import Access, KubeClient, Subject, review_access, review_token

_LOG = structlog.get_logger(__name__)

# --- authentication and authorization --------------------------------------------------------------------------------
# By the API server, cached for seconds. A token is never stored, logged or repeated.

_TOKEN: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_CHALLENGE: Final = 'Bearer realm="berth-descheduler"'
_HOW: Final = 'expected the header "Authorization: Bearer TOKEN" with a token that the cluster knows'


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a review; `subject` is that of a valid token."""

    good: bool
    subject: Subject | None = None


class Authority:
    """Reviews tokens and rights; without an answer it denies. For one event loop."""

    def __init__(self, client: KubeClient, clock: Clock, workers: Workers, settings: RestSettings) -> None:
        self._client = client
        self._workers = workers
        self._audiences = settings.audiences
        self._times = settings.times
        self._secret = secrets.token_bytes(32)
        self._subjects: TtlCache[bytes, _Answer] = TtlCache(clock, settings.limits.remembered)
        self._callers: OrderedDict[bytes, None] = OrderedDict()
        """Tokens that the last review accepted; rights are reviewed all the same."""
        self._remembered = settings.limits.remembered
        self._rights: TtlCache[tuple[Subject, Access], _Answer] = TtlCache(clock, settings.limits.remembered)

    def is_caller(self, headers: Sequence[str]) -> bool:
        """Return whether the headers hold a token that was accepted recently; raises `ProblemError`."""
        return self._digest(_read_token(headers)) in self._callers

    async def identify(self, headers: Sequence[str]) -> Subject:
        """Return who sends a request with these Authorization headers; raises `ProblemError`."""
        token = _read_token(headers)
        digest = self._digest(token)

        def review() -> _Answer:
            found = review_token(self._client, token, self._audiences)
            return _Answer(good=found is not None, subject=found)

        answer = await self._subjects.answer(digest, self._asking(review), self._seconds)
        self._note(digest, known=answer.subject is not None)
        if answer.subject is None:
            raise _unauthenticated("the cluster does not know this token for this service, or it has expired")
        return answer.subject

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), hashlib.sha256)

    def _note(self, digest: bytes, *, known: bool) -> None:
        """Keep accepted tokens apart from the many that anyone may make up."""
        self._callers.pop(digest, None)
        if known:
            self._callers[digest] = None
        if len(self._callers) > self._remembered:
            self._callers.popitem(last=False)

    async def require(self, subject: Subject, access: Access) -> None:
        """Raise `ProblemError` unless the subject has the right."""

        def review() -> _Answer:
            return _Answer(good=review_access(self._client, subject, access))

        answer = await self._rights.answer((subject, access), self._asking(review), self._seconds)
        if not answer.good:
            raise ProblemError(ProblemKind.FORBIDDEN, f"{subject.user} has no right to {access}, which this needs")

    def _asking(self, review: Callable[[], _Answer]) -> Callable[[], Awaitable[_Answer]]:
        """Return a review that denies when the API server does not answer."""

        async def ask() -> _Answer:
            try:
                return await self._workers.run(review)
            except BerthError as error:
                # The server's message may quote the token.
                _LOG.error(telemetry.REVIEW_FAILED, **{telemetry.KEY_ERROR: type(error).__name__})
                raise unavailable("the cluster does not say who is asking and what they may do") from error

        return ask

    def _seconds(self, answer: _Answer) -> float:
        return self._times.identity_seconds if answer.good else self._times.rejected_seconds


def _read_token(headers: Sequence[str]) -> str:
    if not headers:
        raise _unauthenticated(f"the header Authorization is missing; {_HOW}")
    if len(headers) > 1:
        raise _unauthenticated(f"there are {len(headers)} headers Authorization; {_HOW}")
    found = _TOKEN.fullmatch(headers[0].strip())
    if found is None:
        raise _unauthenticated(f"the header Authorization holds no bearer token; {_HOW}")
    return found[1]


def _unauthenticated(detail: str) -> ProblemError:
    return ProblemError(ProblemKind.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": _CHALLENGE})


# --- limits ----------------------------------------------------------------------------------------------------------
# On requests and streams at once, and on their rate.

_STREAM_RETRY_SECONDS: Final = 10


class _ConcurrencyLimit:
    """Bounds what is open at once, in all and per caller."""

    def __init__(self, what: str, most: int, per_caller: int, retry_seconds: float) -> None:
        self._what = what
        self._most = most
        self._per_caller = per_caller
        self._retry_seconds = retry_seconds
        self._taken: Counter[str] = Counter()
        self.open = 0

    def enter(self) -> None:
        """Count one whose caller is not known yet; raises `ProblemError` at the limit."""
        if self.open >= self._most:
            raise overloaded(f"{self._most} {self._what} are open, which is the most", self._retry_seconds)
        self.open += 1

    def name(self, caller: str) -> None:
        """Count one for a caller; raises `ProblemError` at the limit."""
        if self._taken[caller] >= self._per_caller:
            text = f"{caller} has {self._per_caller} {self._what} open, which is the most for one caller"
            raise too_many(text, self._retry_seconds)
        self._taken[caller] += 1

    def leave(self, caller: str | None) -> None:
        """Count one less, also for its caller."""
        self.open -= 1
        if caller is not None:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


@dataclass(slots=True)
class _Queue:
    """Where the requests of one peer queue."""

    places: asyncio.Semaphore
    length: int = 0


class _UnauthenticatedRequests:
    """Bounds requests without authentication, which could crowd out the others.

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
        line = self._queues.setdefault(peer, _Queue(asyncio.Semaphore(self._per_peer)))
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
                del self._queues[peer]

    async def _wait(self, line: _Queue) -> None:
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
        level, at = self._levels.pop(caller, (float(self._burst), now))
        level = min(float(self._burst), level + (now - at) * self._rate)
        enough = level >= 1
        self._levels[caller] = (level - 1 if enough else level, now)
        if len(self._levels) > self._size:
            self._levels.popitem(last=False)
        if not enough:
            raise too_many(f"{caller} asks more than {self._rate:g} times a second", (1 - level) / self._rate)


class Admission:
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
    def request(self) -> Iterator["Ticket"]:
        """Hold a place for one request; raises `ProblemError` if there is none."""
        self._requests.enter()
        ticket = Ticket(self._requests, self._streams, self._bucket)
        try:
            yield ticket
        finally:
            ticket.end()


class Ticket:
    """The place of one request, or of the stream it becomes."""

    def __init__(self, requests: _ConcurrencyLimit, streams: _ConcurrencyLimit, bucket: _TokenBucket) -> None:
        self._place = requests
        self._streams = streams
        self._bucket = bucket
        self._caller: str | None = None

    def name(self, caller: str) -> None:
        """Count the request for its caller; raises `ProblemError` at a limit."""
        self._bucket.take(caller)
        self._place.name(caller)
        self._caller = caller

    def become_stream(self) -> None:
        """Take the place of a stream instead; raises `ProblemError` if none is free."""
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
        self._place.leave(self._caller)


# --- checks of every request ------------------------------------------------------------------------------------------
# Size, caller, limits and deadline.

PROTECTED: Final = "/v1/"
"""Paths below this need a token that the cluster knows."""

_JSON: Final = "application/json"
_DRAIN_SECONDS: Final = 2.0
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})


@dataclass(slots=True)
class RequestContext:
    """What is known of a request that passed the checks."""

    ticket: Ticket
    deadline: asyncio.Timeout
    subject: Subject | None = None
    authorization: Sequence[str] = ()
    """Kept for streams, which are authorized again and again."""

    def become_stream(self) -> None:
        """Lift the deadline; raises `ProblemError` if too many streams are open."""
        self.ticket.become_stream()
        self.deadline.reschedule(None)


class _GoneError(Exception):
    """The peer closed the connection before its request was complete."""


class RequestGuard:
    """An ASGI application in front of another; it answers what it rejects."""

    def __init__(self, app: ASGIApp, authority: Authority, admission: Admission, settings: RestSettings) -> None:
        self._app = app
        self._authority = authority
        self._admission = admission
        self._limits = settings.limits
        self._times = settings.times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with a problem."""
        started = False
        request_body = _RequestBody(receive)

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._pass(scope, request_body, noted)
        except _GoneError:
            return
        except (ProblemError, TimeoutError) as error:
            if started:
                raise
            problem = error if isinstance(error, ProblemError) else self._too_long()
            await self._refuse(scope, request_body, send, problem)

    async def _pass(self, scope: Scope, receive: "_RequestBody", send: Send) -> None:
        require_modest(scope, self._limits)
        require_one_length(scope)
        if not scope["path"].startswith(PROTECTED):
            async with self._admission.unauthenticated_request(peer_of(scope)):
                await self._work(scope, receive, send, ())
            return
        authorization = header_values(scope, b"authorization")
        if not self._authority.is_caller(authorization):
            # A caller with invalid tokens gets no place among the requests of known callers.
            async with (
                self._admission.unauthenticated_request(peer_of(scope)),
                asyncio.timeout(self._times.request_seconds),
            ):
                await self._authority.identify(authorization)
        await self._work(scope, receive, send, authorization)

    async def _work(self, scope: Scope, receive: "_RequestBody", send: Send, authorization: Sequence[str]) -> None:
        """Answer a request within its limits; one without authorization has no caller."""
        with self._admission.request() as ticket:
            async with asyncio.timeout(self._times.request_seconds) as deadline:
                context = RequestContext(ticket, deadline, authorization=authorization)
                scope["state"]["context"] = context
                if authorization:
                    context.subject = await self._authority.identify(authorization)
                    ticket.name(context.subject.user)
                body = await self._read_body(scope, receive)
                await self._app(scope, _replayed(body, receive), send)

    async def _read_body(self, scope: Scope, receive: "_RequestBody") -> bytes:
        """Return the body; raises `ProblemError` if too large, too slow or not JSON."""
        if not has_body(scope):
            return b""
        try:
            async with asyncio.timeout(self._times.body_seconds):
                body = await _read(receive, self._limits.body_bytes)
        except TimeoutError as error:
            text = f"the body was not complete within {self._times.body_seconds:g} s"
            raise ProblemError(ProblemKind.TOO_SLOW, text) from error
        if body and scope["method"] in _BODY_METHODS:
            require_json(scope)
        return body

    def _too_long(self) -> ProblemError:
        return ProblemError(ProblemKind.TIMED_OUT, f"there was no answer within {self._times.request_seconds:g} s")

    async def _refuse(self, scope: Scope, request_body: "_RequestBody", send: Send, problem: ProblemError) -> None:
        """Answer with a problem, after reading a body whose sender would not listen yet."""
        whole = request_body.whole or not has_body(scope)
        if not whole and problem.kind is not ProblemKind.TOO_SLOW:
            whole = await _drained(scope, request_body, self._limits.drained_bytes)
        await send_problem(scope, send, problem, close=not whole)


class _RequestBody:
    """Receives a request's messages and tracks whether its body was complete."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.whole = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.whole = self.whole or (message["type"] == "http.request" and not message.get("more_body", False))
        return message


def require_modest(scope: Scope, limits: RestLimits) -> None:
    """Raise `ProblemError` if path, query, headers or announced body are too large."""
    target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    if target > limits.target_bytes:
        text = f"path and query have {target} bytes; expected at most {limits.target_bytes}"
        raise ProblemError(ProblemKind.TARGET_TOO_LONG, text)
    headers = scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > limits.headers or size > limits.header_bytes:
        raise ProblemError(
            ProblemKind.HEADERS_TOO_LARGE,
            f"there are {len(headers)} headers of {size} bytes; expected at most {limits.headers} of"
            f" {limits.header_bytes} bytes in all",
        )
    if (announced := _announced_bytes(scope)) > limits.body_bytes:
        raise _too_large(limits.body_bytes, f"{announced} bytes")


def require_one_length(scope: Scope) -> None:
    """Raise `ProblemError` if two headers give a length: a proxy may use the other."""
    if header_values(scope, b"transfer-encoding") and header_values(scope, b"content-length"):
        text = "there are both Content-Length and Transfer-Encoding; expected one of them"
        raise ProblemError(
            ProblemKind.MALFORMED,
            text,
            faults=[fault("header.Content-Length", None, "nothing beside Transfer-Encoding")],
            headers={"Connection": "close"},
        )


def peer_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def require_json(scope: Scope) -> None:
    """Raise `ProblemError` unless the Content-Type is JSON."""
    found = header_values(scope, b"content-type")
    if len(found) != 1 or found[0].partition(";")[0].strip().lower() != _JSON:
        raise ProblemError(
            ProblemKind.UNSUPPORTED_MEDIA_TYPE,
            f"the body is {', '.join(found) or 'of no type'}; expected the header Content-Type: {_JSON}",
            faults=[fault("header.Content-Type", ", ".join(found) or None, _JSON)],
            headers={"Accept": _JSON},
        )


def header_values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    return bool(header_values(scope, b"transfer-encoding")) or _announced_bytes(scope) > 0


async def send_problem(scope: Scope, send: Send, problem: ProblemError, *, close: bool = False) -> None:
    body = problem.body(scope["state"].get("request_id", ""))
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), **problem.headers}
    headers |= {"Connection": "close"} if close else {}
    raw = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _announced_bytes(scope: Scope) -> int:
    """Return the announced length of the body, which uvicorn has checked."""
    return next((int(value) for value in header_values(scope, b"content-length") if value.isdecimal()), 0)


async def _read(receive: _RequestBody, most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _GoneError
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most, "more")
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(most: int, found: str) -> ProblemError:
    text = f"the body has {found}; expected at most {most} bytes"
    return ProblemError(ProblemKind.TOO_LARGE, text, faults=[fault("body", None, f"at most {most} bytes")])


async def _drained(scope: Scope, receive: _RequestBody, most: int) -> bool:
    """Read the rest of a body and return whether it ended in time."""
    if header_values(scope, b"expect"):  # the sender waits for 100 Continue
        return False
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            await _read(receive, most)
    except (TimeoutError, ProblemError, _GoneError):
        return False
    return True


def _replayed(body: bytes, receive: _RequestBody) -> Receive:
    """Return a `receive` that gives the body already read, then what follows it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
