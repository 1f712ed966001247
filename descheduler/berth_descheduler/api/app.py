"""The ASGI application: paths, their description, and the checks in front of them."""

from http import HTTPStatus
from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from berth_core import BerthError, Clock
from berth_descheduler.api.access_log import AccessLog, RequestMetrics
from berth_descheduler.api.authentication import Authority
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.context import ApiContext
from berth_descheduler.api.local_access import HostGuard, LocalAuthority
from berth_descheduler.api.openapi import describe
from berth_descheduler.api.openapi_page import CONTENT_POLICY, render_page
from berth_descheduler.api.plan_feeds import PlanFeeds
from berth_descheduler.api.problems import FAILED, MEDIA_TYPE, ProblemError, ProblemKind, from_error
from berth_descheduler.api.reads import FragmentationQueries
from berth_descheduler.api.request_guard import RequestGuard
from berth_descheduler.api.request_limits import RequestAdmission
from berth_descheduler.api.request_validation import from_validation
from berth_descheduler.api.routes import build_routes
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.api.trouble_watch import TroubleWatch
from berth_descheduler.ui import build_page_routes
from berth_kube import KubeClient

DESCRIPTION_PATH: Final = "/openapi.json"
PAGE_PATH: Final = "/docs"


class Application:
    """The HTTP interface as an ASGI application, for one event loop."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        settings: RestSettings,
        registry: CollectorRegistry,
        history: CapacityHistory | None = None,
    ) -> None:
        self._workers = Workers(settings.limits.workers, settings.times.call_seconds)
        self._capacity = FragmentationQueries(client, clock, settings)
        self._troubles = TroubleWatch(client, clock, settings)
        self._feeds = PlanFeeds(client, settings)
        client_within_limit = client.within(settings.times.call_seconds)
        authority_class = LocalAuthority if settings.local_token else Authority
        authority = authority_class(client_within_limit, clock, self._workers, settings)
        api = ApiContext(
            client_within_limit,
            clock,
            self._workers,
            authority,
            self._capacity,
            self._troubles,
            self._feeds,
            settings,
            history or CapacityHistory(),
        )
        admission = RequestAdmission(clock, settings.limits, settings.times)
        request_metrics = RequestMetrics(registry)
        request_metrics.watch(admission)
        self.paths = build_paths(api)
        self.paths.include_router(build_page_routes(switched_on=settings.ui))
        guarded: ASGIApp = RequestGuard(self.paths, authority, admission, settings)
        self.asgi: ASGIApp = AccessLog(HostGuard(guarded) if settings.local_token else guarded, clock, request_metrics)

    def end_streams(self) -> None:
        """End all streams and start no new ones."""
        self._feeds.close()

    def close(self) -> None:
        self.end_streams()
        self._capacity.close()
        self._troubles.close()
        self._workers.close()


def build_paths(api: ApiContext) -> FastAPI:
    """Return all paths, with the OpenAPI description and its page."""
    # The description lacks the msgspec documents otherwise, and FastAPI's own pages load scripts from elsewhere.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(build_routes(api))
    api_description = describe(app)
    as_json, as_page = msgspec.json.encode(api_description), render_page(api_description).encode()

    @app.get(DESCRIPTION_PATH, include_in_schema=False)
    async def description() -> Response:
        return Response(as_json, media_type="application/json")

    @app.get(PAGE_PATH, include_in_schema=False)
    async def page() -> Response:
        return Response(
            as_page, headers={"Content-Security-Policy": CONTENT_POLICY}, media_type="text/html; charset=utf-8"
        )

    _add_problems(app)
    return app


def _add_problems(app: FastAPI) -> None:
    """Answer every error with a problem; the access log handles the rest."""

    @app.exception_handler(ProblemError)
    async def problem(request: Request, error: ProblemError) -> Response:
        return _answer(request, error)

    @app.exception_handler(BerthError)
    async def berth_error(request: Request, error: BerthError) -> Response:
        return _answer(request, from_error(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _answer(request, from_validation(error.errors()))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        return _answer(request, _from_http(request, error))

    @app.exception_handler(Exception)
    # Starlette raises the error again once this is sent, and the access log records it.
    async def failed(request: Request, _error: Exception) -> Response:
        return _answer(request, ProblemError(ProblemKind.INTERNAL, FAILED))


def _from_http(request: Request, error: HTTPException) -> ProblemError:
    method, path = request.method[:40], request.url.path[:200]
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            text = f"there is no path {path}; {PAGE_PATH} lists the paths"
            return ProblemError(ProblemKind.NOT_FOUND, text)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            headers = dict(error.headers or {})
            text = f"{path} does not take {method}; expected {headers.get('Allow', 'another method')}"
            return ProblemError(ProblemKind.METHOD_NOT_ALLOWED, text, headers=headers)
        case _:
            return ProblemError(ProblemKind.MALFORMED, str(error.detail))


def _answer(request: Request, problem: ProblemError) -> Response:
    body = problem.body(request.state.request_id)
    return Response(body, problem.status, problem.headers, media_type=MEDIA_TYPE)
