"""Why nodes refuse a pod: the reasons, counted, and the pod that is in the way."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property

from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation import ClassIndex, Domain, DomainCounts, NodeIndex, PodIndex, State

_BY_NEIGHBOURS = frozenset({RefusalReason.POD_ANTI_AFFINITY, RefusalReason.OTHERS_ANTI_AFFINITY})


class Blockers:
    """Finds blocking pods in a final state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._first: dict[int, dict[Domain, PodIndex]] = {}
        """Per counts, by its identity, the first counted pod of each domain."""

    def name(self, refusal: Refusal, pod: PodIndex, target: NodeIndex) -> Refusal:
        """Return a node's refusal with the pod that causes it, or unchanged if no such pod is found."""
        if refusal.reason in _BY_NEIGHBOURS:
            blocking = self._neighbour(pod, target)
        elif refusal.reason is RefusalReason.HOST_PORT:
            blocking = self._port_holder(pod, target)
        else:
            return refusal
        return refusal if blocking is None else replace(refusal, blocking_pod=self._key(blocking))

    def _key(self, pod: PodIndex) -> str:
        return self._state.cluster.pods[pod].pod.key

    def _class_of(self, pod: PodIndex) -> ClassIndex:
        return self._state.cluster.pods[pod].class_index

    def _neighbour(self, pod: PodIndex, target: NodeIndex) -> PodIndex | None:
        counts = self._state.pod_affinity.in_the_way(self._class_of(pod), target)
        domain = counts.domain(target) if counts is not None else None
        return None if counts is None or domain is None else self._first_in(counts).get(domain)

    def _first_in(self, counts: DomainCounts) -> dict[Domain, PodIndex]:
        if id(counts) not in self._first:
            first_pods = self._first[id(counts)] = {}
            counted_classes = self._state.pod_affinity.counted_in(counts)
            for index, node in enumerate(self._state.node_of):
                domain = counts.domain(node)
                if domain is not None and self._class_of(PodIndex(index)) in counted_classes:
                    first_pods.setdefault(domain, PodIndex(index))
        return self._first[id(counts)]

    def _port_holder(self, pod: PodIndex, target: NodeIndex) -> PodIndex | None:
        classes = self._state.cluster.classes
        wanted_ports = classes[self._class_of(pod)].host_ports
        for other_pod in self._with_ports.get(target, ()):
            if any(
                wanted_port.conflicts(taken_port)
                for wanted_port in wanted_ports
                for taken_port in classes[self._class_of(other_pod)].host_ports
            ):
                return other_pod
        return None

    @cached_property
    def _with_ports(self) -> dict[NodeIndex, list[PodIndex]]:
        """Return the pods with host ports by their current node."""
        pods_by_node: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        classes = self._state.cluster.classes
        for index, node in enumerate(self._state.node_of):
            if classes[self._class_of(PodIndex(index))].host_ports:
                pods_by_node[node].append(PodIndex(index))
        return pods_by_node


@dataclass(slots=True)
class NodeRefusalSummary:
    """The nodes that refuse a pod, counted by reason."""

    pod: PodIndex
    _nodes: dict[int, tuple[Refusal, list[NodeIndex]]] = field(default_factory=dict)
    """By the identity of the refusal, which most nodes share: millions are counted, and few are told."""

    def count(self, node: NodeIndex, refusal: Refusal) -> None:
        counted_nodes = self._nodes.get(id(refusal))
        if counted_nodes is None:
            self._nodes[id(refusal)] = refusal, [node]
        else:
            counted_nodes[1].append(node)

    def __bool__(self) -> bool:
        return bool(self._nodes)

    @property
    def _counts(self) -> Counter[Refusal]:
        counts: Counter[Refusal] = Counter()
        for refusal, nodes in self._nodes.values():
            counts[refusal] += len(nodes)
        return counts

    def in_words(self) -> str:
        """Return the reasons with their numbers, the most frequent first; "" if no node was counted."""
        texts: Counter[str] = Counter()
        for refusal, number in self._counts.items():
            texts[refusal.message] += number
        ordered = sorted(texts.items(), key=lambda text_and_number: (-text_and_number[1], text_and_number[0]))
        return "; ".join(f"{number} x {text}" for text, number in ordered)

    def summary(self, text: str, blockers: Blockers) -> Refusal:
        """Return one refusal for a pod that no node takes; its constraint is the most frequent reason."""
        if not self._nodes:
            return Refusal(RefusalReason.NO_TARGET, text)
        kinds: Counter[tuple[RefusalReason, str]] = Counter()
        for refusal, nodes in self._nodes.values():
            kinds[refusal.reason, refusal.resource] += len(nodes)
        usual = min(kinds, key=lambda kind: (-kinds[kind], kind))
        usual_refusals = [
            refusal_and_nodes
            for refusal_and_nodes in self._nodes.values()
            if (refusal_and_nodes[0].reason, refusal_and_nodes[0].resource) == usual
        ]
        example = min(refusal for refusal, _ in usual_refusals)
        first_node = next(
            nodes[0] for refusal, nodes in usual_refusals if refusal == example
        )  # in the order in which they came
        named_refusal = blockers.name(example, self.pod, first_node)
        return replace(named_refusal, reason=RefusalReason.NO_TARGET, message=text, constraint=example.reason)
