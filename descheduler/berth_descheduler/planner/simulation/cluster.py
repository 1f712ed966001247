"""The planner's snapshot: sorted, numbered, amounts as columns, pods in classes.

Data that cannot be read is reported here, not repaired.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import Final, NewType

from berth_core import (
    CPU,
    MEMORY,
    PLACEHOLDER_LABEL,
    PODS,
    REVOCABLE_ZONE_LABEL,
    STANDING_FENCE_LABEL,
    InputError,
    LabelSelector,
    LentFence,
    Node,
    NodeSelector,
    ObjectMeta,
    Pod,
    ResourceAmounts,
    Snapshot,
    is_lent_fence,
    is_preemptable,
    matches_labels,
    preemptable_groups,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.framework.rules import MOST_OF_BUDGET, Budget
from berth_descheduler.planner.simulation.attachments import attach_columns
from berth_descheduler.planner.simulation.crowded_namespaces import find_crowded_namespaces
from berth_descheduler.planner.simulation.kept_values import KeptValues
from berth_descheduler.planner.simulation.pending_slots import reserved_slots
from berth_descheduler.planner.simulation.platforms import Platforms
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass, PodClasses, PodKey, PodKeys
from berth_descheduler.planner.simulation.volumes import VolumeIndex
from berth_descheduler.planner.unreadable_objects import UnreadableObjects

NodeIndex = NewType("NodeIndex", int)
PodIndex = NewType("PodIndex", int)

NAME_FIELD: Final = "metadata.name"
NEEDED_RESOURCES: Final = (CPU, MEMORY, PODS)
"""A node that does not report these in its allocatable neither gives nor takes pods."""

_MAX_KEYS_PER_POD: Final = 4
_FREE_KEYS: Final = 1_000
"""Beyond so many keys, and so many for each pod, those of pods that are gone are forgotten."""

_WAITING_NODE: Final = Node(metadata=ObjectMeta(name="(waiting)"))
"""Not ready and without labels: nothing can be put there, and it is in no topology."""


class PodPresence(Enum):
    """How certain a pod's presence on its node is during a plan."""

    SETTLED = auto()
    LEAVING = auto()
    """Its deletion has begun: it may be there or gone."""
    EXPECTED = auto()
    """Not bound, but nominated to the node or pinned to it: it may come."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod that holds, or is about to hold, node capacity."""

    pod: Pod
    node: NodeIndex
    class_index: ClassIndex
    presence: PodPresence

    @property
    def occupies_node(self) -> bool:
        """Return whether it keeps its node from being empty."""
        return self.presence is not PodPresence.EXPECTED and self.pod.occupies_node


@dataclass(frozen=True)
class Cluster:
    """A snapshot in numbers, with nodes and pods in the snapshot's order, which is fixed."""

    snapshot: Snapshot
    nodes: tuple[Node, ...]
    pods: tuple[PlacedPod, ...]
    classes: tuple[PodClass, ...]
    resources: tuple[str, ...]
    """Names of the first columns; pod slots and what can be attached are among them."""

    capacity: tuple[tuple[int, ...], ...]  # (nodes, columns)
    """What each node has allocatable, and what it has of each budget."""

    requests: tuple[tuple[int, ...], ...]  # (classes, columns)
    """What a pod of each class takes, one pod slot among it."""

    pods_on: tuple[tuple[PodIndex, ...], ...]  # (nodes, ...)
    """The pods of each node, those about to come included."""

    unreadable: Mapping[NodeIndex, str] = field(default_factory=dict)
    """Why some nodes' allocatable cannot be read; they count as having nothing."""

    no_targets: Mapping[NodeIndex, str] = field(default_factory=dict)
    """Nodes that take no pods, since something about them cannot be read."""

    elsewhere: tuple[Pod, ...] = ()
    """Pods that have not ended and are on no node of the snapshot: they wait, or their node is not known."""

    waiting_node: NodeIndex | None = None
    """A virtual node that holds the pods to make room for."""

    left_out: frozenset[NodeIndex] = frozenset()
    """Nodes outside the node selectors, which neither give nor take pods."""

    held_back: Mapping[NodeIndex, Refusal] = field(default_factory=dict)
    """Nodes that give and take nothing by a rule, each with the reason."""

    shut: Mapping[NodeIndex, Refusal] = field(default_factory=dict)
    """Nodes that take nothing by a rule."""

    closed_to_plans: frozenset[NodeIndex] = frozenset()
    """Control-plane nodes, where these give pods and take none: the operator holds no place there."""

    lent: Mapping[NodeIndex, bool] = field(default_factory=dict)
    """Nodes that are lent, and whether each is open; it then takes preemptable pods, and no others."""

    budgets: tuple[Budget, ...] = ()
    """The amounts of rules that the columns after those of the resources count."""

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot,
        waiting: Sequence[Pod] = (),
        node_selectors: Sequence[LabelSelector] = (),
        budgets: Sequence[Budget] = (),
        kept: "KeptReadings | None" = None,
    ) -> "Cluster":
        """Return the snapshot in numbers.

        Places of Reservations without a placeholder count as expected pods. `waiting` are the pods to make room for;
        they are put on a virtual node, the last one. Only nodes that all `node_selectors` select give and take pods.
        Nodes take no more than the `budgets` leave them. What is `kept` of an earlier snapshot only saves time.
        """
        kept = KeptReadings() if kept is None else kept
        nodes = (*snapshot.nodes, _WAITING_NODE) if waiting else snapshot.nodes
        lent = lent_nodes(snapshot)
        groups = preemptable_groups(pod_group.metadata for pod_group in snapshot.pod_groups) if lent else ()
        platforms = Platforms(snapshot.nodes, snapshot.pods)
        # Before the classes are made, which need the same keys: those of pods that are gone are forgotten here.
        readings = kept.of_pods((*snapshot.pods, *reserved_slots(snapshot)))
        pod_classes = PodClasses(
            (lambda pod: is_preemptable(pod, groups)) if lent else None,
            (lambda pod: tuple(budget.demand(pod) for budget in budgets)) if budgets else None,
            platforms.tie_of if platforms.differ else None,
            kept.pod_keys,
        )
        pods, classes, elsewhere = _place_pods(nodes, readings, waiting, pod_classes)
        allocatable, unreadable = _allocatable(kept.of_nodes(nodes))
        resources = _resource_names((*allocatable, *(pod_class.amounts for pod_class in classes)))
        placed = [(placed_pod.pod, placed_pod.class_index) for placed_pod in pods] if snapshot.csi_nodes else []
        attached = attach_columns(snapshot, nodes, classes, placed)
        return cls(
            snapshot=snapshot,
            nodes=nodes,
            pods=pods,
            classes=classes,
            resources=(*resources, *attached.names),
            capacity=_joined(
                [_columns(amounts, resources) for amounts in allocatable],
                attached.capacity,
                _capacity_of_budgets(budgets, nodes, pods, classes),
            ),
            requests=_joined(
                [_columns(pods_alike.amounts, resources, slots=1) for pods_alike in classes],
                attached.requests,
                [tuple(demand or 0 for demand in pods_alike.demands) for pods_alike in classes],
            ),
            pods_on=_pods_by_node(pods, len(nodes)),
            unreadable=unreadable,
            no_targets=_no_targets(snapshot),
            elsewhere=elsewhere,
            waiting_node=NodeIndex(len(snapshot.nodes)) if waiting else None,
            left_out=_left_out(snapshot.nodes, node_selectors),
            lent=lent,
            budgets=tuple(budgets),
        )

    @property
    def columns(self) -> int:
        """Return how many columns there are, those of budgets among them."""
        return len(self.resources) + len(self.budgets)

    def resource_amounts(self, row: Sequence[int]) -> ResourceAmounts:
        """Return the amounts in a row of columns, without budgets."""
        return ResourceAmounts(dict(zip(self.resources, row, strict=False)))

    def unknown_demand(self, class_index: ClassIndex) -> Refusal | None:
        """Return why it is not known what pods of a class take of a budget, None where it is known."""
        demands = zip(self.budgets, self.classes[class_index].demands, strict=True)
        unknown_budget = next((budget for budget, demand in demands if demand is None), None)
        if unknown_budget is None:
            return None
        if unknown_budget.refusal.reason is RefusalReason.PLUGIN_FAILED:
            return unknown_budget.refusal
        return Refusal(unknown_budget.refusal.reason, f"it is not known what the pod takes of {unknown_budget.name}")

    @cached_property
    def node_numbers(self) -> Mapping[str, NodeIndex]:
        """Return the index of each node by its name."""
        return {node.metadata.name: NodeIndex(index) for index, node in enumerate(self.nodes)}

    @cached_property
    def pod_numbers(self) -> Mapping[tuple[str, str], PodIndex]:
        """Return the index of each pod by its namespace and name."""
        all_metadata = [placed_pod.pod.metadata for placed_pod in self.pods]
        return {(metadata.namespace, metadata.name): PodIndex(index) for index, metadata in enumerate(all_metadata)}

    @cached_property
    def volume_index(self) -> VolumeIndex:
        """Return the claims and volumes that bind pods to nodes."""
        return VolumeIndex(self.snapshot.persistent_volume_claims, self.snapshot.persistent_volumes)

    @property
    def on_unknown_nodes(self) -> tuple[Pod, ...]:
        """Return the pods bound to a node outside the snapshot."""
        return tuple(pod for pod in self.elsewhere if pod.spec.node_name)

    @cached_property
    def has_odd_pods(self) -> bool:
        """Return whether there are pods whose requests cannot be read."""
        return any(pod_class.odd for pod_class in self.classes)

    @cached_property
    def crowded(self) -> Mapping[str, Refusal]:
        """Return the namespaces whose terms are too many to count, each with the reason for which its pods stay."""
        classes = (placed_pod.class_index for placed_pod in self.pods)
        return find_crowded_namespaces(self.classes, classes, len(self.nodes), self.snapshot.own_namespace)

    @cached_property
    def column(self) -> Mapping[str, int]:
        """Return the column of each resource."""
        return {name: index for index, name in enumerate(self.resources)}

    @cached_property
    def taken(self) -> tuple[tuple[int, ...], ...]:  # (nodes, resources)
        """Return what each node's pods take together, expected ones included."""
        requests, pods = self.requests, self.pods
        no_amounts = (0,) * self.columns
        rows = ([requests[pods[pod].class_index] for pod in node_pods] for node_pods in self.pods_on)
        return tuple(
            tuple(map(sum, zip(*request_rows, strict=True))) if request_rows else no_amounts for request_rows in rows
        )

    def node_name(self, node: NodeIndex) -> str:
        return self.nodes[node].metadata.name

    def amounts_of(self, pod: PodIndex) -> ResourceAmounts:
        """Return what a pod asks for, without its slot."""
        return self.classes[self.pods[pod].class_index].amounts


def lent_nodes(snapshot: Snapshot) -> dict[NodeIndex, bool]:
    """Return the lent nodes, and whether each is open: it has the fence of an open node and no other.

    A node that is no longer labelled counts as lent until its fence is gone, and one without a fence yet is closed.
    """
    fences: defaultdict[str, set[str]] = defaultdict(set)
    for pod in snapshot.marked_pods:
        # Judged by the fences and not by the clock: what keeps pods off a lent node is its fence, which may be late.
        if STANDING_FENCE_LABEL in pod.metadata.labels and is_lent_fence(pod) and not pod.is_terminal:
            fences[pod.spec.node_name].add(pod.metadata.labels[STANDING_FENCE_LABEL])
    nodes_with_metadata = ((NodeIndex(index), node.metadata) for index, node in enumerate(snapshot.nodes))
    return {
        index: REVOCABLE_ZONE_LABEL in meta.labels and fences.get(meta.name) == {LentFence.OPEN}
        for index, meta in nodes_with_metadata
        if REVOCABLE_ZONE_LABEL in meta.labels or meta.name in fences
    }


def _left_out(nodes: Sequence[Node], selectors: Sequence[LabelSelector]) -> frozenset[NodeIndex]:
    return frozenset(
        NodeIndex(index)
        for index, node in enumerate(nodes)
        if not all(matches_labels(selector, node.metadata.labels) for selector in selectors)
    )


def _place_pods(
    nodes: tuple[Node, ...], pods: Iterable["_PodReading"], waiting: Sequence[Pod], pod_classes: PodClasses
) -> tuple[tuple[PlacedPod, ...], tuple[PodClass, ...], tuple[Pod, ...]]:
    # A waiting pod may be nominated to a node already: it would count there and on the virtual node.
    apart = {pod.key for pod in waiting}
    numbers = {node.metadata.name: NodeIndex(index) for index, node in enumerate(nodes)}
    placed_pods, elsewhere = [], []
    class_of = pod_classes.class_of
    for reading in pods:
        node = numbers.get(reading.node_name)
        if node is not None and not (apart and reading.pod.key in apart):
            class_index = class_of(reading.pod, reading.key)
            placed_pod = reading.placed_pod
            if placed_pod is None or placed_pod.node != node or placed_pod.class_index != class_index:
                placed_pod = reading.placed_pod = PlacedPod(reading.pod, node, class_index, reading.presence)
            placed_pods.append(placed_pod)
        elif not reading.pod.is_terminal:
            elsewhere.append(reading.pod)
    waiting_node = NodeIndex(len(nodes) - 1)
    placed_pods += [PlacedPod(pod, waiting_node, pod_classes.class_of(pod), PodPresence.SETTLED) for pod in waiting]
    return tuple(placed_pods), pod_classes.classes, tuple(elsewhere)


@dataclass(slots=True)
class _PodReading:
    """What is read of a pod alone, whatever else is in its cluster."""

    pod: Pod
    key: PodKey
    node_name: str
    presence: PodPresence
    placed_pod: PlacedPod | None = None
    """The pod in the last cluster: in the next one it mostly has the same numbers."""


class KeptReadings:
    """What was read of the pods and nodes of one snapshot, for a later one that has most of them; not thread-safe."""

    def __init__(self) -> None:
        self.pod_keys = PodKeys()
        self._of_pods: KeptValues[Pod, _PodReading] = KeptValues(self._read_pod)
        self._of_nodes: KeptValues[Node, tuple[ResourceAmounts, str]] = KeptValues(_read_allocatable)

    def of_pods(self, pods: Sequence[Pod]) -> list[_PodReading]:
        if len(self.pod_keys) > _MAX_KEYS_PER_POD * len(pods) + _FREE_KEYS:
            # Nothing else bounds the keys of pods that are gone where pods come and go all the time.
            self.pod_keys = PodKeys()
            self._of_pods = KeptValues(self._read_pod)
        return self._of_pods.of(pods)

    def of_nodes(self, nodes: Sequence[Node]) -> list[tuple[ResourceAmounts, str]]:
        """Return what each node has allocatable, and what of it is unreadable."""
        return self._of_nodes.of(nodes)

    def _read_pod(self, pod: Pod) -> _PodReading:
        return _PodReading(pod, self.pod_keys.key_of(pod), *node_and_presence(pod))


def _allocatable(
    readings: Iterable[tuple[ResourceAmounts, str]],
) -> tuple[tuple[ResourceAmounts, ...], dict[NodeIndex, str]]:
    """Return the nodes' allocatable amounts, and what is unreadable of some."""
    amounts: list[ResourceAmounts] = []
    unreadable: dict[NodeIndex, str] = {}
    for index, (amounts_of_node, why_unreadable) in enumerate(readings):
        amounts.append(amounts_of_node)
        if why_unreadable:
            unreadable[NodeIndex(index)] = f"status.allocatable.{why_unreadable}"
    return tuple(amounts), unreadable


def _read_allocatable(node: Node) -> tuple[ResourceAmounts, str]:
    """Return what a node has allocatable, and what of it is unreadable: such a node counts as having nothing."""
    # Nothing rather than an error: one node with odd amounts must not keep the rest of the cluster from being planned.
    try:
        amounts = ResourceAmounts.from_quantities(node.status.allocatable)
    except InputError as error:
        return ResourceAmounts.empty(), str(error)
    excess = amounts.why_too_large()
    return (ResourceAmounts.empty(), excess) if excess else (amounts, "")


def _no_targets(snapshot: Snapshot) -> dict[NodeIndex, str]:
    """Return the nodes that take no pods, since something about them cannot be read."""
    objects = UnreadableObjects(snapshot)
    reasons = ((NodeIndex(index), objects.why_no_target(node)) for index, node in enumerate(snapshot.nodes))
    return {index: why_unreadable for index, why_unreadable in reasons if why_unreadable}


def node_and_presence(pod: Pod) -> tuple[str, PodPresence]:
    """Return a pod's node, "" if it has none, and its presence."""
    # kube-scheduler does not even watch pods that have ended (`newPodInformer`:
    # status.phase!=Succeeded,status.phase!=Failed).
    if pod.is_terminal:
        return "", PodPresence.LEAVING
    if pod.spec.node_name:
        return pod.spec.node_name, PodPresence.LEAVING if pod.is_terminating else PodPresence.SETTLED
    # The scheduler keeps a nominated pod's room free from pods of lower priority only (`addGENominatedPods`); a plan
    # keeps it free from all that it moves.
    return pod.status.nominated_node_name or _pinned_node(pod), PodPresence.EXPECTED


def _pinned_node(pod: Pod) -> str:
    """Return the node to which a waiting placeholder is pinned, "" for other pods and without exactly one such node."""
    affinity = pod.spec.affinity
    if PLACEHOLDER_LABEL not in pod.metadata.labels or affinity is None or affinity.node_affinity is None:
        return ""
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    names = set() if required is None else _field_names(required)
    return names.pop() if len(names) == 1 else ""


def _field_names(required: NodeSelector) -> set[str]:
    fields = (field for term in required.node_selector_terms for field in term.match_fields)
    return {name for field in fields if field.key == NAME_FIELD and field.operator == "In" for name in field.values}


def _resource_names(several: Iterable[ResourceAmounts]) -> tuple[str, ...]:
    resource_names = {name for amounts in several for name in amounts.keys()}  # noqa: SIM118 - no dict
    other_names = sorted(resource_names.difference(NEEDED_RESOURCES))
    return (*NEEDED_RESOURCES, *other_names)


def _columns(amounts: ResourceAmounts, resources: tuple[str, ...], slots: int | None = None) -> tuple[int, ...]:
    """Return amounts as a row; a pod takes `slots` pod slots, whatever it says itself."""
    # kube-scheduler counts pods, whatever they request of the resource `pods` (`fitsRequest` in noderesources/fit.go).
    return tuple(slots if name == PODS and slots is not None else amounts.get(name) for name in resources)


def _joined(*parts: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return rows made of the rows of several parts, side by side."""
    return tuple(tuple(chain.from_iterable(row)) for row in zip(*parts, strict=True))


def _capacity_of_budgets(
    budgets: Sequence[Budget], nodes: Sequence[Node], pods: Sequence[PlacedPod], classes: Sequence[PodClass]
) -> list[tuple[int, ...]]:
    """Return what each node has of each budget: what is left, and what the pods on it take.

    Pods to come take from what is left. A node that a budget does not limit has as much as all pods together take.
    """
    if not budgets:
        return [()] * len(nodes)
    taken_per_node = [[0] * len(budgets) for _ in nodes]
    total = [0] * len(budgets)
    for placed_pod in pods:
        for column, demand in enumerate(classes[placed_pod.class_index].demands):
            total[column] += demand or 0
            if placed_pod.presence is not PodPresence.EXPECTED:
                taken_per_node[placed_pod.node][column] += demand or 0
    rows = []
    for node, taken_on_node in zip(nodes, taken_per_node, strict=True):
        budgets_left = [budget.left.get(node.metadata.name) for budget in budgets]
        unlimited = (min(demanded, MOST_OF_BUDGET) for demanded in total)
        rows.append(
            tuple(
                demanded if budget_left is None else max(0, budget_left + used)
                for budget_left, used, demanded in zip(budgets_left, taken_on_node, unlimited, strict=True)
            )
        )
    return rows


def _pods_by_node(pods: tuple[PlacedPod, ...], nodes: int) -> tuple[tuple[PodIndex, ...], ...]:
    lists: list[list[PodIndex]] = [[] for _ in range(nodes)]
    for index, placed_pod in enumerate(pods):
        lists[placed_pod.node].append(PodIndex(index))
    return tuple(tuple(node_pods) for node_pods in lists)
