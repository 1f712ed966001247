"""A running webhook server for one test, and calling it as the API server does."""

import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from api_server_in_memory import ApiServerInMemory
from berth_core.reservations import SlotState
from berth_operator.admission.certificate_manager import CertificateManager
from berth_operator.admission.reviews import Admission
from berth_operator.admission.server import WebhookServer
from berth_operator.reservation.store.cache import Cache
from berth_operator.settings import OperatorSettings, WebhookSettings
from builders import as_api, pod
from handover_builders import place, slot

SETTINGS = OperatorSettings(webhook=WebhookSettings(port=0))


def review(body: Any) -> bytes:  # noqa: ANN401 - any body
    request = {"uid": "review-1", "namespace": "default", "operation": "CREATE", "object": body}
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


OWNER = review(as_api(pod(labels={"app": "web"})))


@asynccontextmanager
async def running_server(
    admission: Admission | None = None, *, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[WebhookServer, CertificateManager]]:
    cache = Cache(lambda _key: None)
    cache.put_reservation(place(slot(SlotState.HELD)))
    keeper = CertificateManager(ApiServerInMemory().as_client(), SETTINGS)
    keeper.refresh(datetime.now(UTC))
    server = WebhookServer(
        admission or Admission(cache), keeper, OperatorSettings(webhook=WebhookSettings(host=host, port=0))
    )
    await server.start()
    try:
        yield server, keeper
    finally:
        await server.stop()


def trusting(keeper: CertificateManager) -> ssl.SSLContext:
    assert keeper.bundle is not None
    context = ssl.create_default_context(cadata=keeper.bundle.authorities.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def post(
    server: WebhookServer,
    keeper: CertificateManager,
    body: bytes,
    path: str | None = None,
    content_type: str = "application/json",
) -> tuple[int, bytes]:
    url = server.client_config()["url"] if path is None else f"https://127.0.0.1:{server.port}{path}"
    timeout = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(
            url, data=io.BytesIO(body), headers={"Content-Type": content_type}, ssl=trusting(keeper)
        ) as answer,
    ):
        return answer.status, await answer.read()
