"""The packing model: integer arrays over nodes, pods and pod kinds.

A kind is what packing looks at: requests and ties to nodes. Pods of different owners are of one kind if these are
equal. A class of pods whose place depends on other pods, or that others depend on (affinity, spread, host ports), is a
kind of its own and `dependent`: such pods are placed one by one by the rules in `state`, never by the columns alone.
Amounts are divided by the greatest common divisor of all requests, so that they are small; whether something fits does
not change by that.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import ClassIndex, NodeIndex, PodIndex, State, protected_amounts

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NO_KIND: Final = -1
_NOWHERE: Final = -1
"""The profile of pods of which it is not known where they may go."""

_WEIGHT_BITS: Final = 36
_MOST_EJECTABLE: Final = 64
"""So many kinds, the most frequent ones, may be moved to make room for others."""


@dataclass(frozen=True)
class PackingModel:
    """What the search reads; none of its arrays is changed."""

    need: Ints  # (kinds, resources)
    dependent: Mask  # (kinds,)
    profile: Ints  # (kinds,)
    class_of: tuple[ClassIndex, ...]
    """A class of each kind."""

    alone: Mask  # (kinds,)
    """Whether a plan never puts a pod of the kind on a node that has one."""

    wanted: Mapping[PodIndex, int]
    """The kinds of the pods to make room for; a dependent pod is a kind of its own."""

    room: Ints  # (resources, nodes)
    """What may still be put on each node, protection thresholds left out."""

    takes: Mask  # (nodes,)
    """Whether a node may take pods at all."""

    rank: Ints  # (nodes,)
    """How late a node is filled by the wishes of rules; those of a lower rank come first."""

    weight: Ints  # (resources,)
    """What a unit of each resource counts when amounts are added up: scarce ones more."""

    binding: int
    """The column of the scarcest resource."""

    size: Ints  # (kinds,)
    pod_kind: Ints  # (pods,), NO_KIND for pods that may not be moved
    pod_node: Ints  # (pods,)
    ejectable: Ints  # (rows,), kinds
    there: npt.NDArray[np.int32]  # (rows, nodes)
    """How many pods of each ejectable kind may be taken off each node."""

    allowed_by_profile: dict[int, Mask]

    @property
    def kinds(self) -> int:
        """Return the number of kinds."""
        return len(self.need)

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return int(self.room.shape[1])

    @cached_property
    def asked(self) -> tuple[tuple[int, ...], ...]:
        """Return per kind the columns of the resources that it asks for."""
        return tuple(tuple(row.nonzero()[0].tolist()) for row in self.need)

    @cached_property
    def is_ranked(self) -> bool:
        """Return whether rules wish some nodes filled before others."""
        return bool(self.rank.any())

    def first_of(self, nodes: Ints) -> Ints:
        """Return those of some nodes, of which there is one at least, that are filled first."""
        return nodes[self.rank[nodes] == self.rank[nodes].min()] if self.is_ranked else nodes

    def unwished(self, arrivals: Ints) -> int:
        """Return by how much arrivals, (entries, 3) of kind, node and count, miss the wishes: the sum of ranks."""
        return int(self.rank[arrivals[:, 1]] @ arrivals[:, 2]) if self.is_ranked else 0

    def allowed(self, kind: int) -> Mask:
        """Return the nodes that a kind's ties allow, whatever is on them."""
        return self.allowed_by_profile[int(self.profile[kind])]

    def counts_of(self, pods: Ints) -> Ints:
        """Return how many of the pods are of each kind.

        Pods without a kind are left out.
        """
        kinds = self.pod_kind[pods]
        return np.bincount(kinds[kinds >= 0], minlength=self.kinds).astype(np.int64)

    def movable_on(self, nodes: Mask) -> Ints:
        """Return the pods of some nodes that may be moved."""
        return np.flatnonzero(nodes[self.pod_node] & (self.pod_kind >= 0))


def build_packing_model(
    problem: Problem, state: State, ejecting: Sequence[NodeIndex], *, standing_ties: bool = False
) -> PackingModel:
    """Return a problem's packing model.

    Pods may leave the `ejecting` nodes to make room. With `standing_ties`, classes that only pods which stay tie to
    nodes by their affinities are not dependent: those ties are like the ones to nodes.
    """
    kinds = _Kinds(problem, state, _StandingTies.of(problem, state) if standing_ties else _StandingTies())
    pod_kind, pod_node = _pods(problem, kinds.of_class)
    unit = _units(kinds.rows, problem.cluster.columns)
    need = np.array(kinds.rows, dtype=np.int64).reshape(-1, len(unit)) // unit
    room = np.ascontiguousarray(_room(problem, state) // unit[:, None])
    takes = np.array([state.node_fit.of_node(NodeIndex(node)) is None for node in range(room.shape[1])], dtype=bool)
    capacity = np.array(problem.cluster.capacity, dtype=np.int64).reshape(-1, len(unit)).T // unit[:, None]
    weight, binding = _weights(capacity, need, room, takes, len(problem.cluster.resources))
    dependent = np.array(kinds.dependent, dtype=bool)
    rows = _most_frequent(pod_kind, dependent, _MOST_EJECTABLE)
    return PackingModel(
        need=need,
        dependent=dependent,
        profile=np.array(kinds.profiles, dtype=np.int64),
        class_of=tuple(kinds.classes),
        alone=np.array([state.pod_affinity.shuns_itself(pods) for pods in kinds.classes], dtype=bool),
        wanted=kinds.wanted,
        room=room,
        takes=takes,
        rank=np.array(problem.target_ranks, dtype=np.int64),
        weight=weight,
        binding=binding,
        # What is larger than any node is as large as the largest: its weight must fit 64 bits.
        size=np.minimum(need, capacity.max(axis=1, initial=0) + 1) @ weight,
        pod_kind=pod_kind,
        pod_node=pod_node,
        ejectable=rows,
        there=_count_there(rows, pod_kind, pod_node, room.shape[1], ejecting),
        allowed_by_profile=kinds.allowed_masks(takes),
    )


@dataclass(frozen=True, slots=True)
class _StandingTies:
    """The nodes that pods which stay leave open, for the classes that no other pods tie to nodes."""

    open_nodes: Mapping[ClassIndex, Mask] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, state: State) -> "_StandingTies":
        cluster = problem.cluster
        waiting = () if cluster.waiting_node is None else cluster.pods_on[cluster.waiting_node]
        moving = {
            placed_pod.class_index
            for index, placed_pod in enumerate(cluster.pods)
            if index not in problem.pod_refusals and placed_pod.node != cluster.waiting_node
        }
        moving.update(cluster.pods[pod].class_index for pod in waiting)
        masks: dict[Hashable, Mask] = {}
        open_nodes: dict[ClassIndex, Mask] = {}
        for class_index, key in state.pod_affinity.standing_ties(moving).items():
            if not state.is_tied_by_affinity_alone(class_index):
                continue
            if key not in masks:
                # Where such a pod comes from is nothing to the pods that tie it.
                refusals = (
                    state.pod_affinity.refusal(class_index, NodeIndex(node), NodeIndex(node))
                    for node in range(len(cluster.nodes))
                )
                masks[key] = np.array([refusal is None for refusal in refusals], dtype=bool)
            open_nodes[class_index] = masks[key]
        return cls(open_nodes)


class _Kinds:
    """The kinds of a problem, numbered by first occurrence."""

    def __init__(self, problem: Problem, state: State, standing: _StandingTies) -> None:
        self._state = state
        self._standing = standing.open_nodes
        self._profiles_of_ties: dict[tuple[int, bytes], int] = {}
        """The numbers, below those of nodes' profiles, of profiles that standing ties narrow."""
        self.rows: list[tuple[int, ...]] = []
        self.profiles: list[int] = []
        self.dependent: list[bool] = []
        self.classes: list[ClassIndex] = []
        self.of_class: list[int] = []
        numbers: dict[tuple[tuple[int, ...], int, int], int] = {}
        for pods in problem.cluster.classes:
            is_independent = self._is_independent(pods.index)
            ties = self._profile(pods.index)
            is_known = state.node_fit.of_class(pods.index) is None
            key = problem.cluster.requests[pods.index], ties, -1 if is_independent and is_known else pods.index
            if key not in numbers:
                numbers[key] = self._add(problem, pods.index)
            self.of_class.append(numbers[key])
        self.wanted = self._read_wanted(problem)

    def _read_wanted(self, problem: Problem) -> dict[PodIndex, int]:
        """Return the kinds of the waiting pods, one per class.

        Each tied pod is a kind of its own.
        """
        wanted_kinds: dict[PodIndex, int] = {}
        shared: dict[ClassIndex, int] = {}
        waiting = problem.cluster.waiting_node
        for pod in () if waiting is None else problem.cluster.pods_on[waiting]:
            class_index = problem.cluster.pods[pod].class_index
            if class_index not in shared or self.dependent[shared[class_index]]:
                shared[class_index] = self._add(problem, class_index)
            wanted_kinds[pod] = shared[class_index]
        return wanted_kinds

    def _add(self, problem: Problem, one: ClassIndex) -> int:
        """Add a kind with pods of a class as its example."""
        is_known = self._state.node_fit.of_class(one) is None
        self.rows.append(problem.cluster.requests[one])
        self.profiles.append(self._profile(one) if is_known else _NOWHERE)
        self.dependent.append(not self._is_independent(one))
        self.classes.append(one)
        return len(self.rows) - 1

    def _is_independent(self, class_index: ClassIndex) -> bool:
        return class_index in self._standing or self._state.is_independent(class_index)

    def _profile(self, class_index: ClassIndex) -> int:
        """Return the number of a class's ties to nodes, those by pods that stay among them."""
        profile = self._state.node_fit.profile(class_index)
        open_nodes = self._standing.get(class_index)
        if open_nodes is None or open_nodes.all():
            return profile
        key = (profile, open_nodes.tobytes())
        return self._profiles_of_ties.setdefault(key, _NOWHERE - 1 - len(self._profiles_of_ties))

    def allowed_masks(self, takes: Mask) -> dict[int, Mask]:
        """Return per profile the nodes that it allows."""
        masks = {_NOWHERE: np.zeros(len(takes), dtype=bool)}
        for (profile, open_nodes), number in self._profiles_of_ties.items():
            by_nodes = np.frombuffer(self._state.node_fit.open_to(profile), dtype=bool)
            masks[number] = takes & by_nodes & np.frombuffer(open_nodes, dtype=bool)
        for profile in self.profiles:
            if profile not in masks:
                masks[profile] = takes & np.frombuffer(self._state.node_fit.open_to(profile), dtype=bool)
        return masks


def _pods(problem: Problem, kind_of_class: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the kind and the node of each pod.

    Pods that may not be moved have `NO_KIND`.
    """
    placed_pods = problem.cluster.pods
    classes = np.fromiter(
        (placed_pod.class_index for placed_pod in placed_pods), dtype=np.int64, count=len(placed_pods)
    )
    kinds = np.array(kind_of_class, dtype=np.int64)[classes] if len(placed_pods) else np.empty(0, dtype=np.int64)
    fixed_pods = np.fromiter(problem.pod_refusals, dtype=np.int64, count=len(problem.pod_refusals))
    kinds[fixed_pods] = NO_KIND
    if problem.cluster.waiting_node is not None:
        kinds[list(problem.cluster.pods_on[problem.cluster.waiting_node])] = NO_KIND
    return kinds, np.fromiter((placed_pod.node for placed_pod in placed_pods), dtype=np.int64, count=len(placed_pods))


def _room(problem: Problem, state: State) -> Ints:
    free = np.array(state.free, dtype=np.int64).reshape(len(state.free), problem.cluster.columns).T
    protected = protected_amounts(problem.cluster, problem.settings.protection)
    for column, least in protected.items():
        free[column] -= np.array(least, dtype=np.int64)
    return free


def _units(rows: Sequence[tuple[int, ...]], resources: int) -> Ints:
    """Return per resource the largest unit that divides every request."""
    need = np.array(rows, dtype=np.int64).reshape(len(rows), resources)
    return np.maximum(np.gcd.reduce(need, axis=0), 1) if len(need) else np.ones(resources, dtype=np.int64)


def _weights(capacity: Ints, need: Ints, room: Ints, takes: Mask, resources: int) -> tuple[Ints, int]:
    """Return the columns' weights by requested share, and the column of the scarcest resource, which are the first."""
    total_capacity = np.maximum(capacity[:, takes], 0).sum(axis=1)
    used = total_capacity - np.clip(room[:, takes], 0, None).sum(axis=1)
    is_asked = need.max(axis=0, initial=0) > 0
    thousandths = [
        max(0, int(used_amount)) * 1000 // max(1, int(total_amount)) + 1
        for used_amount, total_amount in zip(used, total_capacity, strict=True)
    ]
    share = np.where(is_asked & (total_capacity > 0), np.array(thousandths, dtype=np.int64), 0)
    per_node = np.maximum(total_capacity // max(1, int(takes.sum())), 1)
    return (share << _WEIGHT_BITS) // (1000 * per_node), int(share[:resources].argmax()) if resources else 0


def _most_frequent(pod_kind: Ints, dependent: Mask, most: int) -> Ints:
    """Return the independent kinds with the most movable pods, in order."""
    counts = np.bincount(pod_kind[pod_kind >= 0], minlength=len(dependent)).astype(np.int64)
    counts[dependent] = 0
    order = np.argsort(-counts, kind="stable")[:most]
    return np.sort(order[counts[order] > 0])


def _count_there(
    rows: Ints, pod_kind: Ints, pod_node: Ints, nodes: int, ejecting: Sequence[NodeIndex]
) -> npt.NDArray[np.int32]:
    may_eject = np.zeros(nodes, dtype=bool)
    may_eject[np.array(ejecting, dtype=np.int64)] = True
    row_of = np.full(int(pod_kind.max(initial=0)) + 2, -1, dtype=np.int64)
    row_of[rows] = np.arange(len(rows))
    row = row_of[pod_kind]  # NO_KIND reads the last entry, which is no kind's
    is_counted = (row >= 0) & may_eject[pod_node]
    cells = np.bincount(row[is_counted] * nodes + pod_node[is_counted], minlength=len(rows) * nodes)
    return cells.reshape(len(rows), nodes).astype(np.int32)
