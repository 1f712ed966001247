"""Callers who hold what others need, and requests that two programs read differently, on real connections."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, Final

import pytest

from berth_descheduler.api.needed_rights import needed_right
from berth_descheduler.api.request_heads import fault_in_head
from berth_descheduler.api.request_limits import caller_of
from berth_kube.resources import MIGRATION_PLANS
from descheduler.rest_server import (
    ADMIN,
    ReviewingCluster,
    ask,
    connected,
    everything_of,
    hurried,
    populated,
    quick,
    serving,
)
from waiting import soon

HOST: Final = b"Host: x\r\n"


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture(scope="module")
def calm() -> Iterator[str]:
    """The address of an interface that cases share which change nothing."""
    with serving(populated()) as address:
        yield address


def answer_of(connection: socket.socket) -> tuple[int, bytes]:
    """Return the status of the first answer, and all that came until the connection ended."""
    raw = everything_of(connection)
    return int(raw.split(b" ", 2)[1]), raw


def begin(url: str, token: str, *, path: str = "/v1/runs") -> socket.socket:
    """Begin a request whose long body comes in single bytes, of which this is the first."""
    connection = connected(url)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    connection.sendall(head.encode() + b"Content-Length: 60000\r\n\r\n{")
    return connection


def accounts(cluster: ReviewingCluster, *, namespaces: int, rights: set[tuple[str, str]]) -> list[str]:
    """Make ServiceAccounts, each in a namespace of its own, and return their tokens."""
    tokens = []
    for index in range(namespaces):
        user = f"system:serviceaccount:team-{index}:robot"
        cluster.users[f"robot-{index}"] = user
        cluster.rights[user] = rights
        tokens.append(f"robot-{index}")
    return tokens


@pytest.mark.parametrize("rights", [set(), {("create", MIGRATION_PLANS.plural)}], ids=["without rights", "with rights"])
def test_bodies_that_come_slowly_keep_no_other_caller_out(
    cluster: ReviewingCluster, rights: set[tuple[str, str]]
) -> None:
    tokens = accounts(cluster, namespaces=4, rights=rights)
    with serving(cluster, quick()) as url, ExitStack() as open_connections:
        for token in tokens:
            assert ask("GET", f"{url}/v1/plans", token=token).status_code in {200, 403}
        for _ in range(8):
            for token in tokens:
                open_connections.enter_context(closing(begin(url, token)))
        statuses = [ask("POST", f"{url}/v1/runs", json={"policy": "nightly"}).status_code for _ in range(30)]
    assert statuses == [202] * 30


def test_bodies_for_the_pages_that_come_slowly_keep_no_new_caller_out(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick()) as url, ExitStack() as open_connections:
        for _ in range(12):
            open_connections.enter_context(closing(begin(url, "none", path="/docs")))
        assert [ask("GET", f"{url}/docs", token=None).status_code for _ in range(3)] == [200] * 3
        assert [ask("GET", f"{url}/v1/plans").status_code for _ in range(3)] == [200] * 3


def test_who_lacks_the_right_is_turned_away_before_the_body_is_there(cluster: ReviewingCluster) -> None:
    (token,) = accounts(cluster, namespaces=1, rights=set())
    with serving(cluster, quick()) as url, closing(begin(url, token)) as connection:
        status, raw = answer_of(connection)
    assert status == 403
    assert b"has no right to create migrationplans" in raw


def test_a_body_comes_at_a_least_rate(cluster: ReviewingCluster) -> None:
    settings = hurried(quick(body_bytes_per_second=1_000_000), body_grace_seconds=0.3)
    with serving(cluster, settings) as url, closing(begin(url, ADMIN)) as connection:
        status, raw = answer_of(connection)
        assert status == 408
        assert b"slower than 1000000 bytes a second" in raw


def robots_of_one_namespace(cluster: ReviewingCluster, count: int) -> list[str]:
    tokens = [f"robot-{index}" for index in range(count)]
    for token in tokens:
        user = f"system:serviceaccount:team:{token}"
        cluster.users[token] = user
        cluster.rights[user] = {(verb, MIGRATION_PLANS.plural) for verb in ("get", "list", "watch")}
    return tokens


def test_the_service_accounts_of_a_namespace_share_the_requests_of_one_caller(cluster: ReviewingCluster) -> None:
    first, second, third = robots_of_one_namespace(cluster, 3)
    release = threading.Event()
    cluster.delay("list", MIGRATION_PLANS, until=release)
    with serving(cluster, quick(requests_per_caller=2)) as url, ThreadPoolExecutor() as pool:
        waiting = [pool.submit(ask, "GET", f"{url}/v1/plans", token=token) for token in (first, second)]
        soon("both wait", lambda: cluster.delayed == 2)
        refused = ask("GET", f"{url}/v1/plans", token=third)
        assert refused.status_code == 429
        assert "system:serviceaccounts:team has 2 requests open" in refused.json()["detail"]
        assert ask("GET", f"{url}/v1/policies").ok
        release.set()
        assert [answer.result().status_code for answer in waiting] == [200, 200]


def test_the_service_accounts_of_a_namespace_share_the_streams_of_one_caller(cluster: ReviewingCluster) -> None:
    tokens = robots_of_one_namespace(cluster, 3)
    events = "/v1/plans/plan-waiting/events"
    with serving(cluster, quick(streams_per_caller=2)) as url, ExitStack() as streams:
        for token in tokens[:2]:
            stream = streams.enter_context(closing(ask("GET", f"{url}{events}", token=token, stream=True)))
            assert stream.status_code == 200
        assert ask("GET", f"{url}{events}", token=tokens[2]).status_code == 429
        other = streams.enter_context(closing(ask("GET", f"{url}{events}", stream=True)))
        assert other.status_code == 200


def test_the_service_accounts_of_a_namespace_share_the_rate_of_one_caller(cluster: ReviewingCluster) -> None:
    tokens = robots_of_one_namespace(cluster, 4)
    with serving(cluster, quick(rate_per_second=0.001, burst=3)) as url:
        statuses = [ask("GET", f"{url}/v1/plans", token=token).status_code for token in tokens]
        assert ask("GET", f"{url}/v1/plans").ok
    assert statuses == [200, 200, 200, 429]


@pytest.mark.parametrize(
    ("user", "want"),
    [
        ("system:serviceaccount:ci:rollouts", "system:serviceaccounts:ci"),
        ("system:serviceaccount:ci:other", "system:serviceaccounts:ci"),
        ("oidc:ada", "oidc:ada"),
        ("system:serviceaccount:ci", "system:serviceaccount:ci"),
        ("x:system:serviceaccount:ci:a", "x:system:serviceaccount:ci:a"),
    ],
)
def test_a_caller_is_a_user_or_the_service_accounts_of_a_namespace(user: str, want: str) -> None:
    assert caller_of(user) == want


@pytest.mark.parametrize("limit", ["connections", "connections_per_peer"])
def test_strangers_whose_tokens_are_looked_at_make_room_for_a_newcomer(cluster: ReviewingCluster, limit: str) -> None:
    release = threading.Event()
    cluster.delay_guesses(release)
    with serving(cluster, quick(**{limit: 8})) as url, ExitStack() as crowd:
        assert ask("GET", f"{url}/v1/plans").ok  # from now on its token is known
        strangers = []
        for index in range(8):
            stranger = crowd.enter_context(closing(connected(url)))
            head = f"GET /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess-{index}\r\n\r\n"
            stranger.sendall(head.encode())
            strangers.append(stranger)
        soon("some are looked at", lambda: cluster.delayed == 4)
        for _ in range(20):
            assert ask("GET", f"{url}/v1/plans").ok
        status, raw = answer_of(strangers[0])  # of all that wait it has waited longest
        assert status == 503
        assert b"8 connections" in raw
        release.set()


def test_strangers_who_have_gone_are_not_looked_at_any_more(cluster: ReviewingCluster) -> None:
    release = threading.Event()
    cluster.delay_guesses(release)
    with serving(cluster, hurried(quick(), identity_seconds=600)) as url:
        assert ask("GET", f"{url}/v1/plans").ok  # from now on its token is known
        with ExitStack() as crowd:
            for index in range(20):
                stranger = crowd.enter_context(closing(connected(url)))
                head = f"GET /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess-{index}\r\n\r\n"
                stranger.sendall(head.encode())
            soon("some are looked at", lambda: cluster.delayed == 4)
        for _ in range(3):  # what is answered later has seen them go
            assert ask("GET", f"{url}/v1/plans").ok
        release.set()
        assert ask("GET", f"{url}/v1/plans", token="guess-last").status_code == 401
        assert cluster.reviews() == 6, "of the caller, of the four that were looked at, of the last"


# --- two readings -----------------------------------------------------------------------------------------------------

TOKEN: Final = f"Authorization: Bearer {ADMIN}\r\n".encode()
RUN: Final = b'{"policy": "nightly"}'
BEGIN: Final = b"POST /v1/runs HTTP/1.1\r\n" + HOST + TOKEN + b"Content-Type: application/json\r\n"
LENGTH: Final = b"Content-Length: %d\r\n" % len(RUN)

FIRST: Final = b"GET /v1/policies HTTP/1.1\r\nHost: x\r\n" + TOKEN + b"\r\n"

ODD_HEADS: Final = {
    "a header that goes on in the next line": (
        BEGIN + LENGTH + b"X-A: b\r\n c\r\n\r\n" + RUN,
        "goes on in the next line",
    ),
    "a header that goes on after a tab": (BEGIN + LENGTH + b"X-A: b\r\n\tc\r\n\r\n" + RUN, "goes on in the next line"),
    "a line that ends with a line feed alone": (BEGIN + LENGTH + b"X-A: b\nX-B: c\r\n\r\n" + RUN, "without a carriage"),
    "a head that ends with line feeds alone": (BEGIN + LENGTH[:-2] + b"\n\n" + RUN, "without a carriage"),
    "two equal lengths": (BEGIN + LENGTH + LENGTH + b"\r\n" + RUN, "two values of Content-Length"),
    "two lengths": (BEGIN + LENGTH + b"content-length: 5\r\n\r\n" + RUN, "two values of Content-Length"),
    "two lengths in one line": (BEGIN + b"Content-Length: 21, 21\r\n\r\n" + RUN, "two values of Content-Length"),
    "a carriage return alone": (BEGIN + LENGTH + b"X-A: b\rX-B: c\r\n\r\n" + RUN, "carriage return within a line"),
}


@pytest.mark.parametrize(("sent", "want"), ODD_HEADS.values(), ids=ODD_HEADS)
@pytest.mark.parametrize(
    "after", [b"", b"GET /v1/policies HTTP/1.1\r\nHost: x\r\n" + TOKEN + b"\r\n"], ids=["first", "second"]
)
def test_a_head_that_two_programs_read_differently_is_refused(calm: str, sent: bytes, want: str, after: bytes) -> None:
    with closing(connected(calm)) as connection:
        connection.sendall(after + sent)
        _, raw = answer_of(connection)
    answers = raw.split(b"HTTP/1.1 ")[1:]
    assert len(answers) == (2 if after else 1)
    assert answers[-1].startswith(b"400 ")
    assert want.encode() in answers[-1]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_head_is_looked_at_however_it_is_cut_into_pieces(calm: str, size: int) -> None:
    good = BEGIN + LENGTH + b"Connection: close\r\n\r\n" + RUN
    bad = BEGIN + LENGTH + b"X-A: b\r\n c\r\nConnection: close\r\n\r\n" + RUN
    for sent, want in ((good, 202), (bad, 400)):
        with closing(connected(calm)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for index in range(0, len(sent), size):
                    connection.sendall(sent[index : index + size])
            except OSError:  # refused before all of it was sent
                assert want == 400
            try:
                status, _ = answer_of(connection)
            except OSError:
                status = 400
        assert status == want


def test_a_good_head_has_no_fault_wherever_it_is_cut() -> None:
    good = BEGIN + LENGTH + b"X-A: b, c\r\nX-Content-Length: 7\r\n\r\n"
    assert {fault_in_head(good[:end]) for end in range(len(good) + 1)} == {""}
    assert fault_in_head(good + b"\n\r\n Content-Length: 5") == ""


ODD_BODIES: Final = {
    "a key that comes twice": b'{"policy": "nightly", "policy": "weekly"}',
    "a key that comes twice, escaped once": b'{"policy": "nightly", "polic\\u0079": "weekly"}',
    "a key that comes twice further inside": b'{"policy": {"a": 1, "a": 2}}',
    "UTF-16": '{"policy": "nightly"}'.encode("utf-16"),
    "UTF-16 without a mark": '{"policy": "nightly"}'.encode("utf-16-le"),
    "UTF-32": '{"policy": "nightly"}'.encode("utf-32"),
    "a byte order mark": b'\xef\xbb\xbf{"policy": "nightly"}',
    "Latin-1": '{"policy": "n\u00e4chtlich"}'.encode("latin-1"),
    "half a surrogate": b'{"policy": "\xed\xa0\x80"}',
    "no number": b'{"policy": NaN}',
    "an infinite number": b'{"policy": -Infinity}',
    "a number of many digits": b'{"policy": ' + b"9" * 20_000 + b"}",
    "deep lists": b"[" * 30_000 + b"]" * 30_000,
    "deep objects": b'{"policy":' * 5_000 + b"1" + b"}" * 5_000,
}


@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES)
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/drains", "/v1/plans/plan-waiting/approve"])
def test_a_body_that_two_programs_read_differently_is_refused(calm: str, path: str, body: bytes) -> None:
    answer = ask("POST", f"{calm}{path}", data=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:berth:problem:malformed-request")
    assert "the body is not JSON" in answer.json()["detail"]


def test_letters_beyond_ascii_are_read_as_they_are(calm: str) -> None:
    body = json.dumps({"policy": "nächtlich"}, ensure_ascii=False).encode()
    answer = ask("POST", f"{calm}/v1/runs", data=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.status_code == 422
    assert "nächtlich" in answer.json()["errors"][0]["value"]


def test_every_path_that_is_described_says_which_right_it_needs_first(calm: str) -> None:
    description: dict[str, Any] = ask("GET", f"{calm}/openapi.json").json()
    described = [(method.upper(), path) for path, of_path in description["paths"].items() for method in of_path]
    assert described
    for method, path in described:
        assert needed_right(method, path.replace("{name}", "plan-1")) is not None, (method, path)
    for method, path in (
        ("GET", "/v1/none"),
        ("DELETE", "/v1/plans/a"),
        ("GET", "/v1/plans/A_b"),
        ("GET", "/v1/plans/"),
    ):
        assert needed_right(method, path) is None
