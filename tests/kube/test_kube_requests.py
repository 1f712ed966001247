import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import urllib3

from berth_core import Pod
from berth_core.errors import InputError
from berth_kube import ClientSettings, KubeClient, connect
from berth_kube.connections import use_lean_connections
from berth_kube.errors import (
    AlreadyExistsError,
    Call,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnexpectedObjectError,
    UnreachableError,
    UntrustedServerError,
)
from berth_kube.resources import EVICTION_REQUESTS, MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from berth_kube.retries import NO_RETRIES, Backoff, RetryPolicy
from berth_kube.transport import Request, Transport
from scripted_server import (
    Answer,
    Reply,
    Reset,
    ScriptedServer,
    Silence,
    Truncated,
    answer,
    nobody_listening,
    page,
    refusal,
    write_kubeconfig,
)

pytestmark = pytest.mark.timeout(300)

POD = "/api/v1/namespaces/default/pods/web-0"
PODS_OF_DEFAULT = "/api/v1/namespaces/default/pods"
EVICTION = f"{POD}/eviction"
BODY = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "default", "uid": "u1"}}
FAILED = refusal(503, "ServiceUnavailable", "shutting down")
BUDGET = {"causes": [{"reason": "DisruptionBudget", "message": "web needs 3"}]}

# --- what is sent ---------------------------------------------------------------------------------------------------


def test_an_object_comes_back_as_a_dict_or_as_the_type_asked_for(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", POD, answer(BODY))
    assert client.get(PODS, "web-0", namespace="default") == BODY
    assert client.get(PODS, "web-0", namespace="default", type=Pod).metadata.uid == "u1"
    assert bytes(client.get(PODS, "web-0", namespace="default", type=msgspec.Raw)).startswith(b"{")


def test_a_request_says_who_asks_and_for_what(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", POD, answer(BODY))
    client.get(PODS, "web-0", namespace="default")
    headers = server.seen[0].headers
    assert headers["User-Agent"] == "berth-test/1"
    assert headers["authorization"] == "Bearer secret"
    assert headers["Accept"] == "application/json"
    assert "Content-Type" not in headers


def test_create_takes_the_namespace_from_the_object(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", PODS_OF_DEFAULT, answer(BODY, 201))
    assert client.create(PODS, BODY, type=Pod).metadata.name == "web-0"
    seen = server.seen[0]
    assert (seen.json, dict(seen.query)) == (BODY, {})
    assert seen.headers["Content-Type"] == "application/json"


def test_a_dry_run_is_asked_for(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", PODS_OF_DEFAULT, answer(BODY, 201))
    client.create(PODS, BODY, dry_run=True)
    assert server.seen[0].query == {"dryRun": "All"}


def test_unknown_fields_are_refused_where_that_is_asked_for(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", PODS_OF_DEFAULT, answer(BODY, 201))
    client.create(PODS, BODY, strict=True)
    assert server.seen[0].query == {"fieldValidation": "Strict"}


def test_each_kind_of_patch_has_its_content_type(client: KubeClient, server: ScriptedServer) -> None:
    server.on("PATCH", POD, answer(BODY)).on("PATCH", f"{POD}/status", answer(BODY))
    operations = [{"op": "remove", "path": "/metadata/labels"}]
    client.merge_patch(PODS, "web-0", {"a": 1}, namespace="default")
    client.merge_patch(PODS, "web-0", {"a": 2}, namespace="default", subresource="status")
    client.json_patch(PODS, "web-0", operations, namespace="default")
    sent = [(seen.path, seen.headers["Content-Type"], seen.json) for seen in server.seen]
    assert sent == [
        (POD, "application/merge-patch+json", {"a": 1}),
        (f"{POD}/status", "application/merge-patch+json", {"a": 2}),
        (POD, "application/json-patch+json", operations),
    ]


def test_a_delete_carries_its_preconditions(client: KubeClient, server: ScriptedServer) -> None:
    server.on("DELETE", POD, answer({"kind": "Status", "status": "Success"}))
    client.delete(
        PODS, "web-0", namespace="default", uid="u1", resource_version="7", grace_seconds=0, propagation="Foreground"
    )
    assert server.seen[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


def test_a_delete_without_options_has_none(client: KubeClient, server: ScriptedServer) -> None:
    server.on("DELETE", "/apis/berth.volcano.sh/v1alpha1/migrationplans/p", answer({}))
    client.delete(MIGRATION_PLANS, "p")
    assert server.seen[0].json == {"apiVersion": "v1", "kind": "DeleteOptions"}


def test_an_eviction_names_exactly_one_pod(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", EVICTION, answer({"kind": "Status", "status": "Success"}, 201))
    client.evict("default", "web-0", uid="u1", grace_seconds=5, dry_run=True)
    assert server.seen[0].json == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "default", "name": "web-0"},
        "deleteOptions": {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 5, "dryRun": ["All"]},
    }


def test_requests_share_a_connection(client: KubeClient, server: ScriptedServer) -> None:
    missing = "/api/v1/namespaces/default/pods/missing"
    server.on("GET", POD, answer(BODY)).on("GET", PODS_OF_DEFAULT, page(BODY)).on("GET", missing, Answer(b"", 404))
    for _ in range(5):
        client.get(PODS, "web-0", namespace="default")
        client.list(PODS, namespace="default")
        with pytest.raises(NotFoundError):
            client.get(PODS, "missing", namespace="default")
    assert server.connections == 1


# --- what goes wrong and passes -------------------------------------------------------------------------------------

PASSING: dict[str, Reply] = {
    "a failure of the server": FAILED,
    "an internal error": refusal(500, "InternalError", "etcd"),
    "a bad gateway": Answer(b"<html>", 502),
    "too many requests": refusal(429, "TooManyRequests", "slow down"),
    "a reset connection": Reset(),
    "an answer that is cut off": Truncated(b'{"metadata":'),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_read_outlasts(fault: Reply, client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", POD, fault, fault, answer(BODY))
    assert client.get(PODS, "web-0", namespace="default") == BODY
    assert len(server.seen) == 3


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_merge_patch_delete_and_eviction_outlast(fault: Reply, client: KubeClient, server: ScriptedServer) -> None:
    server.on("PATCH", POD, fault, answer(BODY)).on("DELETE", POD, fault, answer({})).on(
        "POST", EVICTION, fault, answer({})
    )
    client.merge_patch(PODS, "web-0", {}, namespace="default")
    client.delete(PODS, "web-0", namespace="default")
    client.evict("default", "web-0", uid="u1")
    assert len(server.seen) == 6


def test_the_servers_retry_after_is_honoured(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", POD, refusal(429, "TooManyRequests", "slow down", Retry_After="1"), answer(BODY))
    client.get(PODS, "web-0", namespace="default")
    first, second = server.seen
    assert second.at - first.at >= 1


def test_a_create_is_repeated_where_the_server_turned_it_away(client: KubeClient, server: ScriptedServer) -> None:
    away = refusal(503, "ServiceUnavailable", "not ready", Retry_After="0")
    server.on("POST", PODS_OF_DEFAULT, refusal(429, "TooManyRequests", "slow"), away, answer(BODY, 201))
    client.create(PODS, BODY)
    assert len(server.seen) == 3


AMBIGUOUS: dict[str, tuple[Reply, type[KubeError]]] = {
    "a failure of the server": (refusal(500, "InternalError", "etcd"), ServerError),
    "a reset connection": (Reset(), UnreachableError),
    "an answer that is cut off": (Truncated(b"{"), UnreachableError),
}


@pytest.mark.parametrize(("fault", "want"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_a_create_is_not_repeated_after(
    fault: Reply, want: type[KubeError], client: KubeClient, server: ScriptedServer
) -> None:
    server.on("POST", PODS_OF_DEFAULT, fault, answer(BODY, 201))
    with pytest.raises(want):
        client.create(PODS, BODY)
    assert len(server.seen) == 1


@pytest.mark.parametrize(("fault", "want"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_a_json_patch_is_not_repeated_after(
    fault: Reply, want: type[KubeError], client: KubeClient, server: ScriptedServer
) -> None:
    server.on("PATCH", POD, fault, answer(BODY))
    with pytest.raises(want):
        client.json_patch(PODS, "web-0", [], namespace="default")
    assert len(server.seen) == 1


def test_a_dry_run_is_repeated_like_a_read(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", PODS_OF_DEFAULT, Reset(), answer(BODY, 201))
    assert client.create(PODS, BODY, dry_run=True) == BODY


def test_a_create_is_repeated_when_the_server_was_not_there_yet(tmp_path: Path) -> None:
    with nobody_listening() as url, connect(kubeconfig=write_kubeconfig(tmp_path, url)) as client:
        started = time.monotonic()
        with pytest.raises(UnreachableError) as caught:
            client.create(PODS, BODY)
    assert not caught.value.acted
    assert time.monotonic() - started > 0.5


# --- what goes wrong and stays wrong --------------------------------------------------------------------------------

FINAL: dict[str, tuple[Reply, type[KubeError]]] = {
    "a missing right": (refusal(403, "Forbidden", "you may not"), ForbiddenError),
    "a missing object": (refusal(404, "NotFound", "not there"), NotFoundError),
    "a conflict": (refusal(409, "Conflict", "changed"), ConflictError),
    "a taken name": (refusal(409, "AlreadyExists", "taken"), AlreadyExistsError),
    "an object of another shape": (answer({"metadata": 5}), UnexpectedObjectError),
}


@pytest.mark.parametrize(("fault", "want"), FINAL.values(), ids=FINAL)
def test_no_call_is_repeated_after(
    fault: Reply, want: type[KubeError], client: KubeClient, server: ScriptedServer
) -> None:
    server.on("GET", POD, fault)
    with pytest.raises(want):
        client.get(PODS, "web-0", namespace="default", type=Pod)
    assert len(server.seen) == 1


def test_an_eviction_that_a_budget_forbids_comes_back_at_once(client: KubeClient, server: ScriptedServer) -> None:
    server.on("POST", EVICTION, refusal(429, "TooManyRequests", "Cannot evict pod", details=BUDGET))
    with pytest.raises(EvictionBlockedError, match=r"cannot evict pods default/web-0: .* 429 TooManyRequests: Cannot"):
        client.evict("default", "web-0", uid="u1")
    assert len(server.seen) == 1


def test_an_eviction_that_a_webhook_answers_comes_back_at_once(client: KubeClient, server: ScriptedServer) -> None:
    denied = 'admission webhook "evictions.example.com" denied the request: Eviction triggered evacuation of VMI'
    server.on("POST", EVICTION, refusal(429, "", denied))
    with pytest.raises(EvictionInterceptedError, match="Eviction triggered evacuation of VMI"):
        client.evict("default", "web-0", uid="u1")
    assert len(server.seen) == 1


def test_attempts_end(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", POD, FAILED)
    with pytest.raises(ServerError, match="503 ServiceUnavailable: shutting down"):
        client.get(PODS, "web-0", namespace="default")
    assert len(server.seen) == 4


def test_a_server_that_wants_more_time_than_there_is_gets_its_word_passed_on(
    client: KubeClient, server: ScriptedServer
) -> None:
    server.on("GET", POD, refusal(429, "TooManyRequests", "slow down", Retry_After="3600"))
    with pytest.raises(TooManyRequestsError) as caught:
        client.get(PODS, "web-0", namespace="default")
    assert (caught.value.retry_after_seconds, len(server.seen)) == (3600, 1)


def test_an_answer_that_is_no_json_is_said(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", POD, Answer(b"<html>log in first</html>"))
    with pytest.raises(MalformedAnswerError, match="cannot get pods default/web-0: the answer is not valid JSON"):
        client.get(PODS, "web-0", namespace="default")


def test_an_answer_of_another_shape_names_the_field(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PODS_OF_DEFAULT, answer({"metadata": {"resourceVersion": "5"}, "items": [7]}))
    with pytest.raises(UnexpectedObjectError, match=r"cannot list pods in default: .*\$\.items\[0\]"):
        client.list(PODS, namespace="default", type=Pod)


def test_an_object_of_a_list_without_a_readable_name_is_one_without_a_name(
    client: KubeClient, server: ScriptedServer
) -> None:
    server.on("GET", PODS_OF_DEFAULT, page({"metadata": {"name": 5}}))
    (found,) = client.list(PODS, namespace="default", type=Pod).items
    assert (found.metadata.name, found.metadata.unreadable) == ("", "Expected `str`, got `int` - at `$.metadata.name`")


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        nobody_listening() as url,
        connect(kubeconfig=write_kubeconfig(tmp_path, url)) as client,
        pytest.raises(UnreachableError) as caught,
    ):
        client.list(NODES)
    want = f"cannot reach the API server at {url}: Connection refused; is the cluster up and the kubeconfig right?"
    assert str(caught.value) == f"{want} (tried to list nodes)"


def test_a_host_that_does_not_exist_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name server is asked: some make up an address, and without a network some take minutes."""

    def find_nothing(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", find_nothing)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    path = write_kubeconfig(tmp_path, "https://cluster.invalid:6443")
    settings = ClientSettings(retries=NO_RETRIES)
    with connect(kubeconfig=path, settings=settings) as client, pytest.raises(UnreachableError) as caught:
        client.list(NODES)
    assert not caught.value.acted


def test_a_server_that_speaks_no_tls_is_tried_again_only_with_what_was_read_anew(
    server: ScriptedServer, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path, server.url.replace("http:", "https:"))
    with connect(kubeconfig=path) as client, pytest.raises(UntrustedServerError):
        client.list(NODES)
    assert server.connections == 2


def tls_alert(level: int, description: int) -> bytes:
    """Return the record of an alert (RFC 8446, section 6)."""
    return bytes([21, 3, 3, 0, 2, level, description])


@contextmanager
def balancer_without_backends(answer_to_greeting: bytes = b"") -> Iterator[tuple[str, list[None]]]:
    """Yield the address of a server that reads a client's greeting, answers it, and closes, and a note of each time."""
    accepted: list[None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # closed at the end
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        accepted.append(None)
                        connection.recv(65536)
                        connection.sendall(answer_to_greeting)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", accepted
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


CLOSINGS: Final = {
    "a handshake that ends in EOF": ("https", b""),
    "a handshake that ends in a notice of the close": ("https", tls_alert(1, 0)),
    "the alert handshake_failure": ("https", tls_alert(2, 40)),
    "the alert internal_error": ("https", tls_alert(2, 80)),
    "the alert unrecognized_name": ("https", tls_alert(2, 112)),
    "the alert user_canceled": ("https", tls_alert(2, 90)),
    "a connection without TLS that is closed": ("http", b""),
}


@pytest.mark.parametrize(("scheme", "greeting"), CLOSINGS.values(), ids=CLOSINGS)
def test_a_balancer_that_accepts_and_closes_is_a_server_that_is_unreachable_for_now(
    tmp_path: Path, scheme: str, greeting: bytes
) -> None:
    with balancer_without_backends(greeting) as (address, accepted):
        path = write_kubeconfig(tmp_path, f"{scheme}://{address}")
        backoff = Backoff(first_seconds=0.001)
        settings = ClientSettings(retries=RetryPolicy(attempts=3, deadline_seconds=600, backoff=backoff))
        with connect(kubeconfig=path, settings=settings) as client, pytest.raises(UnreachableError) as caught:
            client.list(NODES)
    assert type(caught.value) is UnreachableError
    assert caught.value.acted, "a request may have been sent before, for all that the client can know"
    assert len(accepted) == 3


def test_a_silent_server_is_given_up(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", POD, Silence(120, answer(BODY)))
    settings = ClientSettings(retries=NO_RETRIES)
    with connect(kubeconfig=server.kubeconfig(tmp_path), request_timeout=0.2, settings=settings) as client:
        started = time.monotonic()
        with pytest.raises(UnreachableError, match="timed out"):
            client.get(PODS, "web-0", namespace="default")
    assert time.monotonic() - started < 100


def test_a_hurried_client_gives_up_sooner(client: KubeClient, server: ScriptedServer) -> None:
    """Sooner than after the half minute that a request may take otherwise."""
    server.on("GET", POD, Silence(120, answer(BODY)))
    started = time.monotonic()
    with pytest.raises(UnreachableError, match="timed out"):
        client.within(0.2).get(PODS, "web-0", namespace="default")
    assert time.monotonic() - started < 20


def test_a_token_file_that_vanished_is_said(server: ScriptedServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    path = write_kubeconfig(tmp_path, server.url, user={"tokenFile": str(token)})
    with pytest.raises(InputError, match="token"):
        connect(kubeconfig=path)


# --- many threads ---------------------------------------------------------------------------------------------------


def test_many_threads_share_a_client_without_a_word_from_urllib3(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.on("GET", POD, Silence(0.02, answer(BODY)))
    caplog.set_level(logging.WARNING)
    settings = ClientSettings(max_connections=4)
    with connect(kubeconfig=server.kubeconfig(tmp_path), settings=settings) as client, ThreadPoolExecutor(24) as pool:
        read: Callable[[int], object] = lambda _: client.get(PODS, "web-0", namespace="default")  # noqa: E731
        assert list(pool.map(read, range(120))) == [BODY] * 120
    assert [record.getMessage() for record in caplog.records if record.name.startswith("urllib3")] == []


def test_no_more_requests_are_in_flight_than_allowed(server: ScriptedServer, tmp_path: Path) -> None:
    counter = Counter(wanted=3)
    server.on("GET", POD, counter)
    settings = ClientSettings(max_connections=3)
    with connect(kubeconfig=server.kubeconfig(tmp_path), settings=settings) as client, ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: client.get(PODS, "web-0", namespace="default"), range(20)))
    assert counter.most == 3


class Counter:
    """A reply that counts how many of it are being sent at once; it is held until as many are as are wanted."""

    def __init__(self, wanted: int) -> None:
        self.most = self._now = 0
        self._wanted = wanted
        self._changed = threading.Condition()

    def send(self, handler: object) -> bool:
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._wanted, timeout=30)
        time.sleep(0.02)
        with self._changed:
            self._now -= 1
        return answer(BODY).send(handler)  # type: ignore[arg-type]


def test_a_reservation_is_addressed_in_its_group(client: KubeClient, server: ScriptedServer) -> None:
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations/r"
    server.on("GET", path, answer({"metadata": {"name": "r"}}))
    assert client.get(RESERVATIONS, "r", namespace="default")["metadata"] == {"name": "r"}


@pytest.mark.parametrize(
    ("kinds", "want"),
    [(["evictionrequests", "evictionrequests/status"], True), (["evictions"], False), (None, False)],
    ids=["served", "another kind", "no such group"],
)
def test_whether_a_kind_is_served_is_found_by_discovery(
    client: KubeClient, server: ScriptedServer, kinds: list[str] | None, *, want: bool
) -> None:
    if kinds is not None:
        found = {"kind": "APIResourceList", "resources": [{"name": name} for name in kinds]}
        server.on("GET", "/apis/lifecycle.k8s.io/v1alpha1", answer(found))
    assert client.serves(EVICTION_REQUESTS) is want


def test_a_server_below_a_path_is_asked_there(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", "/clusters/a/api/v1/nodes/n", answer({"metadata": {"name": "n"}}))
    with connect(kubeconfig=write_kubeconfig(tmp_path, f"{server.url}/clusters/a/")) as client:
        assert client.get(NODES, "n") == {"metadata": {"name": "n"}}


def test_a_request_beside_the_end_of_idle_connections_is_sent(
    client: KubeClient, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "/api/v1/nodes", answer({"metadata": {"name": "n"}}))
    look_up = Transport._route_of

    def look_up_and_close(transport: Transport, official: Any) -> Any:  # noqa: ANN401 - the official client has no types
        route = look_up(transport, official)
        transport.close()
        return route

    monkeypatch.setattr(Transport, "_route_of", look_up_and_close)
    client.create(NODES, {"metadata": {"name": "n"}})
    assert len(server.requests("POST", "/api/v1/nodes")) == 1


def test_a_request_is_written_at_once(
    client: KubeClient, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "/api/v1/nodes", answer({"metadata": {"name": "n"}}))
    written: list[bytes] = []
    write = http.client.HTTPConnection.send

    def note_and_write(connection: http.client.HTTPConnection, data: bytes) -> None:
        written.append(data)
        write(connection, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", note_and_write)
    for _ in range(2):
        client.create(NODES, {"metadata": {"name": "n"}})
    heads_and_bodies = [request.split(b"\r\n\r\n") for request in written]
    assert [(head.split(b" ")[0], body) for head, body in heads_and_bodies] == [
        (b"POST", b'{"metadata":{"name":"n"}}')
    ] * 2


def test_a_request_that_cannot_be_put_together_leaves_its_connection_usable(server: ScriptedServer) -> None:
    server.on("POST", "/here", answer({}))
    with urllib3.PoolManager() as manager:
        use_lean_connections(manager)
        with pytest.raises(UnicodeEncodeError):
            manager.request("POST", f"{server.url}/here", body=b"a", headers={"X": "\u2603"}, retries=False)
        assert manager.request("POST", f"{server.url}/here", body=b"a", retries=False).status == HTTPStatus.OK
    assert [request.body for request in server.requests("POST", "/here")] == [b"a"]


def test_idle_connections_are_closed_although_a_watch_holds_their_pool(
    client: KubeClient, server: ScriptedServer
) -> None:
    server.on("GET", "/api/v1/nodes/n", answer({"metadata": {"name": "n"}}))
    server.on("GET", "/api/v1/pods", answer({}))
    transport = client.transport
    watch = transport.open_stream(Request(Call("watch", PODS.plural), "GET", "/api/v1/pods"), silence_seconds=5)
    client.get(NODES, "n")
    idle = [
        connection for connection in transport._route_of(transport._client).pool.pool.queue if connection is not None
    ]
    client.close()
    assert idle
    assert all(connection.sock is None for connection in idle)
    assert watch.read() == b"{}"
    assert client.get(NODES, "n") == {"metadata": {"name": "n"}}
