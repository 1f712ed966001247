"""The plain API objects that cluster tests create, and what cluster tests read of them."""

# ruff: noqa: ANN401 - fields of API objects may be anything

from collections.abc import Mapping
from typing import Any

from berth_core.clock import SystemClock
from berth_core.objects import Node, Pod
from berth_core.pod_requests import effective_requests
from berth_core.reservations import Reservation
from berth_core.resources import parse_quantity
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import EVENTS, NAMESPACES, NODES, PODS, RESERVATIONS, SERVICE_ACCOUNTS
from berth_sandbox.invariants import Invariant, check, monitor_invariants
from waiting import eventually


def told_reasons(client: KubeClient, name: str, *, namespace: str) -> list[str]:
    """Return the reasons of the events about an object, sorted, each as often as it was told."""
    own = client.list(EVENTS, namespace=namespace, field_selector=f"involvedObject.name={name}").items
    return sorted(event["reason"] for event in own for _ in range(event.get("count") or 1))


def pod_template(labels: Mapping[str, str], *, cpu: str, memory: str = "128Mi", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    body = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"metadata": {"labels": dict(labels)}, "spec": body}


def build_deployment(name: str, *, replicas: int, cpu: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": pod_template(labels, cpu=cpu, **spec),
        },
    }


def build_reservation(
    name: str, *, cpu: str, owners: list[dict[str, Any]], nodes: list[str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a Reservation of one task "main"; `replicas` and `template` may be given in `spec`."""
    task = {
        "name": "main",
        "replicas": spec.pop("replicas", 1),
        "template": spec.pop("template", pod_template({}, cpu=cpu)),
    }
    if nodes:
        task["reservationNodeNames"] = nodes
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"ttl": "10m", "owners": owners, "tasks": [task], **spec},
    }


def label_owner(**labels: str) -> list[dict[str, Any]]:
    return [{"labelSelector": {"matchLabels": labels}}]


def make_namespace(client: KubeClient, name: str) -> str:
    """Create a namespace and wait for its default service account, without which no pod can be made."""
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    eventually(
        f"pods can be made in {name}", lambda: not is_gone(client, SERVICE_ACCOUNTS, "default", name), seconds=60
    )
    return name


def read_reservation(client: KubeClient, namespace: str, name: str) -> Reservation:
    return Reservation.read(client.get(RESERVATIONS, name, namespace=namespace))


def reservations(client: KubeClient, namespace: str) -> tuple[Reservation, ...]:
    return tuple(map(Reservation.read, client.list(RESERVATIONS, namespace=namespace).items))


def pods(client: KubeClient, namespace: str, **labels: str) -> tuple[Pod, ...]:
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return client.list(PODS, namespace=namespace, label_selector=selector, type=Pod).items


def require_rest(client: KubeClient, *allowed: Invariant) -> None:
    """Fail if anything in the cluster is not as it must be for longer than it may, but for what is allowed."""
    clock = SystemClock()
    breaches = monitor_invariants(
        lambda: [v for v in check(client, now=clock.now()) if v.invariant not in allowed], clock
    )
    assert not breaches, "\n".join(map(str, breaches))


def is_gone(client: KubeClient, resource: Any, name: str, namespace: str | None = None) -> bool:
    try:
        client.get(resource, name, namespace=namespace)
    except NotFoundError:
        return True
    return False


def overbooked_nodes(client: KubeClient) -> list[str]:
    """Return the nodes whose running pods ask for more cpu than the node has; a node that is gone has nothing."""
    used: dict[str, int] = {}
    for pod in client.list(PODS, type=Pod).items:
        if pod.spec.node_name and not pod.is_terminal:
            used[pod.spec.node_name] = used.get(pod.spec.node_name, 0) + effective_requests(pod.spec).get("cpu")
    nodes = client.list(NODES, type=Node).items
    capacity = {node.metadata.name: parse_quantity(node.status.allocatable.get("cpu", "0")).milli() for node in nodes}
    return [name for name, cpu_millis in used.items() if name in capacity and cpu_millis > capacity[name]]
