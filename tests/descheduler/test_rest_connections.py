"""What the HTTP interface takes of single connections and of many: no more than it says, and no longer."""

import asyncio
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import uvicorn

from berth_core.errors import InputError
from berth_descheduler.api.certificate import Certificate
from berth_descheduler.api.connections import timeout_protocol
from berth_descheduler.api.options import rest_settings
from berth_descheduler.api.server import ClosingServer
from berth_descheduler.api.settings import RestLimits, RestSettings, RestTimes
from berth_kube.resources import MIGRATION_PLANS, TOKEN_REVIEWS
from berth_operator.admission.certificates import CertificateTerms, renew
from descheduler.rest_server import (
    ADMIN,
    READER,
    TOO_LONG,
    ReviewingCluster,
    ask,
    connected,
    everything_of,
    hurried,
    populated,
    quick,
    serving,
    session,
)
from waiting import soon

TOKEN: Final = f"Authorization: Bearer {ADMIN}\r\n".encode()


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture(scope="module")
def calm() -> Iterator[str]:
    """The address of an interface that cases share which change nothing."""
    with serving(populated()) as address:
        yield address


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """The same, where nobody may be slow."""
    with serving(populated(), hurried(quick(), header_seconds=0.5, body_seconds=0.5, idle_seconds=1)) as address:
        yield address


def told(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Return status and problem of the answer that ends a connection."""
    raw = everything_of(connection)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower(), raw
    return int(head.split()[1]), json.loads(body)


# --- too much ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64 * 1024 + 1, 900_000, 5_000_000])
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_a_body_that_is_too_large_is_refused_and_its_sender_told(calm: str, size: int, *, announced: bool) -> None:
    body = b'{"policy": "' + b"x" * size + b'"}'
    chunks = (body[index : index + 10_000] for index in range(0, len(body), 10_000))
    headers = {"Content-Type": "application/json"}
    if size > 2_000_000:  # so much that its sender may notice the end of the connection before the answer
        with closing(connected(calm)) as connection:
            length = b"Content-Length: %d\r\n" % size if announced else b"Transfer-Encoding: chunked\r\n"
            lines = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
            connection.sendall(lines + TOKEN + length + b"\r\n")
            if not announced:
                assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
                connection.sendall(b"%x\r\n%s\r\n" % (100_000, b"x" * 100_000))
            assert told(connection)[0] == 413
        return
    answer = ask("POST", f"{calm}/v1/runs", data=body if announced else chunks, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:berth:problem:request-too-large")


def test_a_body_of_the_largest_size_is_read(calm: str) -> None:
    body = '{"policy": "nightly"}'.ljust(RestLimits().body_bytes)
    assert ask("POST", f"{calm}/v1/runs", data=body, headers={"Content-Type": "application/json"}).status_code == 202


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    {
        "a long query": ("/v1/plans?policy=" + "x" * 17_000, {}, 414, "target-too-long"),
        "a long path": ("/" + "x" * 17_000, {}, 414, "target-too-long"),
        "a long header": ("/v1/plans", {"X-Long": "x" * 17_000}, 431, "headers-too-large"),
        "many headers": ("/v1/plans", {f"X-{index}": "" for index in range(65)}, 431, "headers-too-large"),
    }.values(),
    ids=str,
)
def test_an_address_or_headers_that_are_too_large_are_refused(
    calm: str, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    answer = ask("GET", f"{calm}{path}", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:berth:problem:{kind}")


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /v1/plans HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000,
        b"GET /v1/plans HTTP/1.1\r\n\r\n",
        b"GET /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"GET /v1/pl\x00ans HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/plans HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\nno colon\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:60]),
)
def test_what_is_no_http_is_answered_with_a_problem(impatient: str, sent: bytes) -> None:
    with closing(connected(impatient)) as connection:
        connection.sendall(sent)
        status, problem = told(connection)
    assert (status, problem["type"]) in {
        (400, "urn:berth:problem:malformed-request"),
        (408, "urn:berth:problem:request-too-slow"),
    }


def test_websockets_are_not_spoken(calm: str) -> None:
    answer = ask("GET", f"{calm}/v1/plans", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    assert answer.status_code == 200


# --- too slow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [b"", b"G", b"GET /v1/plans HTTP/1.1\r\n", b"GET /v1/plans HTTP/1.1\r\nHost: x\r\n" + TOKEN],
    ids=["nothing", "a letter", "a line", "no end"],
)
def test_headers_that_do_not_come_are_not_waited_for(impatient: str, begun: bytes) -> None:
    begun_at = time.monotonic()
    with closing(connected(impatient)) as connection:
        connection.sendall(begun)
        assert told(connection)[0] == 408
    assert 0.4 < time.monotonic() - begun_at < TOO_LONG


def test_headers_that_come_letter_by_letter_are_not_waited_for(impatient: str) -> None:
    begun_at = time.monotonic()
    with closing(connected(impatient)) as connection:
        connection.settimeout(0.05)
        answer = b""
        for letter in b"GET /v1/plans HTTP/1.1\r\nHost: " + b"x" * 1000:
            try:
                connection.sendall(bytes([letter]))
                answer = connection.recv(100)
            except TimeoutError:
                continue
            break
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - begun_at < TOO_LONG


@pytest.mark.parametrize("announced", [b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_does_not_come_is_not_waited_for(impatient: str, announced: bytes) -> None:
    with closing(connected(impatient)) as connection:
        lines = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        connection.sendall(lines + TOKEN + announced + b"\r\n")
        status, problem = told(connection)
    assert (status, problem["type"]) == (408, "urn:berth:problem:request-too-slow")


def test_the_slow_do_not_keep_out_the_others(cluster: ReviewingCluster) -> None:
    settings = hurried(quick(requests=2, connections=64), header_seconds=300, body_seconds=300, request_seconds=300)
    with serving(cluster, settings) as url:
        slow = [connected(url) for _ in range(40)]
        lines = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n"
        for index, connection in enumerate(slow):
            connection.sendall(lines + (b"\r\n" if index % 2 else b""))
        begun_at = time.monotonic()
        for _ in range(5):
            assert ask("GET", f"{url}/v1/plans").ok
        assert time.monotonic() - begun_at < TOO_LONG
        for connection in slow:
            connection.close()


def test_an_idle_connection_is_closed(cluster: ReviewingCluster) -> None:
    with serving(cluster, hurried(quick(), idle_seconds=1)) as url, closing(connected(url)) as connection:
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        received = 0
        begun_at = time.monotonic()
        while chunk := connection.recv(65536):
            received += len(chunk)
    assert received > 1000
    assert time.monotonic() - begun_at < TOO_LONG


def test_several_requests_go_over_one_connection(calm: str) -> None:
    with closing(HTTPConnection(calm.removeprefix("http://"), timeout=TOO_LONG)) as connection:
        connection.connect()
        connection.auto_open = 0
        for path in ("/v1/plans", "/v1/nowhere", "/v1/policies"):
            connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN}"})
            answer = connection.getresponse()
            assert answer.status in {200, 404}
            assert answer.read()


def test_who_does_not_read_is_cut_off(cluster: ReviewingCluster) -> None:
    raw = cluster.objects[MIGRATION_PLANS.plural]["", "plan-waiting"]
    message = "x" * 16_000_000  # more than what is between the two takes up
    status = {"status": {**raw["status"], "message": message}}
    cluster.merge_patch(MIGRATION_PLANS, "plan-waiting", status, subresource="status")
    with serving(cluster, hurried(quick(streams=1), write_seconds=5)) as url, closing(connected(url)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = b"GET /v1/plans/plan-waiting/events HTTP/1.1\r\nHost: x\r\n"
        connection.sendall(lines + TOKEN + b"\r\n")
        assert connection.recv(13) == b"HTTP/1.1 200 "
        other = f"{url}/v1/plans/plan-done/events"
        assert ask("GET", other).status_code == 503  # the only place of a stream is taken
        soon("it is given back", lambda: ask("GET", other).status_code == 200)


# --- too many ---------------------------------------------------------------------------------------------------------


def test_one_caller_does_not_take_all_places(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay("list", MIGRATION_PLANS, until=release)
    with serving(cluster, quick(requests=8, requests_per_caller=2)) as url:
        waiting = [_in_background(lambda: ask("GET", f"{url}/v1/plans", token=READER)) for _ in range(2)]
        soon("both wait", lambda: cluster.delayed == 2)
        refused = ask("GET", f"{url}/v1/plans", token=READER)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:berth:problem:too-many-requests")
        assert int(refused.headers["Retry-After"]) >= 1
        assert ask("GET", f"{url}/v1/policies", token=ADMIN).ok
        release.set()
        assert [one().status_code for one in waiting] == [200, 200]
        soon("a place is given back", lambda: ask("GET", f"{url}/v1/plans", token=READER).ok)


def test_more_requests_than_there_are_places_are_told_to_come_again(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay("list", MIGRATION_PLANS, until=release)
    with serving(cluster, quick(requests=3, requests_per_caller=3)) as url:
        waiting = [_in_background(lambda: ask("GET", f"{url}/v1/plans")) for _ in range(3)]
        soon("all three wait", lambda: cluster.delayed == 3)
        refused = ask("GET", f"{url}/docs", token=None)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:berth:problem:overloaded")
        assert int(refused.headers["Retry-After"]) >= 1
        release.set()
        assert [one().status_code for one in waiting] == [200] * 3
        soon("a place is given back", lambda: ask("GET", f"{url}/docs", token=None).ok)


def test_who_asks_too_often_is_slowed_down_and_nobody_else(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick(rate_per_second=0.5, burst=3)) as url:
        answers = [ask("GET", f"{url}/v1/plans", token=READER) for _ in range(6)]
        assert 429 in [answer.status_code for answer in answers]
        assert [answer.status_code for answer in answers[:3]] == [200] * 3
        assert ask("GET", f"{url}/v1/plans", token=ADMIN).ok
        soon("the next is let through", lambda: ask("GET", f"{url}/v1/plans", token=READER).ok)


@pytest.mark.parametrize("limit", ["connections", "connections_per_peer"])
def test_of_too_many_connections_the_one_that_has_asked_nothing_for_longest_is_told_so(
    cluster: ReviewingCluster, limit: str
) -> None:
    with serving(cluster, quick(**{limit: 4})) as url:
        held = [connected(url) for _ in range(5)]
        status, problem = told(held[0])
        assert (status, problem["type"]) == (503, "urn:berth:problem:overloaded")
        assert "4 connections" in problem["detail"]
        assert ask("GET", f"{url}/v1/plans").ok
        for connection in held:
            connection.close()


@pytest.mark.parametrize("limit", ["connections", "connections_per_peer"])
def test_connections_that_are_worked_on_make_no_room(cluster: ReviewingCluster, limit: str) -> None:
    release = threading.Event()
    cluster.delay("list", MIGRATION_PLANS, until=release)
    with serving(cluster, quick(**{limit: 3})) as url:
        waiting = [_in_background(lambda: ask("GET", f"{url}/v1/plans")) for _ in range(3)]
        soon("all three wait", lambda: cluster.delayed == 3)
        with closing(connected(url)) as connection:
            status, problem = told(connection)
        assert (status, problem["type"]) == (503, "urn:berth:problem:overloaded")
        release.set()
        assert [one().status_code for one in waiting] == [200] * 3


@pytest.mark.parametrize("per_peer", [6, 64])
def test_one_address_does_not_take_the_connections_of_another(cluster: ReviewingCluster, per_peer: int) -> None:
    with serving(cluster, quick(connections=8, connections_per_peer=per_peer)) as url:
        caller = HTTPConnection(url.removeprefix("http://"), timeout=TOO_LONG)
        with closing(caller):
            caller.connect()
            crowd = [connected(url, source="127.0.0.2") for _ in range(60)]
            caller.auto_open = 0
            caller.request("GET", "/v1/plans", headers={"Authorization": f"Bearer {ADMIN}"})
            assert caller.getresponse().status == 200
        for connection in crowd:
            connection.close()


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["the same address", "another address"])
def test_tokens_of_nobody_keep_no_caller_waiting(cluster: ReviewingCluster, source: str) -> None:
    release = threading.Event()
    with serving(cluster, quick(requests=4, workers=3, unauthenticated_requests=2, unauthenticated_per_peer=1)) as url:
        assert ask("GET", f"{url}/v1/plans").ok
        cluster.delay("create", TOKEN_REVIEWS, until=release)
        crowd = [connected(url, source=source) for _ in range(48)]
        for index, connection in enumerate(crowd):
            guess = f"Authorization: Bearer guess-{index}\r\n".encode()
            connection.sendall(b"GET /v1/plans HTTP/1.1\r\nHost: x\r\n" + guess + b"\r\n")
        soon("one of them is asked about", lambda: cluster.delayed == 1)
        for _ in range(10):
            assert ask("GET", f"{url}/v1/policies").ok
        assert cluster.delayed == 1
        release.set()
        assert {connection.recv(13) for connection in crowd} == {b"HTTP/1.1 401 "}
        for connection in crowd:
            connection.close()


def test_a_new_caller_waits_for_its_own_address_alone(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay_guesses(release)
    with serving(cluster, quick(workers=4, unauthenticated_requests=3, unauthenticated_per_peer=2)) as url:
        crowd = [connected(url, source="127.0.0.2") for _ in range(20)]
        for index, connection in enumerate(crowd):
            guess = f"Authorization: Bearer guess-{index}\r\n".encode()
            connection.sendall(b"GET /v1/plans HTTP/1.1\r\nHost: x\r\n" + guess + b"\r\n")
        soon("two of them are asked about", lambda: cluster.delayed == 2)
        assert ask("GET", f"{url}/v1/plans").ok
        release.set()
        for connection in crowd:
            assert connection.recv(13) == b"HTTP/1.1 401 "
            connection.close()


def test_who_waits_too_long_to_be_known_is_told_to_come_again(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay("create", TOKEN_REVIEWS, until=release)
    settings = hurried(quick(unauthenticated_per_peer=1), authentication_wait_seconds=0.5)
    with serving(cluster, settings) as url:
        first = _in_background(lambda: ask("GET", f"{url}/v1/plans"))
        soon("the first is asked about", lambda: cluster.delayed == 1)
        refused = ask("GET", f"{url}/v1/plans", token=READER)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:berth:problem:too-many-requests")
        assert int(refused.headers["Retry-After"]) >= 1
        release.set()
        assert first().status_code == 200


def test_a_body_of_two_lengths_is_refused_and_the_connection_closed(calm: str) -> None:
    with closing(connected(calm)) as connection:
        lines = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + TOKEN
        both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        smuggled = b"0\r\n\r\nGET /v1/plans HTTP/1.1\r\nHost: x\r\n" + TOKEN + b"\r\n"
        connection.sendall(lines + both + smuggled)
        status, problem = told(connection)  # up to the connection's end: there is one answer
    assert (status, problem["type"]) == (400, "urn:berth:problem:malformed-request")
    assert problem["detail"] == "there are both Content-Length and Transfer-Encoding; expected one of them"


def test_strangers_with_many_tokens_are_not_all_remembered(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick(remembered=10)) as url:
        for index in range(30):
            assert ask("GET", f"{url}/v1/plans", token=f"guess-{index}").status_code == 401
        assert ask("GET", f"{url}/v1/plans").ok
    assert cluster.calls.count(f"create {TOKEN_REVIEWS.plural} ") == 31


def test_many_callers_at_once_are_all_answered(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick(requests=64, requests_per_caller=64)) as url:
        paths = ("/v1/plans", "/v1/plans/plan-done", "/v1/policies", "/v1/fragmentation", "/v1/plans/plan-done/events")
        asked = [_in_background(partial(ask, "GET", f"{url}{path}")) for path in paths * 8]
        assert {one().status_code for one in asked} == {200}


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Files of a certificate for this machine, of its key, and of the authority that signed it."""
    return write_certificate(tmp_path)


def write_certificate(folder: Path) -> dict[str, Path]:
    bundle = renew(None, CertificateTerms(("localhost", "127.0.0.1")), datetime.now(UTC))
    files = {"certificate": folder / "tls.crt", "key": folder / "tls.key", "authority": folder / "ca.crt"}
    contents = {"certificate": bundle.certificate, "key": bundle.key, "authority": bundle.authorities}
    for name, path in files.items():
        path.write_bytes(contents[name])
    return files


def secured(files: dict[str, Path]) -> RestSettings:
    calm = quick()
    return RestSettings(certificate=files["certificate"], key=files["key"], limits=calm.limits, times=calm.times)


def test_with_a_certificate_it_speaks_tls_only(cluster: ReviewingCluster, files: dict[str, Path]) -> None:
    with serving(cluster, secured(files)) as url:
        assert url.startswith("https://127.0.0.1:")
        assert ask("GET", f"{url}/v1/plans", verify=str(files["authority"])).ok
        with pytest.raises(requests.exceptions.ConnectionError):
            ask("GET", f"{url.replace('https', 'http')}/v1/plans")
        with ask("GET", f"{url}/v1/plans/plan-waiting/events", verify=str(files["authority"]), stream=True) as answer:
            assert next(answer.iter_lines()) == b"retry: 2000"


def test_idle_connections_do_not_keep_the_service_from_ending(
    cluster: ReviewingCluster, files: dict[str, Path]
) -> None:
    with session() as asking:
        with serving(cluster, hurried(secured(files), stop_seconds=300, idle_seconds=300)) as url:
            assert asking.get(f"{url}/openapi.json", verify=str(files["authority"]), timeout=TOO_LONG).ok
            begun_at = time.monotonic()
        assert time.monotonic() - begun_at < TOO_LONG


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02"], ids=["nothing", "a part of a hello"])
def test_a_handshake_that_does_not_come_is_not_waited_for(
    cluster: ReviewingCluster, files: dict[str, Path], begun: bytes
) -> None:
    settings = hurried(secured(files), header_seconds=0.3)
    with serving(cluster, settings) as url, closing(connected(url.replace("https", "http"))) as connection:
        connection.sendall(begun)
        assert connection.recv(100) == b""


def test_of_too_many_handshakes_the_oldest_makes_room(cluster: ReviewingCluster, files: dict[str, Path]) -> None:
    calm = hurried(secured(files), header_seconds=300)
    settings = replace(calm, limits=replace(calm.limits, handshakes=3))
    with serving(cluster, settings) as url:
        begun = [connected(url.replace("https", "http")) for _ in range(4)]
        assert begun[0].recv(100) == b""
        assert ask("GET", f"{url}/v1/plans", verify=str(files["authority"])).ok
        for connection in begun:
            connection.close()


@pytest.mark.parametrize(("version", "spoken"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_it_speaks_tls_from_1_2_on(files: dict[str, Path], version: str, *, spoken: bool) -> None:
    server = Certificate(files["certificate"], files["key"]).context
    client = ssl.create_default_context(cafile=str(files["authority"]))
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = ssl.TLSVersion[version]
    assert _shake_hands(server, client) is spoken


def test_a_new_certificate_is_taken_up_without_a_restart(files: dict[str, Path]) -> None:
    kept = Certificate(files["certificate"], files["key"])
    before = files["authority"].read_text(encoding="utf-8")
    assert _shake_hands(kept.context, ssl.create_default_context(cadata=before))
    files["key"].write_text("not a key")
    asyncio.run(kept.look())
    assert _shake_hands(kept.context, ssl.create_default_context(cadata=before))
    write_certificate(files["key"].parent)
    asyncio.run(kept.look())
    after = files["authority"].read_text(encoding="utf-8")
    assert _shake_hands(kept.context, ssl.create_default_context(cadata=after))
    assert not _shake_hands(kept.context, ssl.create_default_context(cadata=before))


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Return whether a client trusts and understands a server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


# --- options ----------------------------------------------------------------------------------------------------------

NOTHING: Final[dict[str, Any]] = {
    "rest_address": None,
    "rest_certificate": None,
    "rest_ui": False,
    "rest_prometheus_url": None,
    "rest_key": None,
    "rest_audience": (),
    "namespace": "berth-system",
}


@pytest.mark.parametrize(
    ("options", "said"),
    {
        "no port": ({"rest_address": "localhost"}, "--rest-address is 'localhost'; expected HOST:PORT"),
        "in the open": ({"rest_address": "0.0.0.0:8080"}, "--rest-address is '0.0.0.0:8080'; expected a loopback"),
        "half": ({"rest_address": "127.0.0.1:0", "rest_key": Path("k")}, "--rest-certificate is not given"),
        "the other half": ({"rest_address": "127.0.0.1:0", "rest_certificate": Path("c")}, "--rest-key is not given"),
        "no address": ({"rest_certificate": Path("c"), "rest_key": Path("k")}, "--rest-address is not given"),
        "an audience only": ({"rest_audience": ("berth",)}, "--rest-address is not given"),
        "a page only": ({"rest_ui": True}, "--rest-address is not given; expected HOST:PORT beside --rest-ui"),
    }.values(),
    ids=str,
)
def test_options_that_do_not_go_together_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        rest_settings(NOTHING | options)


def test_without_options_there_is_no_interface() -> None:
    assert rest_settings(NOTHING) is None


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080"])
def test_a_loopback_address_needs_no_certificate(address: str) -> None:
    read = rest_settings(NOTHING | {"rest_address": address})
    assert read is not None
    assert f"{read.host}:{read.port}" == address.replace("[", "").replace("]", "")


def test_what_is_no_certificate_is_named(tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"--rest-certificate is '.*missing\.crt'"):
        Certificate(tmp_path / "missing.crt", files["key"])
    with pytest.raises(InputError, match="--rest-certificate is"):
        Certificate(files["certificate"], files["authority"])


def test_the_interface_listens_on_both_families(
    cluster: ReviewingCluster, files: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    everywhere = RestSettings(host="::", certificate=files["certificate"], key=files["key"])
    context = ssl.create_default_context(cafile=files["authority"])
    with serving(cluster, everywhere) as url:
        port = int(url.removeprefix("https://[::]:"))
        for address in ("127.0.0.1", "::1"):
            with (
                socket.create_connection((address, port), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
            ):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 404"
    log = caplog.text
    assert all(f"peer='{address}'" in log for address in ("127.0.0.1", "::1"))


def test_an_address_that_is_taken_is_named(cluster: ReviewingCluster) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = RestSettings(port=other.getsockname()[1])
        with pytest.raises(InputError, match="--rest-address"), serving(cluster, taken):
            pass


@pytest.mark.parametrize("made", [lambda: RestLimits(requests=0), lambda: RestTimes(header_seconds=0)])
def test_limits_that_let_nothing_through_are_refused(made: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="expected a number above 0"):
        made()


def test_a_connection_that_is_accepted_while_the_service_ends_is_closed_with_it() -> None:
    """A page that asks again and again opens one at such a moment."""

    async def end_with_a_late_connection(ours: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        protocol = timeout_protocol(quick())
        config = uvicorn.Config(
            lambda: None, http=protocol, lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        config.load()
        server = ClosingServer(config)
        server.lifespan = config.lifespan_class(config)
        server.servers = []
        ending = loop.create_task(server.shutdown())
        await asyncio.sleep(0)  # shutdown has told the connections that there were
        made = partial(protocol, config=config, server_state=server.server_state, app_state={})  # type: ignore[call-arg]
        await loop.connect_accepted_socket(made, ours)
        open_meanwhile = len(server.server_state.connections)
        await ending
        return open_meanwhile

    ours, theirs = socket.socketpair()
    with closing(theirs):
        assert asyncio.run(end_with_a_late_connection(ours)) == 1
        assert ours.fileno() == -1
        assert theirs.recv(1) == b""


# --- what the cases share ---------------------------------------------------------------------------------------------


def _in_background(work: Callable[[], requests.Response]) -> Callable[[], requests.Response]:
    """Do something in a thread; what is returned waits for it."""
    found: list[requests.Response] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()

    def result() -> requests.Response:
        thread.join(2 * TOO_LONG)
        return found[0]

    return result
