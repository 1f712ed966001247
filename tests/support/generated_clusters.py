"""Whole clusters drawn by a seed, as plain API objects that a real API server takes."""

# ruff: noqa: S311 - chance here decides about test cases, not about secrets

from dataclasses import dataclass
from random import Random
from typing import Final

from berth_kube.resources import Resource
from berth_sandbox.pretended_nodes import NodeShape, build_node
from generated_pods import (
    DISK,
    DISKS,
    GENERATION,
    GPU,
    PRIORITY_CLASSES,
    RACK,
    RACKS,
    RUNTIME_CLASS,
    TAINT,
    ZONE,
    ZONES,
    Body,
    Surroundings,
    TemplateDrawer,
)

RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
CSI_DRIVER: Final = "disks.example.com"
REGION: Final = "topology.kubernetes.io/region"
APPS: Final = ("api", "cart", "db", "search", "web")
MOUNT: Final = "data"


@dataclass(frozen=True)
class DrawnWorkload:
    """One template and its number of pods; `claims` are mounted by all, or by one pod each."""

    name: str
    namespace: str
    app: str
    replicas: int
    template: Body
    claims: tuple[str, ...] = ()
    claim_of_each: bool = False

    def pod_spec(self, number: int) -> Body:
        """Return the spec of one of the pods."""
        spec: Body = self.template["spec"]
        if not self.claims:
            return spec
        claim = self.claims[number if self.claim_of_each else 0]
        volume = {"name": MOUNT, "persistentVolumeClaim": {"claimName": claim}}
        return {**spec, "volumes": [*spec.get("volumes", []), volume]}


@dataclass(frozen=True)
class DrawnCluster:
    """All objects but pods and controllers, ready to be created in the order of the fields."""

    seed: int
    namespaces: tuple[Body, ...]
    nodes: tuple[Body, ...]
    csi_nodes: tuple[Body, ...]
    volumes: tuple[Body, ...]
    claims: tuple[Body, ...]
    budgets: tuple[Body, ...]
    workloads: tuple[DrawnWorkload, ...]

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes."""
        return tuple(node["metadata"]["name"] for node in self.nodes)


def runtime_class() -> Body:
    """Return the RuntimeClass whose overhead and toleration admission puts on the pods that name it."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS},
        "handler": "sandboxed",
        "overhead": {"podFixed": {"cpu": "150m", "memory": "64Mi"}},
        "scheduling": {"tolerations": [{"key": "example.com/sandboxed", "operator": "Exists"}]},
    }


def priority_classes() -> tuple[Body, ...]:
    """Return the PriorityClasses that templates name."""
    return tuple(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
        }
        for name, value in PRIORITY_CLASSES.items()
    )


def draw_cluster(seed: int, *, nodes: int, workloads: int, density: float) -> DrawnCluster:
    """Return the cluster of a seed; names begin with the seed, so that several can follow one another."""
    chance = Random(seed)
    prefix = f"s{seed:03d}"
    spaces = (f"{prefix}-shop", f"{prefix}-data")
    names = tuple(f"{prefix}-n{number:02d}" for number in range(nodes))
    drawn_nodes = tuple(_draw_node(chance, name) for name in names)
    storage = _StorageDrawer(chance, prefix, names)
    drawer = TemplateDrawer(chance, Surroundings(spaces, names, APPS), density)
    drawn = tuple(_draw_workload(chance, drawer, storage, f"w{i:02d}", chance.choice(spaces)) for i in range(workloads))
    return DrawnCluster(
        seed=seed,
        namespaces=tuple(
            {"metadata": {"name": space, "labels": {"team": team}}} for space, team in zip(spaces, "ab", strict=True)
        ),
        nodes=drawn_nodes,
        csi_nodes=tuple(_csi_node(chance, name) for name in names if chance.random() < 0.8),
        volumes=tuple(storage.volumes),
        claims=tuple(storage.claims),
        budgets=tuple(_draw_budgets(chance, spaces)),
        workloads=drawn,
    )


def _draw_node(chance: Random, name: str) -> Body:
    labels = {
        DISK: chance.choice(DISKS),
        REGION: "here",
        GENERATION: chance.choice(("1", "2", "3", "4", "5", "new")),
    }
    for key, values in ((ZONE, ZONES), (RACK, RACKS)):
        if chance.random() < 0.9:
            labels[key] = chance.choice(values)
    taints = []
    if chance.random() < 0.25:
        effect = chance.choice(("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute"))
        taints.append({"key": TAINT, "value": chance.choice(("batch", "web")), "effect": effect})
    shape = NodeShape(
        cpu=chance.choice(("8", "12", "16")),
        memory=chance.choice(("16Gi", "32Gi")),
        pods=chance.choice((6, 110, 110, 110)),
        labels=labels,
        taints=taints,
        extended={GPU: "4"} if chance.random() < 0.4 else {},
    )
    body = build_node(name, shape)
    if chance.random() < 0.08:
        body["spec"]["unschedulable"] = True
    return body


def _csi_node(chance: Random, name: str) -> Body:
    driver: Body = {"name": CSI_DRIVER, "nodeID": name, "topologyKeys": []}
    if chance.random() < 0.8:
        driver["allocatable"] = {"count": chance.choice((1, 2, 3))}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }


def _draw_budgets(chance: Random, spaces: tuple[str, ...]) -> list[Body]:
    """Return disruption budgets; now and then two select the same pods."""
    drawn = []
    for number, app in enumerate(APPS):
        for copy in range(chance.choice((0, 0, 0, 1, 2))):
            limit = {"maxUnavailable": chance.choice((1, 2, "50%"))} if copy == 0 else {"minAvailable": 0}
            body = {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"b{number}-{copy}", "namespace": chance.choice(spaces)},
                "spec": {"selector": {"matchLabels": {"app": app}}, **limit},
            }
            drawn.append(body)
    return drawn


def _draw_workload(
    chance: Random, drawer: TemplateDrawer, storage: "_StorageDrawer", name: str, namespace: str
) -> DrawnWorkload:
    app = chance.choice(APPS)
    replicas = chance.choice((1, 2, 2, 3, 4))
    template = drawer.draw(app, namespace)
    template["metadata"]["labels"]["set"] = name
    claims: tuple[str, ...] = ()
    each = False
    if chance.random() < 0.3:
        each = chance.random() < 0.5
        count = replicas if each else 1
        claims = tuple(storage.draw(f"{MOUNT}-{name}-{number}", namespace) for number in range(count))
    return DrawnWorkload(name, namespace, app, replicas, template, claims, each)


class _StorageDrawer:
    """Draws claims with the volume that each is bound to."""

    def __init__(self, chance: Random, prefix: str, node_names: tuple[str, ...]) -> None:
        self._chance = chance
        self._prefix = prefix
        self._node_names = node_names
        self.volumes: list[Body] = []
        self.claims: list[Body] = []

    def draw(self, claim: str, namespace: str) -> str:
        """Draw a volume and a claim bound to it; return the claim's name."""
        name = f"{self._prefix}-pv-{len(self.volumes):02d}"
        labels, source = self._source(name)
        shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        self.volumes.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    **shared,
                    **source,
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"namespace": namespace, "name": claim},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
            }
        )
        self.claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": namespace},
                "spec": {**shared, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
            }
        )
        return claim

    def _source(self, name: str) -> tuple[dict[str, str], Body]:
        """Return a volume's labels and its source with the nodes that reach it: zoned, node-bound, attached or free."""
        match self._chance.choice(("zoned", "tied", "local", "attached", "attached", "free")):
            case "zoned":
                return {ZONE: "__".join(self._chance.sample(ZONES, 2))}, _nfs()
            case "tied":
                return {}, _nfs() | _reached_from(DISK, self._chance.choice(DISKS))
            case "local":
                node = self._chance.choice(self._node_names)
                return {}, {"local": {"path": "/data"}} | _reached_from("kubernetes.io/hostname", node)
            case "attached":
                return {}, {"csi": {"driver": CSI_DRIVER, "volumeHandle": name}}
            case _:
                return {}, _nfs()


def _nfs() -> Body:
    return {"nfs": {"server": "192.0.2.9", "path": "/data"}}


def _reached_from(key: str, value: str) -> Body:
    expressions = [{"key": key, "operator": "In", "values": [value]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}
