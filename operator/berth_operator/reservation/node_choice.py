"""The choice of nodes for slots that take capacity when it is free.

First come nodes with room now, the emptiest first. What is left goes to nodes whose allocatable amounts hold it once
their pods have ended: those that are expected to have room, the soonest first; then the others, by score. Each node is
filled before the next, so that few nodes are fenced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from berth_core import CPU, MEMORY, PODS, ReservationReason, ResourceAmounts, count

SlotId = tuple[str, int]
"""Task and index of a slot."""

CHOICE_SECONDS: Final = 10.0
"""How long a choice counts, and the pause before the next for slots that got no node."""
_MAX_SCORE: Final = 10.0
_UNKNOWN: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EndingPod:
    """What a pod takes of its node until it ends."""

    requests: ResourceAmounts
    ends_at: datetime | None = None
    """When it is expected to have ended; None if nothing says so."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node that admits a task's pods."""

    name: str
    allocatable: ResourceAmounts
    claimed: ResourceAmounts = field(default_factory=ResourceAmounts.empty)
    """What does not end: pods of DaemonSets, static pods, placeholders and slots that wait for the node."""
    pods: tuple[EndingPod, ...] = ()

    def room_at_the_end(self) -> ResourceAmounts:
        """Return what is free once all pods that may end have ended."""
        return self.allocatable.minus(self.claimed)

    def room_now(self) -> ResourceAmounts:
        return self.room_at_the_end().minus(ResourceAmounts.total(pod.requests for pod in self.pods))


@dataclass(frozen=True, slots=True)
class FenceBudget:
    """How many more nodes may be fenced for one namespace; None for no limit."""

    by_namespace: frozenset[str] = frozenset()
    """Nodes that are fenced for it already."""
    by_all: frozenset[str] = frozenset()
    """Nodes that are fenced for any namespace."""
    namespace_limit: int | None = None
    cluster_limit: int | None = None

    def allows(self, node: str) -> bool:
        """Return whether a fence of the namespace on a node stays within the limits."""
        return not self.why_not(node)

    def why_not(self, node: str) -> str:
        """Return the limit that a fence on a node would exceed, or ""."""
        namespace_limit, cluster_limit = self.namespace_limit, self.cluster_limit
        if namespace_limit is not None and node not in self.by_namespace and len(self.by_namespace) >= namespace_limit:
            return f"its namespace may fence {count(namespace_limit, 'node')} (limit maxFencedNodes)"
        if cluster_limit is not None and node not in self.by_all and len(self.by_all) >= cluster_limit:
            return f"{count(cluster_limit, 'node')} may be fenced in the cluster (limit maxFencedNodes)"
        return ""

    def with_node(self, node: str) -> "FenceBudget":
        return replace(self, by_namespace=self.by_namespace | {node}, by_all=self.by_all | {node})


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """Equal slots without a node, and the nodes that admit them."""

    slots: tuple[SlotId, ...]
    requests: ResourceAmounts
    """Requests of one slot, including the pod that a node counts for it."""
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The node of each slot, and why some slots have none."""

    nodes: Mapping[SlotId, str] = field(default_factory=dict)
    reason: ReservationReason | None = None
    """Set if a slot has no node."""
    message: str = ""
    age_seconds: float = 0.0

    @property
    def is_recent(self) -> bool:
        return self.age_seconds <= CHOICE_SECONDS


def idle_score(idle: ResourceAmounts, requests: ResourceAmounts) -> float:
    """Return how much of a request a node's idle amounts cover, from 0 to 10.

    Each resource scores ten times the covered share of its request. The node scores ((cpu + memory) / 2 + 2 * scalars)
    / 3, where scalars is the mean of all others, or (cpu + memory) / 2 without any.
    """

    # The formula is that of Volcano's proposed `reserve` action (volcano-sh/volcano#298).
    def covered(name: str) -> float:
        requested = requests.get(name)
        return _MAX_SCORE * min(1.0, max(0, idle.get(name)) / requested) if requested > 0 else _MAX_SCORE

    common = (covered(CPU) + covered(MEMORY)) / 2
    scalars = [covered(resource) for resource in requests if resource not in {CPU, MEMORY, PODS}]
    return (common + 2 * sum(scalars) / len(scalars)) / 3 if scalars else common


def expected_room(free: ResourceAmounts, requests: ResourceAmounts, pods: Iterable[EndingPod]) -> datetime | None:
    """Return when the known ends of pods leave room for requests, None if other pods are in the way.

    `free` is what is free now; it may be negative.
    """
    # Pods without a known end are left where they are: if the rest does not make room, no time can be told.
    for pod in sorted((pod for pod in pods if pod.ends_at is not None), key=lambda pod: pod.ends_at or _UNKNOWN):
        free = free.plus(pod.requests)
        if requests.fits_within(free):
            return pod.ends_at
    return None


def choose_nodes(
    demands: Iterable[TaskDemand], candidates: Mapping[str, CandidateNode], budget: FenceBudget | None = None
) -> NodeChoice:
    """Return a node for each slot that some node can hold.

    Slots that have to wait get only nodes that `budget` allows to be fenced.
    """
    progress = _Progress(candidates, budget)
    unplaced: list[TaskDemand] = []
    for demand in sorted(demands, key=_size_order):
        slots_left = progress.fill_waiting(demand, progress.fill_free(demand))
        if slots_left:
            unplaced.append(replace(demand, slots=slots_left))
    return NodeChoice(progress.chosen, *progress.why_without(unplaced[0])) if unplaced else NodeChoice(progress.chosen)


def _size_order(demand: TaskDemand) -> tuple[int, int, tuple[SlotId, ...]]:
    """Order demands by decreasing size, as first-fit decreasing does: small ones still fit where large ones do not."""
    return -demand.requests.get(CPU), -demand.requests.get(MEMORY), demand.slots


class _Progress:
    """The nodes chosen so far, and the room that is left."""

    def __init__(self, candidates: Mapping[str, CandidateNode], budget: FenceBudget | None) -> None:
        self.chosen: dict[SlotId, str] = {}
        self._candidates = candidates
        self._budget = budget
        self._now = {node_name: candidate.room_now() for node_name, candidate in candidates.items()}
        self._at_the_end = {node_name: candidate.room_at_the_end() for node_name, candidate in candidates.items()}
        self._waited_for: set[str] = set()

    def fill_free(self, demand: TaskDemand) -> tuple[SlotId, ...]:
        """Give slots to nodes with room now; return the others."""
        slots_left = demand.slots
        fitting = {name: demand.requests.times_within(self._now[name]) for name in demand.nodes}
        for node_name in sorted(demand.nodes, key=lambda name: (-fitting[name], name)):
            slots_left = self._fill(demand, slots_left, node_name, min(fitting[node_name], len(slots_left)))
        return slots_left

    def fill_waiting(self, demand: TaskDemand, left: tuple[SlotId, ...]) -> tuple[SlotId, ...]:
        """Give slots to nodes that will have room; return the others."""
        if not left:
            return left
        # A node that could never hold the slot, however many pods end, must not be fenced for it.
        able_nodes = [name for name in demand.nodes if demand.requests.fits_within(self._at_the_end[name])]
        for node_name in sorted(able_nodes, key=lambda node_name: self._rank(node_name, demand)):
            if self._budget is not None:
                if not self._budget.allows(node_name):
                    continue
                self._budget = self._budget.with_node(node_name)
            self._waited_for.add(node_name)
            left = self._fill(
                demand, left, node_name, min(demand.requests.times_within(self._at_the_end[node_name]), len(left))
            )
            if not left:
                break
        return left

    def why_without(self, demand: TaskDemand) -> tuple[ReservationReason, str]:
        """Return why slots got no node."""
        slots, verb = count(len(demand.slots), "slot"), "has" if len(demand.slots) == 1 else "have"
        without_node = f"{slots} of task {demand.slots[0][0]} {verb} no node"
        able_nodes = [
            node_name for node_name in demand.nodes if demand.requests.fits_within(self._at_the_end[node_name])
        ]
        if able_nodes and self._budget is not None:
            return ReservationReason.FENCE_LIMIT, f"{without_node}: {self._budget.why_not(able_nodes[0])}"
        nodes_text = "no node admits its pods"
        if demand.nodes:
            admit = "admits" if len(demand.nodes) == 1 else "admit"
            nodes_text = f"of {count(len(demand.nodes), 'node')} that {admit} its pods none has"
        room_text = " enough allocatable room besides what does not end there" if demand.nodes else ""
        return ReservationReason.UNSCHEDULABLE_YET, f"{without_node}: {nodes_text}{room_text}"

    def _rank(self, name: str, demand: TaskDemand) -> tuple[bool, datetime, float, str]:
        now = self._now[name]
        soonest = expected_room(now, demand.requests, self._candidates[name].pods) or _UNKNOWN
        # Nodes that are fenced for this Reservation anyway come first: each fence takes a whole node from all others.
        return name not in self._waited_for, soonest, -idle_score(now, demand.requests), name

    def _fill(self, demand: TaskDemand, left: tuple[SlotId, ...], node: str, count: int) -> tuple[SlotId, ...]:
        """Give a node its first `count` slots; return the others."""
        amounts_taken = demand.requests.times(count)
        self._now[node] = self._now[node].minus(amounts_taken)
        self._at_the_end[node] = self._at_the_end[node].minus(amounts_taken)
        self.chosen |= dict.fromkeys(left[:count], node)
        return left[count:]
