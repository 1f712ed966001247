"""The webhook speaks modern TLS, answers reviews, refuses everything else, and changes its certificate on the fly."""

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest

from berth_core.errors import InputError
from berth_core.names import WEBHOOK_SECRET
from berth_core.reservations import SlotState
from berth_kube.errors import AlreadyExistsError
from berth_kube.resources import SECRETS
from berth_operator.admission import Admission
from berth_operator.cache import Cache
from berth_operator.settings import OperatorSettings, WebhookSettings
from berth_operator.webhook import LARGEST_BODY_BYTES, PATH, CertificateKeeper, WebhookServer
from builders import NOON, as_api, pod
from fake_api import FakeApi, error
from handover_builders import place, slot

SETTINGS = OperatorSettings(webhook=WebhookSettings(port=0))


def review(body: Any) -> bytes:  # noqa: ANN401 - any body
    request = {"uid": "review-1", "namespace": "default", "operation": "CREATE", "object": body}
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


OWNER = review(as_api(pod(labels={"app": "web"})))


@asynccontextmanager
async def running_server(admission: Admission | None = None) -> AsyncIterator[tuple[WebhookServer, CertificateKeeper]]:
    cache = Cache(lambda _key: None)
    cache.put_reservation(place(slot(SlotState.HELD)))
    keeper = CertificateKeeper(FakeApi().as_client(), SETTINGS)
    keeper.refresh(datetime.now(UTC))
    server = WebhookServer(admission or Admission(cache), keeper, SETTINGS)
    await server.start()
    try:
        yield server, keeper
    finally:
        await server.stop()


def trusting(keeper: CertificateKeeper) -> ssl.SSLContext:
    assert keeper.bundle is not None
    context = ssl.create_default_context(cadata=keeper.bundle.authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def post(server: WebhookServer, keeper: CertificateKeeper, body: bytes, path: str = PATH) -> tuple[int, bytes]:
    url = f"https://127.0.0.1:{server.port}{path}"
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(url, data=io.BytesIO(body), ssl=trusting(keeper)) as answer,
    ):
        return answer.status, await answer.read()


@pytest.mark.asyncio
async def test_a_review_is_answered_over_tls() -> None:
    async with running_server() as (server, keeper):
        status, body = await post(server, keeper, OWNER)
    answer = msgspec.json.decode(body)
    assert (status, answer["response"]["uid"], answer["response"]["allowed"]) == (200, "review-1", True)
    assert answer["response"]["patchType"] == "JSONPatch"


REFUSED = {
    "no JSON": (b"hello", 400),
    "nothing": (b"", 400),
    "JSON that is no review": (b'{"kind": "Pod"}', 400),
    "a review of something that is no pod": (review({"spec": {"containers": 7}}), 400),
    "a body above the limit": (b" " * (LARGEST_BODY_BYTES + 1), 413),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("body", "want"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_no_review_is_refused_and_the_next_is_answered(body: bytes, want: int) -> None:
    async with running_server() as (server, keeper):
        status, _ = await post(server, keeper, body)
        again, _ = await post(server, keeper, OWNER)
    assert (status, again) == (want, 200)


@pytest.mark.asyncio
async def test_another_path_is_not_found() -> None:
    async with running_server() as (server, keeper):
        status, _ = await post(server, keeper, OWNER, "/")
    assert status == 404


@pytest.mark.asyncio
async def test_a_review_that_breaks_the_admission_is_an_error_and_not_an_end() -> None:
    class Broken(Admission):
        def __init__(self) -> None:
            pass

        def answer(self, review: object) -> Any:  # noqa: ANN401 - never returns
            raise ValueError(review)

    async with running_server(Broken()) as (server, keeper):
        statuses = [(await post(server, keeper, OWNER))[0] for _ in range(2)]
    assert statuses == [500, 500]


@pytest.mark.asyncio
async def test_old_tls_is_refused() -> None:
    async with running_server() as (server, _):
        assert await asyncio.to_thread(answers_hello, server.port, (3, 1)) is False
        assert await asyncio.to_thread(answers_hello, server.port, (3, 2)) is False
        assert await asyncio.to_thread(answers_hello, server.port, (3, 3)) is True


def answers_hello(port: int, version: tuple[int, int]) -> bool:
    """Send a ClientHello by hand that offers a version at most ((3, 2) is TLS 1.1), and tell whether it is taken up.

    The TLS library of today will not speak the versions of yesterday, not even to be refused.
    """
    suites = b"".join(suite.to_bytes(2, "big") for suite in (0xC02B, 0xC02C, 0xC023, 0xC009, 0xC00A))
    extensions = (
        b"\x00\x0a\x00\x04\x00\x02\x00\x17"  # supported_groups: secp256r1
        b"\x00\x0b\x00\x02\x01\x00"  # ec_point_formats: uncompressed
        b"\x00\x0d\x00\x08\x00\x06\x04\x03\x05\x03\x02\x03"  # signature_algorithms: ecdsa
    )
    hello = bytes(version) + b"\x00" * 32 + b"\x00" + len(suites).to_bytes(2, "big") + suites + b"\x01\x00"
    hello += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(hello).to_bytes(3, "big") + hello
    record = b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(record)
        return connection.recv(1) == b"\x16"  # a handshake record; otherwise an alert, or the end


@pytest.mark.asyncio
async def test_a_renewed_certificate_serves_the_next_connection() -> None:
    async with running_server() as (server, keeper):
        before = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))
        assert keeper.refresh(datetime.now(UTC) + timedelta(days=300))
        server.reload_certificate()
        after = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))
    assert before != after


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = OperatorSettings(webhook=WebhookSettings(port=taken.getsockname()[1]))
        keeper = CertificateKeeper(FakeApi().as_client(), settings)
        keeper.refresh(NOON)
        server = WebhookServer(Admission(Cache(lambda _key: None)), keeper, settings)
        with pytest.raises(InputError, match="webhook address"):
            await server.start()
        await server.stop()


# --- the certificate's keeper


def test_the_certificate_is_made_once_and_kept() -> None:
    api = FakeApi()
    keeper = CertificateKeeper(api.as_client(), SETTINGS)
    assert [keeper.refresh(NOON), keeper.refresh(NOON)] == [True, False]
    again = CertificateKeeper(api.as_client(), SETTINGS)
    assert again.refresh(NOON)
    assert again.bundle == keeper.bundle


def test_of_two_replicas_that_begin_at_once_one_takes_the_certificate_of_the_other() -> None:
    api = FakeApi()
    other = CertificateKeeper(api.as_client(), SETTINGS)
    other.refresh(NOON)
    secret = api.objects.pop(("secrets", "berth-system", WEBHOOK_SECRET))

    class Late(FakeApi):
        """The Secret appears between the look and the creation."""

        def create(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - never returns
            self.put(SECRETS, secret)
            raise error(AlreadyExistsError)

    late = CertificateKeeper(Late().as_client(), SETTINGS)
    late.refresh(NOON)
    assert late.bundle == other.bundle


def test_a_damaged_secret_is_mended() -> None:
    api = FakeApi()
    keeper = CertificateKeeper(api.as_client(), SETTINGS)
    keeper.refresh(NOON)
    api.objects["secrets", "berth-system", WEBHOOK_SECRET]["data"]["tls.crt"] = "?"
    before = keeper.bundle
    assert keeper.refresh(NOON)
    assert keeper.bundle != before
    assert CertificateKeeper(api.as_client(), SETTINGS).refresh(NOON)


CLIENT_CONFIGS = {
    "by Service": (
        WebhookSettings(service="berth-webhook"),
        {"service": {"name": "berth-webhook", "namespace": "berth-system", "path": PATH}},
    ),
    "by address": (WebhookSettings(url="https://10.0.0.7:9443/"), {"url": f"https://10.0.0.7:9443{PATH}"}),
    "by the address that it listens on": (WebhookSettings(port=9444), {"url": f"https://127.0.0.1:9444{PATH}"}),
}


@pytest.mark.parametrize(("settings", "want"), CLIENT_CONFIGS.values(), ids=CLIENT_CONFIGS.keys())
def test_how_the_api_server_reaches_the_webhook(settings: WebhookSettings, want: dict[str, Any]) -> None:
    whole = OperatorSettings(webhook=settings)
    keeper = CertificateKeeper(FakeApi().as_client(), whole)
    keeper.refresh(NOON)
    server = WebhookServer(Admission(Cache(lambda _key: None)), keeper, whole)
    config = dict(server.client_config())
    assert config.pop("caBundle")
    assert config == want
