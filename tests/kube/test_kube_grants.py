"""A right that is missing for a moment is waited for; one that never was, or is gone for good, is not."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from berth_kube import ClientSettings, KubeClient
from berth_kube.configuration import find_source
from berth_kube.errors import ForbiddenError
from berth_kube.grants import Right, await_rights, right_of
from berth_kube.resources import NAMESPACES, NODES, PODS
from berth_kube.retries import NO_RETRIES, Backoff, RetryPolicy
from berth_kube.transport import ConnectionSettings, Transport
from builders import FakeClock
from scripted_server import Reset, ScriptedServer, answer, page, refusal
from waiting import eventually

NODES_PATH = "/api/v1/nodes"
PODS_PATH = "/api/v1/namespaces/shop/pods"
POD = f"{PODS_PATH}/web-0"
NOT_YET = refusal(
    403, "Forbidden", 'nodes is forbidden: User "berth" cannot list resource "nodes" at the cluster scope'
)
QUOTA = refusal(403, "Forbidden", 'pods "web-0" is forbidden: exceeded quota: small')
GONE = refusal(404, "NotFound", 'pods "web-0" not found')
POLICY = RetryPolicy(backoff=Backoff(first_seconds=1, factor=2, longest_seconds=4, jitter=0))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make(server: ScriptedServer, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[[RetryPolicy], KubeClient]]:
    transport = Transport(find_source(server.kubeconfig(tmp_path), None), ConnectionSettings())
    yield lambda policy: KubeClient(transport, settings=ClientSettings(retries=policy), clock=clock)
    transport.close()


@pytest.fixture
def allowed(make: Callable[[RetryPolicy], KubeClient]) -> KubeClient:
    return make(POLICY)


def test_a_right_that_is_missing_for_a_moment_is_waited_for(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", NODES_PATH, page(), *[NOT_YET] * 8, page({"metadata": {"name": "a"}}))
    allowed.list(NODES)
    clock.advance(3600)

    assert [one["metadata"]["name"] for one in allowed.list(NODES).items] == ["a"]
    assert clock.slept == [1, 2, 4, 4, 4, 4, 4, 4]


def test_one_that_stays_missing_is_given_up_after_30_seconds_and_then_at_once(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", NODES_PATH, page(), NOT_YET)
    allowed.list(NODES)
    begun = clock.monotonic()
    with pytest.raises(ForbiddenError, match='User "berth" cannot list'):
        allowed.list(NODES)
    assert 25 <= clock.monotonic() - begun <= 30

    clock.slept.clear()
    with pytest.raises(ForbiddenError):
        allowed.list(NODES)
    assert clock.slept == []


def test_one_that_never_was_is_not_waited_for(allowed: KubeClient, server: ScriptedServer, clock: FakeClock) -> None:
    server.on("GET", NODES_PATH, NOT_YET)
    server.on("GET", PODS_PATH, page())
    allowed.list(PODS, namespace="shop")
    with pytest.raises(ForbiddenError):
        allowed.list(NODES)
    assert clock.slept == []


def test_for_30_seconds_after_a_lost_connection_every_one_is_waited_for(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", NODES_PATH, Reset(), NOT_YET, NOT_YET, page())
    assert allowed.list(NODES).items == ()
    assert clock.slept == [1, 1, 2]


def test_a_watch_that_is_cut_off_is_a_lost_connection(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", PODS_PATH, page()).on("WATCH", PODS_PATH, Reset())
    server.on("GET", NODES_PATH, NOT_YET, page())
    stop = threading.Event()
    with closing(allowed.watch(PODS, stop=stop, namespace="shop")) as seen:
        next(iter(seen))
        eventually("the watch was cut off", lambda: len(server.requests("WATCH", PODS_PATH)) > 1, seconds=60)

    assert allowed.list(NODES).items == ()
    assert clock.slept == [1]


def test_a_connection_that_was_lost_long_ago_is_no_reason(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", PODS_PATH, Reset(), page())
    server.on("GET", NODES_PATH, NOT_YET)
    allowed.list(PODS, namespace="shop")
    clock.advance(30)
    clock.slept.clear()
    with pytest.raises(ForbiddenError):
        allowed.list(NODES)
    assert clock.slept == []


def test_what_admission_forbids_is_final(allowed: KubeClient, server: ScriptedServer, clock: FakeClock) -> None:
    server.on("POST", PODS_PATH, answer({"metadata": {"name": "web-0"}}, 201), QUOTA)
    body = {"metadata": {"name": "web-0", "namespace": "shop"}}
    allowed.create(PODS, body)
    with pytest.raises(ForbiddenError, match="exceeded quota"):
        allowed.create(PODS, body)
    assert clock.slept == []


def test_an_object_that_is_not_there_shows_the_right_to_look_for_it(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", POD, GONE)
    server.on("GET", f"{PODS_PATH}/web-1", NOT_YET, answer({"metadata": {"name": "web-1"}}))
    with pytest.raises(Exception, match="not found"):
        allowed.get(PODS, "web-0", namespace="shop")
    assert allowed.get(PODS, "web-1", namespace="shop")["metadata"]["name"] == "web-1"
    assert clock.slept == [1]


def test_a_client_that_never_asks_again_does_not_for_this_either(
    make: Callable[[RetryPolicy], KubeClient], server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", NODES_PATH, page(), NOT_YET)
    once = make(NO_RETRIES)
    once.list(NODES)
    with pytest.raises(ForbiddenError):
        once.list(NODES)
    assert clock.slept == []


def test_a_client_in_a_hurry_gives_up_sooner(allowed: KubeClient, server: ScriptedServer, clock: FakeClock) -> None:
    server.on("GET", NODES_PATH, page(), NOT_YET)
    allowed.list(NODES)
    with pytest.raises(ForbiddenError):
        allowed.within(2).list(NODES)
    assert clock.slept == [1]


def test_a_service_waits_at_its_start_until_it_is_known(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", POD, NOT_YET, NOT_YET, GONE)
    server.on("GET", NODES_PATH, NOT_YET, page())
    await_rights(clock, lambda: allowed.get(PODS, "web-0", namespace="shop"), lambda: allowed.list(NODES))
    assert clock.slept == [0.5, 0.5, 0.5]


def test_a_service_without_a_right_goes_on_after_30_seconds_and_finds_out(
    allowed: KubeClient, server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", NODES_PATH, NOT_YET)
    await_rights(clock, lambda: allowed.list(NODES))
    assert sum(clock.slept) == 30


def test_a_service_does_not_wait_for_anything_else(
    make: Callable[[RetryPolicy], KubeClient], server: ScriptedServer, clock: FakeClock
) -> None:
    server.on("GET", NODES_PATH, Reset())
    server.on("GET", PODS_PATH, QUOTA)
    once = make(NO_RETRIES)
    await_rights(clock, lambda: once.list(NODES), lambda: once.list(PODS, namespace="shop"))
    assert clock.slept == []


RIGHTS = {
    "a kind of the cluster": (NODES_PATH, "/api/v1/nodes"),
    "an object of the cluster": (f"{NODES_PATH}/a", "/api/v1/nodes"),
    "its subresource": (f"{NODES_PATH}/a/status", "/api/v1/nodes/status"),
    "a kind of a group": ("/apis/apps/v1/deployments", "/apis/apps/v1/deployments"),
    "an object of a group": ("/apis/storage.k8s.io/v1/csinodes/a", "/apis/storage.k8s.io/v1/csinodes"),
    "a namespace": (NAMESPACES.path("shop"), "/api/v1/namespaces"),
    "all namespaces": (NAMESPACES.path(), "/api/v1/namespaces"),
    "a kind in a namespace": (PODS_PATH, "/api/v1/shop/pods"),
    "an object in a namespace": (POD, "/api/v1/shop/pods"),
    "a subresource in a namespace": (f"{POD}/eviction", "/api/v1/shop/pods/eviction"),
    "a kind in all namespaces": (PODS.path(), "/api/v1/pods"),
}


@pytest.mark.parametrize(("path", "place"), RIGHTS.values(), ids=RIGHTS)
def test_a_right_has_no_names_of_objects_in_it(path: str, place: str) -> None:
    assert right_of("get", path) == Right("get", place)
