"""Which pods can surge by what a run watches is what single reads of their namespaces say."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core.clock import SystemClock
from berth_descheduler import picture as picture_module
from berth_descheduler.picture import Picture
from berth_kube import KubeClient, SurgeEligibility, connect, watched_lists, why_not_surge
from berth_kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PDBS,
    PVCS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from berth_kube.surge_eligibility import Around
from kube.test_surge_eligibility import CAN, CANNOT
from scripted_server import ScriptedServer, Stream, answer, page, refusal
from waiting import eventually

Raw = dict[str, Any]

KINDS: Final = (
    SERVICES,
    PDBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    REPLICATION_CONTROLLERS,
    HORIZONTAL_POD_AUTOSCALERS,
    RESOURCE_QUOTAS,
)
CASES: Final[dict[str, tuple[Raw, Around]]] = {
    **CAN,
    **{name: (raw, around) for name, (raw, around, _) in CANNOT.items()},
}
IN_ANOTHER_NAMESPACE: Final[Mapping[Resource, Raw]] = {
    SERVICES: {"selector": {"pod-template-hash": "5d4f8c7b9"}},
    REPLICA_SETS: {"selector": {"matchLabels": {"app": "web"}}},
    HORIZONTAL_POD_AUTOSCALERS: {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def client(server: ScriptedServer, tmp_path: Path) -> Iterator[KubeClient]:
    with connect(kubeconfig=server.kubeconfig(tmp_path)) as connected:
        yield connected


def serve(server: ScriptedServer, around: Around) -> None:
    """Have a server answer for all single objects, for all lists of kinds and for those of the namespace."""
    for resource in KINDS:
        named = (*around.selecting, *around.controllers)
        of_kind = [raw for kind, raw in named if kind == resource.kind]
        of_kind += around.autoscalers if resource is HORIZONTAL_POD_AUTOSCALERS else ()
        of_kind += around.quotas if resource is RESOURCE_QUOTAS else ()
        in_shop = [within("shop", raw) for raw in of_kind]
        elsewhere = [{"metadata": {"name": "x", "namespace": "other"}, "spec": IN_ANOTHER_NAMESPACE.get(resource, {})}]
        server.on("GET", resource.path(namespace=None), page(*in_shop, *elsewhere))
        server.on("WATCH", resource.path(namespace=None), Stream())
        server.on("GET", resource.path(namespace="shop"), page(*in_shop))
    for resource, raw in ((REPLICA_SETS, around.replica_set), (DEPLOYMENTS, around.deployment)):
        if raw is not None:
            server.on("GET", resource.path(raw["metadata"]["name"], namespace="shop"), answer(within("shop", raw)))
    for raw in around.claims:
        server.on("GET", PVCS.path(raw["metadata"]["name"], namespace="shop"), answer(within("shop", raw)))


def within(namespace: str, raw: Raw) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "namespace": namespace}}


def why_not(client: KubeClient, raw_pod: Raw, *, watches: bool) -> str:
    picture = Picture(client, "berth-system")
    if not watches:
        return why_not_surge(raw_pod, SurgeEligibility(picture.around_surges(), SystemClock()).look(raw_pod))
    with picture.watched():
        return why_not_surge(raw_pod, SurgeEligibility(picture.around_surges(), SystemClock()).look(raw_pod))


@pytest.mark.parametrize("case", CASES)
def test_what_is_watched_says_the_same(case: str, client: KubeClient, server: ScriptedServer) -> None:
    raw_pod, around = CASES[case]
    serve(server, around)
    assert why_not(client, raw_pod, watches=True) == why_not(client, raw_pod, watches=False)


SMALL: Final = {"metadata": {"name": "small", "namespace": "shop"}}


def test_a_quota_is_read_as_it_is_now(client: KubeClient, server: ScriptedServer) -> None:
    """A connection that a balancer has forgotten would show for most of a minute what was used before."""
    free, full = ({**SMALL, "status": {"hard": {"pods": "3"}, "used": {"pods": used}}} for used in ("0", "3"))
    server.on("GET", RESOURCE_QUOTAS.path(namespace=None), page(free))
    server.on("WATCH", RESOURCE_QUOTAS.path(namespace=None), Stream())
    server.on("GET", RESOURCE_QUOTAS.path(namespace="shop"), page(full))
    picture = Picture(client, "berth-system")
    with picture.watched():
        around = picture.around_surges()
        quotas = around.list(RESOURCE_QUOTAS, namespace="shop").items
        assert [quota["status"]["used"] for quota in quotas] == [{"pods": "3"}]
        assert around.list(RESOURCE_QUOTAS, namespace="other").items == ()
    assert server.requests("GET", RESOURCE_QUOTAS.path(namespace="other")) == []


@pytest.mark.parametrize("resource", KINDS)
def test_a_connection_that_was_forgotten_is_noticed_within_45_seconds(
    resource: Resource, client: KubeClient, server: ScriptedServer
) -> None:
    """A Service that would no longer select a pod must not be missed because a balancer has dropped its watch."""
    path = resource.path(namespace=None)
    server.on("GET", path, page(SMALL))
    server.on("WATCH", path, Stream())
    picture = Picture(client, "berth-system")
    with picture.watched():
        picture.around_surges().list(resource, namespace="other")
        eventually("it is watched", lambda: server.requests("WATCH", path) != [], seconds=60)
    # The server says something before the end of each connection, and a silent one is cut by the client soon after.
    assert all(int(watch.query["timeoutSeconds"]) <= 30 for watch in server.requests("WATCH", path))
    assert watched_lists._longest_silence_seconds() <= 45


@pytest.mark.parametrize("resource", [SERVICES, HORIZONTAL_POD_AUTOSCALERS, RESOURCE_QUOTAS])
def test_what_may_not_be_watched_is_read_as_a_whole_once(
    resource: Resource, client: KubeClient, server: ScriptedServer
) -> None:
    whole, of_namespace = resource.path(namespace=None), resource.path(namespace="shop")
    server.on("GET", whole, page(SMALL))
    server.on("WATCH", whole, refusal(403, "Forbidden", "may not watch"))
    server.on("GET", of_namespace, page(SMALL))
    picture = Picture(client, "berth-system")
    with picture.watched():
        around = picture.around_surges()
        around.list(resource, namespace="shop")
        assert picture._watched is not None
        lists = picture._watched
        eventually("the watch is refused", lambda: not lists.keeps(resource, picture_module._AroundPod), seconds=60)
        for _ in range(2):
            assert [raw["metadata"]["name"] for raw in around.list(resource, namespace="shop").items] == ["small"]
    assert len(server.requests("GET", whole)) == 1
    assert len(server.requests("GET", of_namespace)) >= 2


def test_what_may_only_be_listed_in_a_namespace_is_read_there(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", SERVICES.path(namespace=None), refusal(403, "Forbidden", "may not list in all namespaces"))
    server.on("GET", SERVICES.path(namespace="shop"), page(SMALL))
    picture = Picture(client, "berth-system")
    with picture.watched():
        around = picture.around_surges()
        for _ in range(2):
            assert [raw["metadata"]["name"] for raw in around.list(SERVICES, namespace="shop").items] == ["small"]
    assert len(server.requests("GET", SERVICES.path(namespace=None))) == 1
