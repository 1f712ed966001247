"""The drains that the planner is measured against: node after node, each pod straight to a node with room.

The nodes with the fewest pods come first; of a node's pods the larger ones. `first_fit` puts a pod on the first node
that has room, `best_fit` on the fullest. Nothing is moved aside for anything. Both empty a node whole or leave it as it
is, keep the move budget, fill no node that is empty, and empty no node that has taken pods.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.problem import Problem, find_sources
from berth_descheduler.planner.simulation.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.simulation.state import State


@dataclass(frozen=True, slots=True)
class Drained:
    """How many nodes were emptied with how many moves."""

    nodes: int
    moves: int


def first_fit(problem: Problem) -> Drained:
    """Return what is emptied by taking the first node with room."""
    return _Drains(problem, fullest=False).run()


def best_fit(problem: Problem) -> Drained:
    """Return what is emptied by taking the fullest node with room."""
    return _Drains(problem, fullest=True).run()


class _Drains:
    """One run over a state of its own; free amounts are kept as columns beside it."""

    def __init__(self, problem: Problem, *, fullest: bool) -> None:
        self._problem = problem
        self._state = State(problem.cluster)
        self._sources = find_sources(problem)
        self._fullest = fullest
        self._free = np.array(self._state.free, dtype=np.int64).T  # (resources, nodes)
        self._scale = self._free.sum(axis=1).clip(1).astype(np.float64)  # (resources,)
        self._open = np.ones(self._free.shape[1], dtype=bool)
        self._open[list(self._sources.empty)] = False

    def run(self) -> Drained:
        """Empty node after node."""
        budget, filled, freed = self._problem.settings.limits.max_moves, set[NodeIndex](), 0
        for node in sorted(self._sources.to_empty, key=lambda one: (len(self._sources.pods_of[one]), one)):
            pods = self._sources.pods_of[node]
            if node in filled:
                continue
            if budget is not None and self._state.mark() + len(pods) > budget:
                break
            targets = self._empty(node, pods)
            if targets:
                filled.update(targets)
                freed += 1
        return Drained(freed, self._state.mark())

    def _empty(self, node: NodeIndex, pods: tuple[PodIndex, ...]) -> list[NodeIndex]:
        """Move a node's pods and return where to; none, and everything as it was, if one finds no place."""
        mark, placed = self._state.mark(), list[tuple[PodIndex, NodeIndex]]()
        self._open[node] = False
        for pod in sorted(pods, key=lambda one: (*(-amount for amount in self._needs(one)), one)):
            target = self._target(pod)
            if target is None:
                self._open[node] = True
                self._state.undo_to(mark)
                for moved, there in placed:
                    self._free[:, there] += self._needs(moved)
                return []
            self._state.move(pod, target)
            self._free[:, target] -= self._needs(pod)
            placed.append((pod, target))
        return [target for _, target in placed]

    def _target(self, pod: PodIndex) -> NodeIndex | None:
        needs = self._needs(pod)
        fits = ((self._free >= needs[:, None]) | (needs == 0)[:, None]).all(axis=0) & self._open
        nodes = np.flatnonzero(fits)
        if self._fullest:
            nodes = nodes[np.argsort((self._free[:, nodes].T / self._scale).sum(axis=1), kind="stable")]
        tried = (NodeIndex(int(node)) for node in nodes)
        return next((node for node in tried if self._state.refusal(pod, node) is None), None)

    def _needs(self, pod: PodIndex) -> npt.NDArray[np.int64]:  # (resources,)
        cluster = self._problem.cluster
        return np.array(cluster.requests[cluster.pods[pod].class_index], dtype=np.int64)
