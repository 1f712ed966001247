"""The topology spread constraints that keep pods off a node (`DoNotSchedule`).

The replacement is scheduled after the old pod's deletion has begun, and kube-scheduler does not count pods that are
being deleted, so the moved pod is never counted at its source. While a plan runs, its source nodes carry a taint of
ours. For a constraint that leaves tainted nodes out, a node that may become a source is therefore neither surely in nor
out: its pods count where they are in the way and not where they would help.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core import (
    HANDOVER_TAINT,
    LabelSelector,
    Node,
    TopologySpreadConstraint,
    matches_labels,
    matches_node_affinity,
    untolerated_taint,
)
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PlacedPod, PodPresence
from berth_descheduler.planner.simulation.node_fit import NodeFit
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass
from berth_descheduler.planner.simulation.topology_counts import (
    DomainCounts,
    LabelIndex,
    Weight,
    is_everything,
    with_label_keys,
)

_HONOR: Final = "Honor"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One constraint of one class.

    `sure` leaves out nodes that may be tainted, `possible` does not.
    """

    constraint: TopologySpreadConstraint
    sure: DomainCounts
    possible: DomainCounts
    sure_domains: int
    """Number of domains that are there even if every node that may be tainted is."""

    counts_itself: int
    """1 if the selector selects the pod itself, else 0."""

    counted: int
    """1 if the pod itself is in the domain_counts, which it is not for a selector that selects everything."""


class _Domains:
    """Where each node counts for some constraints.

    `all` is for all nodes, `sure` for those that surely carry no taint of ours.
    """

    def __init__(self, every: list[str | None], sure: list[str | None]) -> None:
        self.all = every
        self.sure = sure
        self.count = len(set(every) - {None})
        self.sure_count = len(set(sure) - {None})


class PodTopologySpread:
    """Counts pods for spread constraints and says where pods may go."""

    def __init__(self, cluster: Cluster, node_fit: NodeFit, maybe_tainted: Collection[NodeIndex]) -> None:
        self._cluster = cluster
        self._node_fit = node_fit
        self._index = LabelIndex(cluster.classes)
        self._maybe_tainted = frozenset(maybe_tainted)
        self._known_domains: dict[tuple[str, frozenset[str], str, bool, int], _Domains] = {}
        self._counted: defaultdict[ClassIndex, list[DomainCounts]] = defaultdict(list)
        self._shared: dict[bytes, tuple[DomainCounts, DomainCounts, int]] = {}
        self._links: set[tuple[ClassIndex, ClassIndex]] = set()
        self._rules = {pods.index: self._read_class(pods) for pods in cluster.classes if pods.hard_spreads}
        for placed in cluster.pods if self._counted else ():
            self._count(placed)

    @property
    def links(self) -> frozenset[tuple[ClassIndex, ClassIndex]]:
        """Return the pairs of classes where one's place constrains the other's."""
        return frozenset(self._links)

    def is_constrained(self, class_index: ClassIndex) -> bool:
        """Return whether the spread of others restricts where a class goes."""
        return class_index in self._rules

    def is_counted(self, class_index: ClassIndex) -> bool:
        """Return whether where pods of a class are decides about others."""
        return bool(self._counted.get(class_index))

    def refusal(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> Refusal | None:
        """Return why spread constraints forbid a move from source to target."""
        for rule in self._rules.get(class_index, ()):
            domain = rule.possible.domain(target)
            if domain is None:
                text = f"the node does not count for the spread over {rule.constraint.topology_key}"
                return Refusal(RefusalReason.TOPOLOGY_SPREAD, text)
            skew = _skew(rule, source, domain)
            if skew > rule.constraint.max_skew:
                text = f"{rule.constraint.topology_key}={domain} would be {skew} above the lowest, at most "
                return Refusal(RefusalReason.TOPOLOGY_SPREAD, f"{text}{rule.constraint.max_skew} is allowed")
        return None

    def move(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> None:
        """Move a settled pod's count from its source to its target."""
        for counts in self._counted.get(class_index, ()):
            counts.add(source, Weight(1, 1), -1)
            counts.add(target, Weight(1, 1))

    def _count(self, placed: PlacedPod) -> None:
        if placed.presence is PodPresence.LEAVING:
            return
        weight = Weight(1, 1) if placed.presence is PodPresence.SETTLED else Weight(0, 1)
        for counts in self._counted.get(placed.class_index, ()):
            counts.add(placed.node, weight)

    def _read_class(self, pods: PodClass) -> tuple[_Rule, ...]:
        return tuple(self._read_constraint(pods, constraint) for constraint in pods.hard_spreads)

    def _read_constraint(self, pods: PodClass, written: TopologySpreadConstraint) -> _Rule:
        selector = with_label_keys(written.label_selector, written.match_label_keys, pods.labels, "In")
        parts = (written.topology_key, sorted(one.topology_key for one in pods.hard_spreads), selector, pods.namespace)
        policies = (written.node_affinity_policy, written.node_taints_policy)
        ties = self._node_fit.profile(pods.index)
        key = msgspec.json.encode((parts, policies, ties), order="sorted")
        if key not in self._shared:
            self._shared[key] = self._make_counts(pods, written, selector)
        sure, possible, domains = self._shared[key]
        self._links.update((pods.index, other) for other in self._selected(pods.namespace, selector))
        itself = 1 if matches_labels(selector, pods.labels) else 0
        counted = itself if selector is not None and not is_everything(selector) else 0
        return _Rule(written, sure, possible, domains, itself, counted)

    def _make_counts(
        self, pods: PodClass, written: TopologySpreadConstraint, selector: LabelSelector | None
    ) -> tuple[DomainCounts, DomainCounts, int]:
        domains = self._domains(pods, written)
        sure, possible = DomainCounts(domains.sure, domains.count), DomainCounts(domains.all, domains.count)
        for other in self._selected(pods.namespace, selector):
            self._counted[other].extend((sure, possible))
        return sure, possible, domains.sure_count

    def _domains(self, pods: PodClass, written: TopologySpreadConstraint) -> _Domains:
        """Return where each node counts for a constraint.

        All classes that are tied to nodes in one way share it.
        """
        keys = frozenset(one.topology_key for one in pods.hard_spreads)
        honors_taints = written.node_taints_policy == _HONOR
        ties = self._node_fit.profile(pods.index)
        known = (written.topology_key, keys, written.node_affinity_policy, honors_taints, ties)
        if known not in self._known_domains:
            every = [self._domain(pods, written, keys, node) for node in self._cluster.nodes]
            tainted = self._maybe_tainted if honors_taints else frozenset()
            sure = [None if node in tainted else domain for node, domain in enumerate(every)]
            self._known_domains[known] = _Domains(every, sure)
        return self._known_domains[known]

    def _selected(self, namespace: str, selector: LabelSelector | None) -> list[ClassIndex]:
        """Return the classes that are counted.

        kube-scheduler counts none for a selector that selects everything.
        """
        if selector is None or is_everything(selector):
            return []
        classes = (self._cluster.classes[other] for other in self._index.candidates(selector))
        alike = (other for other in classes if other.namespace == namespace)
        return [other.index for other in alike if matches_labels(selector, other.labels)]

    def _domain(
        self, pods: PodClass, written: TopologySpreadConstraint, keys: frozenset[str], node: Node
    ) -> str | None:
        """Return the domain in which a node counts for a constraint.

        Returns None if it does not count.
        """
        labels = node.metadata.labels
        spec = self._node_fit.profile_spec(pods.index)
        if not keys <= labels.keys():
            return None
        if written.node_affinity_policy != "Ignore" and not matches_node_affinity(spec, node):
            return None
        if written.node_taints_policy == _HONOR:
            lasting = (taint for taint in node.taints if taint.key != HANDOVER_TAINT)
            if untolerated_taint(spec.tolerations, lasting) is not None:
                return None
        return labels[written.topology_key]


def _skew(rule: _Rule, source: NodeIndex, domain: str) -> int:
    """Return how far a domain would be above the lowest one.

    The pod counts in the domain and not at its source.
    """
    at_source = rule.counted if rule.possible.domain(source) == domain else 0
    there = rule.possible.possible(domain) - at_source + rule.counts_itself
    if rule.sure_domains < (rule.constraint.min_domains or 1):
        return there
    left = rule.sure.domain(source)
    return there - max(0, rule.sure.lowest_without(left, rule.counted if left is not None else 0))
