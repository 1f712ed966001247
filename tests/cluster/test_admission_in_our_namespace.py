"""What is in force in Berth's own namespace delays a place, and ends no Reservation."""

import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from berth_core import Pod
from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.reservations import ReservationPhase, ReservationReason
from berth_kube.client import KubeClient
from berth_kube.resources import LIMIT_RANGES, NODES, PODS, PRIORITY_CLASSES, RESERVATIONS, RESOURCE_QUOTAS, Resource
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import (
    build_reservation,
    is_gone,
    label_owner,
    make_namespace,
    make_priority_class,
    pod_template,
    read_reservation,
    reservations,
)
from reservation_stage import delete_all
from service_processes import running_operator
from waiting import eventually

pytestmark = pytest.mark.cluster

OURS = "berth-system"
PRIORITY = 1234


@pytest.fixture(scope="module")
def client(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeClient]:
    with sandbox.connect() as connected:
        (node,) = sandbox.add_nodes(1, NodeShape(cpu="64", memory="256Gi"), prefix="our-namespace-node-")
        with running_operator(sandbox, tmp_path_factory.mktemp("our-namespace"), "--sweep-seconds=60"):
            yield connected
        connected.delete(NODES, node)


@pytest.fixture
def namespace(client: KubeClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = make_namespace(client, f"our-namespace-{zlib.crc32(request.node.nodeid.encode()):08x}")
    yield name
    for resource in (LIMIT_RANGES, RESOURCE_QUOTAS):
        delete_all(client, resource, OURS)
    delete_all(client, RESERVATIONS, name)
    eventually("no Reservation is left", lambda: not reservations(client, name), seconds=60)


def reserve(client: KubeClient, namespace: str, priority_class_name: str = "") -> None:
    template = pod_template({}, cpu="2", priorityClassName=priority_class_name)
    body = build_reservation("place", cpu="2", owners=label_owner(app="x"), template=template)
    client.create(RESERVATIONS, body, namespace=namespace)


def state_of(client: KubeClient, namespace: str) -> tuple[ReservationPhase, str, str]:
    reservation = read_reservation(client, namespace, "place")
    state = reservation.status.state
    return (state.phase, state.reason, state.message) if state else (ReservationPhase.PENDING, "", "")


def test_defaults_of_a_limit_range_there_change_no_placeholder(client: KubeClient, namespace: str) -> None:
    limits = {"type": "Container", "default": {"cpu": "500m", "memory": "64Mi"}, "defaultRequest": {"memory": "64Mi"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": [limits]}}
    client.create(LIMIT_RANGES, body, namespace=OURS)
    reserve(client, namespace)
    eventually(
        "the place is held",
        lambda: state_of(client, namespace)[0] is ReservationPhase.AVAILABLE,
        seconds=60,
    )
    (placeholder,) = (
        pod for pod in client.list(PODS, namespace=OURS, type=Pod).items if pod.metadata.name.startswith("place-")
    )
    amounts = placeholder.spec.containers[0].resources
    assert dict(amounts.requests) == dict(amounts.limits)
    assert amounts.requests["cpu"] == "2"


def quota() -> tuple[Resource, dict[str, Any]]:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    return RESOURCE_QUOTAS, body


def limit_range() -> tuple[Resource, dict[str, Any]]:
    limits = {"type": "Container", "max": {"cpu": "1"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": [limits]}}
    return LIMIT_RANGES, body


REFUSERS = {"a quota": (*quota(), "exceeded quota: few"), "a LimitRange": (*limit_range(), "maximum cpu usage")}


@pytest.mark.parametrize(("resource", "body", "words"), REFUSERS.values(), ids=REFUSERS.keys())
def test_a_place_is_held_once_what_refused_its_placeholder_is_gone(
    client: KubeClient, namespace: str, resource: Resource, body: dict[str, Any], words: str
) -> None:
    name = body["metadata"]["name"]
    client.create(resource, body, namespace=OURS)
    if resource is RESOURCE_QUOTAS:
        eventually(
            "the quota is counted", lambda: "used" in client.get(resource, name, namespace=OURS).get("status", {})
        )
    reserve(client, namespace)
    eventually(
        "the refusal is shown",
        lambda: state_of(client, namespace)[1] == ReservationReason.PLACEHOLDER_REFUSED,
        seconds=60,
    )
    assert words in state_of(client, namespace)[2]
    client.delete(resource, name, namespace=OURS)
    eventually("the place is held", lambda: state_of(client, namespace)[0] is ReservationPhase.AVAILABLE, seconds=60)


@pytest.fixture
def high(client: KubeClient) -> Iterator[str]:
    """Yield the name of a class of the owners' priority."""
    make_priority_class(client, "our-namespace-high", PRIORITY)
    yield "our-namespace-high"
    for name in ("our-namespace-high", f"berth-placeholder-{PRIORITY}"):
        client.delete(PRIORITY_CLASSES, name)
        eventually(f"{name} is gone", lambda name=name: is_gone(client, PRIORITY_CLASSES, name))  # type: ignore[misc]


def test_a_class_of_the_placeholders_with_another_value_is_not_used(
    client: KubeClient, namespace: str, high: str
) -> None:
    ours = f"berth-placeholder-{PRIORITY}"
    make_priority_class(client, ours, 0)
    reserve(client, namespace, high)
    eventually(
        "the class is named",
        lambda: f"the PriorityClass {ours} is not Berth's and has the value 0" in state_of(client, namespace)[2],
        seconds=60,
    )
    client.delete(PRIORITY_CLASSES, ours)
    eventually("the place is held", lambda: state_of(client, namespace)[0] is ReservationPhase.AVAILABLE, seconds=60)
    made = client.get(PRIORITY_CLASSES, ours)
    assert (made["value"], made["preemptionPolicy"]) == (PRIORITY, "Never")
    placeholders = [
        pod for pod in client.list(PODS, namespace=OURS, type=Pod).items if pod.metadata.name.startswith("place-")
    ]
    assert [pod.spec.priority for pod in placeholders] == [PRIORITY]
    assert made["metadata"]["labels"][MANAGED_LABEL] == MANAGED_BY_OPERATOR
