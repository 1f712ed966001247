"""The input of every strategy: cluster, settings, movable pods and usable nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

from berth_core import (
    LAST_MOVED_ANNOTATION,
    InputError,
    Pod,
    Room,
    Snapshot,
    format_timestamp,
    is_control_plane_node,
    parse_timestamp,
)
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.planner.rooms import RoomMade, RoomOwners
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation import Cluster, NodeIndex, PodClass, PodIndex, State, Step, VolumeIndex

# --- quality ---------------------------------------------------------------------------------------------------------
# The proven quality of a plan: what any plan could reach at most, and whether this one does.


class Prover(StrEnum):
    """What proved the upper bound of a plan."""

    BOUND = "Bound"
    """Sums of requests and numbers of pods."""
    EXACT = "Exact"
    """The integer program."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What a plan reaches, beside the most that any plan could reach.

    Counts the strategy's objective: nodes freed by `Consolidate`, pods that find room by `MakeRoom`.
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
        """Return how much more another plan could reach at most."""
        return self.upper_bound - self.reached

    @property
    def proven_optimal(self) -> bool:
        """Return whether no plan reaches more."""
        return self.gap == 0 and not self.is_snapshot_incomplete

    @property
    def proven_fewest_moves(self) -> bool:
        """Return whether no plan reaches as much with fewer moves."""
        return self.moves == self.fewest_moves and not self.is_snapshot_incomplete


_SHOWN_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Proposal:
    """A strategy's choice: steps in a feasible order, and why not more."""

    steps: tuple[Step, ...]
    refused: tuple[Refused, ...]
    quality: Quality | None = None
    """Its proven quality; None with a strategy that proves nothing."""

    room: tuple[RoomMade, ...] = ()
    """What room was made for, with a strategy that makes it."""

    room_owners: RoomOwners | None = None
    """Whose pods may take the room of shapes."""

    reasons: Mapping[PodIndex, str] = field(default_factory=dict)
    """Why single pods move whose moves are independent."""

    waits: tuple[Room, ...] = ()
    """Rooms that no move makes: they wait until pods on their nodes have ended."""

    starving: Mapping[str, int] = field(default_factory=dict)
    """How many jobs starve, by what is done for them, with a strategy that looks for such."""


@dataclass(frozen=True)
class Problem:
    """One planning problem: the cluster and what is asked for."""

    cluster: Cluster
    settings: PlannerSettings
    _evictability: Evictability = field(repr=False)
    kept: Mapping[PodIndex, Refusal] = field(default_factory=dict, repr=False)
    """Pods that stay although the filter would let them go."""

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, settings: PlannerSettings, waiting: Sequence[Pod] = ()) -> "Problem":
        """Return the problem of a snapshot.

        Raises `InputError` that names what is wrong with it. `waiting` are the pods to make room for.
        """
        _check_namespaces(snapshot, settings.evictable_namespaces.named)
        problem = cls.to_review(snapshot, settings, waiting)
        _check_resources(problem.cluster, settings.named_resources)
        return problem

    @classmethod
    def to_review(cls, snapshot: Snapshot, settings: PlannerSettings, waiting: Sequence[Pod] = ()) -> "Problem":
        """Return the problem for moves planned earlier.

        Names in the settings may no longer exist.
        """
        cluster = Cluster.from_snapshot(snapshot, waiting, settings.node_selectors)
        closed = frozenset() if settings.control_plane_nodes else _control_plane(cluster)
        cluster = replace(cluster, in_cooldown=_nodes_in_cooldown(cluster, settings), closed_to_plans=closed)
        allowed = Evictability(snapshot, settings.evictable_namespaces, settings.own_namespace, settings.max_grace)
        return cls(cluster, settings, allowed)

    def keeping(self, pods: Mapping[PodIndex, Refusal]) -> "Problem":
        """Return the problem with further immovable pods, each with the reason."""
        return replace(self, kept={**self.kept, **pods})

    @cached_property
    def pod_refusals(self) -> Mapping[PodIndex, Refusal]:
        """Return the immovable pods, each with the reason."""
        found: dict[PodIndex, Refusal] = {}
        cluster = self.cluster
        volume_index = VolumeIndex(cluster.snapshot.persistent_volume_claims, cluster.snapshot.persistent_volumes)
        of_class = [_class_refusals(one, volume_index) for one in cluster.classes]
        refusing = self.settings.plugins.refusing(ClusterView.of(cluster.snapshot, self.settings.now))
        for index, placed in enumerate(cluster.pods):
            pod = placed.pod
            of_pod = (*self._evictability.refusals(pod), *refusing(pod), *of_class[placed.class_index])
            passing = (
                self._passing_refusals(PodIndex(index), pod) if self.kept or self.settings.pods_in_cooldown else ()
            )
            if of_pod or passing:
                found[PodIndex(index)] = Refusal.in_one((*of_pod, *passing))
        return found

    def _passing_refusals(self, index: PodIndex, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod stays in this plan."""
        return tuple(one for one in (self.kept.get(index), self._resting_refusal(pod)) if one is not None)

    def _resting_refusal(self, pod: Pod) -> Refusal | None:
        moved_at = self.settings.pods_in_cooldown.get((pod.metadata.namespace, pod.metadata.name))
        if moved_at is None:
            return None
        text = f"a plan brought it to its node at {format_timestamp(moved_at)}"
        return Refusal(RefusalReason.POD_COOLING_DOWN, text)

    def pods_to_move(self, node: NodeIndex) -> tuple[PodIndex, ...]:
        """Return the pods that must leave a node to free it."""
        return self._to_move[node]

    @cached_property
    def _to_move(self) -> tuple[tuple[PodIndex, ...], ...]:
        occupying = [one.pod.occupies_node for one in self.cluster.pods]
        return tuple(tuple(pod for pod in pods if occupying[pod]) for pods in self.cluster.pods_on)


def _control_plane(cluster: Cluster) -> frozenset[NodeIndex]:
    numbered = enumerate(cluster.nodes)
    return frozenset(NodeIndex(index) for index, one in numbered if is_control_plane_node(one.metadata, one.spec))


def _nodes_in_cooldown(cluster: Cluster, settings: PlannerSettings) -> Mapping[NodeIndex, str]:
    """Return the nodes in cool-down, each with a sentence.

    Pods were moved off or onto them within the cool-down.
    """
    if settings.now is None or settings.node_cool_down <= timedelta(0):
        return {}
    over = settings.now - settings.node_cool_down
    found = ((NodeIndex(index), node.metadata.annotations) for index, node in enumerate(cluster.nodes))
    told = ((index, _when_moved(annotations.get(LAST_MOVED_ANNOTATION), over)) for index, annotations in found)
    return {index: text for index, text in told if text}


def _when_moved(last: str | None, over: datetime) -> str:
    """Return why a node's annotation keeps it in cool-down.

    Returns "" if it does not; an unreadable one does.
    """
    if last is None:
        return ""
    try:
        moved_at = parse_timestamp(last)
    except InputError:
        return f"{LAST_MOVED_ANNOTATION} is {last!r}, which is no time"
    return f"pods were moved off the node or onto it at {last}" if moved_at > over else ""


def _class_refusals(pods: PodClass, volume_index: VolumeIndex) -> tuple[Refusal, ...]:
    """Return why all pods of a class stay.

    Their requests are unreadable, or their volumes unknown.
    """
    odd = (Refusal(RefusalReason.POD_DATA_ODD, pods.odd),) if pods.odd else ()
    volumes = volume_index.volumes_of(pods)
    return (*odd, volumes) if isinstance(volumes, Refusal) else odd


def _check_namespaces(snapshot: Snapshot, named: frozenset[str]) -> None:
    """Raise `InputError` for a named namespace that does not exist."""
    known = {one.metadata.name for one in snapshot.namespaces} | {one.metadata.namespace for one in snapshot.pods}
    unknown = sorted(named - known)
    if unknown:
        raise InputError("evictableNamespaces", unknown[0], f"a namespace of the cluster, such as {_some(known)}")


def _check_resources(cluster: Cluster, named: Mapping[str, str]) -> None:
    """Raise `InputError` for a field whose resource no node has."""
    known = {name for name, column in cluster.column.items() if any(row[column] > 0 for row in cluster.capacity)}
    for field_name, resource in named.items():
        if known and resource not in known:
            raise InputError(field_name, resource, f"a resource that a node has: {_some(known)}")


def _some(names: set[str]) -> str:
    shown = sorted(names)[:_SHOWN_NAMES]
    return ", ".join(shown) if shown else "(it has none)"


class Strategy(Protocol):
    """Chooses the moves of a plan.

    The same problem gives the same proposal.
    """

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the steps and the refusals.

        `state` matches the snapshot and may be changed.
        """
        ...

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes that may be drained, before anything is chosen."""
        ...

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the pods to make room for.

        Raises `InputError` for an impossible one.
        """
        ...
