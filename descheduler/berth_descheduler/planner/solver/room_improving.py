"""Improves room: takes sets of pods off nodes and puts them into rests.

Every node has *sets* of pods whose leaving lets one more of the pods to come fit there. The smallest are taken first;
their pods go where a node has a rest that the pods to come cannot use, so no room is lost (*recreate*). Then some of
what was moved goes home again, and the order of what is taken next is disturbed (*ruin*). A result that is no worse is
kept to go on from. See Schrimpf et al., Record breaking optimization results using the ruin and recreate principle
(2000).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import Final, TypeAlias

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

_ROUNDS: Final = 500
_ROUNDS_WITHOUT_GAIN: Final = 120
_SETS: Final = 6
"""So many sets of a node are tried, of one pod and of two."""

_MOST_PAIRED: Final = 40
"""Pairs are sought among so many pods of a node, the largest."""

_MOST_RUINED: Final = 60
_NODES_PER_ROUND: Final = 300
_NOISE_BITS: Final = 6
_NOISES: Final = (6, 19, 38)
"""How much an order is disturbed, in parts of 64."""

_SHARES: Final = (10, 20, 30, 50)
"""How much of what was moved is put back in a round, in percent."""

_Set: TypeAlias = tuple[int, tuple[int, ...]]
"""The size of some pods together, and the pods."""

_Candidate: TypeAlias = tuple[int, int, int, int, tuple[int, ...]]
"""How many pods, their size, the node, its version, the pods."""


@dataclass(frozen=True)
class RoomGoal:
    """For what room is made, and within which limits."""

    kind: int
    most: int
    """No more of the kind is of use, or possible."""

    least_moves: int
    """So many moves are needed at least for `most`."""

    budget: int | None
    deadline: Deadline
    seed: int = 0


@dataclass(frozen=True)
class RoomImproved:
    """Where pods are in the end."""

    ejections: Ints  # (entries, 3): kind, node, count
    arrivals: Ints  # (entries, 3): kind, node, count
    places: tuple[int, ...]
    """A node for each of the pods to come."""

    moves: int
    out_of_time: bool


def improve_room(packing: PackingModel, may_leave: Mask, goal: RoomGoal) -> RoomImproved:
    """Return the best room that was found by the deadline."""
    search = _Improving(packing, may_leave, goal)
    search.run()
    return search.result()


class _Placement:
    """Where the pods are that may be moved, and what that leaves of the nodes."""

    def __init__(self, packing: PackingModel, may_leave: Mask, kind: int) -> None:
        self._packing = packing
        self._asked = np.flatnonzero(packing.need[kind])
        self._need = packing.need[kind]
        self._wanted = packing.allowed(kind) & packing.takes
        kinds = packing.pod_kind
        self.pods = np.flatnonzero((kinds >= 0) & may_leave[packing.pod_node] & ~packing.dependent[kinds])
        self.kinds = kinds[self.pods]
        self.amounts = packing.need[self.kinds]  # (pods, resources)
        self.size = packing.size[self.kinds]
        self.home = packing.pod_node[self.pods]
        self.at = self.home.copy()
        self._on: list[set[int]] = [set() for _ in range(packing.nodes)]
        for number, node in enumerate(self.home.tolist()):
            self._on[node].add(number)
        self._free = np.ascontiguousarray(packing.room.T)  # (nodes, resources)
        self.fits = np.zeros(packing.nodes, dtype=np.int64)
        self._rest = self._free.copy()  # (nodes, resources)
        self.total = self.moves = 0
        self._known: dict[int, tuple[_Set, ...]] = {}
        for node in range(packing.nodes):
            self._refresh(node)

    def move(self, number: int, target: int) -> None:
        """Move a pod."""
        source, home = int(self.at[number]), int(self.home[number])
        self.moves += int(target != home) - int(source != home)
        self._free[source] += self.amounts[number]
        self._free[target] -= self.amounts[number]
        self._on[source].discard(number)
        self._on[target].add(number)
        self.at[number] = target
        self._refresh(source)
        self._refresh(target)

    def moved(self) -> list[int]:
        """Return the pods that are not at home."""
        return np.flatnonzero(self.at != self.home).tolist()

    def go_home(self, number: int, *, costs_room: bool) -> None:
        """Move a pod back if its node has room, or a rest, for it."""
        room_left = (self._free if costs_room else self._rest)[self.home[number]]
        is_asked = self.amounts[number] > 0
        if (room_left[is_asked] >= self.amounts[number][is_asked]).all():
            self.move(number, int(self.home[number]))

    def sets(self, node: int) -> tuple[_Set, ...]:
        """Return sets of pods whose leaving lets one more fit."""
        if node not in self._known:
            self._known[node] = tuple(self._find_sets(node))
        return self._known[node]

    def _find_sets(self, node: int) -> Iterator[_Set]:
        if not self._wanted[node] or not self._on[node]:
            return
        lack = np.maximum((self.fits[node] + 1) * self._need - self._free[node], 0)[self._asked]
        pods = np.array(
            sorted(self._on[node], key=lambda pod_number: (-int(self.size[pod_number]), pod_number)), dtype=np.int64
        )
        gone = self.amounts[pods][:, self._asked]
        makes_room_alone = (gone >= lack).all(axis=1)
        singles = np.flatnonzero(makes_room_alone)[::-1][:_SETS].tolist()
        for single in singles:
            yield int(self.size[pods[single]]), (int(pods[single]),)
        rest = np.flatnonzero(~makes_room_alone)[:_MOST_PAIRED]
        first, second = np.triu_indices(len(rest), 1)
        first, second = rest[first], rest[second]
        enough = np.flatnonzero((gone[first] + gone[second] >= lack).all(axis=1))
        sizes = self.size[pods[first[enough]]] + self.size[pods[second[enough]]]
        order = np.argsort(sizes, kind="stable")[:_SETS]
        for size, pair in zip(sizes[order].tolist(), enough[order].tolist(), strict=True):
            yield size, (int(pods[first[pair]]), int(pods[second[pair]]))
        if not singles and not len(order):
            yield from self._cover(pods, gone, lack)

    def _cover(self, pods: Ints, gone: Ints, lack: Ints) -> Iterator[_Set]:
        """Yield the largest pods that are enough together, without those that are not needed."""
        together = np.cumsum(gone, axis=0)
        enough = np.flatnonzero((together >= lack).all(axis=1))
        if not len(enough):
            return
        chosen, excess = list(range(int(enough[0]) + 1)), together[enough[0]] - lack
        for chosen_pod in list(chosen):
            if (gone[chosen_pod] <= excess).all():
                chosen.remove(chosen_pod)
                excess = excess - gone[chosen_pod]
        yield int(self.size[pods[chosen]].sum()), tuple(int(pods[pod_number]) for pod_number in chosen)

    def land(self, pods: Sequence[int], noise: Ints) -> list[tuple[int, int]] | None:
        """Return a place for each pod in the rests of other nodes; None if there is none."""
        rests, landings = self._rest.copy(), []
        for number in sorted(pods, key=lambda pod_number: -int(self.size[pod_number])):
            amounts = self.amounts[number]
            mask = self._packing.allowed(int(self.kinds[number])).copy()
            mask[self.at[number]] = False
            for column in self._packing.asked[int(self.kinds[number])]:
                mask &= rests[:, column] >= amounts[column]
            nodes = np.flatnonzero(mask)
            if not len(nodes):
                return None
            nodes = self._packing.first_of(nodes)
            rest_left = (np.maximum(rests[nodes] - amounts, 0) @ self._packing.weight >> _NOISE_BITS) * noise[nodes]
            target = int(nodes[rest_left.argmin()])
            rests[target] -= amounts
            landings.append((number, target))
        return landings

    def _refresh(self, node: int) -> None:
        self._known.pop(node, None)
        fits = 0
        if self._wanted[node]:
            fits = max(0, int((self._free[node, self._asked] // self._need[self._asked]).min()))
        self.total += fits - int(self.fits[node])
        self.fits[node] = fits
        self._rest[node] = self._free[node] - fits * self._need


class _Improving:
    """One search."""

    def __init__(self, packing: PackingModel, may_leave: Mask, goal: RoomGoal) -> None:
        self._packing = packing
        self._goal = goal
        self._place = _Placement(packing, may_leave, goal.kind)
        self._budget = len(self._place.pods) if goal.budget is None else goal.budget
        self._chance = Random(goal.seed)  # noqa: S311 - a search is no secret
        self._version = [0] * packing.nodes
        self._best = self._place.at.copy()
        self._best_value = self._value()
        self._out_of_time = False

    def run(self) -> None:
        """Search until nothing more is found, or the time is over."""
        if self._is_over():
            return
        self._recreate(range(self._packing.nodes), 0)
        self._keep()
        value, kept, idle = self._value(), self._place.at.copy(), 0
        for _ in range(_ROUNDS):
            if self._is_over() or idle >= _ROUNDS_WITHOUT_GAIN or not self._place.moves:
                return
            self._recreate(self._ruin(), self._chance.choice(_NOISES))
            idle = 0 if self._keep() else idle + 1
            if self._value() >= value:
                value, kept = self._value(), self._place.at.copy()
            else:
                self._restore(kept)

    def result(self) -> RoomImproved:
        """Return the best that was found."""
        self._restore(self._best)
        place = self._place
        moved_pods = np.array(place.moved(), dtype=np.int64)
        ejections, arrivals = (_count(place.kinds[moved_pods], nodes[moved_pods]) for nodes in (place.home, place.at))
        nodes = (node for node in np.flatnonzero(place.fits).tolist() for _ in range(int(place.fits[node])))
        return RoomImproved(ejections, arrivals, tuple(nodes)[: self._goal.most], place.moves, self._out_of_time)

    def _is_over(self) -> bool:
        """Return whether nothing better is possible, or no time is left."""
        self._out_of_time = is_over(self._goal.deadline)
        return self._out_of_time or self._best_value >= (self._goal.most, -self._goal.least_moves)

    def _value(self) -> tuple[int, int]:
        return min(self._place.total, self._goal.most), -self._place.moves

    def _keep(self) -> bool:
        """Note a better result; return whether it is one."""
        value = self._value()
        if value <= self._best_value:
            return False
        is_larger = value[0] > self._best_value[0]
        self._best, self._best_value = self._place.at.copy(), value
        return is_larger

    def _restore(self, at: Ints) -> None:
        for number in np.flatnonzero(self._place.at != at).tolist():
            self._place.move(number, int(at[number]))

    def _ruin(self) -> list[int]:
        """Put some of what was moved back; return the nodes to look at."""
        place, chance = self._place, self._chance
        homes = sorted({int(place.home[number]) for number in place.moved()})
        share = chance.choice(_SHARES)
        number = min(_MOST_RUINED, max(1, len(homes) * share // 100))
        chosen_homes = set(chance.sample(homes, number))
        for pod in place.moved():
            if place.home[pod] in chosen_homes:
                place.go_home(pod, costs_room=True)
        for pod in place.moved():
            place.go_home(pod, costs_room=False)
        nodes = range(self._packing.nodes)
        beside = nodes if len(nodes) <= _NODES_PER_ROUND else chance.sample(nodes, _NODES_PER_ROUND)
        return sorted(chosen_homes.union(beside))

    def _recreate(self, nodes: Iterable[int], noise: int) -> None:
        """Take sets off the nodes, the smallest first, while the moves allow."""
        chance, place = self._chance, self._place
        heap: list[_Candidate] = []
        asked_nodes = set(nodes)
        for node in sorted(asked_nodes):
            if is_over(self._goal.deadline):
                break
            heap += self._candidates(node, noise)
        heapify(heap)
        near = np.array([64 + chance.randrange(noise + 1) for _ in range(self._packing.nodes)], dtype=np.int64)
        while heap and place.total < self._goal.most and not is_over(self._goal.deadline):
            _, _, node, version, pods = heappop(heap)
            cost = sum(place.at[pod] == place.home[pod] for pod in pods)
            if version != self._version[node] or place.moves + cost > self._budget:
                continue
            targets = place.land(pods, near)
            if targets is None:
                continue
            for pod, target in targets:
                place.move(pod, target)
            for changed_node in sorted({node, *(target for _, target in targets)}):
                self._version[changed_node] += 1
                if changed_node in asked_nodes:
                    for candidate in self._candidates(changed_node, noise):
                        heappush(heap, candidate)

    def _candidates(self, node: int, noise: int) -> list[_Candidate]:
        chance, version = self._chance, self._version[node]
        candidates = []
        for size, pods in self._place.sets(node):
            disturbed = (size >> _NOISE_BITS) * (64 + chance.randrange(noise + 1))
            number = (len(pods) << _NOISE_BITS) + (chance.randrange(noise + 1) if len(pods) > 1 else 0)
            candidates.append((number, disturbed, node, version, pods))
        return candidates


def _count(kinds: Ints, nodes: Ints) -> Ints:
    """Return how many pods of each kind each node has; (entries, 3)."""
    cells, counts = np.unique(np.stack([kinds, nodes], axis=1), axis=0, return_counts=True)
    return np.column_stack([cells, counts]).astype(np.int64).reshape(-1, 3)
