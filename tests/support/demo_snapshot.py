"""The bundled cluster, for a demo where no real one can start.

Made by `python tests/support/demo_snapshot.py FILE`; a test compares the bundled file with what this makes.
"""

import random
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core import (
    Container,
    LabelSelector,
    Namespace,
    Node,
    NodeCondition,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceAmounts,
    ResourceRequirements,
    Snapshot,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from berth_descheduler.snapshots import write_snapshot_file

NODES: Final = 60
SEED: Final = 20261121
NAMESPACE: Final = "shop"

_NODE: Final = {"cpu": "16", "memory": "64Gi", "pods": "110"}
_SIZES: Final = (("250m", "512Mi"), ("500m", "1Gi"), ("1", "4Gi"), ("2", "4Gi"), ("3", "12Gi"))
_FILLED_PERCENT: Final = 66
_MOST_REPLICAS: Final = 16
_SEEN_NODES: Final = 8
_SCALED_DOWN_EVERY: Final = 3
_SCALED_DOWN_TO: Final = 5
"""A third of the applications keep a fifth of their pods."""

_BASE: Final = uuid.UUID("6f0c3f0e-8f0a-4f1e-9d53-0b7d1c2e4a60")


@dataclass(frozen=True, slots=True)
class _App:
    """One application: its pods are alike."""

    name: str
    requests: tuple[str, str]
    replicas: int
    kept: int

    @property
    def amounts(self) -> ResourceAmounts:
        """Return what one pod asks for."""
        return ResourceAmounts.from_quantities(dict(zip(("cpu", "memory"), self.requests, strict=True)))


def make_demo_snapshot(nodes: int = NODES, seed: int = SEED) -> Snapshot:
    """Return a cluster after a third of its applications shrank.

    Before that, its pods were spread by free room.
    """
    chance = random.Random(seed)  # noqa: S311 - makes an example, guards nothing
    names = tuple(f"node-{index:02}" for index in range(nodes))
    apps = tuple(_draw_apps(chance, nodes))
    placements = _place(chance, apps, names)
    return Snapshot(
        nodes=tuple(_build_node(node_name) for node_name in names),
        pods=tuple(_build_pod(app, index, node) for app, index, node in placements if index < app.kept),
        workloads=tuple(_build_replica_set(app) for app in apps),
        namespaces=(Namespace(metadata=ObjectMeta(name=NAMESPACE, uid=_uid("namespace", NAMESPACE))),),
    )


def _draw_apps(chance: random.Random, nodes: int) -> Iterator[_App]:
    """Yield applications that fill the cluster.

    It is then as full as it was before some of them shrank.
    """
    cpu_left = nodes * ResourceAmounts.from_quantities(_NODE).get("cpu") * _FILLED_PERCENT // 100
    app_number = 0
    while cpu_left > 0:
        requests, replicas = chance.choice(_SIZES), chance.randint(2, _MOST_REPLICAS)
        shrinks = chance.randrange(_SCALED_DOWN_EVERY) == 0
        app = _App(
            f"app-{app_number:03}", requests, replicas, max(1, replicas // _SCALED_DOWN_TO) if shrinks else replicas
        )
        cpu_left -= app.amounts.get("cpu") * replicas
        app_number += 1
        yield app


def _place(chance: random.Random, apps: tuple[_App, ...], names: tuple[str, ...]) -> Iterator[tuple[_App, int, str]]:
    """Yield each pod with the roomiest of some nodes.

    A stock scheduler chooses so in a large cluster.
    """
    node_capacity = ResourceAmounts.from_quantities(_NODE)
    free_amounts = dict.fromkeys(names, node_capacity)
    pods = [(app, index) for app in apps for index in range(app.replicas)]
    chance.shuffle(pods)
    for app, index in pods:
        candidate_nodes = (*chance.sample(names, min(_SEEN_NODES, len(names))), *names)
        roomy_nodes = [name for name in candidate_nodes if app.amounts.fits_within(free_amounts[name])]
        node = max(roomy_nodes[:_SEEN_NODES], key=lambda name: (_room(free_amounts[name], node_capacity), name))
        free_amounts[node] = free_amounts[node].minus(app.amounts)
        yield app, index, node


def _room(free: ResourceAmounts, whole: ResourceAmounts) -> Fraction:
    """Return the mean free share of cpu and memory.

    LeastAllocated scores it so.
    """
    return sum((Fraction(free.get(resource), whole.get(resource)) for resource in ("cpu", "memory")), Fraction(0)) / 2


def _build_node(name: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=_uid("node", name), labels={"kubernetes.io/hostname": name}),
        status=NodeStatus(allocatable=_NODE, capacity=_NODE, conditions=(NodeCondition(type="Ready", status="True"),)),
    )


def _build_replica_set(app: _App) -> Workload:
    return Workload(
        api_version="apps/v1",
        kind="ReplicaSet",
        metadata=ObjectMeta(name=app.name, namespace=NAMESPACE, uid=_uid("replicaset", app.name)),
        spec=WorkloadSpec(replicas=app.kept, selector=LabelSelector(match_labels={"app": app.name})),
        status=WorkloadStatus(replicas=app.kept),
    )


def _build_pod(app: _App, index: int, node: str) -> Pod:
    pod_name = f"{app.name}-{index:02}"
    owner = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name=app.name, uid=_uid("replicaset", app.name), controller=True
    )
    requests = ResourceRequirements(requests=app.amounts.to_quantities())
    return Pod(
        metadata=ObjectMeta(
            name=pod_name,
            namespace=NAMESPACE,
            uid=_uid("pod", pod_name),
            labels={"app": app.name},
            owner_references=(owner,),
        ),
        spec=PodSpec(
            node_name=node,
            scheduler_name="default-scheduler",
            containers=(Container(name="app", image="pause", resources=requests),),
        ),
        status=PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),)),
    )


def _uid(kind: str, name: str) -> str:
    return str(uuid.uuid5(_BASE, f"{kind}/{name}"))


if __name__ == "__main__":
    write_snapshot_file(sys.argv[1], make_demo_snapshot().to_json())
