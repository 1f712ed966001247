"""Generated clusters whose pods are tied to nodes and to each other, as those of people are.

A cluster is a function of its recipe and seed: `instances` lays out Deployments over nodes, and here these get what
makes reading costly. Nodes have zones, pools with taints, and types. Most Deployments have labels of four kinds, a
`DoNotSchedule` spread over zones or hosts, an anti-affinity against their own pods, an affinity to a neighbour, a node
affinity, or a disruption budget; every twelfth is a StatefulSet, whose pods all differ in a label; and every node runs
pods of two DaemonSets, each tied to its node by name, and a mirror pod. Ties are drawn without a look at where the
pods are: some are broken from the start, which keeps those pods in place.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from benchmarks.instances import Layout, Recipe, lay_out
from berth_core import (
    Affinity,
    Container,
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodCondition,
    PodDisruptionBudget,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from berth_core.snapshot import Snapshot
from berth_core.workloads import Ordinals, Workload, WorkloadSpec
from builders import disruption_budget, meta, node

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
POOL: Final = "example.com/pool"
TYPE: Final = "node.kubernetes.io/instance-type"
_ZONES: Final = ("a", "b", "c")
_TYPES: Final = ("m5", "m6", "m7", "c6", "r6")
_POOLS: Final = ("general",) * 8 + ("batch", "data")
_NAMESPACES: Final = 40
_EVERY: Final = (
    Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=300),
    Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=300),
)
"""The tolerations that the API server gives to every pod."""


def generate_constrained(recipe: Recipe) -> Snapshot:
    """Return a generated cluster with ties as a snapshot."""
    layout = lay_out(recipe)
    chance = Random(recipe.seed)  # noqa: S311 - an instance is no secret
    nodes = tuple(_node(recipe, index, chance) for index in range(recipe.nodes))
    replicas = Counter(layout.deployment_of)
    first_pods = {deployment: number for number, deployment in reversed(tuple(enumerate(layout.deployment_of)))}
    made = [
        _Controller(layout, index, replicas[index], first_pods.get(index, 0), chance)
        for index in range(len(layout.millis))
    ]
    pods = [
        made[deployment].pod(number, nodes[place])
        for number, (deployment, place) in enumerate(zip(layout.deployment_of, layout.node_of, strict=True))
    ]
    return Snapshot(
        nodes=nodes,
        pods=(*pods, *_pods_of_nodes(nodes)),
        workloads=tuple(one.workload for one in made),
        disruption_budgets=tuple(one.budget for one in made if one.budget is not None),
    )


def _node(recipe: Recipe, index: int, chance: Random) -> Node:
    pool = chance.choice(_POOLS)
    labels = {ZONE: chance.choice(_ZONES), POOL: pool, TYPE: chance.choice(_TYPES), "kubernetes.io/arch": "amd64"}
    taints = () if pool == "general" else (Taint(key=POOL, value=pool, effect="NoSchedule"),)
    amounts = {"cpu": f"{recipe.node_millis}m", "memory": f"{recipe.node_mib}Mi", "pods": "110"}
    return node(f"n{index:05d}", allocatable=amounts, labels=labels, taints=taints)


@dataclass(frozen=True, slots=True)
class _Draw:
    """What was drawn for one controller."""

    pools: tuple[str, ...]
    types: tuple[str, ...]
    spread: str
    by_hash: bool
    max_skew: int
    shuns_itself: bool
    neighbour: int | None
    shared_label: bool

    @classmethod
    def by(cls, chance: Random, index: int) -> "_Draw":
        """Return a draw."""
        types = tuple(sorted(chance.sample(_TYPES, chance.randint(2, len(_TYPES)))))
        return cls(
            pools=tuple(one for one in ("batch", "data") if chance.random() < 0.8),
            types=types if chance.random() < 0.3 else (),
            spread=chance.choice((ZONE, ZONE, HOST, "", "")),
            by_hash=chance.random() < 0.5,
            max_skew=chance.choice((2, 5, 20)),
            shuns_itself=chance.random() < 0.4,
            neighbour=chance.randrange(index) if index and chance.random() < 0.1 else None,
            shared_label=chance.random() < 0.005,
        )


class _Controller:
    """A Deployment's ReplicaSet or a StatefulSet, and its pods."""

    def __init__(self, layout: Layout, index: int, replicas: int, first_pod: int, chance: Random) -> None:
        drawn = _Draw.by(chance, index)
        self._name = f"app-{index:05d}"
        self._namespace = f"team-{index % _NAMESPACES:02d}"
        self._stateful = index % 12 == 11
        kind = "StatefulSet" if self._stateful else "ReplicaSet"
        uid = f"uid-{self._name}"
        owner = self._name if self._stateful else f"{self._name}-5d4f"
        self._owners = (OwnerReference(api_version="apps/v1", kind=kind, name=owner, uid=uid, controller=True),)
        self._labels = {
            "app": self._name,
            "app.kubernetes.io/part-of": f"system-{index % 97:02d}",
            "tier": ("front", "back", "batch")[index % 3],
            "version": f"v{index % 7}",
            "pod-template-hash": f"{index * 7919:x}",
        }
        requests = {"cpu": f"{layout.millis[index] + index % 40}m", "memory": f"{layout.mib[index]}Mi"}
        self._containers = (Container(name="app", image="pause", resources=ResourceRequirements(requests=requests)),)
        self._tolerations = (
            *_EVERY,
            *(Toleration(key=POOL, value=pool, effect="NoSchedule") for pool in drawn.pools),
        )
        self._affinity = self._tie(drawn)
        self._spreads = self._spread(drawn)
        self._status = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))
        self.workload = Workload(
            api_version="apps/v1",
            kind=kind,
            metadata=meta(owner, namespace=self._namespace, uid=uid),
            spec=WorkloadSpec(replicas=replicas, selector=self._own, ordinals=Ordinals(start=first_pod)),
        )
        self.budget: PodDisruptionBudget | None = None
        if chance.random() < 0.4:
            own = {"app": self._name}
            self.budget = disruption_budget(self._name, namespace=self._namespace, match_labels=own)

    @property
    def _own(self) -> LabelSelector:
        return LabelSelector(match_labels={"app": self._name})

    def _tie(self, drawn: _Draw) -> Affinity:
        expression = LabelSelectorRequirement(key=TYPE, operator="In", values=drawn.types)
        required = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(expression,)),))
        avoided = PodAffinityTerm(label_selector=self._own, topology_key=HOST)
        other = None if drawn.neighbour is None else LabelSelector(match_labels={"app": f"app-{drawn.neighbour:05d}"})
        if drawn.shared_label:
            other = LabelSelector(match_labels={"tier": self._labels["tier"]})
        everywhere = None if drawn.shared_label else LabelSelector()
        wanted = PodAffinityTerm(label_selector=other, topology_key=ZONE, namespace_selector=everywhere)
        return Affinity(
            node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
            if drawn.types
            else None,
            pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(wanted,))
            if other is not None
            else None,
            pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(avoided,))
            if drawn.shuns_itself
            else None,
        )

    def _spread(self, drawn: _Draw) -> tuple[TopologySpreadConstraint, ...]:
        if not drawn.spread:
            return ()
        return (
            TopologySpreadConstraint(
                max_skew=drawn.max_skew,
                topology_key=drawn.spread,
                when_unsatisfiable="DoNotSchedule",
                label_selector=self._own,
                match_label_keys=("pod-template-hash",) if drawn.by_hash else (),
            ),
        )

    def pod(self, number: int, place: Node) -> Pod:
        """Return one pod on a node."""
        name = f"{self._name}-{number:06d}"
        own = {"apps.kubernetes.io/pod-index": str(number), "statefulset.kubernetes.io/pod-name": name}
        labels = {**self._labels, **(own if self._stateful else {})}
        spec = PodSpec(
            node_name=place.metadata.name,
            scheduler_name="default-scheduler",
            containers=self._containers,
            priority=0,
            affinity=self._affinity,
            tolerations=self._tolerations,
            topology_spread_constraints=self._spreads,
        )
        metadata = meta(name, namespace=self._namespace, uid=f"uid-{name}", labels=labels, owners=self._owners)
        return Pod(metadata=metadata, spec=spec, status=self._status)


def _pods_of_nodes(nodes: tuple[Node, ...]) -> Iterator[Pod]:
    """Yield the pods that run on every node: of two DaemonSets, and one that the kubelet runs from a file."""
    status = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))
    small = (Container(name="app", image="pause", resources=ResourceRequirements(requests={"cpu": "10m"})),)
    for place in nodes:
        name = place.metadata.name
        for agent in ("log", "net"):
            field = LabelSelectorRequirement(key="metadata.name", operator="In", values=(name,))
            required = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))
            owner = OwnerReference(
                api_version="apps/v1", kind="DaemonSet", name=agent, uid=f"uid-{agent}", controller=True
            )
            yield Pod(
                metadata=meta(f"{agent}-{name}", namespace="kube-system", labels={"app": agent}, owners=(owner,)),
                spec=PodSpec(
                    node_name=name,
                    containers=small,
                    priority=2_000_001_000,
                    priority_class_name="system-node-critical",
                    tolerations=(Toleration(operator="Exists"),),
                    affinity=Affinity(
                        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
                    ),
                ),
                status=status,
            )
        mirror = OwnerReference(api_version="v1", kind="Node", name=name, uid=f"uid-{name}", controller=True)
        yield Pod(
            metadata=meta(
                f"proxy-{name}",
                namespace="kube-system",
                labels={"app": "proxy"},
                owners=(mirror,),
                annotations={"kubernetes.io/config.mirror": name},
            ),
            spec=PodSpec(
                node_name=name, containers=small, priority=2_000_001_000, tolerations=(Toleration(operator="Exists"),)
            ),
            status=status,
        )
