"""Empties nodes of a large cluster in which most pods are tied to each other, with all of their pods at once.

Where nearly every node has tied pods, a set of nodes can neither be filled kind by kind, nor repaired by nodes that
have none. Here the pods of a set's nodes are placed one by one, the largest first, whichever node they come from: so
small ones fill what large ones leave. A pod that finds no place asks smaller ones to step aside; where that fails,
nodes leave the set until every pod has a place. Each round begins anew, with what the one before has shown: nodes that
had to leave are dearer, and kept nodes that ran out of another resource than the scarcest give a pod away.

Each step is asked of the rules in `state` when it is made, and each pod moves once. So the steps are an order of moves
that can be carried out, whatever else was tried in between.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from berth_core import Deadline, is_over
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.solver.bounds import usual_size
from berth_descheduler.planner.solver.draining import Candidates, Draining
from berth_descheduler.planner.solver.filling import Filled
from berth_descheduler.planner.solver.growing import DependentPlacement
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

_LEAST_CELLS: Final = 400_000
"""Nodes times kinds from which on pods are placed together: a smaller cluster is searched thoroughly without."""

_ASKED_FIRST: Final = 4
"""Most pods fit one of so many fullest nodes, which are found without sorting all."""

_MOST_ASKED: Final = 256
"""So many nodes with room are asked about one pod; the fullest first."""

_CLOSEST: Final = 12
"""So many nodes that lack least are looked at for a pod without a place."""

_ASIDE: Final = 6
"""So many smaller kinds on such a node are asked to step aside."""

_CHAIN: Final = 2
"""So many pods step aside for one, each for the next."""

_LARGE: Final = 20
"""A pod that takes more than one in so many parts of a node counts twice: it is hard to place."""

_IDLE: Final = 8
"""After so many rounds in a row that emptied no more nodes the search ends."""

_WASTED: Final = 3
"""So many times the least amount that a pod asks for are worth another pod's move."""

_RELUCTANCE: Final = 1.25
"""By so much a node is dearer each time that it had to leave a set."""

_Move = tuple[PodIndex, NodeIndex, NodeIndex]
"""A pod, where it was and where it went."""


def is_mostly_tied(packing: PackingModel) -> bool:
    """Return whether the cluster is large and most movable pods depend on others."""
    kinds = packing.pod_kind[packing.pod_kind >= 0]
    return packing.nodes * packing.kinds >= _LEAST_CELLS and 2 * int(packing.dependent[kinds].sum()) > len(kinds)


class JointDraining:
    """A set of nodes that are emptied in a state, and the steps that empty them."""

    def __init__(
        self,
        packing: PackingModel,
        state: State,
        candidates: Candidates,
        open_nodes: Mask,
        may_leave: Mask,
        *,
        most: int,
        deadline: Deadline,
    ) -> None:
        """Begin with the cluster as it is; no more than `most` nodes can be emptied."""
        self._packing = packing
        self._state = state
        self._candidates = candidates
        self._most = most
        self._deadline = deadline
        self._room = packing.room.copy()
        self._free: Ints = packing.weight @ self._room  # (nodes,)
        self._open = open_nodes & packing.takes
        self._emptied = np.zeros(packing.nodes, dtype=bool)
        self._size: list[int] = packing.size.tolist()
        self._kind: list[int] = packing.pod_kind.tolist()
        self._home: list[int] = packing.pod_node.tolist()
        self._pods_on = _group(packing, may_leave)
        self._usual = usual_size(packing)
        self._cost = self._weigh_candidates()
        self._leaving: set[PodIndex] = set()
        """Pods that leave nodes which are kept, for others that leave more of the scarcest resource to use."""

        self._log: list[_Move] = []
        self.out_of_time = False
        """Whether the deadline ended the search."""

    def run(self) -> Draining | None:
        """Return the most nodes that were emptied, None if it is none; the state is then as it was."""
        best = self._search()
        self._undo_to(0)
        return best

    def _search(self) -> Draining | None:
        best: Draining | None = None
        target, idle = self._most, 0
        while target and idle < _IDLE:
            is_whole = self._empty_cheapest(target)
            freed, reached = int(self._emptied.sum()), len(best.nodes) if best else 0
            idle += 1
            if is_whole and freed > reached:
                best, reached, idle = self._draining(), freed, 0
            if reached == self._most:
                break
            if is_over(self._deadline):
                self.out_of_time = True
                break
            self._relieve_nodes()
            # Halfway up from what was emptied: the costs that this round has taught make more nodes possible.
            target = min(self._most, max(reached + 1, (freed + target + 1) // 2))
        return best

    def _draining(self) -> Draining:
        nodes = tuple(NodeIndex(node) for node in np.flatnonzero(self._emptied).tolist())
        placements = tuple(DependentPlacement(pod, target) for pod, _, target in self._log)
        no_cells = np.empty((0, 3), dtype=np.int64)
        filled = Filled.placed(self._packing, no_cells, no_cells)
        worth = self._candidates.worth_of(nodes)
        return Draining.of(self._packing, nodes, placements, filled, moves=len(placements), worth=worth)

    def _weigh_candidates(self) -> npt.NDArray[np.float64]:
        """Return how hard each node is to empty: the size of its pods, large ones twice; (nodes,)."""
        movable = np.flatnonzero(self._packing.pod_kind >= 0)
        size = self._packing.size[self._packing.pod_kind[movable]].astype(np.float64)
        weight = size * np.where(size * _LARGE > self._usual, 2, 1)
        nodes = self._packing.pod_node[movable]
        return np.bincount(nodes, weights=weight, minlength=self._packing.nodes).astype(np.float64)

    def _relieve_nodes(self) -> None:
        """Let a pod leave each kept node on which much of the scarcest resource is free and none of another.

        It is the one that takes most of the other, beside what it takes of the scarcest.
        """
        need, binding = self._packing.need, self._packing.binding
        least = need[np.unique(self._packing.pod_kind[self._packing.pod_kind >= 0])].min(axis=0)
        is_bound = (self._room < least[:, None]).any(axis=0) & (self._room[binding] >= _WASTED * least[binding])
        for node in np.flatnonzero(is_bound & self._open).tolist():
            column = int((self._room[:, node] - least).argmin())
            staying = [pod for pod in self._pods_on[node] if self._state.node_of[pod] == node]
            if len(staying) > 1:
                share = {pod: need[self._kind[pod], column] / max(1, need[self._kind[pod], binding]) for pod in staying}
                self._leaving.add(max(staying, key=lambda pod: (share[pod], pod)))

    def _empty_cheapest(self, count: int) -> bool:
        """Begin anew with so many nodes; return whether every pod has a place.

        Where pods find none, nodes leave the set.
        """
        self._undo_to(0)
        self._open[self._emptied] = True
        nodes = self._candidates.nodes
        chosen = nodes[np.argsort(self._cost[nodes], kind="stable")[:count]]
        self._emptied[:] = False
        self._emptied[chosen] = True
        self._open[chosen] = False
        pool = [pod for node in chosen.tolist() for pod in self._pods_on[node]]
        pool += [pod for pod in self._leaving if not self._emptied[self._home[pod]]]
        pool = self._of_emptied(self._place(pool, chain=0))
        while pool:
            if is_over(self._deadline):
                return False
            returning = self._nodes_to_return(pool)
            self._cost[returning] *= _RELUCTANCE
            pool = self._of_emptied(self._place([*pool, *self._keep_after_all(set(returning))], chain=0))
            # To step aside asks dozens of nodes for each pod: only for the last ones, less than a node's worth.
            if sum(self._size[self._kind[pod]] for pod in pool) <= self._usual:
                pool = self._place(pool, chain=_CHAIN)
        return True

    def _of_emptied(self, pods: Iterable[PodIndex]) -> list[PodIndex]:
        """Return the pods that cannot stay where they are."""
        return [pod for pod in pods if self._emptied[self._home[pod]]]

    def _nodes_to_return(self, pool: Iterable[PodIndex]) -> list[int]:
        """Return the emptied nodes to which most of the pods without a place belong, some of those that it takes."""
        missing: Counter[int] = Counter()
        for pod in pool:
            missing[self._home[pod]] += self._size[self._kind[pod]]
        enough = max(1, -(-missing.total() // self._usual) * 3 // 4)
        return sorted(missing, key=lambda node: (-missing[node], node))[:enough]

    def _keep_after_all(self, returning: Collection[int]) -> list[PodIndex]:
        """Take the steps from some nodes back; return the pods of others whose steps the rules refuse then."""
        first = next((at for at, step in enumerate(self._log) if self._home[step[0]] in returning), len(self._log))
        later = self._log[first:]
        self._undo_to(first)
        for node in returning:
            self._emptied[node], self._open[node] = False, True
        refused: list[PodIndex] = []
        for pod, _, target in later:
            if self._home[pod] in returning:
                continue
            if self._fits(pod, target) and self._state.refusal(pod, target) is None:
                self._move(pod, target)
            else:
                refused.append(pod)
        return self._of_emptied(refused)

    def _place(self, pods: Collection[PodIndex], *, chain: int) -> list[PodIndex]:
        """Place pods, the largest first, and return those that find no place."""
        in_order = sorted(pods, key=lambda pod_to_place: (-self._size[self._kind[pod_to_place]], pod_to_place))
        return [pod for pod in in_order if is_over(self._deadline) or not self._place_one(pod, chain)]

    def _place_one(self, pod: PodIndex, chain: int) -> bool:
        return self._place_directly(pod) or (chain > 0 and self._place_by_stepping_aside(pod, chain))

    def _place_directly(self, pod: PodIndex, but: int | None = None) -> bool:
        target = self._find_target(pod, but)
        if target is None:
            return False
        self._move(pod, target)
        return True

    def _find_target(self, pod: PodIndex, but: int | None) -> NodeIndex | None:
        """Return the fullest node that takes a pod."""
        kind = self._kind[pod]
        mask = self._open & self._packing.allowed(kind)
        for column in self._packing.asked[kind]:
            mask &= self._room[column] >= self._packing.need[kind, column]
        if but is not None:
            mask[but] = False
        nodes = mask.nonzero()[0]
        free = self._free[nodes]
        if not self._packing.is_ranked and len(nodes):
            left = free.copy()
            for _ in range(min(_ASKED_FIRST, len(nodes))):
                fullest = int(left.argmin())
                target = NodeIndex(int(nodes[fullest]))
                if self._state.refusal(pod, target) is None:
                    return target
                left[fullest] = np.iinfo(np.int64).max
        order = np.lexsort((free, self._packing.rank[nodes]))[0 if self._packing.is_ranked else _ASKED_FIRST :]
        asked = map(NodeIndex, nodes[order[:_MOST_ASKED]].tolist())
        return next((target for target in asked if self._state.refusal(pod, target) is None), None)

    def _place_by_stepping_aside(self, pod: PodIndex, chain: int) -> bool:
        kind = self._kind[pod]
        asked = np.array(self._packing.asked[kind], dtype=np.int64)
        nodes = (self._open & self._packing.allowed(kind)).nonzero()[0]
        lack = np.maximum(self._packing.need[kind, asked, None] - self._room[np.ix_(asked, nodes)], 0)
        order = np.argsort(self._packing.weight[asked] @ lack, kind="stable")[:_CLOSEST]
        for node, lacking in zip(nodes[order].tolist(), lack[:, order].T, strict=True):
            target = NodeIndex(node)
            if self._state.refusal_by_others(pod, target) is None and self._swap_in(pod, target, lacking, asked, chain):
                return True
        return False

    def _swap_in(self, pod: PodIndex, target: NodeIndex, lacking: Ints, asked: Ints, chain: int) -> bool:
        """Move a pod to a node that a smaller one leaves; return whether that was possible.

        If not, all is as before.
        """
        size = self._size[self._kind[pod]]
        of_kind = {
            self._kind[smaller]: smaller
            for smaller in self._pods_on[target]
            if self._size[self._kind[smaller]] < size and self._state.node_of[smaller] == target
        }
        enough = [kind for kind in of_kind if (self._packing.need[kind, asked] >= lacking).all()]
        for kind in sorted(enough, key=lambda smaller_kind: (self._size[smaller_kind], smaller_kind))[:_ASIDE]:
            mark, smaller = len(self._log), of_kind[kind]
            is_aside = self._place_directly(smaller, but=target) or (
                chain > 1 and self._place_by_stepping_aside(smaller, chain - 1)
            )
            if is_aside and self._fits(pod, target) and self._state.refusal(pod, target) is None:
                self._move(pod, target)
                return True
            self._undo_to(mark)
        return False

    def _fits(self, pod: PodIndex, node: NodeIndex) -> bool:
        """Return whether a node has room for what a pod asks for."""
        kind = self._kind[pod]
        need, room = self._packing.need[kind], self._room[:, node]
        return all(room[column] >= need[column] for column in self._packing.asked[kind])

    def _move(self, pod: PodIndex, target: NodeIndex) -> None:
        source = self._state.node_of[pod]
        self._log.append((pod, source, target))
        self._state.move(pod, target)
        self._carry(self._kind[pod], source, target)

    def _carry(self, kind: int, source: NodeIndex, target: NodeIndex) -> None:
        need, size = self._packing.need[kind], self._size[kind]
        self._room[:, source] += need
        self._room[:, target] -= need
        self._free[source] += size
        self._free[target] -= size

    def _undo_to(self, mark: int) -> None:
        """Take back the steps after a mark, in the books and in the state."""
        steps_before = len(self._state.steps) - (len(self._log) - mark)
        while len(self._log) > mark:
            pod, source, target = self._log.pop()
            self._carry(self._kind[pod], target, source)
        self._state.undo_to(steps_before)


def _group(packing: PackingModel, may_leave: Mask) -> defaultdict[int, list[PodIndex]]:
    """Return the pods of each node that may leave it."""
    pods_on: defaultdict[int, list[PodIndex]] = defaultdict(list)
    movable = np.flatnonzero((packing.pod_kind >= 0) & may_leave[packing.pod_node])
    for pod, node in zip(movable.tolist(), packing.pod_node[movable].tolist(), strict=True):
        pods_on[node].append(PodIndex(pod))
    return pods_on
