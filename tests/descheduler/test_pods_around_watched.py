"""Which pods can surge by what a run watches is what single reads of their namespaces say."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core.clock import SystemClock
from berth_descheduler.picture import Picture
from berth_kube import KubeClient, SurgeEligibility, connect, why_not_surge
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
from scripted_server import ScriptedServer, Stream, answer, page

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
