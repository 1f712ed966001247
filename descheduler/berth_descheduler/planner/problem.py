"""Owns what every strategy is given: the cluster, the settings, and which pods and nodes may be touched at all.

It does not own a strategy's choice; strategies stand behind the protocol here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Final, Protocol

from berth_core.clock import format_timestamp, parse_timestamp
from berth_core.errors import InputError
from berth_core.labels import CRITICAL_NODE_LABEL, LAST_DEFRAGMENTED_ANNOTATION, LAST_MOVED_ANNOTATION
from berth_core.objects import Node, Pod, is_control_plane_node
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner.evictability import Movable
from berth_descheduler.planner.room_request import RoomOwners
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation.cluster import Cluster, NodeIndex, PodIndex, Presence
from berth_descheduler.planner.simulation.node_fit import node_refusal
from berth_descheduler.planner.simulation.pod_classes import PodClass
from berth_descheduler.planner.simulation.state import State, Step
from berth_descheduler.planner.simulation.volumes import VolumeBook

# --- quality ---------------------------------------------------------------------------------------------------------
# How good a plan is, by proof: what any plan could reach at most, and whether this one does.


class Prover(StrEnum):
    """What the upper bound of a plan was found by."""

    BOUND = "Bound"
    """Amounts and numbers of pods alone."""
    EXACT = "Exact"
    """The integer program."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that room was to be made for."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RoomMade:
    """What became of one thing that room was to be made for."""

    name: str
    """A shape as it was written, or namespace and name of a pod."""

    wanted: int | None
    """None: as many as the moves allow."""

    fitted: int
    """How many of it have room at the end, beside everything else that was asked for."""

    fits_before: int
    """How many of it alone would fit now, and after the plan."""
    fits_after: int

    nodes: tuple[str, ...]
    """Where what has room has it, a name as often as it has."""

    unused_before: tuple[tuple[str, Fraction], ...] = ()
    """Per resource the share of what is free that it could not use: the fragmentation by this measure."""
    unused_after: tuple[tuple[str, Fraction], ...] = ()

    pods: tuple[WaitingPod, ...] = ()
    """The pods that were meant, none for a shape; the first `fitted` of them have the room."""

    gang: str = ""
    """The name of the group that they belong to."""

    requests: tuple[tuple[str, str], ...] = ()
    """Of a shape: what each of its pods would ask for, quantities by resource."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What was reached beside what can be reached at most.

    What is counted is the strategy's aim: nodes freed by `Consolidate`, pods that find room by `MakeRoom`.
    """

    reached: int
    upper_bound: int
    """No plan within the limits reaches more."""

    moves: int
    fewest_moves: int
    """No plan that reaches as much needs fewer moves."""

    prover: Prover = Prover.BOUND
    out_of_time: bool = False
    """The time limit ended the search; without it the plan might be better, and might differ."""

    is_snapshot_incomplete: bool = False
    """The snapshot lacks kinds of objects: what is known of other plans holds for what it has, and proves nothing."""

    @property
    def gap(self) -> int:
        """Return by how much a better plan could reach more at most."""
        return self.upper_bound - self.reached

    @property
    def proven_optimal(self) -> bool:
        """Tell whether no plan reaches more."""
        return self.gap == 0 and not self.is_snapshot_incomplete

    @property
    def proven_fewest_moves(self) -> bool:
        """Tell whether no plan reaches as much with fewer moves."""
        return self.moves == self.fewest_moves and not self.is_snapshot_incomplete


_SHOWN_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a strategy chose: steps in an order in which each is feasible, and why not more."""

    steps: tuple[Step, ...]
    refused: tuple[Refused, ...]
    quality: Quality | None = None
    """How good it is; None where a strategy does not say."""

    room: tuple[RoomMade, ...] = ()
    """What room was made for, with a strategy that makes it."""

    room_owners: RoomOwners | None = None
    """Whose pods may take the room of shapes."""

    reasons: Mapping[PodIndex, str] = field(default_factory=dict)
    """Why single pods are moved whose moves stand alone."""


@dataclass(frozen=True)
class Problem:
    """One planning: what there is and what is asked for."""

    cluster: Cluster
    settings: PlannerSettings
    _movable: Movable = field(repr=False)
    kept: Mapping[PodIndex, Refusal] = field(default_factory=dict, repr=False)
    """Pods that stay although the filter would let them go."""

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, settings: PlannerSettings, waiting: Sequence[Pod] = ()) -> "Problem":
        """Return the problem of a snapshot; raises `InputError` that names what is wrong with it.

        `waiting` are pods that room is to be made for.
        """
        _check_namespaces(snapshot, settings.evictable_namespaces.named)
        problem = cls.to_review(snapshot, settings, waiting)
        _check_resources(problem.cluster, settings.named_resources)
        return problem

    @classmethod
    def to_review(cls, snapshot: Snapshot, settings: PlannerSettings, waiting: Sequence[Pod] = ()) -> "Problem":
        """Return the problem of moves that were planned before; what the settings name need not exist any more."""
        cluster = Cluster.from_snapshot(snapshot, waiting, settings.node_selectors)
        closed = frozenset() if settings.control_plane_nodes else _control_plane(cluster)
        cluster = replace(cluster, resting=_resting_nodes(cluster, settings), closed_to_plans=closed)
        allowed = Movable(snapshot, settings.evictable_namespaces, settings.own_namespace, settings.max_grace)
        return cls(cluster, settings, allowed)

    def keeping(self, pods: Mapping[PodIndex, Refusal]) -> "Problem":
        """Return the same problem with more pods that may not be moved, each with the reason."""
        return replace(self, kept={**self.kept, **pods})

    @cached_property
    def pod_refusals(self) -> Mapping[PodIndex, Refusal]:
        """Return the pods that may not be moved, each with the reason."""
        found: dict[PodIndex, Refusal] = {}
        cluster = self.cluster
        book = VolumeBook(cluster.snapshot.persistent_volume_claims, cluster.snapshot.persistent_volumes)
        of_class = [_class_refusals(one, book) for one in cluster.classes]
        refusing = self.settings.plugins.refusing(ClusterView.of(cluster.snapshot, self.settings.now))
        for index, placed in enumerate(cluster.pods):
            pod = placed.pod
            of_pod = (*self._movable.refusals(pod), *refusing(pod), *of_class[placed.class_index])
            passing = self._passing_refusals(PodIndex(index), pod) if self.kept or self.settings.resting_pods else ()
            if of_pod or passing:
                found[PodIndex(index)] = Refusal.in_one((*of_pod, *passing))
        return found

    def _passing_refusals(self, index: PodIndex, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod stays this time."""
        return tuple(one for one in (self.kept.get(index), self._resting_refusal(pod)) if one is not None)

    def _resting_refusal(self, pod: Pod) -> Refusal | None:
        moved_at = self.settings.resting_pods.get((pod.metadata.namespace, pod.metadata.name))
        if moved_at is None:
            return None
        text = f"a plan brought it to its node at {format_timestamp(moved_at)}"
        return Refusal(RefusalReason.POD_COOLING_DOWN, text)

    def stays_when_emptied(self, pod: PodIndex) -> bool:
        """Tell whether a node counts as freed with this pod on it: DaemonSet and mirror pods do not count."""
        return self._staying[pod]

    def pods_to_move(self, node: NodeIndex) -> tuple[PodIndex, ...]:
        """Return the pods that have to leave a node before it is freed."""
        return self._to_move[node]

    @cached_property
    def _staying(self) -> tuple[bool, ...]:
        return tuple(one.pod.belongs_to_node for one in self.cluster.pods)

    @cached_property
    def _to_move(self) -> tuple[tuple[PodIndex, ...], ...]:
        staying = self._staying
        return tuple(tuple(pod for pod in pods if not staying[pod]) for pods in self.cluster.pods_on)

    def drain_refusal(self, node: NodeIndex) -> Refusal | None:
        """Return why a node cannot be emptied whatever room there is elsewhere; None also for an empty one."""
        refusal = node_refusal(self.cluster, node) or self.holding_refusal(node)
        return refusal or self._crowd_refusal(len(self.pods_to_move(node)))

    def holding_refusal(self, node: NodeIndex) -> Refusal | None:
        """Return which pod of a node has to stay or is about to come."""
        pods = self.pods_to_move(node)
        expected = [pod for pod in pods if self.cluster.pods[pod].presence is Presence.EXPECTED]
        if expected:
            name = self.cluster.pods[expected[0]].pod.key
            return Refusal(RefusalReason.EXPECTS_PODS, f"{name} is about to come to the node", blocking_pod=name)
        blocked = [pod for pod in pods if pod in self.pod_refusals]
        if not blocked:
            return None
        first = self.pod_refusals[blocked[0]]
        count = f"{len(blocked)} pod{'s' if len(blocked) > 1 else ''} may not be moved"
        name = self.cluster.pods[blocked[0]].pod.key
        return Refusal(
            RefusalReason.HOLDS_IMMOVABLE_PODS,
            f"{count}, such as {name}: {first.sentences}",
            constraint=first.reason,
            blocking_pod=name,
        )

    def _crowd_refusal(self, pods: int) -> Refusal | None:
        most = self.settings.max_moves_per_node
        if most is None or pods <= most:
            return None
        return Refusal(RefusalReason.NODE_LIMIT, f"{pods} moves are needed, and at most {most} are allowed off a node")


def _control_plane(cluster: Cluster) -> frozenset[NodeIndex]:
    numbered = enumerate(cluster.nodes)
    return frozenset(NodeIndex(index) for index, one in numbered if is_control_plane_node(one.metadata, one.spec))


def _resting_nodes(cluster: Cluster, settings: PlannerSettings) -> Mapping[NodeIndex, str]:
    """Return the nodes off or onto which pods were moved within the cool-down, each with a sentence."""
    if settings.now is None or settings.node_cool_down <= timedelta(0):
        return {}
    over = settings.now - settings.node_cool_down
    found = ((NodeIndex(index), node.metadata.annotations) for index, node in enumerate(cluster.nodes))
    told = ((index, _when_moved(annotations.get(LAST_MOVED_ANNOTATION), over)) for index, annotations in found)
    return {index: text for index, text in told if text}


def _when_moved(last: str | None, over: datetime) -> str:
    """Return what a node's note says of a time that counts still, "" if it says none; a note that is none counts."""
    if last is None:
        return ""
    try:
        moved_at = parse_timestamp(last)
    except InputError:
        return f"{LAST_MOVED_ANNOTATION} is {last!r}, which is no time"
    return f"pods were moved off the node or onto it at {last}" if moved_at > over else ""


def _class_refusals(pods: PodClass, book: VolumeBook) -> tuple[Refusal, ...]:
    """Return what keeps all pods of a class: requests or volumes of which something is not known."""
    odd = (Refusal(RefusalReason.POD_DATA_ODD, pods.odd),) if pods.odd else ()
    volumes = book.volumes_of(pods)
    return (*odd, volumes) if isinstance(volumes, Refusal) else odd


def _check_namespaces(snapshot: Snapshot, named: frozenset[str]) -> None:
    """Raise `InputError` for a namespace that is named and that nobody has heard of."""
    known = {one.metadata.name for one in snapshot.namespaces} | {one.metadata.namespace for one in snapshot.pods}
    unknown = sorted(named - known)
    if unknown:
        raise InputError("evictableNamespaces", unknown[0], f"a namespace of the cluster, such as {_some(known)}")


def _check_resources(cluster: Cluster, named: Mapping[str, str]) -> None:
    """Raise `InputError` for a field that names a resource which no node has."""
    known = {name for name, column in cluster.column.items() if any(row[column] > 0 for row in cluster.capacity)}
    for field_name, resource in named.items():
        if known and resource not in known:
            raise InputError(field_name, resource, f"a resource that a node has: {_some(known)}")


def _some(names: set[str]) -> str:
    shown = sorted(names)[:_SHOWN_NAMES]
    return ", ".join(shown) if shown else "(it has none)"


class Strategy(Protocol):
    """Chooses the moves of a plan; the same problem gives the same proposal."""

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the steps and what was refused; `state` is as the snapshot has it and may be changed."""
        ...

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes that may be drained, before anything is chosen."""
        ...

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the pods that room is to be made for; raises `InputError` where one that is named cannot be."""
        ...


# --- sources ---------------------------------------------------------------------------------------------------------
# Which nodes a plan may empty and from which it may take single pods, and why not the others.


@dataclass(frozen=True)
class Sources:
    """The nodes that may be emptied, those from which pods may be taken, and why the others are left alone."""

    to_empty: tuple[NodeIndex, ...]
    pods_of: Mapping[NodeIndex, tuple[PodIndex, ...]]
    """The pods that have to leave each node that may be emptied."""

    to_take_from: tuple[NodeIndex, ...]
    """Nodes that may give single pods; those that may be emptied are among them."""

    empty: tuple[NodeIndex, ...]
    """Usable nodes with no pods but DaemonSet and mirror pods."""

    refusals: Mapping[NodeIndex, Refusal]


def find_sources(problem: Problem) -> Sources:
    """Return what may be emptied in a problem, and why not the rest."""
    refusals: dict[NodeIndex, Refusal] = {}
    pods_of: dict[NodeIndex, tuple[PodIndex, ...]] = {}
    to_take_from, empty = [], []
    for index, node in enumerate(problem.cluster.nodes):
        number = NodeIndex(index)
        unusable = node_refusal(problem.cluster, number)
        resting = unusable or resting_refusal(node, problem.settings)
        pods = problem.pods_to_move(number)
        if resting is None:
            to_take_from.append(number)
        if not pods and unusable is None:
            empty.append(number)
        refusal = resting or _why_not_emptied(problem, number, pods)
        if refusal is None:
            pods_of[number] = pods
        else:
            refusals[number] = refusal
    return Sources(tuple(pods_of), pods_of, tuple(to_take_from), tuple(empty), refusals)


def resting_refusal(node: Node, settings: PlannerSettings) -> Refusal | None:
    """Return why no pod is moved off a node that is well: it is critical, or was drained not long ago."""
    if node.metadata.labels.get(CRITICAL_NODE_LABEL) == "true":
        return Refusal(RefusalReason.CRITICAL_NODE, f"the node is labelled {CRITICAL_NODE_LABEL}=true")
    return cooling_refusal(node, settings)


def cooling_refusal(node: Node, settings: PlannerSettings) -> Refusal | None:
    """Return why a node is no source for some time after pods were moved off it."""
    now, cool_down = settings.now, settings.cool_down
    last = node.metadata.annotations.get(LAST_DEFRAGMENTED_ANNOTATION)
    if now is None or last is None or cool_down <= timedelta(0):
        return None
    try:
        over = now - parse_timestamp(last) >= cool_down  # this way round no time is too late to be added to
    except InputError:
        return Refusal(RefusalReason.COOLING_DOWN, f"{LAST_DEFRAGMENTED_ANNOTATION} is {last!r}, which is no time")
    return None if over else Refusal(RefusalReason.COOLING_DOWN, f"pods were moved off the node at {last}")


def _why_not_emptied(problem: Problem, node: NodeIndex, pods: tuple[PodIndex, ...]) -> Refusal | None:
    if not pods:
        return Refusal(RefusalReason.ALREADY_EMPTY, "nothing on the node has to be moved")
    return problem.drain_refusal(node)
