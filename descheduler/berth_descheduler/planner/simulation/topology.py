"""The spread constraints that keep pods off a node (`DoNotSchedule`).

The replacement is scheduled after the old pod's deletion has begun, and kube-scheduler does not count pods that are
being deleted, so the moved pod is never counted at its source. While a plan runs, its source nodes carry a taint of
ours. For a constraint that leaves tainted nodes out, a node that may become a source is therefore neither surely in
nor out: its pods count where they are in the way and not where they would help.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core import LabelSelector, TopologySpreadConstraint, matches_labels
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PlacedPod, PodPresence
from berth_descheduler.planner.simulation.domain_counts import Domain, DomainCounts, Weight
from berth_descheduler.planner.simulation.node_fit import NodeFit, flags_of
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass
from berth_descheduler.planner.simulation.pod_terms import LabelIndex, is_everything, with_label_keys


class ClassLinks:
    """The pairs of classes of which one asks for pods and the other is asked for, so that its place matters.

    The classes behind a key are looked up once, however many classes ask for it.
    """

    def __init__(self) -> None:
        self._asking: defaultdict[bytes, list[ClassIndex]] = defaultdict(list)
        self._asked_for: dict[bytes, Sequence[ClassIndex]] = {}

    def add(self, key: bytes, index: ClassIndex, find: Callable[[], Sequence[ClassIndex]]) -> None:
        """Add a class that asks for the pods of a key."""
        self._asking[key].append(index)
        if key not in self._asked_for:
            self._asked_for[key] = find()

    def selected(self, key: bytes) -> Sequence[ClassIndex]:
        """Return the classes of which some are asked for under a key."""
        return self._asked_for[key]

    def among(self, classes: Collection[ClassIndex]) -> Iterator[tuple[ClassIndex, ClassIndex]]:
        """Yield pairs that connect what the links among some classes connect."""
        for key, asking in self._asking.items():
            asking_classes = [index for index in asking if index in classes]
            asked_classes = [index for index in self._asked_for[key] if index in classes] if asking_classes else []
            if asked_classes:
                yield from ((index, asked_classes[0]) for index in asking_classes)
                yield from ((asking_classes[0], index) for index in asked_classes)


_HONOR: Final = "Honor"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One constraint of one class; `sure` leaves out nodes that may be tainted, `possible` does not."""

    constraint: TopologySpreadConstraint
    sure: DomainCounts
    possible: DomainCounts
    sure_domains: int
    """Number of domains that remain even if every node that may be tainted is."""

    counts_itself: int
    """1 if the selector selects the pod itself, else 0."""

    counted: int
    """1 if the counts include the pod itself, which they do not for a selector that selects everything."""

    counts_own_class_only: bool
    """Whether pods of the class are counted, and no others."""


@dataclass(frozen=True, slots=True)
class OwnSpread:
    """The pods of a class by domain, where no other class counts and `maxSkew` is 1."""

    domain_of: Sequence[Domain | None]  # (nodes,)
    counts: Mapping[Domain, int]


class _Domains:
    """The domain of each node for some constraints: `all` nodes, or those that are `sure` to have no taint of ours."""

    def __init__(self, number: int, every: list[str | None], sure: list[str | None]) -> None:
        self.number = number
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
        self._known_domains: dict[tuple[str, frozenset[str], bool, int], _Domains] = {}
        self._counted: defaultdict[ClassIndex, list[DomainCounts]] = defaultdict(list)
        self._shared: dict[tuple[int, tuple[ClassIndex, ...]], tuple[DomainCounts, DomainCounts]] = {}
        """By the domains and the classes that are counted, whatever selector selects these."""
        self.links = ClassLinks()
        crowded = cluster.crowded  # their pods go nowhere, and spreads are about pods of their own namespace
        self._rules = {
            pods.index: self._read_class(pods)
            for pods in cluster.classes
            if pods.hard_spreads and pods.namespace not in crowded
        }
        for placed_pod in cluster.pods if self._counted else ():
            self._count(placed_pod)

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

    def own_spreads(self, class_index: ClassIndex) -> Iterator[OwnSpread]:
        """Yield the spreads of a class with `maxSkew: 1` in which no pods of other classes count."""
        for rule in self._rules.get(class_index, ()):
            counts = {domain: rule.possible.possible(domain) for domain in rule.possible.domains}
            is_sure = rule.sure is rule.possible and all(rule.sure.sure(domain) == counts[domain] for domain in counts)
            if counts and is_sure and rule.counts_own_class_only and rule.constraint.max_skew == 1:
                yield OwnSpread(rule.possible.domain_of, counts)

    def move(self, class_index: ClassIndex, source: NodeIndex, target: NodeIndex) -> None:
        """Move a settled pod's count from its source to its target."""
        for counts in self._counted.get(class_index, ()):
            counts.add(source, Weight(1, 1), -1)
            counts.add(target, Weight(1, 1))

    def _count(self, placed: PlacedPod) -> None:
        # kube-scheduler passes over pods with a deletion timestamp (`countPodsMatchSelector` in
        # podtopologyspread/common.go).
        if placed.presence is PodPresence.LEAVING:
            return
        weight = Weight(1, 1) if placed.presence is PodPresence.SETTLED else Weight(0, 1)
        for counts in self._counted.get(placed.class_index, ()):
            counts.add(placed.node, weight)

    def _read_class(self, pods: PodClass) -> tuple[_Rule, ...]:
        return tuple(self._read_constraint(pods, constraint) for constraint in pods.hard_spreads)

    def _read_constraint(self, pods: PodClass, written: TopologySpreadConstraint) -> _Rule:
        # With `pod-template-hash` among the keys, the pods of each revision are spread on their own (KEP-3243).
        selector = with_label_keys(written.label_selector, written.match_label_keys, pods.labels, "In")
        domains = self._domains(pods, written)
        selection = msgspec.json.encode((selector, pods.namespace), order="sorted")
        self.links.add(selection, pods.index, lambda: self._selected(pods.namespace, selector))
        key = domains.number, tuple(self.links.selected(selection))
        if key not in self._shared:
            self._shared[key] = self._make_counts(domains, key[1])
        sure_counts, possible_counts = self._shared[key]
        itself = 1 if matches_labels(selector, pods.labels) else 0
        counts_own = itself if selector is not None and not is_everything(selector) else 0
        is_alone = bool(counts_own) and key[1] == (pods.index,)
        return _Rule(written, sure_counts, possible_counts, domains.sure_count, itself, counts_own, is_alone)

    def _make_counts(self, domains: _Domains, selected: Iterable[ClassIndex]) -> tuple[DomainCounts, DomainCounts]:
        possible_counts = DomainCounts(domains.all, domains.count)
        sure_counts = possible_counts if domains.sure is domains.all else DomainCounts(domains.sure, domains.count)
        # Where no node may be tainted both are one object, in which each pod must count once.
        counts_of_class = (possible_counts,) if sure_counts is possible_counts else (sure_counts, possible_counts)
        for other_class in selected:
            self._counted[other_class].extend(counts_of_class)
        return sure_counts, possible_counts

    def _domains(self, pods: PodClass, written: TopologySpreadConstraint) -> _Domains:
        """Return the domain of each node for a constraint; all classes for which the same nodes count share it.

        A node that lacks one of the keys has no domain.
        """
        # A node without the key of any hard constraint of the pod counts for none of them
        # (`nodeLabelsMatchSpreadConstraints` in podtopologyspread/common.go).
        keys = frozenset(hard_spread.topology_key for hard_spread in pods.hard_spreads)
        honors_taints = written.node_taints_policy == _HONOR
        spec, sets = self._node_fit.profile_spec(pods.index), self._node_fit.sets
        # Where the constraint does not say otherwise, nodes that the pod's node affinity excludes are not counted, and
        # tainted ones are (KEP-3094).
        counting = sets.every if written.node_affinity_policy == "Ignore" else sets.selected_by(spec)
        if honors_taints:
            counting &= sets.tolerated_by(spec.tolerations)
        domains_key = (written.topology_key, keys, honors_taints, counting)
        if domains_key not in self._known_domains:
            nodes = zip(flags_of(counting, len(self._cluster.nodes)), self._cluster.nodes, strict=True)
            labels = (node.metadata.labels if counts else {} for counts, node in nodes)
            domain_of_node = [
                node_labels[written.topology_key] if keys <= node_labels.keys() else None for node_labels in labels
            ]
            tainted = self._maybe_tainted if honors_taints else frozenset()
            sure_domains = domain_of_node
            if tainted:
                sure_domains = [None if node in tainted else domain for node, domain in enumerate(domain_of_node)]
            self._known_domains[domains_key] = _Domains(len(self._known_domains), domain_of_node, sure_domains)
        return self._known_domains[domains_key]

    def _selected(self, namespace: str, selector: LabelSelector | None) -> Sequence[ClassIndex]:
        """Return the classes that are counted, none for a selector that selects everything, as in kube-scheduler."""
        if selector is None or is_everything(selector):
            return []
        classes = (self._cluster.classes[other_class] for other_class in self._index.candidates(selector))
        in_namespace = (pod_class for pod_class in classes if pod_class.namespace == namespace)
        return [pod_class.index for pod_class in in_namespace if matches_labels(selector, pod_class.labels)]


def _skew(rule: _Rule, source: NodeIndex, domain: str) -> int:
    """Return how far a domain would be above the lowest one, with the pod in it and not at its source.

    kube-scheduler's plugin PodTopologySpread reckons it as matchNum + selfMatchNum - minMatchNum, where minMatchNum is
    zero with fewer domains than minDomains.
    """
    at_source = rule.counted if rule.possible.domain(source) == domain else 0
    pods_in_domain = rule.possible.possible(domain) - at_source + rule.counts_itself
    # With fewer domains than `minDomains` the lowest count is taken to be 0 (KEP-3022).
    if rule.sure_domains < (rule.constraint.min_domains or 1):
        return pods_in_domain
    domain_left = rule.sure.domain(source)
    return pods_in_domain - max(
        0, rule.sure.lowest_without(domain_left, rule.counted if domain_left is not None else 0)
    )
