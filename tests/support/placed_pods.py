"""How a cluster test puts pods on nodes of its own choice and still has controllers that make them again."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from berth_core import Pod
from berth_kube.client import KubeClient
from berth_kube.resources import PODS, REPLICA_SETS
from cluster_objects import pod_template
from waiting import eventually

_AT_ONCE: Final = 8


@dataclass(frozen=True)
class PlacedPod:
    """A pod on the node with a number; without an app nothing makes it again, so that it stays where it is."""

    node: int
    cpu: str
    app: str = ""
    memory: str = "128Mi"


def place_pods(client: KubeClient, namespace: str, placed: Sequence[PlacedPod], nodes: Sequence[str]) -> None:
    """Create pods on their nodes and let a ReplicaSet per app adopt its own."""
    _each(client, namespace, [_build_pod(index, one, nodes[one.node]) for index, one in enumerate(placed)])
    eventually("every pod is Ready", lambda: count_ready(client, namespace) == len(placed), seconds=120)
    replicas = Counter(one.app for one in placed if one.app)
    templates = {one.app: one for one in placed if one.app}
    for app, count in replicas.items():
        client.create(REPLICA_SETS, _build_replica_set(templates[app], count), namespace=namespace)
    eventually("every pod is adopted", lambda: _adopted(client, namespace) == sum(replicas.values()), seconds=120)


def count_ready(client: KubeClient, namespace: str) -> int:
    """Return how many pods of a namespace are Ready, -1 while others are neither that nor gone."""
    pods = client.list(PODS, namespace=namespace, type=Pod).items
    return len(pods) if all(pod.is_ready and not pod.is_terminating for pod in pods) else -1


def _adopted(client: KubeClient, namespace: str) -> int:
    return sum(pod.controller is not None for pod in client.list(PODS, namespace=namespace, type=Pod).items)


def _build_pod(index: int, one: PlacedPod, node: str) -> dict[str, Any]:
    labels = {"app": one.app} if one.app else {}
    template = pod_template(labels, cpu=one.cpu, memory=one.memory, nodeName=node)
    name = f"{one.app or 'alone'}-{index:04d}"
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}


def _build_replica_set(one: PlacedPod, replicas: int) -> dict[str, Any]:
    labels = {"app": one.app}
    template = pod_template(labels, cpu=one.cpu, memory=one.memory)
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": one.app}, "spec": spec}


def _each(client: KubeClient, namespace: str, bodies: Iterable[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda body: client.create(PODS, body, namespace=namespace), bodies))
