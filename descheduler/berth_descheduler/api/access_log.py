"""The access log: a line, an id and metrics for every request, never a header, a query or a body."""

import uuid
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth_core import Clock
from berth_descheduler import metrics, telemetry
from berth_descheduler.api.context import RequestContext
from berth_descheduler.api.problems import FAILED, ProblemError, ProblemKind
from berth_descheduler.api.request_guard import send_problem
from berth_descheduler.api.request_limits import RequestAdmission

_LOG = structlog.get_logger(__name__)
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNROUTED: Final = "none"
_LONGEST_PATH: Final = 200
_FAILED: Final = 500
_GONE: Final = 499
"""The status that counts a client which closed the connection before the response, as in nginx."""

_HEADERS: Final = (
    # An answer is within one caller's rights, and no cache between may give it to another.
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


class RequestMetrics:
    """Counts requests; there is one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            metrics.REST_REQUESTS,
            "Requests by method, route and status; 499: the sender went away.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            metrics.REST_SECONDS, "Time to the end of the answer.", ["route"], buckets=_BUCKETS, registry=registry
        )
        self._open = Gauge(metrics.REST_OPEN, "Requests that are worked on.", registry=registry)
        self._streams = Gauge(metrics.REST_STREAMS, "Event streams that are open.", registry=registry)

    def watch(self, admission: RequestAdmission) -> None:
        self._open.set_function(lambda: admission.open_requests)
        self._streams.set_function(lambda: admission.open_streams)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        # A series for each method that a client makes up would let it grow the registry without end.
        method_label = method if method in _METHODS else "OTHER"
        self._requests.labels(method=method_label, route=route, status=str(status)).inc()
        self._seconds.labels(route=route).observe(seconds)


class AccessLog:
    """The outermost ASGI application: every exception becomes a response."""

    def __init__(self, app: ASGIApp, clock: Clock, request_metrics: RequestMetrics) -> None:
        self._app = app
        self._clock = clock
        self._request_metrics = request_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; there are no other kinds of connection."""
        if scope["type"] != "http":
            return
        request_id = str(uuid.uuid4())
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        begun_at = self._clock.monotonic()
        status = _GONE

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = _with_our_headers(message["headers"], request_id)
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever failed, the caller gets a problem
            _LOG.error(telemetry.REQUEST_FAILED, exc_info=error, **{telemetry.KEY_REQUEST: request_id})
            if status == _GONE:
                await send_problem(scope, send_noted, ProblemError(ProblemKind.INTERNAL, FAILED))
        finally:
            self._note(scope, status, self._clock.monotonic() - begun_at)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        # The pattern and not the path, which would make a series for each name of a plan.
        route = getattr(scope.get("route"), "path", _UNROUTED)
        self._request_metrics.answered(scope["method"], route, status, seconds)
        context: RequestContext | None = scope["state"].get("context")
        log = _LOG.warning if status >= _FAILED else _LOG.info
        log(
            telemetry.REQUEST_ANSWERED,
            **{
                telemetry.KEY_REQUEST: scope["state"]["request_id"],
                telemetry.KEY_METHOD: scope["method"][:_LONGEST_PATH],
                telemetry.KEY_PATH: scope["path"][:_LONGEST_PATH],
                telemetry.KEY_STATUS: status,
                telemetry.KEY_SECONDS: round(seconds, 3),
                telemetry.KEY_USER: context.subject.user if context and context.subject else "",
                telemetry.KEY_PEER: (scope.get("client") or ("",))[0],
            },
        )


def _with_our_headers(headers: list[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    """Return a response's headers with those that every response has."""
    policy = () if any(header == _POLICY[0] for header, _ in headers) else (_POLICY,)
    return [*headers, *_HEADERS, *policy, (b"x-request-id", request_id.encode())]
