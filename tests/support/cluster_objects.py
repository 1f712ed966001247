"""The plain API objects that cluster tests create, and what cluster tests read of them."""

# ruff: noqa: ANN401 - fields of API objects may be anything

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from berth_core import Node, Pod
from berth_core.clock import SystemClock
from berth_core.pod_requests import effective_requests
from berth_core.quantities import parse_quantity
from berth_core.reservations import Reservation
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError, InvalidObjectError, NotFoundError
from berth_kube.resources import EVENTS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, RESERVATIONS, SERVICE_ACCOUNTS
from berth_sandbox.invariants import BOUND_SECONDS, Invariant, check, monitor_invariants
from waiting import eventually

PATIENCE: Final = {invariant: max(seconds, 60.0) for invariant, seconds in BOUND_SECONDS.items()}
"""How long an invariant may be broken on a busy machine; nobody waits for what is mended sooner."""


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


def make_priority_class(client: KubeClient, name: str, value: int, **rest: Any) -> None:
    """Create a class and wait until admission lets a pod have it."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    client.create(PRIORITY_CLASSES, body | rest)
    await_priority_class(client, name)


def await_priority_class(client: KubeClient, name: str) -> None:
    """Wait until admission, which hears of a class through a watch, lets a pod have it."""
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="0", priorityClassName=name)}
    pod["metadata"]["name"] = "asked"

    def is_known() -> bool:
        try:
            client.create(PODS, pod, namespace="default", dry_run=True)
        except ForbiddenError:
            return False
        except InvalidObjectError:  # by a policy, which is asked later
            return True
        return True

    eventually(f"admission knows {name}", is_known)


def let_the_scheduler_hear(client: KubeClient, namespace: str, node: str, scheduler: str = "default-scheduler") -> None:
    """Wait until a scheduler knows all that was done to nodes until now, by a pod on one that takes any.

    It sees nodes and pods through separate watches, each in its order: who places a pod by a label that the node got
    last knows what was done to every node before.
    """
    mark = {"example.com/heard": uuid4().hex}
    client.merge_patch(NODES, node, {"metadata": {"labels": mark}})
    everything = [{"operator": "Exists"}]
    template = pod_template({}, cpu="0", memory="0", nodeSelector=mark, schedulerName=scheduler, tolerations=everything)
    name = f"probe-{uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": name}}
    client.create(PODS, body, namespace=namespace)
    placed = lambda: client.get(PODS, name, namespace=namespace, type=Pod).spec.node_name == node  # noqa: E731
    eventually(f"{scheduler} knows the nodes", placed)
    client.delete(PODS, name, namespace=namespace, grace_seconds=0)


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
        lambda: [v for v in check(client, now=clock.now()) if v.invariant not in allowed], clock, bounds=PATIENCE
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
