"""The lasting rules on where a class of pods may go.

They are node state, taints, node affinity and volumes; no plan changes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from berth_core import (
    DRAINING_TAINT,
    HANDOVER_TAINT,
    REVOCABLE_ZONE_LABEL,
    ROOM_TAINT,
    Affinity,
    Node,
    NodeAffinity,
    PodSpec,
    ResourceAmounts,
    matches_node_affinity,
    untolerated_taint,
)
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.settings import WHOLE, Thresholds
from berth_descheduler.planner.simulation.cluster import NEEDED_RESOURCES, Cluster, NodeIndex
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass
from berth_descheduler.planner.simulation.volumes import BoundVolume, VolumeIndex

_TAINTS_OF_PLANS: Final = frozenset({DRAINING_TAINT, ROOM_TAINT})


def node_refusal(cluster: Cluster, number: NodeIndex) -> Refusal | None:
    """Return why a node neither takes nor gives pods.

    It is not selected, cooling down, not ready, cordoned or being drained, or its data is missing or odd.
    """
    node = cluster.nodes[number]
    if node.metadata.unreadable:
        return Refusal(RefusalReason.NODE_DATA_ODD, f"the node cannot be read: {node.metadata.unreadable}")
    if number in cluster.left_out:
        return Refusal(RefusalReason.NODE_NOT_SELECTED, "the node selector does not select the node")
    if number in cluster.in_cooldown:
        return Refusal(RefusalReason.COOLING_DOWN, cluster.in_cooldown[number])
    closed = _closed_refusal(node)
    if closed is not None:
        return closed
    missing = [name for name in NEEDED_RESOURCES if name not in node.status.allocatable]
    if missing:
        text = f"the node does not say its allocatable {', '.join(missing)}"
        return Refusal(RefusalReason.NODE_DATA_MISSING, text, resource=min(missing))
    return _odd_refusal(cluster, number)


def target_refusal(cluster: Cluster, number: NodeIndex) -> Refusal | None:
    """Return why a node takes no pods, even if it gives some."""
    if (refusal := node_refusal(cluster, number)) is not None:
        return refusal
    if number in cluster.closed_to_plans:
        text = "it is a control-plane node, where no place is held (--control-plane-nodes)"
        return Refusal(RefusalReason.CONTROL_PLANE_NODE, text)
    if not cluster.lent.get(number, True):
        return Refusal(RefusalReason.LENT_NODE, f"{_lent_text(cluster.nodes[number])}, to which no pod is moved now")
    return None


def _lent_text(node: Node) -> str:
    zone = node.metadata.labels.get(REVOCABLE_ZONE_LABEL, "")
    return f"the node belongs to the revocable zone {zone}"


def _closed_refusal(node: Node) -> Refusal | None:
    """Return why a node takes no pods now, whatever is free there."""
    if not node.ready:
        return Refusal(RefusalReason.NODE_NOT_READY, "the node is not ready, or does not say whether it is")
    if node.spec.unschedulable:
        return Refusal(RefusalReason.NODE_UNSCHEDULABLE, "the node is cordoned")
    ours = next((taint.key for taint in node.taints if taint.key in _TAINTS_OF_PLANS), None)
    if ours is not None:
        return Refusal(RefusalReason.NODE_DRAINING, f"the node carries the taint {ours} of a running plan")
    return None


def _odd_refusal(cluster: Cluster, number: NodeIndex) -> Refusal | None:
    """Return what is unreadable of a node or its pods.

    It is then not known what is free there.
    """
    if number in cluster.unreadable:
        return Refusal(RefusalReason.NODE_DATA_ODD, cluster.unreadable[number])
    for pod in cluster.pods_on[number] if cluster.has_odd_pods else ():
        if odd := cluster.classes[cluster.pods[pod].class_index].odd:
            key = cluster.pods[pod].pod.key
            text = f"it is not known what pod {key} takes of the node: {odd}"
            return Refusal(RefusalReason.NODE_DATA_ODD, text, constraint=RefusalReason.POD_DATA_ODD, blocking_pod=key)
    together = ResourceAmounts(dict(zip(cluster.resources, cluster.taken[number], strict=True)))
    if excess := together.why_too_large():
        return Refusal(RefusalReason.NODE_DATA_ODD, f"what its pods ask for together is odd: {excess}")
    return None


@dataclass(frozen=True, slots=True)
class NodeTies:
    """What ties pods to nodes; classes with the same ties share it."""

    spec: PodSpec
    """Only the fields that are about nodes."""

    volumes: tuple[BoundVolume, ...]

    is_preemptable: bool = False
    """Whether lent nodes take the pods while they are open."""

    def refusal(self, node: Node) -> Refusal | None:
        """Return why the ties keep the pods off a node.

        The reason holds whatever else is on the node.
        """
        lasting = (taint for taint in node.taints if taint.key != HANDOVER_TAINT)  # our guards come and go
        taint = untolerated_taint(self.spec.tolerations, lasting)
        if taint is not None:
            text = f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
            return Refusal(RefusalReason.UNTOLERATED_TAINT, text)
        if not matches_node_affinity(self.spec, node):
            return Refusal(RefusalReason.NODE_AFFINITY, "the pod's node selector or node affinity excludes the node")
        return next((found for volume in self.volumes if (found := volume.refusal(node)) is not None), None)


class NodeFit:
    """Answers for (class, node) pairs, computed once per profile and node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_nodes = [target_refusal(cluster, NodeIndex(node)) for node in range(len(cluster.nodes))]
        volume_index = VolumeIndex(cluster.snapshot.persistent_volume_claims, cluster.snapshot.persistent_volumes)
        self._profiles: list[NodeTies] = []
        self._numbers: dict[bytes, int] = {}
        self._unknown: dict[ClassIndex, Refusal] = {}
        self._profile_of = [self._intern(one, volume_index) for one in cluster.classes]
        self._known: list[dict[NodeIndex, Refusal | None]] = [{} for _ in self._profiles]

    def of_node(self, node: NodeIndex) -> Refusal | None:
        """Return why a node takes nothing.

        A control-plane node may still give pods.
        """
        return self._of_nodes[node]

    def of_class(self, class_index: ClassIndex) -> Refusal | None:
        """Return why pods of a class go nowhere.

        The reason is what is not known of their volumes.
        """
        return self._unknown.get(class_index)

    def profile(self, class_index: ClassIndex) -> int:
        """Return the number of a class's ties.

        Classes with the same number may go to the same nodes.
        """
        return self._profile_of[class_index]

    def profile_spec(self, class_index: ClassIndex) -> PodSpec:
        """Return the fields of a class's spec that are about nodes."""
        return self._profiles[self._profile_of[class_index]].spec

    def refusal(self, class_index: ClassIndex, node: NodeIndex) -> Refusal | None:
        """Return why pods of a class do not go to a node.

        The reason holds whatever else is on the node.
        """
        if (of_node := self._of_nodes[node]) is not None:
            return of_node
        if (unknown := self._unknown.get(class_index)) is not None:
            return unknown
        number = self._profile_of[class_index]
        known = self._known[number]
        if node not in known:
            ties, found = self._profiles[number], self._cluster.nodes[node]
            if node in self._cluster.lent and not ties.is_preemptable:
                known[node] = Refusal(RefusalReason.LENT_NODE, f"{_lent_text(found)}, and the pod is not preemptable")
            else:
                known[node] = ties.refusal(found)
        return known[node]

    def _intern(self, pods: PodClass, volume_index: VolumeIndex) -> int:
        volumes = volume_index.volumes_of(pods)
        if isinstance(volumes, Refusal):
            self._unknown[pods.index] = volumes
            volumes = ()
        spec = node_part(pods.example.spec)
        key = msgspec.json.encode(
            (spec, pods.namespace if volumes else "", [one.claim for one in volumes], pods.is_preemptable),
            order="sorted",
        )
        if key not in self._numbers:
            self._numbers[key] = len(self._profiles)
            self._profiles.append(NodeTies(spec, volumes, pods.is_preemptable))
        return self._numbers[key]


def node_part(spec: PodSpec) -> PodSpec:
    """Return only the fields of a spec that are about nodes."""
    found = spec.affinity.node_affinity if spec.affinity else None
    required = found.required_during_scheduling_ignored_during_execution if found else None
    if required is None:
        return PodSpec(node_selector=spec.node_selector, tolerations=spec.tolerations)
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
    return PodSpec(node_selector=spec.node_selector, affinity=affinity, tolerations=spec.tolerations)


# --- protection ------------------------------------------------------------------------------------------------------
# What protection thresholds keep free on each node.


def protected_amounts(cluster: Cluster, protection: Thresholds) -> Mapping[int, tuple[int, ...]]:
    """Return each node's least free amount, per protected column."""
    known = [(cluster.column[name], limit) for name, limit in protection.percentages if name in cluster.column]
    return {column: tuple(_least_free(row[column], limit) for row in cluster.capacity) for column, limit in known}


def _least_free(capacity: int, limit: Fraction) -> int:
    share = capacity * limit / WHOLE
    return capacity - share.numerator // share.denominator
