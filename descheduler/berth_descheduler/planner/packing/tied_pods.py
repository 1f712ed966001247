"""Owns the placing of pods whose place depends on other pods: one by one, by the rules in `state`.

It does not own pods that stand alone: those are placed in bulk by `filling`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.packing.columns import Columns, Ints, Mask
from berth_descheduler.planner.state import State

_MOST_TRIED: Final = 256
"""So many nodes with room are asked about one pod; the fullest first."""


@dataclass(frozen=True, slots=True)
class TiedPlacement:
    """A pod and where it goes."""

    pod: PodIndex
    target: NodeIndex


class TiedPods:
    """Places tied pods in a state and in a copy of the room; `withdraw` gives the state back as it was."""

    def __init__(self, columns: Columns, state: State, open_nodes: Mask) -> None:
        self._columns = columns
        self._state = state
        self._open = open_nodes & columns.takes
        self._mark = state.mark()
        self._placements: list[TiedPlacement] = []
        self.room: Ints = columns.room
        """What is left of each node; (resources, nodes)."""

    @property
    def placements(self) -> tuple[TiedPlacement, ...]:
        """Return what was placed, in order; each step is feasible after those before it."""
        return tuple(self._placements)

    def place(self, pods_of: Mapping[int, Sequence[PodIndex]]) -> tuple[int, ...]:
        """Place the tied pods of some nodes, each node's all or none; return the nodes of which none was placed."""
        if pods_of:
            self.room = self._columns.room.copy()
        return tuple(node for node, pods in pods_of.items() if not self.place_together(pods))

    def place_together(self, pods: Sequence[PodIndex]) -> bool:
        """Place some pods, all or none; tell whether they were placed."""
        mark, placed, room = self._state.mark(), len(self._placements), self.room.copy()
        for pod in sorted(pods, key=lambda one: (-int(self._columns.size[self._columns.pod_kind[one]]), one)):
            target = self._find_target(pod)
            if target is None:
                self._state.undo_to(mark)
                del self._placements[placed:]
                self.room = room
                return False
            self._state.move(pod, target)
            self.room[:, target] -= self._columns.need[self._columns.pod_kind[pod]]
            self._placements.append(TiedPlacement(pod, target))
        return True

    def withdraw(self) -> None:
        """Take the placements back from the state; `placements` and `room` stay."""
        self._state.undo_to(self._mark)

    def _find_target(self, pod: PodIndex) -> NodeIndex | None:
        kind = int(self._columns.pod_kind[pod])
        mask = self._open & self._columns.allowed(kind)
        for column in np.flatnonzero(self._columns.need[kind]):
            mask = mask & (self.room[column] >= self._columns.need[kind, column])
        nodes = np.flatnonzero(mask)
        order = np.argsort(self._columns.weight @ self.room[:, nodes], kind="stable")[:_MOST_TRIED]
        tried = (NodeIndex(int(node)) for node in nodes[order])
        return next((node for node in tried if self._state.refusal(pod, node) is None), None)
