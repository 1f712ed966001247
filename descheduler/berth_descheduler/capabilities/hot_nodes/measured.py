"""The measured use of a cluster's nodes and pods at one moment, and sentences on what is not known of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Final

from berth_core import (
    CPU,
    PLACEHOLDER_LABEL,
    InputError,
    Node,
    Pod,
    ResourceAmounts,
    count,
    first_few,
    occupied_requests,
    read_timestamp,
)
from berth_core.object_lists import RawObject
from berth_descheduler.capabilities.hot_nodes.readings import (
    NODE_METRICS,
    POD_METRICS,
    Reading,
    Unusable,
    Use,
    exact_amount,
    name_of,
    read_node,
    read_pod,
)
from berth_descheduler.framework.interfaces import ClusterView

_BELIEVED: Final = 2
"""A reading above this many times a node's capacity does not count: kubelets report such now and then after a restart.
A node may use a little more than it has, for rates are measured over short windows."""

_NANOS_PER_MILLI: Final = 1_000_000
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The use of a node beside its allocatable amounts, and when it was measured."""

    use: Use
    allocatable: Use
    at: datetime | None

    def share(self, resource: str) -> Fraction:
        """Return the used part of a resource, 1 if none of it is allocatable."""
        # Use is of the whole node, with the kubelet and the system; allocatable is without what is reserved for them.
        # So a busy node may be above 1.
        return Fraction(self.use[resource], self.allocatable[resource]) if self.allocatable[resource] else Fraction(1)


@dataclass(frozen=True)
class MeasuredCluster:
    """The readings of one view of a cluster that count."""

    view: ClusterView
    resources: tuple[str, ...]
    """The resources that are looked at."""

    @cached_property
    def nodes(self) -> Mapping[str, NodeUse]:
        """Return the use of nodes by name; those without a reading that counts are absent."""
        return {name: known for name, known in self._judged_nodes.items() if isinstance(known, NodeUse)}

    @cached_property
    def pods(self) -> Mapping[tuple[str, str], Use]:
        """Return the use of pods by namespace and name; those without a reading that counts are absent."""
        return {key: known.use for key, known in self._judged_pods.items() if isinstance(known, Reading)}

    def use_of(self, pod: Pod) -> Use:
        """Return what a pod uses, or its requests if that is unknown; raises `InputError` for unreadable requests."""
        # A placeholder uses next to nothing: what will count there is the pod whose place it holds.
        use = self.pods.get((pod.metadata.namespace, pod.metadata.name))
        if use is not None and PLACEHOLDER_LABEL not in pod.metadata.labels:
            return use
        return _in_units(occupied_requests(pod), self.resources)

    def arriving(self, node: str, known: NodeUse) -> Iterator[Pod]:
        """Yield the pods on a node that came after its reading, and those that hold a place for others."""
        for pod in self.view.snapshot.pods_on(node):
            started = read_timestamp(pod.status.start_time)
            # The kubelet sets the time when it takes a pod on: one that it has not taken on yet uses nothing so far.
            is_new = pod.status.phase == "Pending" if started is None else known.at is not None and started >= known.at
            if is_new or PLACEHOLDER_LABEL in pod.metadata.labels:
                yield pod

    def unknown(self) -> Iterator[str]:
        """Yield in sentences what is not known."""
        if self.view.objects(NODE_METRICS) is None:
            yield "metrics.k8s.io is not served, does not answer or may not be listed, so no node is looked at"
            return
        if not self.nodes:
            yield f"no node is looked at, because metrics.k8s.io has {self._why_none}"
            return
        if self._unmeasured:
            yield f"no metrics of {_named('node', self._unmeasured)}, which {_are(self._unmeasured)} not looked at"
        for name, judged in self._judged_nodes.items():
            if isinstance(judged, Unusable):
                yield f"the metrics of node {name} are {judged.why}: it is not looked at"
        yield from self._unknown_of_pods()

    @property
    def _why_none(self) -> str:
        for name, judged in self._judged_nodes.items():
            if isinstance(judged, Unusable):
                return f"none that count: those of {name}, for example, are {judged.why}"
        return "no metrics of any"

    def _unknown_of_pods(self) -> Iterator[str]:
        if not self.view.objects(POD_METRICS):
            yield "metrics.k8s.io has no metrics of pods: they count with their requests"
            return
        unusable = [(key, judged.why) for key, judged in self._judged_pods.items() if isinstance(judged, Unusable)]
        if unusable:
            (namespace, name), why = unusable[0]
            few = _named("pod", [f"{namespace}/{name} ({why})"], more=len(unusable) - 1)
            yield f"the metrics of {few} do not count: requests count there"

    @cached_property
    def _unmeasured(self) -> list[str]:
        nodes = self.view.snapshot.nodes
        return [node.metadata.name for node in nodes if node.ready and node.metadata.name not in self._judged_nodes]

    @cached_property
    def _judged_nodes(self) -> Mapping[str, NodeUse | Unusable]:
        raw_by_name = {name_of(raw)[1]: raw for raw in self.view.objects(NODE_METRICS) or ()}
        known = ((node, raw_by_name.get(node.metadata.name)) for node in self.view.snapshot.nodes)
        return {node.metadata.name: self._judge_node(node, raw) for node, raw in known if raw is not None}

    def _judge_node(self, node: Node, raw: RawObject) -> NodeUse | Unusable:
        reading = read_node(raw, self.resources, self.view.read_at)
        if isinstance(reading, Unusable):
            return reading
        try:
            allocatable = {name: exact_amount(name, node.status.allocatable.get(name)) for name in self.resources}
            capacity = self._capacity_of(node)
        except InputError as error:
            return Unusable(f"of no help, because the node's allocatable amount is unreadable: {error}")
        # Against the capacity, not what is allocatable: system daemons use what is reserved for them.
        too_much = _more_than(reading.use, capacity)
        return Unusable(too_much) if too_much else NodeUse(reading.use, allocatable, reading.at)

    def _capacity_of(self, node: Node) -> Use:
        """Return a node's capacity, its allocatable amount where that is missing."""
        status = node.status
        return {
            name: exact_amount(name, status.capacity.get(name, status.allocatable.get(name))) for name in self.resources
        }

    @cached_property
    def _judged_pods(self) -> Mapping[tuple[str, str], Reading | Unusable]:
        raw_by_key = {name_of(raw): raw for raw in self.view.objects(POD_METRICS) or ()}
        judged: dict[tuple[str, str], Reading | Unusable] = {}
        for pod in self.view.snapshot.pods:
            key = (pod.metadata.namespace, pod.metadata.name)
            raw = raw_by_key.get(key)
            if raw is None or not pod.occupies_node:
                continue
            reading = read_pod(raw, self.resources, self.view.read_at)
            started = read_timestamp(pod.status.start_time)
            # Pods of a StatefulSet keep their names, and metrics-server has the old one's reading until its next
            # scrape.
            if isinstance(reading, Reading) and reading.at and started and reading.at <= started:
                continue  # of an earlier pod of this name
            judged[key] = self._believed(pod, reading)
        return judged

    def _believed(self, pod: Pod, reading: Reading | Unusable) -> Reading | Unusable:
        node = self.view.snapshot.nodes_by_name.get(pod.spec.node_name)
        if node is None or isinstance(reading, Unusable):
            return reading
        try:
            too_much = _more_than(reading.use, self._capacity_of(node))
        except InputError:
            return reading
        return Unusable(too_much) if too_much else reading


def _more_than(use: Use, capacity: Use) -> str:
    """Return which resource has a higher use than a node can have, "" for none."""
    excess = next((name for name, amount in use.items() if amount > _BELIEVED * capacity[name]), "")
    return f"implausible: more {excess} than {_BELIEVED} times what the node has" if excess else ""


def _in_units(requests: ResourceAmounts, resources: Sequence[str]) -> Use:
    return {name: requests.get(name) * (_NANOS_PER_MILLI if name == CPU else 1) for name in resources}


def _named(noun: str, names: Sequence[str], more: int = 0) -> str:
    total = len(names) + more
    if total == 1:
        return f"{noun} {names[0]}"
    return f"{count(total, noun)}, such as {first_few(names, _SHOWN) if not more else names[0]}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
