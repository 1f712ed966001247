"""What a namespace may not have as pods, or holds too much of already, is refused as a Reservation."""
# ruff: noqa: ANN401 - fields of API objects are anything

import itertools
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from berth_core import PriorityClass
from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.reservations import Reservation, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError, InvalidObjectError
from berth_kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    LIMIT_RANGES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATIONS,
    RESOURCE_QUOTAS,
)
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import (
    build_reservation,
    is_gone,
    label_owner,
    make_namespace,
    pod_template,
    read_reservation,
    reservations,
)
from reservation_stage import delete_all
from service_processes import running_operator
from waiting import eventually

pytestmark = pytest.mark.cluster

MOST_SLOTS = 6


@pytest.fixture(scope="module")
def client(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeClient]:
    """Yield a client of a sandbox with a large node and an operator that grants a namespace six slots."""
    with sandbox.connect() as connected:
        (node,) = sandbox.add_nodes(1, NodeShape(cpu="64", memory="256Gi"), prefix="limits-node-")
        folder = tmp_path_factory.mktemp("limits")
        with running_operator(sandbox, folder, f"--limit=slots={MOST_SLOTS},share=none", "--sweep-seconds=60"):
            yield connected
        connected.delete(NODES, node)


@pytest.fixture
def namespace(client: KubeClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = make_namespace(client, f"limits-{zlib.crc32(request.node.nodeid.encode()):08x}")
    yield name
    for resource in (RESERVATIONS, PODS, RESOURCE_QUOTAS, LIMIT_RANGES):
        delete_all(client, resource, name)
    eventually("no Reservation is left", lambda: not reservations(client, name), seconds=60)


def reserve(client: KubeClient, namespace: str, name: str, *, cpu: str = "1", replicas: int = 1, **spec: Any) -> None:
    template = pod_template({}, cpu=cpu, **spec)
    body = build_reservation(name, cpu=cpu, owners=label_owner(app="x"), template=template, replicas=replicas)
    client.create(RESERVATIONS, body, namespace=namespace)


def set_quota(client: KubeClient, namespace: str, hard: dict[str, str], **spec: Any) -> None:
    """Create a quota and wait until the cluster has counted what is used."""
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard, **spec}}
    client.create(RESOURCE_QUOTAS, body, namespace=namespace)

    def counted() -> bool:
        status = client.get(RESOURCE_QUOTAS, "few", namespace=namespace).get("status", {})
        return bool(hard.keys() == status.get("used", {}).keys())

    eventually("the quota is counted", counted, seconds=60)


def ended(client: KubeClient, namespace: str, name: str) -> Reservation:
    """Wait until a Reservation is Available or Failed and return it."""
    wanted = {ReservationPhase.AVAILABLE, ReservationPhase.FAILED}
    eventually("it has an end", lambda: read_reservation(client, namespace, name).phase in wanted, seconds=60)
    return read_reservation(client, namespace, name)


def refused(client: KubeClient, namespace: str, **spec: Any) -> str:
    """Reserve until it is forbidden and return the words; the operator may hear of a rule later than the API server."""
    names = (f"tried-{number}" for number in itertools.count())
    found: list[Reservation] = []

    def is_refused() -> bool:
        name = next(names)
        reserve(client, namespace, name, **spec)
        found.append(ended(client, namespace, name))
        if found[-1].phase is ReservationPhase.AVAILABLE:
            client.delete(RESERVATIONS, name, namespace=namespace)
            eventually(f"{name} is gone", lambda: is_gone(client, RESERVATIONS, name, namespace), seconds=60)
        return found[-1].phase is ReservationPhase.FAILED

    eventually("the operator refuses it", is_refused, seconds=60)
    state = found[-1].status.state
    assert state is not None
    assert state.reason == "Forbidden"
    return state.message


def test_of_many_reservations_at_once_no_more_are_granted_than_the_limit(client: KubeClient, namespace: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: reserve(client, namespace, f"place-{number}", replicas=2), range(16)))
    found = [ended(client, namespace, f"place-{number}") for number in range(16)]
    assert sum(r.phase is ReservationPhase.AVAILABLE for r in found) == MOST_SLOTS / 2
    refused = next(r for r in found if r.phase is ReservationPhase.FAILED)
    assert refused.status.state is not None
    assert refused.status.state.reason == "Forbidden"
    assert f"may hold {MOST_SLOTS} slots together" in refused.status.state.message


def test_a_quota_counts_pods_and_reservations(client: KubeClient, namespace: str) -> None:
    set_quota(client, namespace, {"requests.cpu": "4"})
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="1500m")}
    pod["metadata"]["name"] = "runs"
    client.create(PODS, pod, namespace=namespace)
    eventually(
        "the pod is counted",
        lambda: client.get(RESOURCE_QUOTAS, "few", namespace=namespace)["status"]["used"]["requests.cpu"] == "1500m",
        seconds=30,
    )
    reserve(client, namespace, "fits", replicas=2)
    assert ended(client, namespace, "fits").phase is ReservationPhase.AVAILABLE
    told = refused(client, namespace)
    assert "exceeded quota: few" in told
    assert "left: requests.cpu=500m" in told


def test_a_quota_of_a_class_bounds_what_is_reserved_with_it(client: KubeClient, namespace: str) -> None:
    classes = [("limits-high", 1000), ("limits-low", 10)]
    for name, value in classes:
        client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    try:
        scoped = {"scopeName": "PriorityClass", "operator": "In", "values": ["limits-high"]}
        set_quota(client, namespace, {"pods": "0"}, scopeSelector={"matchExpressions": [scoped]})
        assert "exceeded quota: few" in refused(client, namespace, priorityClassName="limits-high")
        reserve(client, namespace, "low", priorityClassName="limits-low")
        assert ended(client, namespace, "low").phase is ReservationPhase.AVAILABLE
    finally:
        for name, _ in classes:
            client.delete(PRIORITY_CLASSES, name)


RANGES: dict[str, dict[str, Any]] = {
    "more than a container may": {"type": "Container", "max": {"cpu": "500m"}},
    "less than a container must": {"type": "Container", "min": {"cpu": "2"}},
    "more than a pod may": {"type": "Pod", "max": {"cpu": "500m", "memory": "64Gi"}},
    "limits too far above requests": {"type": "Container", "maxLimitRequestRatio": {"cpu": "1"}},
}


@pytest.mark.parametrize("item", RANGES.values(), ids=RANGES.keys())
def test_what_a_limit_range_refuses_as_a_pod_is_refused_in_the_same_words(
    client: KubeClient, namespace: str, item: dict[str, Any]
) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}}
    containers = [{"name": "main", "image": "pause", "resources": resources}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": {"containers": containers}}
    client.create(PODS, pod, namespace=namespace, dry_run=True)
    reserve(client, namespace, "before", containers=containers)
    assert ended(client, namespace, "before").phase is ReservationPhase.AVAILABLE
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"}, "spec": {"limits": [item]}}
    client.create(LIMIT_RANGES, body, namespace=namespace)
    eventually("the API server refuses it", lambda: refusal(client, namespace, pod), seconds=60)

    told, _, which = refused(client, namespace, containers=containers).partition(" (")
    assert which == "LimitRange range)"
    assert told.replace(". ", ".  ") in refusal(client, namespace, pod)


def refusal(client: KubeClient, namespace: str, pod: dict[str, Any]) -> str:
    """Return why the API server would not take a pod, "" where it would."""
    try:
        client.create(PODS, pod, namespace=namespace, dry_run=True)
    except ForbiddenError as error:
        return error.message
    return ""


PRECIOUS = {"key": "precious", "operator": "Exists"}


@contextmanager
def toleration_denied(client: KubeClient, namespace: str) -> Iterator[None]:
    """Have admission refuse pods of a namespace that tolerate a taint, from the first yield on."""
    name = f"no-precious-{namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    expression = "!object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == 'precious')"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "precious nodes are not for you"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="1", tolerations=[PRECIOUS])}
    pod["metadata"]["name"] = "asks"

    def is_denied() -> bool:
        try:
            client.create(PODS, pod, namespace=namespace, dry_run=True)
        except InvalidObjectError:
            return True
        return False

    client.create(ADMISSION_POLICIES, policy)
    client.create(ADMISSION_POLICY_BINDINGS, binding)
    try:
        eventually("the API server refuses it", is_denied, seconds=60)
        yield
    finally:
        client.delete(ADMISSION_POLICY_BINDINGS, name)
        client.delete(ADMISSION_POLICIES, name)


def test_what_admission_refuses_in_its_namespace_is_refused_in_its_words(client: KubeClient, namespace: str) -> None:
    with toleration_denied(client, namespace):
        reserve(client, namespace, "tolerant", tolerations=[PRECIOUS])
        reserve(client, namespace, "modest")
        assert ended(client, namespace, "modest").phase is ReservationPhase.AVAILABLE
        refused = ended(client, namespace, "tolerant")
        assert refused.status.state is not None
        assert refused.status.state.reason == "Invalid"
        assert f"admission in namespace {namespace} refuses such a pod" in refused.status.state.message
        assert "precious nodes are not for you" in refused.status.state.message


def test_no_place_is_held_on_the_control_plane(client: KubeClient, sandbox: Sandbox, namespace: str) -> None:
    """However a template tolerates the taint, and whether label or taint shows what the node is."""
    key = "node-role.kubernetes.io/control-plane"
    everything = [{"operator": "Exists"}]
    shapes = {
        "labelled": NodeShape(labels={"only": namespace, key: ""}),
        "tainted": NodeShape(labels={"only": namespace}, taints=[{"key": key, "effect": "NoSchedule"}]),
    }
    nodes = [sandbox.add_nodes(1, shape, prefix=f"{namespace}-{name}-")[0] for name, shape in shapes.items()]
    try:
        template = pod_template({}, cpu="1", tolerations=everything)
        body = build_reservation("pinned", cpu="1", owners=label_owner(app="x"), template=template, nodes=nodes)
        client.create(RESERVATIONS, body, namespace=namespace)
        pinned = ended(client, namespace, "pinned")
        assert pinned.status.state is not None
        assert pinned.status.state.reason == "Invalid"
        assert "no place is held on control-plane nodes" in pinned.status.state.message
        reserve(client, namespace, "drawn", tolerations=everything, nodeSelector={"only": namespace})
        eventually("the scheduler finds no place", lambda: finds_no_place(client, namespace, "drawn"), seconds=60)
    finally:
        for node in nodes:
            client.delete(NODES, node)


def finds_no_place(client: KubeClient, namespace: str, name: str) -> bool:
    state = read_reservation(client, namespace, name).status.state
    return state is not None and state.reason == "UnschedulableYet"


def test_our_classes_stay_for_the_next_reservation(client: KubeClient, namespace: str) -> None:
    reserve(client, namespace, "first")
    ended(client, namespace, "first")
    classes = our_classes(client)
    assert classes
    client.delete(RESERVATIONS, "first", namespace=namespace)
    reserve(client, namespace, "next")
    assert ended(client, namespace, "next").phase is ReservationPhase.AVAILABLE
    assert classes.items() <= our_classes(client).items()


def our_classes(client: KubeClient) -> dict[str, str]:
    """Return the uids of the operator's PriorityClasses by their names."""
    selector = f"{MANAGED_LABEL}={MANAGED_BY_OPERATOR}"
    classes = client.list(PRIORITY_CLASSES, label_selector=selector, type=PriorityClass).items
    return {priority_class.metadata.name: priority_class.metadata.uid for priority_class in classes}
