"""Makes room by moving pods aside whose place depends on other pods, one after another, by the rules themselves.

The search packs amounts only, and does not move pods that affinities, spread constraints or host ports tie to other
movable pods. Here such pods go straight to a node that takes them as the cluster is after all steps so far. No pod is
moved aside for another one that is moved aside.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, State, Step
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.simulation import protected_amounts
from berth_descheduler.planner.solver import Ints, PackingModel, Want

_MAX_NODES: Final = 64
"""How many nodes are tried for a pod to come, those that lack least first."""
_MAX_TARGETS: Final = 64
"""How many nodes with room are tried for a pod that is moved aside."""

_MAX_TRIED: Final = 20_000
"""How many moves of one pod are tried, with each node for the one to come, where nothing else helps."""


@dataclass(slots=True)
class _Trial:
    """The moves that let one pod come to a node."""

    node: NodeIndex
    steps: tuple[Step, ...]


@dataclass(slots=True)
class TiedPods:
    """Adds moves to those that a state has made, within a limit on all of them."""

    problem: Problem
    state: State
    packing: PackingModel
    sources: Collection[NodeIndex]
    disruption: DisruptionCost
    budget: int | None
    deadline: Deadline
    _held: dict[NodeIndex, list[int]] = field(default_factory=dict)
    """What the pods to come take of each node; those that are tied themselves are put there in the state instead."""
    _arrived: set[PodIndex] = field(default_factory=set)

    @property
    def may_help(self) -> bool:
        """Return whether there is a tied pod that may be moved aside."""
        return any(self._is_tied(pod) for node in self.sources for pod in self.problem.cluster.pods_on[node])

    @property
    def moves(self) -> tuple[Step, ...]:
        return tuple(step for step in self.state.steps if step.pod not in self._arrived)

    def put(self, want: Want, node: NodeIndex) -> None:
        """Give a place to a pod of a want."""
        if self.packing.dependent[want.kind]:
            self._arrived.add(want.pods[0])
            self.state.move(want.pods[0], node)
            return
        needs = self.problem.cluster.requests[self.problem.cluster.pods[want.pods[0]].class_index]
        held = self._held.setdefault(node, [0] * len(needs))
        self._held[node] = [amount + need for amount, need in zip(held, needs, strict=True)]

    def add_all(self, wants: Sequence[tuple[Want, int]]) -> list[list[NodeIndex]] | None:
        """Let the given number of further pods of each want come, or none; return the new places of each."""
        mark, held, arrived = self.state.mark(), dict(self._held), set(self._arrived)
        places = [self.add_most(want, number) for want, number in wants]
        if all(len(new_places) == number for new_places, (_, number) in zip(places, wants, strict=True)):
            return places
        self.state.undo_to(mark)
        self._held, self._arrived = held, arrived
        return None

    def add_most(self, want: Want, number: int) -> list[NodeIndex]:
        """Let as many more pods of a want come as can, up to a number; return their places."""
        places: list[NodeIndex] = []
        is_dependent = bool(self.packing.dependent[want.kind])
        while len(places) < number and not (is_dependent and want.pods[0] in self._arrived):
            trial = self._find(want)
            if trial is None:
                break
            for step in trial.steps:
                self.state.move(step.pod, step.target)
            self.put(want, trial.node)
            places.append(trial.node)
        return places

    def withdraw_arrivals(self) -> bool:
        """Take the pods to come out of the state, which keeps the moves.

        Returns False if a move needs those pods; the state is then without any moves.
        """
        moves = self.moves
        self.state.undo_to(0)
        # Made again one by one: a step may have been possible only because of an affinity to a pod that has yet to
        # come.
        for step in moves:
            if self.state.refusal(step.pod, step.target) is not None:
                self.state.undo_to(0)
                return False
            self.state.move(step.pod, step.target)
        return True

    def _find(self, want: Want) -> _Trial | None:
        """Return how the next pod of a want can come with the fewest moves."""
        room = self._room()
        need = self._need(want.pods[0])
        nodes = np.flatnonzero(self.packing.allowed(want.kind) & self.packing.takes)
        lacking = np.maximum(need[:, None] - room[:, nodes], 0)
        total = np.maximum(need, 1)[:, None]
        order = nodes[np.argsort((lacking / total).sum(axis=0), kind="stable")][:_MAX_NODES]
        best: _Trial | None = None
        for node in map(NodeIndex, order.tolist()):
            # Nodes that lack nothing come first, so none that follows can do with less than one move.
            if is_over(self.deadline) or (best is not None and len(best.steps) <= 1):
                break
            trial = self._try(want.pods[0], node)
            if trial is not None and (best is None or len(trial.steps) < len(best.steps)):
                best = trial
        return best or self._find_one_move(want)

    def _find_one_move(self, want: Want) -> _Trial | None:
        """Return one move, of any pod, by which a tied pod can come: it may need company more than room."""
        if not self.packing.dependent[want.kind] or self._is_beyond_budget():
            return None
        arriving = want.pods[0]
        nodes = np.flatnonzero(self.packing.allowed(want.kind) & self.packing.takes)
        most_pods = _MAX_TRIED // (self.packing.nodes * max(1, len(nodes)))
        movable = (self.packing.pod_kind >= 0) & np.isin(self.packing.pod_node, [*self.sources])
        if np.count_nonzero(movable) - len(self.state.steps) > most_pods:
            return None  # at once, as this is asked for each pod of a large cluster that finds no room
        pods = self.disruption.cheapest_first([pod for node in self.sources for pod in self._movable_on(node)])
        if len(pods) > most_pods:
            return None
        need, mark = self._need(arriving), self.state.mark()
        for pod in pods:
            if is_over(self.deadline):
                return None
            for target in self._nodes_with_room(pod):
                if self.state.refusal(pod, target) is not None:
                    continue
                self.state.move(pod, target)
                steps = self.state.steps[mark:]
                roomy = nodes[(self._room()[:, nodes] >= need[:, None]).all(axis=0)]
                fitting = (node for node in roomy.tolist() if self.state.refusal_by_others(arriving, node) is None)
                node = next(map(NodeIndex, fitting), None)
                self.state.undo_to(mark)
                if node is not None:
                    return _Trial(node, steps)
        return None

    def _try(self, arriving: PodIndex, node: NodeIndex) -> _Trial | None:
        mark = self.state.mark()
        leaving = self._leaving(arriving, node)
        fits = leaving is not None and self._move_aside(leaving)
        if fits and self.state.refusal_by_others(arriving, node) is not None:
            fits = (
                self._move_aside(self._blocking(arriving, node))
                and self.state.refusal_by_others(arriving, node) is None
            )
        steps = self.state.steps[mark:]
        self.state.undo_to(mark)
        return _Trial(node, steps) if fits else None

    def _move_aside(self, leaving: Sequence[PodIndex]) -> bool:
        """Move pods elsewhere; return whether each has a place, within the limit."""
        for pod in leaving:
            target = self._target(pod)
            if target is None or self._is_beyond_budget():
                return False
            self.state.move(pod, target)
        return True

    def _blocking(self, arriving: PodIndex, node: NodeIndex) -> list[PodIndex]:
        """Return pods by whose leaving no other pod of a node forbids one to come, empty where that is impossible."""
        mark = self.state.mark()
        nowhere = self.problem.cluster.waiting_node
        if node not in self.sources or nowhere is None:
            return []
        pods = self._movable_on(node)
        for pod in pods:
            self.state.move(pod, nowhere)
        blocking = []
        if self.state.refusal_by_others(arriving, node) is None:
            # All who do not forbid it come back, those that are dear to move first.
            for pod in reversed(pods):
                self.state.move(pod, node)
                if self.state.refusal_by_others(arriving, node) is not None:
                    self.state.move(pod, nowhere)
                    blocking.append(pod)
        self.state.undo_to(mark)
        return blocking

    def _movable_on(self, node: NodeIndex) -> Sequence[PodIndex]:
        """Return the pods of a node that may still leave it, in the order of what their move disrupts."""
        moved = {step.pod for step in self.state.steps}
        return self.disruption.cheapest_first(
            [
                pod
                for pod in self.problem.cluster.pods_on[node]
                if self.packing.pod_kind[pod] >= 0 and pod not in moved and self.state.node_of[pod] == node
            ]
        )

    def _leaving(self, arriving: PodIndex, node: NodeIndex) -> list[PodIndex] | None:
        """Return a few pods whose leaving makes room on a node, None where that is impossible."""
        # One pod that suffices is best, the smallest of them; else the largest first, which keeps the number low.
        lacking = np.maximum(self._need(arriving) - self._room()[:, node], 0)
        if not lacking.any():
            return []
        if node not in self.sources:
            return None
        cheapest = self._movable_on(node)
        alone = [pod for pod in cheapest if (self._need(pod) >= lacking).all()]
        if alone:
            return [min(alone, key=lambda pod: (int(self.packing.size[self.packing.pod_kind[pod]]), pod))]
        leaving: list[PodIndex] = []
        helpful = [pod for pod in cheapest if (self._need(pod)[lacking > 0] > 0).any()]
        for pod in sorted(helpful, key=lambda pod: -int(self.packing.size[self.packing.pod_kind[pod]])):
            leaving.append(pod)
            lacking = np.maximum(lacking - self._need(pod), 0)
            if not lacking.any():
                return leaving
        return None

    def _target(self, pod: PodIndex) -> NodeIndex | None:
        """Return the fullest node that takes a pod."""
        return next((node for node in self._nodes_with_room(pod) if self.state.refusal(pod, node) is None), None)

    def _nodes_with_room(self, pod: PodIndex) -> list[NodeIndex]:
        """Return the nodes that have room for a pod elsewhere, the fullest first, at most `_MAX_TARGETS`."""
        kind = int(self.packing.pod_kind[pod])
        room, need = self._room(), self._need(pod)
        fits = self.packing.allowed(kind) & self.packing.takes & (room >= need[:, None])[need > 0].all(axis=0)
        fits[self.state.node_of[pod]] = False
        nodes = np.flatnonzero(fits)
        # Best fit, which leaves large holes whole (Johnson, Demers, Ullman, Garey and Graham, 1974).
        total_room = room[:, nodes].sum(axis=0)
        order = nodes[np.lexsort((total_room, self.packing.rank[nodes]))][:_MAX_TARGETS]
        return [*map(NodeIndex, order.tolist())]

    def _is_tied(self, pod: PodIndex) -> bool:
        kind = int(self.packing.pod_kind[pod])
        return kind >= 0 and bool(self.packing.dependent[kind])

    def _is_beyond_budget(self) -> bool:
        return self.budget is not None and len(self.moves) >= self.budget

    def _need(self, pod: PodIndex) -> Ints:
        requests: Ints = np.array(
            self.problem.cluster.requests[self.problem.cluster.pods[pod].class_index], dtype=np.int64
        )
        return requests

    def _room(self) -> Ints:
        """Return what may still be put on each node; (resources, nodes)."""
        free: Ints = np.array(self.state.free, dtype=np.int64).reshape(len(self.state.free), -1).T.copy()
        for column, least in protected_amounts(self.problem.cluster, self.problem.settings.protection).items():
            free[column] -= np.array(least, dtype=np.int64)
        for node, amounts in self._held.items():
            free[:, node] -= np.array(amounts, dtype=np.int64)
        return free


def ejections_of(packing: PackingModel, steps: Sequence[Step]) -> Ints:
    """Return moves aside as entries of kind, node and count; (entries, 3)."""
    counts = Counter((int(packing.pod_kind[step.pod]), int(step.source)) for step in steps)
    entries: Ints = np.array([(*cell, count) for cell, count in sorted(counts.items())], dtype=np.int64).reshape(-1, 3)
    return entries
