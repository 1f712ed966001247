"""Orders moves: each step has room before the old pod goes.

What arrives and leaves is given per kind and node; which pod goes where is decided here. A node takes what it has room
for now, largest first; pods that are taken off a node on which something waits to come in go first, because they make
room. If nothing can move, a pod that is in the way goes to a third node for a while, at the cost of one more move. By
then others may have taken the room on all third nodes: so it steps aside before any other move, in another attempt.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

_STEP_ASIDE: Final = 3
"""So many pods step aside first at most."""

_FEW_MISSING: Final = 8
"""Another attempt is made where no more pods than this were left."""


@dataclass(frozen=True)
class Transition:
    """Which pods leave which nodes, and what arrives where."""

    leaving: Mapping[NodeIndex, tuple[PodIndex, ...]]
    emptied: frozenset[NodeIndex]
    arrivals: Ints  # (entries, 3): kind, node, count


def apply_transition(
    packing: PackingModel, state: State, transition: Transition, *, detours: int, open_nodes: Mask
) -> bool:
    """Make the moves of a transition in a state; return whether all could be made with so many detours.

    If not, the state is as it was before.
    """
    mark = state.mark()
    stepping_aside: list[PodIndex] = []
    while True:
        order = _Order(packing, state, transition, open_nodes)
        has_stepped = all(order.step_aside(pod) for pod in stepping_aside)
        if has_stepped and order.run(detours - len(stepping_aside)):
            return True
        blocking_pod = next((pod for pod in order.blocking_pods() if pod not in stepping_aside), None)
        state.undo_to(mark)
        is_worth_it = has_stepped and order.missing <= _FEW_MISSING
        if not is_worth_it or blocking_pod is None or len(stepping_aside) == min(detours, _STEP_ASIDE):
            return False
        stepping_aside.append(blocking_pod)


class _Order:
    """One transition in the making."""

    def __init__(self, packing: PackingModel, state: State, transition: Transition, open_nodes: Mask) -> None:
        self._packing = packing
        self._state = state
        self._open = open_nodes & packing.takes
        self._emptied = transition.emptied
        self._wanted: dict[NodeIndex, dict[int, int]] = defaultdict(dict)
        for kind, node, count in transition.arrivals.tolist():
            self._wanted[NodeIndex(node)][kind] = count
        self._in_the_way: dict[int, deque[PodIndex]] = defaultdict(deque)
        self._waiting: dict[int, deque[PodIndex]] = defaultdict(deque)
        for node, pods in sorted(transition.leaving.items()):
            heap = self._waiting if node in self._emptied else self._in_the_way
            for pod in pods:
                heap[int(packing.pod_kind[pod])].append(pod)
        self.missing = int(transition.arrivals[:, 2].sum())
        """How many pods are still to arrive."""

        self._has_dependent = bool(packing.dependent[transition.arrivals[:, 0]].any())

    def run(self, detours: int) -> bool:
        """Make every move; return whether that was possible."""
        todo, missing_before = deque(sorted(self._wanted)), self.missing
        while True:
            while todo:
                todo.extend(self._serve(todo.popleft()))
            if self.missing == 0:
                return True
            if self._has_dependent and self.missing < missing_before:
                missing_before = self.missing  # what has moved may have let pods in that depend on it
                todo.extend(sorted(node for node, wanted_kinds in self._wanted.items() if wanted_kinds))
                continue
            # What is left waits in circles, each move for the room that another one leaves: a pod has to step out of
            # its circle.
            freed = self._make_detour() if detours else None
            if freed is None:
                return False
            detours -= 1
            todo.extend(freed)

    def _serve(self, target: NodeIndex) -> Iterable[NodeIndex]:
        """Bring to a node what fits; return the nodes that now have more room and await pods."""
        wanted_kinds = self._wanted[target]
        relieved: dict[NodeIndex, None] = {}
        # The largest first: small pods fill a rest that is left, large ones do not.
        for kind in sorted(wanted_kinds, key=lambda wanted_kind: (-int(self._packing.size[wanted_kind]), wanted_kind)):
            while wanted_kinds[kind] and self._state.fits(self._packing.class_of[kind], target):
                source = self._bring(kind, target)
                if source is None:
                    break
                wanted_kinds[kind] -= 1
                if source not in self._emptied:
                    relieved[source] = None
            if not wanted_kinds[kind]:
                del wanted_kinds[kind]
        return [node for node in relieved if self._wanted.get(node)]

    def _bring(self, kind: int, target: NodeIndex) -> NodeIndex | None:
        """Move a pod of a kind to a node; return its source, None if no pod may go now."""
        for heap in (self._in_the_way[kind], self._waiting[kind]):
            for _ in range(len(heap)):
                pod = heap.popleft()
                if not self._packing.dependent[kind] or self._state.refusal(pod, target) is None:
                    source = self._state.node_of[pod]
                    self._state.move(pod, target)
                    self.missing -= 1
                    return source
                heap.append(pod)
        return None

    def _make_detour(self) -> tuple[NodeIndex, ...] | None:
        """Move a blocking pod to a third node; return the nodes to revisit, None if there is no third node."""
        for pod in self.blocking_pods():
            source, kind = self._state.node_of[pod], int(self._packing.pod_kind[pod])
            if self.step_aside(pod):
                return (source, *sorted(node for node, wanted_kinds in self._wanted.items() if kind in wanted_kinds))
        return None

    def blocking_pods(self) -> Iterator[PodIndex]:
        """Yield the pods that are in the way on nodes that await others, the smallest first."""
        size = self._packing.size
        for kind in sorted(self._in_the_way, key=lambda blocking_kind: (int(size[blocking_kind]), blocking_kind)):
            yield from (pod for pod in self._in_the_way[kind] if self._wanted.get(self._state.node_of[pod]))

    def step_aside(self, pod: PodIndex) -> bool:
        """Move a pod that is in the way to a third node; return whether there is one."""
        kind = int(self._packing.pod_kind[pod])
        third = self._third_node(kind, pod)
        if third is None:
            return False
        self._in_the_way[kind].remove(pod)
        self._state.move(pod, third)
        wanted_kinds = self._wanted.get(third, {})
        if wanted_kinds.get(kind):  # it may stay there
            self._note_arrival(kind, wanted_kinds)
        else:
            self._waiting[kind].append(pod)
        return True

    def _note_arrival(self, kind: int, wanted_kinds: dict[int, int]) -> None:
        self.missing -= 1
        wanted_kinds[kind] -= 1
        if not wanted_kinds[kind]:
            del wanted_kinds[kind]

    def _third_node(self, kind: int, pod: PodIndex) -> NodeIndex | None:
        """Return the fullest node for a temporary stay of a pod: nodes that await nothing first, then lower ranks."""
        emptied = np.array(sorted(self._emptied), dtype=np.int64)
        mask = self._open & self._packing.allowed(kind)
        mask[emptied] = False
        nodes = [NodeIndex(int(node)) for node in np.flatnonzero(mask)]
        class_index = self._packing.class_of[kind]
        fitting_nodes = [node for node in nodes if self._state.fits(class_index, node)]
        rank = self._packing.rank
        fitting_nodes.sort(
            key=lambda node: (bool(self._wanted.get(node)), rank[node], sum(self._state.free[node]), node)
        )
        return next((node for node in fitting_nodes if self._state.refusal(pod, node) is None), None)
