"""The webhook's HTTPS server."""

import asyncio
import hmac
import ssl
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from berth_core import BerthError, InputError
from berth_operator import metrics, telemetry
from berth_operator.admission.certificate_manager import CertificateManager
from berth_operator.admission.request_limits import (
    LARGEST_BODY_BYTES,
    BodyRefusedError,
    LimitedServer,
)
from berth_operator.admission.reviews import Admission, AdmissionReview, Answer, Review, allow, read_review
from berth_operator.settings import OperatorSettings
from berth_service.listening import join_address

_PATH_PREFIX: Final = "/handover/"
REFETCH_SECONDS: Final = 2.0
"""How long an answer may wait for reads from the API server, which itself waits five seconds for it by default."""

_LOG = structlog.get_logger(__name__)


class WebhookServer:
    """Serves admission reviews over TLS."""

    def __init__(
        self,
        admission: Admission,
        certificates: CertificateManager,
        settings: OperatorSettings,
        *,
        reviews: Mapping[str, Review] | None = None,
    ) -> None:
        """`reviews` has what answers at further paths, by the end of the path."""
        self._reviews = reviews or {}
        self._admission = admission
        self._certificates = certificates
        self._settings = settings
        self._server = LimitedServer()
        self._context: ssl.SSLContext | None = None
        self._draining = False
        self.port = settings.webhook.port

    async def start(self) -> None:
        """Listen; raises InputError if the manager has no bundle yet, or the address is not free."""
        if self._certificates.bundle is None:
            raise InputError("certificate", None, "a bundle issued before the server starts")
        self._context = self._certificates.bundle.to_context()
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        app.router.add_post(_PATH_PREFIX + "{path}", self._review)
        for path in self._reviews:
            app.router.add_post(_PATH_PREFIX + "{path}" + path, self._review)
        try:
            await self._server.start(app, self._settings.webhook.host, self.port, self._context)
        except OSError as error:
            address = join_address(self._settings.webhook.host, self.port)
            raise InputError("webhook address", address, f"one to listen on: {error.strerror}") from error
        self.port = self._server.port or self.port
        address = join_address(self._settings.webhook.host, self.port)
        _LOG.info(telemetry.WEBHOOK_LISTENING, **{telemetry.KEY_ADDRESS: address})

    def drain(self) -> None:
        """Close each connection after its next answer, so that its caller goes on with another replica.

        The API server reuses a connection while it is open, even when the Service no longer leads to this pod.
        """
        self._draining = True

    async def stop(self) -> None:
        await self._server.stop()

    def why_not_serving(self, now: datetime) -> str:
        """Return why calls would not be answered under a valid certificate, "" if they would."""
        if self._draining:
            return "the webhook is about to stop"
        if not self._server.is_serving:
            return "the webhook does not listen"
        bundle = self._certificates.bundle
        is_valid = bundle is not None and bundle.is_valid(now)
        return "" if is_valid else "the webhook's certificate is not valid at this time and is being replaced"

    def reload_certificate(self) -> None:
        """Use the manager's bundle for new connections; open ones keep their certificate."""
        if self._context is not None and self._certificates.bundle is not None:
            # A handshake reads the context's present certificate, so no listener has to be opened again.
            self._certificates.bundle.load_into(self._context)

    def client_config(self) -> Mapping[str, Any]:
        """Return the webhook's clientConfig for its registration; raises InputError without a bundle."""
        bundle = self._certificates.bundle
        if bundle is None:
            raise InputError("certificate", None, "a bundle issued before the webhook is registered")
        authorities = msgspec.to_builtins(bundle.authorities)  # in base64
        path = _PATH_PREFIX + bundle.path
        if self._settings.webhook.service:
            reference = {
                "name": self._settings.webhook.service,
                "namespace": self._settings.placeholders.namespace,
                "path": path,
            }
            # By Service the API server finds the replicas itself; a url is for an operator outside of the cluster.
            return {"service": reference, "caBundle": authorities}
        base = self._settings.webhook.url or f"https://{join_address(self._settings.webhook.host, self.port)}"
        return {"url": f"{base.rstrip('/')}{path}", "caBundle": authorities}

    async def _review(self, request: web.Request) -> web.Response:
        """Answer one request, and close its connection after a refusal or while draining."""
        started = time.perf_counter()
        try:
            review = await self._read(request)
        except BodyRefusedError as refusal:
            # The rest of a body that was refused is not read, so the connection cannot serve another request.
            metrics.WEBHOOK_REVIEWS.labels(verdict="refused").inc()
            response = web.Response(status=refusal.status, text=refusal.text)
            response.force_close()
            return response
        with self._server.answering(request):
            answer = await self._answer(review, request.path)
        metrics.WEBHOOK_SECONDS.observe(time.perf_counter() - started)
        response = web.Response(body=msgspec.json.encode(answer.body), content_type="application/json")
        if self._draining:
            response.force_close()
        return response

    async def _read(self, request: web.Request) -> AdmissionReview:
        """Return the review in a request; raises `BodyRefusedError` if there is none."""
        bundle = self._certificates.bundle
        asked_path = request.match_info["path"].encode()
        # The path is a secret that only the registration holds: API servers show no client certificate to webhooks by
        # default. Comparing it takes the same time however much of it is right.
        if bundle is None or not hmac.compare_digest(asked_path, bundle.path.encode()):
            raise BodyRefusedError(404, "no such path")
        if request.content_type != "application/json":
            raise BodyRefusedError(415, "expected application/json")
        body = await self._server.bodies.read(request)
        try:
            return read_review(body)
        except InputError as error:
            raise BodyRefusedError(400, str(error)) from error

    async def _answer(self, review: AdmissionReview, path: str) -> Answer:
        """Return the answer to a review; any failure allows what is asked for."""
        try:
            review_at_path = next(
                (answer for path_end, answer in self._reviews.items() if path.endswith(path_end)), None
            )
            if review_at_path is not None:
                return await review_at_path(review)
            answer = self._admission.answer(review)
            if not answer.is_final:
                answer = await self._read_and_answer(review, answer)
        except Exception:  # noqa: BLE001 - logged; the pod is allowed whatever went wrong
            metrics.WEBHOOK_REVIEWS.labels(verdict="failed").inc()
            _LOG.exception(telemetry.WEBHOOK_FAILED)
            # failurePolicy is Ignore, too: a fault of ours must not keep pods of all namespaces from being created.
            return allow(review.request.uid)
        metrics.WEBHOOK_REVIEWS.labels(verdict=answer.verdict).inc()
        if answer.is_out_of_time:
            _LOG.warning(telemetry.WEBHOOK_OUT_OF_TIME, **{telemetry.KEY_POD: answer.pod})
        if answer.reservation and not review.request.dry_run:
            _LOG.info(
                telemetry.WEBHOOK_GATED,
                **{telemetry.KEY_POD: answer.pod, telemetry.KEY_UID: answer.reservation},
            )
        return answer

    async def _read_and_answer(self, review: AdmissionReview, answer: Answer) -> Answer:
        """Read what an answer asks for, and answer again; after the time limit the cache alone decides."""
        try:
            async with asyncio.timeout(REFETCH_SECONDS):
                while not answer.is_final:
                    await asyncio.to_thread(self._admission.refetch_unsure, answer)
                    answer = self._admission.answer(review, is_last=bool(answer.unsure))
        except (BerthError, TimeoutError) as error:
            fields = {telemetry.KEY_ACTION: "read anew", telemetry.KEY_POD: answer.pod, telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.ACTION_FAILED, **fields)
            return self._admission.answer(review, is_last=True)
        return answer
