"""The checks in front of every path: size, caller, limits and deadline."""

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth_descheduler.api.authentication import Authority
from berth_descheduler.api.context import RequestContext
from berth_descheduler.api.json_bodies import require_plain_json
from berth_descheduler.api.needed_rights import needed_right
from berth_descheduler.api.problems import MEDIA_TYPE, ProblemError, ProblemKind, fault
from berth_descheduler.api.request_limits import RequestAdmission, caller_of
from berth_descheduler.api.settings import RestLimits, RestSettings

GONE: Final = "gone"
"""The key of a request's state that says that its connection has ended."""

PROTECTED: Final = "/v1/"
"""Paths below this need a token that the cluster knows."""

_JSON: Final = "application/json"
_DRAIN_SECONDS: Final = 2.0
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})


class _GoneError(Exception):
    """The peer closed the connection before its request was complete."""


class RequestGuard:
    """An ASGI application in front of another; it answers what it rejects."""

    def __init__(self, app: ASGIApp, authority: Authority, admission: RequestAdmission, settings: RestSettings) -> None:
        self._app = app
        self._authority = authority
        self._admission = admission
        self._limits = settings.limits
        self._times = settings.times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with a problem."""
        started = False
        request_body = _RequestBody(receive)

        async def send_noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._pass(scope, request_body, send_noted)
        except _GoneError:
            return
        except (ProblemError, TimeoutError) as error:
            # The status is sent already; only an end of the connection can still tell the reader that the answer is not
            # whole.
            if started:
                raise
            problem = error if isinstance(error, ProblemError) else self._too_long()
            await self._refuse(scope, request_body, send, problem)

    async def _pass(self, scope: Scope, receive: "_RequestBody", send: Send) -> None:
        require_modest(scope, self._limits)
        require_one_length(scope)
        if not scope["path"].startswith(PROTECTED):
            await self._answer_anyone(scope, receive, send)
            return
        authorization = header_values(scope, b"authorization")
        if not self._authority.is_caller(authorization):
            # A caller with invalid tokens gets no place among the requests of known callers.
            async with (
                self._admission.unauthenticated_request(peer_of(scope)),
                asyncio.timeout(self._times.request_seconds),
            ):
                _require_peer(scope)
                await self._authority.identify(authorization)
        await self._answer_caller(scope, receive, send, authorization)

    async def _answer_anyone(self, scope: Scope, receive: "_RequestBody", send: Send) -> None:
        """Answer a request that needs no caller, once its body is there."""
        body = await self._read_body(scope, receive)
        async with self._admission.unauthenticated_request(peer_of(scope)):
            _require_peer(scope)
            async with asyncio.timeout(self._times.request_seconds) as deadline:
                with self._admission.request() as ticket:
                    scope["state"]["context"] = RequestContext(ticket, deadline)
                    await self._app(scope, _replayed(body, receive), send)

    async def _answer_caller(
        self, scope: Scope, receive: "_RequestBody", send: Send, authorization: Sequence[str]
    ) -> None:
        """Answer a request within the limits of its caller."""
        async with asyncio.timeout(self._times.request_seconds) as deadline:
            with self._admission.visit() as ticket:
                context = RequestContext(ticket, deadline, authorization=authorization)
                scope["state"]["context"] = context
                context.subject = await self._authority.identify(authorization)
                ticket.count_for(caller_of(context.subject.user))
                right = needed_right(scope["method"], scope["path"])
                if right is not None:
                    await self._authority.require(context.subject, right)
                body = await self._read_body(scope, receive)
                # Only now: neither a caller without the right nor one that sends slowly holds one of the places.
                ticket.take_place()
                await self._app(scope, _replayed(body, receive), send)

    async def _read_body(self, scope: Scope, receive: "_RequestBody") -> bytes:
        """Return the body; raises `ProblemError` if too large, too slow or not JSON."""
        if not has_body(scope):
            return b""
        body = await self._read_in_time(receive)
        if body and scope["method"] in _BODY_METHODS:
            require_json(scope)
            require_plain_json(body)
        return body

    async def _read_in_time(self, receive: "_RequestBody") -> bytes:
        """Return the body; raises `ProblemError` if it comes too late or slower than the least rate."""
        begun_at = asyncio.get_running_loop().time()
        rate = self._limits.body_bytes_per_second
        end = begun_at + self._times.body_seconds
        body = bytearray()
        is_whole = False
        while not is_whole:
            next_by = begun_at + self._times.body_grace_seconds + len(body) / rate
            try:
                async with asyncio.timeout_at(min(end, next_by)):
                    message = await receive()
            except TimeoutError as error:
                slow_text = f"the body came slower than {rate} bytes a second"
                late_text = f"the body was not complete within {self._times.body_seconds:g} s"
                raise ProblemError(ProblemKind.TOO_SLOW, slow_text if next_by < end else late_text) from error
            is_whole = _take_in(message, body, self._limits.body_bytes)
        return bytes(body)

    def _too_long(self) -> ProblemError:
        return ProblemError(ProblemKind.TIMED_OUT, f"there was no answer within {self._times.request_seconds:g} s")

    async def _refuse(self, scope: Scope, request_body: "_RequestBody", send: Send, problem: ProblemError) -> None:
        """Answer with a problem, after the body of a sender that would not read the answer before."""
        is_whole = request_body.whole or not has_body(scope)
        if not is_whole and problem.kind is not ProblemKind.TOO_SLOW:
            # A connection that is closed while its peer still sends is reset, and the answer is lost with it (RFC 9112,
            # 9.6).
            is_whole = await _drained(scope, request_body, self._limits.drained_bytes)
        await send_problem(scope, send, problem, close=not is_whole)


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
    """Raise `ProblemError` if path, query, headers or the announced body are too large."""
    target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    if target > limits.target_bytes:
        text = f"path and query have {target} bytes; expected at most {limits.target_bytes}"
        raise ProblemError(ProblemKind.TARGET_TOO_LONG, text)
    headers = scope["headers"]
    size = sum(len(header) + len(value) for header, value in headers)
    if len(headers) > limits.headers or size > limits.header_bytes:
        raise ProblemError(
            ProblemKind.HEADERS_TOO_LARGE,
            f"there are {len(headers)} headers of {size} bytes; expected at most {limits.headers} of"
            f" {limits.header_bytes} bytes in all",
        )
    if (announced_bytes := _announced_bytes(scope)) > limits.body_bytes:
        raise _too_large(limits.body_bytes, f"{announced_bytes} bytes")


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
    media_types = header_values(scope, b"content-type")
    if len(media_types) != 1 or media_types[0].partition(";")[0].strip().lower() != _JSON:
        raise ProblemError(
            ProblemKind.UNSUPPORTED_MEDIA_TYPE,
            f"the body is {', '.join(media_types) or 'of no type'}; expected the header Content-Type: {_JSON}",
            faults=[fault("header.Content-Type", ", ".join(media_types) or None, _JSON)],
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
    raw_headers = [(header.lower().encode(), value.encode("latin-1", "replace")) for header, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw_headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _announced_bytes(scope: Scope) -> int:
    """Return the announced length of the body, which uvicorn has checked."""
    return next((int(value) for value in header_values(scope, b"content-length") if value.isdecimal()), 0)


def _take_in(message: Message, body: bytearray, max_bytes: int) -> bool:
    """Add a part to a body, and return whether it is the last; raises `ProblemError` if the body is too large."""
    if message["type"] != "http.request":
        raise _GoneError
    body += message.get("body", b"")
    if len(body) > max_bytes:
        raise _too_large(max_bytes, "more")
    return not message.get("more_body", False)


def _require_peer(scope: Scope) -> None:
    """Give up a request whose connection was closed in favour of another one while it waited."""
    if scope["state"].get(GONE, False):
        raise _GoneError


def _too_large(max_bytes: int, length: str) -> ProblemError:
    text = f"the body has {length}; expected at most {max_bytes} bytes"
    return ProblemError(ProblemKind.TOO_LARGE, text, faults=[fault("body", None, f"at most {max_bytes} bytes")])


async def _drained(scope: Scope, receive: _RequestBody, max_bytes: int) -> bool:
    """Read the rest of a body and return whether it ended in time."""
    if header_values(scope, b"expect"):  # the sender waits for 100 Continue
        return False
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            body = bytearray()
            while not _take_in(await receive(), body, max_bytes):
                pass
    except (TimeoutError, ProblemError, _GoneError):
        return False
    return True


def _replayed(body: bytes, receive: _RequestBody) -> Receive:
    """Return a `receive` that gives the body already read, then what follows it."""
    is_replayed = False

    async def replay() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
