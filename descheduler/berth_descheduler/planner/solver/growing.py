"""Makes a whole draining of an incomplete one, and grows it node by node.

Where requests are of hundreds of kinds, a set of nodes chosen by volume almost never can be filled to the last pod.
Such a set is *repaired*: nodes leave it until the pods that found no place are home again. Then it is *grown*: one more
node at a time is emptied onto those that are kept, with smaller pods stepping aside, and where that fails the kept node
with least on it is *squeezed*, exchanging its pods for smaller ones until nothing is left. A set that grows no further
is *shaken*: some of its nodes are kept after all and others emptied, which stays if no fewer are empty then.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State
from berth_descheduler.planner.solver.bounds import holds, usual_size
from berth_descheduler.planner.solver.filling import Filled
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

# The placing of pods whose place depends on other pods: one by one, by the rules in `state`.

_ASKED_FIRST: Final = 4

_MOST_TRIED: Final = 256
"""So many nodes with room are asked about one pod; the fullest first."""


@dataclass(frozen=True, slots=True)
class DependentPlacement:
    """A pod and where it goes."""

    pod: PodIndex
    target: NodeIndex


class DependentPods:
    """Places dependent pods in a state and a copy of the room; `withdraw` restores the state."""

    def __init__(self, packing: PackingModel, state: State, open_nodes: Mask) -> None:
        self._packing = packing
        self._state = state
        self._open = open_nodes & packing.takes
        self._mark = state.mark()
        self._placements: list[DependentPlacement] = []
        self.room: Ints = packing.room
        """What is left of each node; (resources, nodes)."""

    @property
    def placements(self) -> tuple[DependentPlacement, ...]:
        """Return the placements in an order in which each step is feasible after those before it."""
        return tuple(self._placements)

    def place(self, pods_of: Mapping[int, Sequence[PodIndex]]) -> tuple[int, ...]:
        """Place the dependent pods of nodes, all or none per node; return the nodes with none placed."""
        if pods_of:
            self.room = self._packing.room.copy()
        return tuple(node for node, pods in pods_of.items() if not self.place_together(pods))

    def place_together(self, pods: Sequence[PodIndex]) -> bool:
        """Place some pods, all or none; return whether they were placed."""
        mark, placed_before, room = self._state.mark(), len(self._placements), self.room.copy()
        for pod in sorted(
            pods,
            key=lambda pod_to_place: (-int(self._packing.size[self._packing.pod_kind[pod_to_place]]), pod_to_place),
        ):
            target = self._find_target(pod)
            if target is None:
                self._state.undo_to(mark)
                del self._placements[placed_before:]
                self.room = room
                return False
            self._state.move(pod, target)
            self.room[:, target] -= self._packing.need[self._packing.pod_kind[pod]]
            self._placements.append(DependentPlacement(pod, target))
        return True

    def close(self, node: int) -> None:
        """Put nothing more on a node."""
        self._open[node] = False

    def withdraw(self) -> None:
        """Take the placements back from the state; `placements` and `room` stay."""
        self._state.undo_to(self._mark)

    def _find_target(self, pod: PodIndex) -> NodeIndex | None:
        kind = int(self._packing.pod_kind[pod])
        mask = self._open & self._packing.allowed(kind)
        for column in self._packing.asked[kind]:
            mask &= self.room[column] >= self._packing.need[kind, column]
        nodes = mask.nonzero()[0]
        free = self._packing.weight @ self.room[:, nodes]
        tried_nodes = map(NodeIndex, self._in_order(nodes, free))
        return next((node for node in tried_nodes if self._state.refusal(pod, node) is None), None)

    def _in_order(self, nodes: Ints, free: Ints) -> Iterator[int]:
        """Yield the nodes to ask, the fullest first; all are sorted only where the first few refuse the pod."""
        if not self._packing.is_ranked and len(nodes):
            left = free.copy()
            for _ in range(min(_ASKED_FIRST, len(nodes))):
                fullest = int(left.argmin())
                yield int(nodes[fullest])
                left[fullest] = np.iinfo(np.int64).max
        order = np.lexsort((free, self._packing.rank[nodes]))[:_MOST_TRIED]
        yield from nodes[order][0 if self._packing.is_ranked else _ASKED_FIRST :].tolist()


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
        self._usual = usual_size(packing)
        self._size: list[int] = packing.size.tolist()
        self._before = _count_on(packing, may_leave)
        self.on = [dict(kinds) for kinds in self._before]
        self._loads: list[int] = [sum(self._size[kind] * count for kind, count in kinds.items()) for kinds in self.on]
        self._extra: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Per kind how many pods more than before are on a node."""

        self.pool: defaultdict[int, int] = defaultdict(int)
        """How many pods of each kind have no place."""

        self.moves = 0
        self._log: list[tuple[int, int, int]] = []

    @property
    def kinds(self) -> int:
        """Return how many kinds of pods there are."""
        return self._packing.kinds

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
        self._loads[node] += by * self._size[kind]
        count_before, count_at_start = self.on[node].get(kind, 0), self._before[node].get(kind, 0)
        count_now = count_before + by
        if count_now:
            self.on[node][kind] = count_now
        else:
            del self.on[node][kind]
        self.moves += max(0, count_at_start - count_now) - max(0, count_at_start - count_before)
        if count_now > count_at_start:
            self._extra[kind][node] = count_now - count_at_start
        else:
            self._extra[kind].pop(node, None)

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

    def load(self, node: int) -> int:
        """Return the size of all pods on a node."""
        return self._loads[node]

    def nodes_for_pool(self) -> int:
        """Return how many usual nodes what has no place takes."""
        return -(-sum(self._size[kind] * count for kind, count in self.pool.items()) // self._usual)

    def worth_keeping(self, node: int) -> int:
        """Return how much of what has no place a node could take, roughly."""
        return self.overlap(node) + int(self._whole[node])

    def place_pool(self, aside: int) -> None:
        """Place what has no place, the largest first, as far as there is room."""
        for kind in sorted(self.pool, key=lambda pooled_kind: (-self._size[pooled_kind], pooled_kind)):
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
        for kind in sorted(self.on[node], key=lambda kind_on_node: (-self._size[kind_on_node], kind_on_node)):
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
        if not len(nodes):
            return None
        nodes = self._packing.first_of(nodes)
        return int(nodes[(self._packing.weight @ self.room[:, nodes]).argmin()])

    def _place_by_stepping_aside(self, kind: int, source: int, aside: int) -> bool:
        nodes = (self.open & self._packing.allowed(kind)).nonzero()[0]
        asked_columns = np.array(self._packing.asked[kind], dtype=np.int64)
        lack = np.maximum(self._need[kind, asked_columns, None] - self.room[np.ix_(asked_columns, nodes)], 0)
        order = np.argsort(self._packing.weight[asked_columns] @ lack, kind="stable")[:_CLOSEST]
        for node, lacking_amounts in zip(nodes[order].tolist(), lack[:, order].T, strict=True):
            if self._swap_in(kind, source, node, lacking_amounts, asked_columns, aside):
                return True
        return False

    def _swap_in(self, kind: int, source: int, node: int, lacking: Ints, asked: Ints, aside: int) -> bool:
        smaller = [kind_on_node for kind_on_node in self.on[node] if self._size[kind_on_node] < self._size[kind]]
        if not smaller:
            return False
        smaller_kinds = np.array(smaller, dtype=np.int64)
        fitting_kinds = smaller_kinds[(self._need[np.ix_(smaller_kinds, asked)] >= lacking).all(axis=1)].tolist()
        by_size = sorted((self._size[fitting_kind], fitting_kind) for fitting_kind in fitting_kinds)
        for _, smaller_kind in by_size[:_ASIDE]:
            mark = self.mark()
            self.move(smaller_kind, node, NOWHERE)
            self.move(kind, source, node)
            target = self._fullest(smaller_kind, but=node)
            if target is not None:
                self.move(smaller_kind, NOWHERE, target)
                return True
            if aside > 1 and self._place_by_stepping_aside(smaller_kind, NOWHERE, aside - 1):
                return True
            self.undo_to(mark)
        return False

    def squeeze(self, node: int) -> bool:
        """Empty a node by exchanges; return whether nothing is left. If something is, all is as before."""
        mark = self.mark()
        self.open[node] = False
        for _ in range(_EXCHANGES):
            for kind in sorted(self.on[node], key=lambda kind_on_node: (-self._size[kind_on_node], kind_on_node)):
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
        room, room_on_node = self.room[:, cells[:, 1]] + need, self.room[:, node]
        best: tuple[int, int, int] | None = None
        for kind in self.on[node]:
            gain = self._size[kind] - size
            may_exchange = (gain > 0) & self._packing.allowed(kind)[cells[:, 1]]
            for column in range(len(need)):
                amount = int(self._need[kind, column])
                if amount:
                    may_exchange &= room[column] >= amount
                may_exchange &= need[column] <= room_on_node[column] + amount
            exchangeable = may_exchange.nonzero()[0]
            if len(exchangeable):
                best_cell = int(exchangeable[gain[exchangeable].argmax()])
                is_allowed = (
                    self._packing.allowed(int(cells[best_cell, 0]))[node] or cells[best_cell, 0] in self._before[node]
                )
                if is_allowed and (best is None or int(gain[best_cell]) > best[0]):
                    best = int(gain[best_cell]), kind, best_cell
        if best is None:
            return False
        _, kind, best_cell = best
        smaller_kind, place = int(cells[best_cell, 0]), int(cells[best_cell, 1])
        self.move(smaller_kind, place, NOWHERE)
        self.move(kind, node, place)
        self.move(smaller_kind, NOWHERE, node)
        return True


_FAILURES: Final = 24
"""After so many nodes in a row that could not be emptied no more are tried."""

_SQUEEZED: Final = 8

_SHAKEN: Final = 125
"""So many times a set that grows no further is shaken where the cluster is small, less often where it is not."""

_MOST_WORK: Final = 500_000
"""Nodes times kinds, times how often a set is shaken."""

_SHAKEN_AT_ONCE: Final = 4
"""The most emptied nodes that are kept again for a try."""


@dataclass
class GrownSet:
    """A set of emptied nodes that is repaired and grown; `emptied` is changed."""

    growing: Growing
    emptied: Mask
    candidates: Mapping[int, int]
    """The nodes that may be emptied, and what each is worth."""

    dependent: DependentPods
    tied_of: Mapping[int, Sequence[PodIndex]]

    def __post_init__(self) -> None:
        """Note what the node is worth that is worth most."""
        self._highest = max(self.candidates.values(), default=1)

    def work_out(
        self, budget: int | None, most_worth: int, deadline: Deadline, note_better: Callable[[], None]
    ) -> None:
        """Repair the set, and grow it as far as the moves allow; of equally good sets take the one with fewest.

        `note_better` is called at each set that is better than those before.
        """
        if not self._repair(deadline) or (budget is not None and self.moves > budget):
            return
        chance = Random(0)  # noqa: S311 - no secret
        tries_left = 1 + min(_SHAKEN, _MOST_WORK // (self.growing.kinds * len(self.emptied)))
        best = self._position()
        while self.worth < most_worth and tries_left and not is_over(deadline):
            if not self._add(budget):
                tries_left -= 1
                self._shake(budget, chance)
            position = self._position()
            if position[:2] > best[:2]:
                best = position
                note_better()
        if best[:2] > self._position()[:2]:
            self._go_back_to(*best[2:])

    def _position(self) -> tuple[int, int, int, Mask]:
        """Return the worth, the moves as a negative number, and what it takes to come back here."""
        return self.worth, -self.moves, self.growing.mark(), self.emptied.copy()

    @property
    def moves(self) -> int:
        """Return how many moves the set takes."""
        return self.growing.moves + len(self.dependent.placements)

    @property
    def worth(self) -> int:
        """Return what the emptied nodes are worth together."""
        return self._worth(self.emptied)

    def _worth(self, emptied: Mask) -> int:
        return sum(self.candidates[node] for node in np.flatnonzero(emptied).tolist())

    def _share(self, node: int) -> float:
        """Return what a node is worth, beside the one that is worth most."""
        return self.candidates[node] / self._highest

    def _repair(self, deadline: Deadline) -> bool:
        """Let nodes leave the set until every pod has a place; return whether that was possible."""
        growing = self.growing
        growing.place_pool(aside=1)
        while growing.pool and not is_over(deadline):
            leaving_nodes = sorted(
                (
                    drained_node
                    for drained_node in np.flatnonzero(self.emptied).tolist()
                    if drained_node not in self.tied_of
                ),
                key=lambda drained_node: (
                    -growing.worth_keeping(drained_node) / self._share(drained_node),
                    drained_node,
                ),
            )[: max(1, growing.nodes_for_pool() * 3 // 4)]
            if not leaving_nodes:
                return False
            for node in leaving_nodes:
                growing.bring_back(node)
                self.emptied[node] = False
            growing.place_pool(aside=0)
            if growing.nodes_for_pool() <= 1:
                growing.place_pool(aside=1)
        return not growing.pool

    def _add(self, budget: int | None) -> bool:
        """Empty one node more; return whether that was possible."""
        kept = [candidate for candidate in self.candidates if not self.emptied[candidate]]
        order = sorted(kept, key=lambda candidate: (self.growing.load(candidate) / self._share(candidate), candidate))
        for node in order[:_FAILURES]:
            if self._empty(node, budget, squeezing=False):
                return True
        return any(self._empty(node, budget, squeezing=True) for node in order[:_SQUEEZED])

    def _shake(self, budget: int | None, chance: Random) -> None:
        """Keep some emptied nodes after all and empty others; all is as before if less is freed then.

        Nodes with tied pods stay as they are.
        """
        growing = self.growing
        untied = [candidate for candidate in self.candidates if candidate not in self.tied_of]
        emptied = [candidate for candidate in untied if self.emptied[candidate]]
        # Large neighbourhood search (Shaw, 1998): a few nodes are taken back by chance, and the set is grown again in
        # another order.
        nodes_back = chance.sample(emptied, min(len(emptied), chance.randint(1, _SHAKEN_AT_ONCE)))
        mark, emptied_before = growing.mark(), self.emptied.copy()
        for node in nodes_back:
            growing.bring_back(node)
            self.emptied[node] = False
        kept = [candidate for candidate in untied if not self.emptied[candidate]]
        load = {
            candidate: growing.load(candidate) * chance.uniform(0.5, 1.5) / self._share(candidate) for candidate in kept
        }
        failed = 0
        for node in sorted(kept, key=lambda candidate: (load[candidate], candidate)):
            failed += not self._empty(node, budget, squeezing=False)
            if failed == _FAILURES:
                break
        if self.worth < self._worth(emptied_before):
            self._go_back_to(mark, emptied_before)

    def _go_back_to(self, mark: int, emptied: Mask) -> None:
        self.growing.undo_to(mark)
        self.growing.open[emptied] = False
        self.growing.open[self.emptied & ~emptied] = True
        self.emptied[:] = emptied

    def _empty(self, node: int, budget: int | None, *, squeezing: bool) -> bool:
        growing, mark = self.growing, self.growing.mark()
        if any(placement.target == node for placement in self.dependent.placements):
            return False
        if not (growing.squeeze(node) if squeezing else growing.empty(node, aside=1)):
            return False
        if self._take_tied(node) and (budget is None or self.moves <= budget):
            self.emptied[node] = True
            return True
        growing.undo_to(mark)
        growing.open[node] = True
        return False

    def _take_tied(self, node: int) -> bool:
        """Place the tied pods of a node whose others are gone; return whether that was possible."""
        tied = self.tied_of.get(node)
        if not tied:
            return True
        self.dependent.room = self.growing.room
        self.dependent.close(node)
        is_placed = self.dependent.place_together(tied)
        self.growing.room = self.dependent.room
        return is_placed


def _count_on(packing: PackingModel, may_leave: Mask) -> list[Mapping[int, int]]:
    """Return per node how many pods of each untied kind may leave it."""
    pods = np.flatnonzero((packing.pod_kind >= 0) & may_leave[packing.pod_node])
    pods = pods[~packing.dependent[packing.pod_kind[pods]]]
    counts_on: list[dict[int, int]] = [{} for _ in range(packing.nodes)]
    for node, kind in zip(packing.pod_node[pods].tolist(), packing.pod_kind[pods].tolist(), strict=True):
        counts_on[node][kind] = counts_on[node].get(kind, 0) + 1
    return list(counts_on)


def _rows(entries: list[tuple[int, int, int]]) -> Ints:
    return np.array(entries, dtype=np.int64).reshape(-1, 3)
