"""Owns the webhook's HTTPS server: its address, its certificate and what it takes.

It does not own the answers: `berth_operator.admission` does.
"""

import ssl
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from berth_core.errors import InputError
from berth_core.names import WEBHOOK_SECRET
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, NotFoundError
from berth_kube.resources import SECRETS
from berth_operator import log_keys, metrics
from berth_operator.admission import Admission, read_review
from berth_operator.certificates import CertificateBundle, is_current, issue_bundle
from berth_operator.settings import OperatorSettings

PATH: Final = "/handover"
LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024

log = structlog.get_logger(__name__)


class CertificateKeeper:
    """Keeps one bundle in the Secret, shared by all replicas, and renews it before its end."""

    def __init__(self, client: KubeClient, settings: OperatorSettings) -> None:
        self._client = client
        self._namespace = settings.placeholders.namespace
        self._hosts = _hosts(settings)
        self.bundle: CertificateBundle | None = None

    def refresh(self, now: datetime) -> bool:
        """Read the Secret, issue what is missing or old; tell whether the bundle is another than before."""
        before = self.bundle
        held = self._read()
        if held is None or not is_current(held, self._hosts, now):
            held = self._write(issue_bundle(self._hosts, now, prior=held), replace=held is not None)
        self.bundle = held
        return held != before

    def _read(self) -> CertificateBundle | None:
        try:
            body = self._client.get(SECRETS, WEBHOOK_SECRET, namespace=self._namespace)
        except NotFoundError:
            return None
        return CertificateBundle.from_secret(body)

    def _write(self, bundle: CertificateBundle, *, replace: bool) -> CertificateBundle:
        """Store a bundle; where another replica was faster, take its bundle instead."""
        secret = bundle.to_secret(self._namespace)
        try:
            if not replace:
                self._client.create(SECRETS, secret, namespace=self._namespace)
        except AlreadyExistsError:
            theirs = self._read()
            if theirs is not None:
                return theirs
            replace = True
        if replace:
            self._client.merge_patch(SECRETS, WEBHOOK_SECRET, {"data": secret["data"]}, namespace=self._namespace)
        log.info(log_keys.CERTIFICATE_ISSUED)
        return bundle


def _hosts(settings: OperatorSettings) -> tuple[str, ...]:
    """Return the names and addresses that the API server may call the webhook by."""
    service, namespace = settings.webhook.service, settings.placeholders.namespace
    if service:
        return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")
    host = settings.webhook.url.removeprefix("https://").split("/")[0].rsplit(":", 1)[0]
    return tuple({host or settings.webhook.host, "127.0.0.1", "localhost"})


class WebhookServer:
    """Serves admission reviews over TLS."""

    def __init__(self, admission: Admission, keeper: CertificateKeeper, settings: OperatorSettings) -> None:
        self._admission = admission
        self._keeper = keeper
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self.port = settings.webhook.port

    async def start(self) -> None:
        """Listen; the keeper must have a bundle by now."""
        if self._keeper.bundle is None:
            raise InputError("certificate", None, "a bundle issued before the server starts")
        self._context = self._keeper.bundle.to_context()
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        app.router.add_post(PATH, self._review)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.webhook.host, self.port, ssl_context=self._context)
        try:
            await site.start()
        except OSError as error:
            address = f"{self._settings.webhook.host}:{self.port}"
            raise InputError("webhook address", address, f"one to listen on: {error.strerror}") from error
        addresses: Iterable[Any] = self._runner.addresses
        self.port = next(iter(addresses))[1]
        log.info(log_keys.WEBHOOK_LISTENING, **{log_keys.KEY_ADDRESS: f"{self._settings.webhook.host}:{self.port}"})

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    def reload_certificate(self) -> None:
        """Use the keeper's bundle for new connections; open ones go on."""
        if self._context is not None and self._keeper.bundle is not None:
            self._keeper.bundle.load_into(self._context)

    def client_config(self) -> Mapping[str, Any]:
        """Return how the API server reaches this webhook, for its registration."""
        bundle = self._keeper.bundle
        authority = msgspec.to_builtins(bundle.authority) if bundle else ""
        if self._settings.webhook.service:
            reference = {
                "name": self._settings.webhook.service,
                "namespace": self._settings.placeholders.namespace,
                "path": PATH,
            }
            return {"service": reference, "caBundle": authority}
        base = self._settings.webhook.url or f"https://{self._settings.webhook.host}:{self.port}"
        return {"url": f"{base.rstrip('/')}{PATH}", "caBundle": authority}

    async def _review(self, request: web.Request) -> web.Response:
        """Answer one review; what is none is refused, and the API server then creates the pod as ever."""
        started = time.perf_counter()
        try:
            review = read_review(await request.read())
        except InputError as error:
            metrics.WEBHOOK_REVIEWS.labels(verdict="refused").inc()
            return web.Response(status=400, text=str(error))
        try:
            answer = self._admission.answer(review)
        except Exception:
            metrics.WEBHOOK_REVIEWS.labels(verdict="failed").inc()
            log.exception(log_keys.WEBHOOK_FAILED)
            return web.Response(status=500, text="the review could not be answered")
        metrics.WEBHOOK_REVIEWS.labels(verdict="gated" if answer.reservation else "let be").inc()
        metrics.WEBHOOK_SECONDS.observe(time.perf_counter() - started)
        if answer.reservation and not review.request.dry_run:
            meta = review.request.object.metadata
            name = f"{review.request.namespace}/{meta.name or meta.generate_name}"
            log.info(log_keys.WEBHOOK_GATED, **{log_keys.KEY_POD: name, log_keys.KEY_UID: answer.reservation})
        return web.Response(body=msgspec.json.encode(answer.body), content_type="application/json")
