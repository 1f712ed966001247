"""The webhook speaks modern TLS, answers reviews, refuses everything else, and changes its certificate on the fly."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest
from cryptography import x509
from yarl import URL

from api_server_in_memory import ApiServerInMemory, error
from berth_core.errors import InputError
from berth_core.names import WEBHOOK_SECRET
from berth_core.reservations import ReservationPhase, SlotState
from berth_kube.errors import AlreadyExistsError, ServerError
from berth_kube.resources import SECRETS
from berth_operator.admission import request_limits
from berth_operator.admission.certificate_manager import CertificateManager
from berth_operator.admission.request_limits import LARGEST_BODY_BYTES
from berth_operator.admission.reviews import Admission
from berth_operator.admission.server import WebhookServer
from berth_operator.reservation.store.cache import Cache
from berth_operator.settings import OperatorSettings, WebhookSettings
from builders import NOON
from handover_builders import place, slot
from waiting import eventually
from webhook_calls import OWNER, SETTINGS, post, review, running_server, trusting

API_SERVER_IDLE_SECONDS = 90
"""After this long without a call the API server closes a connection to a webhook."""
PATIENT_SECONDS = 600.0
"""More than a slow machine needs for what the test does meanwhile."""


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
    "a review of a version that nobody knows": (OWNER.replace(b"k8s.io/v1", b"k8s.io/v1beta1"), 400),
    "a review without a request": (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', 400),
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
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/yaml"])
async def test_what_is_not_called_json_is_refused(content_type: str) -> None:
    async with running_server() as (server, keeper):
        status, _ = await post(server, keeper, OWNER, content_type=content_type)
    assert status == 415


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/", "/handover", "/handover/", "/handover/guess", "/handover/%00", "/metrics"])
async def test_only_who_knows_the_path_is_answered(path: str) -> None:
    async with running_server() as (server, keeper):
        status, _ = await post(server, keeper, OWNER, path)
    assert status == 404


@pytest.mark.asyncio
async def test_an_odd_pod_is_let_be() -> None:
    async with running_server() as (server, keeper):
        status, body = await post(server, keeper, review({"spec": {"containers": 7}}))
    assert status == 200
    assert msgspec.json.decode(body)["response"] == {"uid": "review-1", "allowed": True}


@pytest.mark.asyncio
async def test_a_review_that_breaks_the_admission_lets_the_pod_be() -> None:
    class Broken(Admission):
        def __init__(self) -> None:
            pass

        def answer(self, review: object) -> Any:  # noqa: ANN401 - never returns
            raise ValueError(review)

    async with running_server(Broken()) as (server, keeper):
        answers = [await post(server, keeper, OWNER) for _ in range(2)]
    assert [status for status, _ in answers] == [200, 200]
    assert [msgspec.json.decode(body)["response"] for _, body in answers] == [{"uid": "review-1", "allowed": True}] * 2


def admission_that_has_not_heard(refetch: Callable[[Cache], None]) -> Admission:
    """Return one that knows of a place that it is not held."""
    cache = Cache(lambda _key: None)
    cache.put_reservation(place(slot(SlotState.PENDING), phase=ReservationPhase.PENDING))
    return Admission(cache, refetch=lambda _: refetch(cache))


def hear(cache: Cache) -> None:
    held = place(slot(SlotState.HELD))
    metadata = msgspec.structs.replace(held.metadata, resource_version="2")
    cache.put_reservation(msgspec.structs.replace(held, metadata=metadata))


def refuse(_: Cache) -> None:
    raise error(ServerError, "not now")


@pytest.mark.asyncio
@pytest.mark.parametrize(("refetch", "gated"), [(hear, True), (refuse, False)])
async def test_what_another_replica_may_hold_is_read_before_a_pod_is_let_be(
    refetch: Callable[[Cache], None],
    gated: bool,  # noqa: FBT001 - what the case wants
) -> None:
    async with running_server(admission_that_has_not_heard(refetch)) as (server, keeper):
        status, body = await post(server, keeper, OWNER)
    response = msgspec.json.decode(body)["response"]
    assert (status, response["allowed"], "patch" in response) == (200, True, gated)


@pytest.mark.asyncio
async def test_a_pod_is_let_be_where_the_api_server_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_operator.admission.server.REFETCH_SECONDS", 0.1)
    ended = threading.Event()
    waiting = admission_that_has_not_heard(lambda _: wait_for(ended))
    try:
        async with running_server(waiting) as (server, keeper):
            status, body = await post(server, keeper, OWNER)
    finally:
        ended.set()
    assert (status, msgspec.json.decode(body)["response"]) == (200, {"uid": "review-1", "allowed": True})


def wait_for(ended: threading.Event) -> None:
    assert ended.wait(PATIENT_SECONDS)


@pytest.mark.asyncio
async def test_while_it_drains_each_answer_ends_its_connection() -> None:
    async with running_server() as (server, keeper):
        connector = aiohttp.TCPConnector(ssl=trusting(keeper))
        async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:
            url = server.client_config()["url"]
            async with session.post(url, data=OWNER) as answer:
                before = answer.headers.get("Connection")
            assert server.why_not_serving(datetime.now(UTC)) == ""
            server.drain()
            async with session.post(url, data=OWNER) as answer:
                assert answer.status == 200
                after = answer.headers.get("Connection")
            assert server.why_not_serving(datetime.now(UTC)) == "the webhook is about to stop"
    assert (before, after) == (None, "close")


@pytest.mark.asyncio
async def test_a_server_whose_certificate_has_ended_is_not_ready() -> None:
    async with running_server() as (server, _):
        assert server.why_not_serving(datetime.now(UTC)) == ""
        assert "certificate is not valid" in server.why_not_serving(datetime.now(UTC) + timedelta(days=366))
        assert "certificate is not valid" in server.why_not_serving(datetime.now(UTC) - timedelta(days=1))
    assert server.why_not_serving(datetime.now(UTC)) == "the webhook does not listen"


# --- callers that mean no good


@pytest.mark.asyncio
async def test_a_connection_that_asks_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_HANDSHAKE_SECONDS", 2.0)
    monkeypatch.setattr(request_limits, "_GONE_SECONDS", 0.1)
    monkeypatch.setattr(request_limits, "_FIRST_REQUEST_SECONDS", 0.5)
    async with running_server() as (server, keeper):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper))
        writer.write(b"POST /handover/x HTTP/1.1\r\nHost: ")
        assert await is_ended(reader)
        writer.close()
        plain, plain_writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await is_ended(plain)
        plain_writer.close()


@pytest.mark.asyncio
async def test_connections_that_ended_without_a_request_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_HANDSHAKE_SECONDS", 2.0)
    monkeypatch.setattr(request_limits, "_GONE_SECONDS", 0.1)
    async with running_server() as (server, keeper):
        assert server._server._limit is not None
        for context in (trusting(keeper), None):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.transport.abort()
        silent = server._server._limit._silent
        await asyncio.to_thread(eventually, "both are forgotten", lambda: not silent, seconds=60)
        status, _ = await post(server, keeper, OWNER)
    assert status == 200


@pytest.mark.asyncio
async def test_a_body_that_comes_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_BODY_SECONDS", 0.3)
    async with running_server() as (server, keeper):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper))
        writer.write(head(server, 1000) + b"{")
        answer = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        monkeypatch.setattr(request_limits, "_BODY_SECONDS", PATIENT_SECONDS)
        again, _ = await post(server, keeper, OWNER)
    assert b" 408 " in answer
    assert again == 200


@pytest.mark.asyncio
async def test_bodies_that_do_not_come_keep_out_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_BODY_SECONDS", PATIENT_SECONDS)
    async with running_server() as (server, keeper):
        opened = [await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper)) for _ in range(9)]
        for _, writer in opened:
            writer.write(head(server, LARGEST_BODY_BYTES) + b"{")
        await reads(server, 9)
        small, _ = await post(server, keeper, OWNER)
        for _, writer in opened:
            writer.transport.abort()
    assert small == 200


@pytest.mark.asyncio
async def test_the_first_body_makes_room_where_there_is_no_memory_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_BODY_SECONDS", PATIENT_SECONDS)
    monkeypatch.setattr(request_limits, "_MAX_BODY_BYTES", 3 * len(OWNER))
    async with running_server() as (server, keeper):
        opened = [await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper)) for _ in range(3)]
        for number, (_, writer) in enumerate(opened, start=1):
            writer.write(head(server, len(OWNER) + 1) + OWNER)
            await reads(server, number)
        statuses = [(await post(server, keeper, OWNER))[0] for _ in range(3)]
        first = await asyncio.wait_for(opened[0][0].readline(), 60)
        opened[2][1].write(b" ")
        last = await asyncio.wait_for(opened[2][0].readline(), 60)
        for _, writer in opened:
            writer.transport.abort()
    assert b" 503 " in first
    assert b" 200 " in last
    assert statuses == [200, 200, 200]


@pytest.mark.asyncio
async def test_too_many_connections_are_turned_away_and_the_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limits, "_MAX_CONNECTIONS", 5)
    async with running_server() as (server, keeper):
        opened = [await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper)) for _ in range(5)]
        answers = [await asked(server, one) for one in opened]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper))
        assert await is_ended(reader)
        writer.close()
        again = await asked(server, opened[0])
        for _, one in opened:
            one.transport.abort()
    assert [b" 200 " in answer for answer in (*answers, again)] == [True] * 6


@pytest.mark.asyncio
async def test_of_too_many_connections_the_oldest_silent_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_MAX_CONNECTIONS", 5)
    async with running_server() as (server, keeper):
        opened = [await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper)) for _ in range(5)]
        first = await asked(server, opened[0])
        late = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper))
        assert await is_ended(opened[1][0])
        answers = [first, await asked(server, late), await asked(server, opened[2]), await asked(server, opened[0])]
        for _, one in (*opened, late):
            one.transport.abort()
    assert [b" 200 " in answer for answer in answers] == [True] * 4


@pytest.mark.asyncio
async def test_of_too_many_handshakes_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_MAX_HANDSHAKES", 5)
    monkeypatch.setattr(request_limits, "_HANDSHAKE_SECONDS", PATIENT_SECONDS)
    async with running_server() as (server, keeper):
        answered = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(keeper))
        begun = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(6)]
        assert await is_ended(begun[0][0])
        status, _ = await post(server, keeper, OWNER)
        assert await is_ended(begun[1][0])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(begun[2][0].read(), 0.2)
        again = await asked(server, answered)
        for _, writer in (*begun, answered):
            writer.transport.abort()
    assert status == 200
    assert b" 200 " in again


async def reads(server: WebhookServer, bodies: int) -> None:
    """Wait until the server reads so many bodies at once."""
    reading = server._server.bodies._bodies
    await asyncio.to_thread(eventually, "they are being read", lambda: len(reading) == bodies, seconds=60)


async def asked(server: WebhookServer, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """Ask on a connection that stays open, and return the first line of the answer."""
    reader, writer = connection
    writer.write(head(server, len(OWNER)) + OWNER)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await asyncio.wait_for(reader.readexactly(length), 60)
    return answer.partition(b"\r\n")[0]


def test_the_api_server_ends_an_unused_connection_before_the_webhook_does() -> None:
    assert request_limits._FIRST_REQUEST_SECONDS > API_SERVER_IDLE_SECONDS
    assert request_limits._IDLE_SECONDS > API_SERVER_IDLE_SECONDS


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Return whether the server ends a connection without a word."""
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True


def head(server: WebhookServer, length: int) -> bytes:
    path = server.client_config()["url"].partition(f":{server.port}")[2]
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}", "", "")
    return "\r\n".join(lines).encode()


@pytest.mark.asyncio
async def test_old_tls_is_refused() -> None:
    async with running_server() as (server, _):
        assert await asyncio.to_thread(answers_hello, server.port, (3, 1)) is False
        assert await asyncio.to_thread(answers_hello, server.port, (3, 2)) is False
        assert await asyncio.to_thread(answers_hello, server.port, (3, 3)) is True


def answers_hello(port: int, version: tuple[int, int]) -> bool:
    """Send a ClientHello by hand that offers a version at most ((3, 2) is TLS 1.1), and return whether it is taken up.

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
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
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
        keeper = CertificateManager(ApiServerInMemory().as_client(), settings)
        keeper.refresh(NOON)
        server = WebhookServer(Admission(Cache(lambda _key: None)), keeper, settings)
        with pytest.raises(InputError, match="webhook address"):
            await server.start()
        await server.stop()


# --- the certificate's keeper


def test_the_certificate_is_made_once_and_kept() -> None:
    api = ApiServerInMemory()
    keeper = CertificateManager(api.as_client(), SETTINGS)
    assert [keeper.refresh(NOON), keeper.refresh(NOON)] == [True, False]
    again = CertificateManager(api.as_client(), SETTINGS)
    assert again.refresh(NOON)
    assert again.bundle == keeper.bundle


ADDRESSES: dict[str, tuple[WebhookSettings, str]] = {
    "where it listens": (WebhookSettings(host="10.0.0.7"), "10.0.0.7"),
    "a host with a port": (WebhookSettings(url="https://berth.example:9443"), "berth.example"),
    "an IPv6 address": (WebhookSettings(url="https://[fd00::7]:9443"), "fd00::7"),
    "a Service": (WebhookSettings(service="berth-webhook"), "berth-webhook.berth-system.svc"),
}


@pytest.mark.parametrize(("webhook", "want"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_the_certificate_names_how_the_webhook_is_called(webhook: WebhookSettings, want: str) -> None:
    keeper = CertificateManager(ApiServerInMemory().as_client(), OperatorSettings(webhook=webhook))
    keeper.refresh(NOON)
    assert keeper.bundle is not None
    leaf = x509.load_pem_x509_certificate(keeper.bundle.certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert want in {str(name.value) for name in names}


def test_of_two_replicas_that_begin_at_once_one_takes_the_certificate_of_the_other() -> None:
    api = ApiServerInMemory()
    other = CertificateManager(api.as_client(), SETTINGS)
    other.refresh(NOON)
    secret = api.objects["secrets"].pop(("berth-system", WEBHOOK_SECRET))

    class Late(ApiServerInMemory):
        """The Secret appears between the look and the creation."""

        def create(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - never returns
            self.put(SECRETS, secret)
            raise error(AlreadyExistsError)

    late = CertificateManager(Late().as_client(), SETTINGS)
    late.refresh(NOON)
    assert late.bundle == other.bundle


def damage(secret: dict[str, Any]) -> None:
    secret["data"]["tls.crt"] = "?"


def remove(api: ApiServerInMemory) -> None:
    del api.objects["secrets"]["berth-system", WEBHOOK_SECRET]


MISHAPS: dict[str, Callable[[ApiServerInMemory], None]] = {
    "damaged": lambda api: damage(api.objects["secrets"]["berth-system", WEBHOOK_SECRET]),
    "deleted": remove,
}


@pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS.keys())
def test_a_secret_that_was_spoilt_gets_back_what_is_being_served(mishap: Callable[[ApiServerInMemory], None]) -> None:
    api = ApiServerInMemory()
    keeper = CertificateManager(api.as_client(), SETTINGS)
    keeper.refresh(NOON)
    served = keeper.bundle
    mishap(api)
    assert not keeper.refresh(NOON)
    assert keeper.bundle == served
    after = CertificateManager(api.as_client(), SETTINGS)
    after.refresh(NOON)
    assert after.bundle == served


def test_of_two_replicas_that_renew_at_once_one_takes_the_certificate_of_the_other() -> None:
    api = ApiServerInMemory()
    first, second = (CertificateManager(api.as_client(), SETTINGS) for _ in range(2))
    first.refresh(NOON)
    second.refresh(NOON)
    late = NOON + timedelta(days=300)
    read = api.get

    def read_before_the_other_writes(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the client
        body = read(*args, **options)
        api.get = read  # type: ignore[method-assign]
        assert second.refresh(late)
        return body

    api.get = read_before_the_other_writes  # type: ignore[method-assign]
    assert first.refresh(late)
    assert first.bundle == second.bundle


CLIENT_CONFIGS = {
    "by Service": (
        WebhookSettings(service="berth-webhook"),
        {"service": {"name": "berth-webhook", "namespace": "berth-system", "path": "/handover/PATH"}},
    ),
    "by address": (WebhookSettings(url="https://10.0.0.7:9443/"), {"url": "https://10.0.0.7:9443/handover/PATH"}),
    "by the address that it listens on": (
        WebhookSettings(port=9444),
        {"url": "https://127.0.0.1:9444/handover/PATH"},
    ),
}


@pytest.mark.parametrize(("settings", "want"), CLIENT_CONFIGS.values(), ids=CLIENT_CONFIGS.keys())
def test_how_the_api_server_reaches_the_webhook(settings: WebhookSettings, want: dict[str, Any]) -> None:
    whole = OperatorSettings(webhook=settings)
    keeper = CertificateManager(ApiServerInMemory().as_client(), whole)
    keeper.refresh(NOON)
    server = WebhookServer(Admission(Cache(lambda _key: None)), keeper, whole)
    assert keeper.bundle is not None
    assert len(keeper.bundle.path) >= 32
    config = msgspec.json.decode(
        msgspec.json.encode(server.client_config()).replace(keeper.bundle.path.encode(), b"PATH")
    )
    assert config.pop("caBundle")
    assert config == want


@pytest.mark.asyncio
async def test_the_webhook_listens_on_both_families() -> None:
    async with running_server(host="::") as (server, keeper):
        context = trusting(keeper)
        context.check_hostname = False
        headers = {"Content-Type": "application/json"}
        path = URL(server.client_config()["url"]).path
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers) as session:
            for address in ("127.0.0.1", "[::1]"):
                async with session.post(f"https://{address}:{server.port}{path}", data=OWNER) as answer:
                    assert answer.status == 200
