"""The rules on where a class of pods may go that no plan changes: node state, taints, node affinity and volumes."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Final, TypeVar

import msgspec

from berth_core import (
    DRAINING_TAINT,
    HANDOVER_TAINT,
    REVOCABLE_ZONE_LABEL,
    ROOM_TAINT,
    Affinity,
    LabelSelectorRequirement,
    Node,
    NodeAffinity,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
    matches_node_affinity,
    untolerated_taint,
)
from berth_core.selectors import ending_taint, holds, is_valid, why_invalid_selectors
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation.cluster import NAME_FIELD, NEEDED_RESOURCES, Cluster, NodeIndex
from berth_descheduler.planner.simulation.platforms import PlatformTie, platform_of
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass
from berth_descheduler.planner.simulation.volumes import ZONE_LABELS, BoundVolume

_TAINTS_OF_PLANS: Final = frozenset({DRAINING_TAINT, ROOM_TAINT})
_FLAGS: Final = bytes.maketrans(b"01", b"\0\1")
_Key = TypeVar("_Key", bound=Hashable)


def node_refusal(cluster: Cluster, number: NodeIndex) -> Refusal | None:
    """Return why a node neither takes nor gives pods, None if it does."""
    node = cluster.nodes[number]
    if node.metadata.unreadable:
        return Refusal(RefusalReason.NODE_DATA_ODD, f"the node cannot be read: {node.metadata.unreadable}")
    if number in cluster.left_out:
        return Refusal(RefusalReason.NODE_NOT_SELECTED, "the node selector does not select the node")
    if number in cluster.held_back:
        return cluster.held_back[number]
    closed_refusal = _closed_refusal(node)
    if closed_refusal is not None:
        return closed_refusal
    missing = [name for name in NEEDED_RESOURCES if name not in node.status.allocatable]
    if missing:
        text = f"the node does not say its allocatable {', '.join(missing)}"
        return Refusal(RefusalReason.NODE_DATA_MISSING, text, resource=min(missing))
    return _odd_refusal(cluster, number)


def target_refusal(cluster: Cluster, number: NodeIndex) -> Refusal | None:
    """Return why a node takes no pods, even if it gives some."""
    if (refusal := node_refusal(cluster, number)) is not None:
        return refusal
    if number in cluster.no_targets:
        return Refusal(RefusalReason.NODE_DATA_ODD, cluster.no_targets[number])
    if number in cluster.closed_to_plans:
        text = "it is a control-plane node, where no place is held (--control-plane-nodes)"
        return Refusal(RefusalReason.CONTROL_PLANE_NODE, text)
    if not cluster.lent.get(number, True):
        return Refusal(RefusalReason.LENT_NODE, f"{lent_text(cluster.nodes[number])}, to which no pod is moved now")
    return cluster.shut.get(number)


def lent_text(node: Node) -> str:
    zone = node.metadata.labels.get(REVOCABLE_ZONE_LABEL, "")
    return f"the node belongs to the revocable zone {zone}"


def _closed_refusal(node: Node) -> Refusal | None:
    """Return why a node takes no pods now, whatever is free there."""
    # The scheduler knows both states as taints only (KEP-382), which come some seconds later and which a pod may
    # tolerate. A plan brings no pod to such a node.
    if not node.ready:
        return Refusal(RefusalReason.NODE_NOT_READY, "the node is not ready, or does not say whether it is")
    if node.spec.unschedulable:
        return Refusal(RefusalReason.NODE_UNSCHEDULABLE, "the node is cordoned")
    plan_taint = next((taint.key for taint in node.taints if taint.key in _TAINTS_OF_PLANS), None)
    if plan_taint is not None:
        return Refusal(RefusalReason.NODE_DRAINING, f"the node carries the taint {plan_taint} of a running plan")
    return None


def _odd_refusal(cluster: Cluster, number: NodeIndex) -> Refusal | None:
    """Return what is unreadable about a node or its pods, so that it is not known what is free there."""
    if number in cluster.unreadable:
        return Refusal(RefusalReason.NODE_DATA_ODD, cluster.unreadable[number])
    for pod in cluster.pods_on[number] if cluster.has_odd_pods else ():
        if why_unreadable := cluster.classes[cluster.pods[pod].class_index].odd:
            key = cluster.pods[pod].pod.key
            text = f"it is not known what pod {key} takes of the node: {why_unreadable}"
            return Refusal(RefusalReason.NODE_DATA_ODD, text, constraint=RefusalReason.POD_DATA_ODD, blocking_pod=key)
    if excess := cluster.resource_amounts(cluster.taken[number]).why_too_large():
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

    platforms: PlatformTie | None = None
    """Where the pods' images are known to run."""

    def refusal(self, node: Node) -> Refusal | None:
        """Return why the ties keep the pods off a node, whatever else is on the node."""
        taint = untolerated_taint(self.spec.tolerations, lasting_taints(node))
        if taint is not None:
            text = f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
            return Refusal(RefusalReason.UNTOLERATED_TAINT, text)
        # The pod would be scheduled there and evicted after its `tolerationSeconds` (KEP-166): such a move brings
        # nothing.
        ending = ending_taint(self.spec.tolerations, lasting_taints(node))
        if ending is not None:
            taint, seconds = ending
            text = f"taint {taint.key}={taint.value}:{taint.effect} is tolerated for {seconds} s only"
            return Refusal(RefusalReason.UNTOLERATED_TAINT, text)
        if not matches_node_affinity(self.spec, node):
            return Refusal(RefusalReason.NODE_AFFINITY, "the pod's node selector or node affinity excludes the node")
        if self.platforms is not None and (platform_refusal := self.platforms.refusal(node)) is not None:
            return platform_refusal
        return next(
            (volume_refusal for volume in self.volumes if (volume_refusal := volume.refusal(node)) is not None), None
        )


def lasting_taints(node: Node) -> tuple[Taint, ...]:
    """Return a node's taints without those of hand-overs, which come and go."""
    return tuple(taint for taint in node.taints if taint.key != HANDOVER_TAINT)


class NodeSets:
    """The nodes that satisfy a rule, as the bits of an integer.

    A rule is evaluated once for each value of the label that it is about, or for each set of taints, not for each node.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.every = (1 << len(nodes)) - 1
        self._by_label: dict[str, dict[str | None, int]] = {}
        self._known: dict[Hashable, int] = {}

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for node in self._nodes for key in node.metadata.labels)

    @cached_property
    def _names(self) -> dict[str, int]:
        return self._grouped(lambda node: node.metadata.name)

    @cached_property
    def _taints(self) -> dict[tuple[Taint, ...], int]:
        return self._grouped(lasting_taints)

    @cached_property
    def _zones(self) -> dict[tuple[str | None, ...], int]:
        return self._grouped(lambda node: tuple(node.metadata.labels.get(key) for key in ZONE_LABELS))

    def selected_by(self, spec: PodSpec) -> int:
        """Return the nodes for which `matches_node_affinity` holds."""
        selected = self.every
        for key, value in spec.node_selector.items():
            selected &= self._values(key).get(value, 0)
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        return selected if required is None else selected & self.of_terms(required.node_selector_terms)

    def tolerated_by(self, tolerations: tuple[Toleration, ...]) -> int:
        """Return the nodes without a lasting taint that is not tolerated."""
        if tolerations not in self._known:
            groups = self._taints.items()
            self._known[tolerations] = _union(
                nodes_with_taints for taints, nodes_with_taints in groups if not untolerated_taint(tolerations, taints)
            )
        return self._known[tolerations]

    def kept_on(self, tolerations: tuple[Toleration, ...]) -> int:
        """Return the nodes without a lasting taint that is tolerated for some seconds only."""
        key = ("kept", tolerations)
        if key not in self._known:
            groups = self._taints.items()
            self._known[key] = _union(
                nodes_with_taints for taints, nodes_with_taints in groups if not ending_taint(tolerations, taints)
            )
        return self._known[key]

    def running(self, tie: PlatformTie) -> int:
        """Return the nodes of the platforms on which pods are known to run."""
        if tie not in self._known:
            groups = self._grouped(platform_of).values()
            self._known[tie] = _union(alike_nodes for alike_nodes in groups if tie.allows(self._first(alike_nodes)))
        return self._known[tie]

    def reaching(self, volume: BoundVolume) -> int:
        """Return the nodes that can reach a volume."""
        zoned, key = replace(volume, nodes=None), ("zones", volume.zones)
        if key not in self._known:
            groups = self._zones.values()
            self._known[key] = _union(
                nodes_of_zone for nodes_of_zone in groups if zoned.refusal(self._first(nodes_of_zone)) is None
            )
        reachable = self._known[key]
        return reachable if volume.nodes is None else reachable & self.of_terms(volume.nodes.node_selector_terms)

    def of_terms(self, terms: Iterable[NodeSelectorTerm]) -> int:
        """Return the nodes for which `matches_any_term` holds."""
        return _union(map(self._of_term, terms))

    def _of_term(self, term: NodeSelectorTerm) -> int:
        # A null or empty term selects no node (`isEmptyNodeSelectorTerm` in
        # component-helpers/scheduling/corev1/nodeaffinity).
        if not term.match_expressions and not term.match_fields:
            return 0
        selected = self.every
        for requirement in term.match_expressions:
            selected &= self._satisfying(requirement)
        for requirement in term.match_fields:
            selected &= self._named(requirement)
        return selected

    def _satisfying(self, requirement: LabelSelectorRequirement) -> int:
        if requirement not in self._known:
            values = self._values(requirement.key)
            match requirement.operator:
                case _ if not is_valid(requirement):
                    satisfying = 0
                case "In":
                    satisfying = _union(values.get(label_value, 0) for label_value in requirement.values)
                case "NotIn":
                    satisfying = self.every & ~_union(values.get(label_value, 0) for label_value in requirement.values)
                case _:
                    labelled = (
                        (nodes_with_value, {} if label_value is None else {requirement.key: label_value})
                        for label_value, nodes_with_value in values.items()
                    )
                    satisfying = _union(
                        nodes_with_value for nodes_with_value, labels in labelled if holds(requirement, labels)
                    )
            self._known[requirement] = satisfying
        return self._known[requirement]

    def _named(self, requirement: LabelSelectorRequirement) -> int:
        """Return the nodes that satisfy a field expression; the API allows `metadata.name` with one value only."""
        if requirement.key != NAME_FIELD or len(requirement.values) != 1:
            return 0
        named_node = self._names.get(requirement.values[0], 0)
        return {"In": named_node, "NotIn": self.every & ~named_node}.get(requirement.operator, 0)

    def _values(self, key: str) -> dict[str | None, int]:
        """Return the nodes by their value of a label, under None those without it."""
        if key not in self._keys:  # pods name as many keys as they like, and nodes have few
            return {None: self.every}
        if key not in self._by_label:
            self._by_label[key] = self._grouped(lambda node: node.metadata.labels.get(key))
        return self._by_label[key]

    def _grouped(self, key: Callable[[Node], _Key]) -> dict[_Key, int]:
        members: defaultdict[_Key, list[int]] = defaultdict(list)
        for index, node in enumerate(self._nodes):
            members[key(node)].append(index)
        return {group_key: bits_of(indices, len(self._nodes)) for group_key, indices in members.items()}

    def _first(self, node_bits: int) -> Node:
        return self._nodes[(node_bits & -node_bits).bit_length() - 1]  # the lowest bit that is set


def bits_of(indices: Iterable[int], count: int) -> int:
    """Return a number with the bits of some indices below a count."""
    # Integers are immutable: to set the bits in one of them would copy all of it for each bit.
    row = bytearray((count + 7) // 8)
    for index in indices:
        row[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(row, "little")


def flags_of(bits: int, count: int) -> bytes:
    """Return a byte per index, 1 where the bit is set."""
    return f"{bits:0{count}b}"[::-1].encode().translate(_FLAGS) if count else b""


def _union(node_sets: Iterable[int]) -> int:
    return reduce(int.__or__, node_sets, 0)


class NodeFit:
    """Answers for (class, node) pairs, computed once per profile."""

    def __init__(self, cluster: Cluster) -> None:
        self.sets = NodeSets(cluster.nodes)
        self._cluster = cluster
        self._of_nodes: dict[NodeIndex, Refusal | None] = {}
        self._profiles: list[NodeTies] = []
        self._numbers: dict[bytes, int] = {}
        self._unknown: dict[ClassIndex, Refusal] = {}
        self._profile_of: dict[ClassIndex, int] = {}
        self._flags: dict[int, bytes] = {}
        self._known: dict[tuple[int, NodeIndex], Refusal | None] = {}
        self._lent = bits_of(cluster.lent, len(cluster.nodes))

    def of_node(self, node: NodeIndex) -> Refusal | None:
        """Return why a node takes nothing; a control-plane node may still give pods."""
        if node not in self._of_nodes:
            self._of_nodes[node] = target_refusal(self._cluster, node)
        return self._of_nodes[node]

    def of_class(self, class_index: ClassIndex) -> Refusal | None:
        """Return why pods of a class go nowhere: unknown volumes, an unreadable selector or a crowded namespace."""
        self.profile(class_index)
        return self._unknown.get(class_index)

    def profile(self, class_index: ClassIndex) -> int:
        """Return the number of a class's ties; classes with the same number may go to the same nodes."""
        number = self._profile_of.get(class_index)
        if number is None:
            number = self._profile_of[class_index] = self._intern(self._cluster.classes[class_index])
        return number

    def profile_spec(self, class_index: ClassIndex) -> PodSpec:
        """Return the fields of a class's spec that are about nodes."""
        return self._profiles[self.profile(class_index)].spec

    def open_to(self, number: int) -> bytes:
        """Return per node 1 if a profile's ties allow it, else 0, whatever the node itself refuses to all pods."""
        if number not in self._flags:
            ties, sets = self._profiles[number], self.sets
            allowed_nodes = sets.selected_by(ties.spec) & sets.tolerated_by(ties.spec.tolerations)
            allowed_nodes &= sets.kept_on(ties.spec.tolerations)
            if ties.platforms is not None:
                allowed_nodes &= sets.running(ties.platforms)
            for volume in ties.volumes:
                allowed_nodes &= sets.reaching(volume)
            self._flags[number] = flags_of(
                allowed_nodes if ties.is_preemptable else allowed_nodes & ~self._lent, len(self._cluster.nodes)
            )
        return self._flags[number]

    def refusal(self, class_index: ClassIndex, node: NodeIndex) -> Refusal | None:
        """Return why pods of a class do not go to a node, whatever else is on the node."""
        if (of_node := self.of_node(node)) is not None:
            return of_node
        number = self.profile(class_index)
        if (class_refusal := self._unknown.get(class_index)) is not None:
            return class_refusal
        if self.open_to(number)[node]:
            return None
        if (number, node) not in self._known:
            ties, target_node = self._profiles[number], self._cluster.nodes[node]
            if node in self._cluster.lent and not ties.is_preemptable:
                text = f"{lent_text(target_node)}, and the pod is not preemptable"
                self._known[number, node] = Refusal(RefusalReason.LENT_NODE, text)
            else:
                self._known[number, node] = ties.refusal(target_node)
        return self._known[number, node]

    def _intern(self, pods: PodClass) -> int:
        volumes = self._cluster.volume_index.volumes_of(pods)
        if isinstance(volumes, Refusal):
            self._unknown[pods.index] = volumes
            volumes = ()
        if why_invalid := why_invalid_selectors(pods.example.spec):
            self._unknown[pods.index] = Refusal(RefusalReason.POD_DATA_ODD, why_invalid)
        if (crowded := self._cluster.crowded.get(pods.namespace)) is not None:
            self._unknown[pods.index] = crowded
        spec = node_part(pods.example.spec)
        tie = pods.platforms
        platforms = (tie.platforms, sorted(tie.selected)) if tie is not None else None
        claims = [volume.claim for volume in volumes]
        key = msgspec.json.encode(
            (spec, pods.namespace if volumes else "", claims, pods.is_preemptable, platforms), order="sorted"
        )
        if key not in self._numbers:
            self._numbers[key] = len(self._profiles)
            self._profiles.append(NodeTies(spec, volumes, pods.is_preemptable, tie))
        return self._numbers[key]


def node_part(spec: PodSpec) -> PodSpec:
    """Return only the fields of a spec that are about nodes."""
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    if required is None:
        return PodSpec(node_selector=spec.node_selector, tolerations=spec.tolerations)
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
    return PodSpec(node_selector=spec.node_selector, affinity=affinity, tolerations=spec.tolerations)
