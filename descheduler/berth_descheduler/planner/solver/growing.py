"""Makes a whole draining of an incomplete one, and grows it node by node.

Where requests are of hundreds of kinds, a set of nodes chosen by volume almost never can be filled to the last pod.
Such a set is *repaired*: nodes leave it until the pods that found no place are home again. Then it is *grown*: one more
node at a time is emptied onto those that are kept, with smaller pods stepping aside, and where that fails the kept node
with least on it is *squeezed*, exchanging its pods for smaller ones until nothing is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.solver.bounds import holds
from berth_descheduler.planner.solver.filling import Filled
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

NOWHERE: Final = -1
"""The place of pods that are still to be placed."""

_CLOSEST: Final = 12
"""So many nodes that lack least are looked at for a pod without a place."""

_ASIDE: Final = 6
"""So many smaller pods of such a node are tried."""

_EXCHANGES: Final = 60
"""The most exchanges to squeeze a node."""


class Growing:
    """Where the pods of each kind are, and which nodes are emptied."""

    def __init__(
        self, packing: PackingModel, room: Ints, open_nodes: Mask, may_leave: Mask, deadline: Deadline
    ) -> None:
        """Begin with the pods as they are; `room` is what tied pods leave."""
        self._packing = packing
        self._deadline = deadline
        self.room = room.copy()
        self.open = open_nodes & packing.takes
        self._need = packing.need
        self._whole: Ints = packing.weight @ holds(packing)
        self._size: list[int] = packing.size.tolist()
        self._before = _count_on(packing, may_leave)
        self.on = [dict(kinds) for kinds in self._before]
        self._extra: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Per kind how many pods more than before are on a node."""

        self.pool: defaultdict[int, int] = defaultdict(int)
        """How many pods of each kind have no place."""

        self.moves = 0
        self._log: list[tuple[int, int, int]] = []

    # --- the books --------------------------------------------------------------------------------------------------

    def move(self, kind: int, source: int, target: int) -> None:
        """Move a pod; either end may be `NOWHERE`."""
        self._log.append((kind, source, target))
        self._carry(kind, source, target)

    def undo_to(self, mark: int) -> None:
        """Take back every move after a mark."""
        while len(self._log) > mark:
            kind, source, target = self._log.pop()
            self._carry(kind, target, source)

    def mark(self) -> int:
        """Return where the books stand."""
        return len(self._log)

    def _carry(self, kind: int, source: int, target: int) -> None:
        self._change(kind, source, -1)
        self._change(kind, target, 1)

    def _change(self, kind: int, node: int, by: int) -> None:
        if node == NOWHERE:
            self.pool[kind] += by
            if not self.pool[kind]:
                del self.pool[kind]
            return
        self.room[:, node] -= by * self._need[kind]
        here, before = self.on[node].get(kind, 0), self._before[node].get(kind, 0)
        now = here + by
        if now:
            self.on[node][kind] = now
        else:
            del self.on[node][kind]
        self.moves += max(0, before - now) - max(0, before - here)
        if now > before:
            self._extra[kind][node] = now - before
        else:
            self._extra[kind].pop(node, None)

    # --- reading and writing ----------------------------------------------------------------------------------------

    def take_over(self, nodes: Iterable[int], filled: Filled) -> None:
        """Begin with a filling and the nodes that it empties."""
        for node in nodes:
            self.open[node] = False
            for kind, count in list(self.on[node].items()):
                for _ in range(count):
                    self._carry(kind, node, NOWHERE)
        for kind, node, count in filled.ejections.tolist():
            for _ in range(count):
                self._carry(kind, node, NOWHERE)
        for kind, node, count in filled.arrivals.tolist():
            for _ in range(count):
                self._carry(kind, NOWHERE, node)

    def filled(self, emptied: Mask) -> Filled:
        """Return what came of it."""
        arrivals = [
            (kind, node, count) for kind, nodes in sorted(self._extra.items()) for node, count in sorted(nodes.items())
        ]
        ejections = [
            (kind, node, count - now[kind] if kind in now else count)
            for node, (before, now) in enumerate(zip(self._before, self.on, strict=True))
            if not emptied[node]
            for kind, count in before.items()
            if now.get(kind, 0) < count
        ]
        return Filled.placed(self._packing, _rows(arrivals), _rows(ejections))

    # --- placing ----------------------------------------------------------------------------------------------------

    def load(self, node: int) -> int:
        """Return the size of all pods on a node."""
        return sum(self._size[kind] * count for kind, count in self.on[node].items())

    def nodes_for_pool(self) -> int:
        """Return how many usual nodes what has no place takes."""
        usual = max(1, int(np.median(self._whole[self._packing.takes])))
        return -(-sum(self._size[kind] * count for kind, count in self.pool.items()) // usual)

    def worth_keeping(self, node: int) -> int:
        """Return how much of what has no place a node could take, roughly."""
        return self.overlap(node) + int(self._whole[node])

    def place_pool(self, aside: int) -> None:
        """Place what has no place, the largest first, as far as there is room."""
        for kind in sorted(self.pool, key=lambda one: (-self._size[one], one)):
            if is_over(self._deadline):
                return
            while self.pool.get(kind) and self._place(kind, NOWHERE, aside):
                pass

    def bring_back(self, node: int) -> None:
        """Keep a node after all: its pods are home again, and others may come."""
        for kind, count in self._before[node].items():
            for _ in range(count):
                extra = self._extra[kind]
                self.move(kind, NOWHERE if self.pool.get(kind) else max(extra), node)
        self.open[node] = True

    def overlap(self, node: int) -> int:
        """Return how much of what has no place would be home on a node."""
        return sum(
            min(self.pool[kind], count) * self._size[kind]
            for kind, count in self._before[node].items()
            if kind in self.pool
        )

    def empty(self, node: int, aside: int) -> bool:
        """Move all pods of a node elsewhere; return whether that was possible. If not, all is as before."""
        mark = self.mark()
        self.open[node] = False
        for kind in sorted(self.on[node], key=lambda one: (-self._size[one], one)):
            for _ in range(self.on[node][kind]):
                if not self._place(kind, node, aside):
                    self.undo_to(mark)
                    self.open[node] = True
                    return False
        return True

    def _place(self, kind: int, source: int, aside: int) -> bool:
        """Move a pod to a node with room, or where up to `aside` smaller pods in a chain step aside."""
        target = self._fullest(kind)
        if target is not None:
            self.move(kind, source, target)
            return True
        return aside > 0 and self._place_by_stepping_aside(kind, source, aside)

    def _fullest(self, kind: int, but: int = NOWHERE) -> int | None:
        mask = self.open & self._packing.allowed(kind)
        for column in self._packing.asked[kind]:
            mask = mask & (self.room[column] >= self._need[kind, column])
        if but != NOWHERE:
            mask[but] = False
        nodes = mask.nonzero()[0]
        return int(nodes[(self._packing.weight @ self.room[:, nodes]).argmin()]) if len(nodes) else None

    def _place_by_stepping_aside(self, kind: int, source: int, aside: int) -> bool:
        nodes = (self.open & self._packing.allowed(kind)).nonzero()[0]
        asked = np.array(self._packing.asked[kind], dtype=np.int64)
        lack = np.maximum(self._need[kind, asked, None] - self.room[np.ix_(asked, nodes)], 0)
        order = np.argsort(self._packing.weight[asked] @ lack, kind="stable")[:_CLOSEST]
        for node, lacking in zip(nodes[order].tolist(), lack[:, order].T, strict=True):
            if self._swap_in(kind, source, node, lacking, asked, aside):
                return True
        return False

    def _swap_in(self, kind: int, source: int, node: int, lacking: Ints, asked: Ints, aside: int) -> bool:
        smaller = [one for one in self.on[node] if self._size[one] < self._size[kind]]
        if not smaller:
            return False
        there = np.array(smaller, dtype=np.int64)
        fit = there[(self._need[np.ix_(there, asked)] >= lacking).all(axis=1)].tolist()
        enough = sorted((self._size[one], one) for one in fit)
        for _, one in enough[:_ASIDE]:
            mark = self.mark()
            self.move(one, node, NOWHERE)
            self.move(kind, source, node)
            target = self._fullest(one, but=node)
            if target is not None:
                self.move(one, NOWHERE, target)
                return True
            if aside > 1 and self._place_by_stepping_aside(one, NOWHERE, aside - 1):
                return True
            self.undo_to(mark)
        return False

    # --- squeezing --------------------------------------------------------------------------------------------------

    def squeeze(self, node: int) -> bool:
        """Empty a node by exchanges; return whether nothing is left. If something is, all is as before."""
        mark = self.mark()
        self.open[node] = False
        for _ in range(_EXCHANGES):
            for kind in sorted(self.on[node], key=lambda one: (-self._size[one], one)):
                while self.on[node].get(kind) and self._place(kind, node, aside=0):
                    pass
            if not self.on[node] or not self._exchange(node):
                break
        if self.empty(node, aside=1):
            return True
        self.undo_to(mark)
        self.open[node] = True
        return False

    def _exchange(self, node: int) -> bool:
        """Exchange a pod of a node for a smaller one elsewhere, with the greatest gain; return whether there is one."""
        places = self.open.nonzero()[0].tolist()
        cells = np.array([(kind, place) for place in places for kind in self.on[place]], dtype=np.int64).reshape(-1, 2)
        need, size = self._need[cells[:, 0]].T, self._packing.size[cells[:, 0]]
        room, here = self.room[:, cells[:, 1]] + need, self.room[:, node]
        best: tuple[int, int, int] | None = None
        for kind in self.on[node]:
            gain = self._size[kind] - size
            may = (gain > 0) & self._packing.allowed(kind)[cells[:, 1]]
            for column in range(len(need)):
                asked = int(self._need[kind, column])
                if asked:
                    may &= room[column] >= asked
                may &= need[column] <= here[column] + asked
            found = may.nonzero()[0]
            if len(found):
                one = int(found[gain[found].argmax()])
                allowed = self._packing.allowed(int(cells[one, 0]))[node] or cells[one, 0] in self._before[node]
                if allowed and (best is None or int(gain[one]) > best[0]):
                    best = int(gain[one]), kind, one
        if best is None:
            return False
        _, kind, one = best
        other, place = int(cells[one, 0]), int(cells[one, 1])
        self.move(other, place, NOWHERE)
        self.move(kind, node, place)
        self.move(other, NOWHERE, node)
        return True


def _count_on(packing: PackingModel, may_leave: Mask) -> list[Mapping[int, int]]:
    """Return per node how many pods of each untied kind may leave it."""
    pods = np.flatnonzero((packing.pod_kind >= 0) & may_leave[packing.pod_node])
    pods = pods[~packing.dependent[packing.pod_kind[pods]]]
    found: list[dict[int, int]] = [{} for _ in range(packing.nodes)]
    for node, kind in zip(packing.pod_node[pods].tolist(), packing.pod_kind[pods].tolist(), strict=True):
        found[node][kind] = found[node].get(kind, 0) + 1
    return list(found)


def _rows(entries: list[tuple[int, int, int]]) -> Ints:
    return np.array(entries, dtype=np.int64).reshape(-1, 3)
