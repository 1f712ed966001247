"""The strategy `MinimizeFragmentation`, which lowers what the workload cannot use of a free resource.

What is free on a node is fragmented for a pod that does not fit there or asks for none of it; the average over the pods
of the cluster is the measure (Weng et al., "Beware of Fragmentation", USENIX ATC '23, there for GPUs). A move changes
two nodes only, so its gain is the sum of what taking a pod off its node and putting it on another one bring, and both
are kept for every kind of pods on every node. The search makes the move with the greatest gain until none is left, then
takes some moves back and goes on otherwise. With moves left at such a minimum it makes some that raise the measure, if
those after them lower it by more.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from random import Random
from typing import Final

import numpy as np

from berth_core import PODS, Deadline, NoDeadline, Pod, Snapshot, count, is_over
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner import FragmentationChange, NodeIndex, PodIndex, Problem, Proposal, Quality, State
from berth_descheduler.planner.problem import DisruptionCost, find_sources, holding_refusal
from berth_descheduler.planner.simulation import PlacedPod, PodPresence
from berth_descheduler.planner.solver import Ints, PackingModel, build_packing_model
from berth_descheduler.planner.stranded_capacity import WorkloadMix, read_mix

MILLIONTHS: Final = 1_000_000
"""The quality of a plan counts parts per million of what is free."""

_MOST_CELLS: Final = 1 << 22
"""As many pairs of a kind of pods and a node are looked at, the most frequent kinds first."""

_EFFORT: Final = 4_000
"""As many moves are made anew to improve what the first pass found."""

_EXACT_BITS: Final = 60
_LARGE: Final = 1 << 61
"""More than any amount."""

_ESCAPES: Final = 2_000
_ESCAPES_IN_VAIN: Final = 500
"""So often moves that raise the measure are tried, and so often in a row without a gain."""

_MOST_UPHILL: Final = 3
"""So many such moves at once, each between some of the nodes where it costs least."""

_UPHILL_NODES: Final = 6
_MOST_DROPPED: Final = 24
_ALMOST: Final = 8
"""A gain that lacks less than this part of the greatest is almost as great."""


class MinimizeFragmentation:
    """Lowers the fragmentation of one resource by the mix of workloads."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline or NoDeadline()

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return none."""
        return ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the moves that lower the fragmentation most, and why not more."""
        return _Run(problem, state, self._deadline).propose()


class _Measure:
    """The fragmentation of single nodes, in amounts times pods of the mix."""

    def __init__(self, problem: Problem, mix: WorkloadMix) -> None:
        cluster = problem.cluster
        self.column = cluster.column[problem.settings.resource_type]
        resource = problem.settings.resource_type
        asking = [mix_shape for mix_shape in mix.shapes if mix_shape.amounts.get(resource) > 0]
        shapes = [
            asking_shape for asking_shape in asking if all(name in cluster.column for name in asking_shape.amounts)
        ]
        self.pods = mix.pods
        self.weights = np.array([known_shape.pods for known_shape in shapes], dtype=np.int64)
        self.allowed = np.zeros((len(shapes), len(cluster.nodes)), dtype=bool)
        self.needs: Ints = np.zeros((len(shapes), cluster.columns), dtype=np.int64)
        for row, shape in enumerate(shapes):
            self.allowed[row, list(shape.nodes)] = True
            for name, amount in shape.amounts.items():
                self.needs[row, cluster.column[name]] = amount
            self.needs[row, cluster.column[PODS]] = 1
        self._asked = [
            (column, np.where(self.needs[:, column] > 0, self.needs[:, column], -_LARGE)[:, None])
            for column in np.flatnonzero(self.needs.max(axis=0, initial=0)).tolist()
        ]
        largest = max((abs(row[self.column]) for rows in (cluster.capacity, cluster.taken) for row in rows), default=0)
        is_wide = (2 * largest * max(1, mix.pods)).bit_length() > _EXACT_BITS
        self.dtype = object if is_wide else np.int64
        self.none = _LARGE * _LARGE * _LARGE if is_wide else _LARGE
        """More than any gain or cost: there is no such pod, or the node does not take it."""

    def popularity(self, free: Ints, nodes: Ints) -> Ints:
        """Return how many pods of the mix fit; `free` is (resources, len(nodes))."""
        fits = self.allowed[:, nodes]
        for column, needs in self._asked:
            fits &= free[column] >= needs
        return self.weights @ fits

    def fragmented(self, free: Ints, nodes: Ints) -> Ints:
        """Return the fragmentation of nodes that would have so much free; `free` is (resources, len(nodes))."""
        piece = np.maximum(free[self.column], 0).astype(self.dtype)
        return np.asarray(piece * (self.pods - self.popularity(free, nodes)))


@dataclass(frozen=True, slots=True)
class _Move:
    """A pod of a kind that goes from one node to another, and what that brings."""

    kind: int
    source: int
    target: int
    gain: int


class _Moves:
    """The moves that can be made next, with their gains, over a state that they change."""

    def __init__(
        self, problem: Problem, state: State, packing: PackingModel, measure: _Measure, deadline: Deadline
    ) -> None:
        self._state, self._packing, self._measure = state, packing, measure
        self.budget = problem.settings.limits.max_moves
        columns = problem.cluster.columns
        self.free: Ints = np.array(state.free, dtype=np.int64).reshape(packing.nodes, columns).T.copy()
        self._room = packing.room.copy()
        self._pods = _movable_pods(problem, packing)
        self.kinds, self.out_of_time = _frequent_kinds(packing, self._pods), False
        rows = [problem.cluster.requests[packing.class_of[kind]] for kind in self.kinds]
        self._asks: Ints = np.array(rows, dtype=np.int64).reshape(len(rows), columns)
        need = packing.need[np.array(self.kinds, dtype=np.int64)]
        self._needs: Ints = np.where(need > 0, need, -_LARGE)
        self._left = np.zeros((len(rows), packing.nodes), dtype=np.int64)
        for row, kind in enumerate(self.kinds):
            for node, pods in self._pods[kind].items():
                self._left[row, node] = len(pods)
        self.before: Ints = measure.fragmented(self.free, np.arange(packing.nodes))
        self._now = self.before.copy()
        self.made: list[_Move] = []
        allowed_nodes = [packing.allowed(kind) & packing.takes for kind in self.kinds]
        self._allowed = np.array(allowed_nodes, dtype=bool).reshape(self._left.shape)
        self._banned = np.zeros(self._left.shape, dtype=bool)
        self._off = np.full(self._left.shape, -measure.none, dtype=measure.dtype)
        self._cost = np.full(self._left.shape, measure.none, dtype=measure.dtype)
        self._in_order = np.argsort(packing.rank, kind="stable") if packing.is_ranked else None
        """The nodes in the order in which equally good ones are filled; None: as they are."""
        for row in range(len(rows)):
            if is_over(deadline):
                self.out_of_time = True
                break
            self._weigh_kind(row)

    @property
    def gained(self) -> int:
        """Return by how much the moves lower the fragmentation."""
        return sum(move.gain for move in self.made)

    @property
    def may_go_on(self) -> bool:
        """Return whether the budget allows one more move."""
        return self.budget is None or len(self.made) < self.budget

    def best(self, chance: Random | None = None) -> _Move | None:
        """Return a move of the greatest gain, None if none lowers the fragmentation.

        With `chance` it is one of the best moves of the kinds whose gain is almost as great.
        """
        if not self._off.size:
            return None
        sources, targets = self._off.argmax(axis=1), self._cheapest(self._cost)
        rows = np.arange(len(sources))
        gains = self._off[rows, sources] - self._cost[rows, targets]
        for row in np.flatnonzero((sources == targets) & (gains > 0)).tolist():
            sources[row], targets[row], gains[row] = self._apart(row, int(sources[row]))
        row = int(gains.argmax())
        if gains[row] <= 0:
            return None
        if chance is not None:
            row = chance.choice(np.flatnonzero(gains >= gains[row] - gains[row] // _ALMOST).tolist())
        return _Move(row, int(sources[row]), int(targets[row]), int(gains[row]))

    def uphill(self, chance: Random) -> _Move | None:
        """Return a random move of a random kind between its `_UPHILL_NODES` best nodes; None if no pod can be moved."""
        if not self._off.size:
            return None
        row = chance.randrange(len(self._off))
        sources, targets = np.flatnonzero(self._left[row] > 0), self._cost[row].argsort(kind="stable")[:_UPHILL_NODES]
        targets = targets[self._cost[row, targets] < self._measure.none]
        if not len(sources) or not len(targets):
            return None
        sources = sources[(-self._off[row, sources]).argsort(kind="stable")[:_UPHILL_NODES]]
        source, target = int(chance.choice(sources.tolist())), int(chance.choice(targets.tolist()))
        return _Move(row, source, target, int(self._off[row, source] - self._cost[row, target]))

    def make(self, move: _Move, *, may_raise: bool = False) -> bool:
        """Make a move if it is possible and lowers the fragmentation, or may raise it; return whether it was made."""
        kind, source, target = move.kind, move.source, move.target
        if self._left[kind, source] <= 0 or self._cost[kind, target] >= self._measure.none:
            return False
        gain = int(self._off[kind, source] - self._cost[kind, target])
        if source == target or (gain <= 0 and not may_raise) or not self.may_go_on:
            return False
        pods = self._pods[self.kinds[kind]][source]
        pod = pods[len(pods) - int(self._left[kind, source])]
        if self._state.refusal(pod, NodeIndex(target)) is not None:
            self._banned[kind, target] = True
            self._cost[kind, target] = self._measure.none
            return False
        self._state.move(pod, NodeIndex(target))
        self.made.append(_Move(kind, source, target, gain))
        self._carry(kind, source, target, 1)
        return True

    def undo_to(self, mark: int) -> None:
        """Take back every move after a mark."""
        self._state.undo_to(mark)
        while len(self.made) > mark:
            move = self.made.pop()
            self._carry(move.kind, move.source, move.target, -1)

    def allow_again(self) -> bool:
        """Ask once more where other pods refused a pod before; return whether there is such a place."""
        nodes = np.flatnonzero(self._banned.any(axis=0)).tolist()
        self._banned[:] = False
        for node in nodes:
            self._weigh_node(node)
        return bool(nodes)

    def has_target(self, node: int) -> bool | None:
        """Return whether a pod of a node fits elsewhere; None if none may leave it."""
        kinds = np.flatnonzero(self._left[:, node] > 0)
        if not len(kinds):
            return None
        other_kinds = self._cost[kinds] < self._measure.none
        other_kinds[:, node] = False
        return bool(other_kinds.any())

    def ceiling(self) -> Ints:
        """Return what each node has without the pods that may leave it; (resources, nodes)."""
        ceiling: Ints = self.free.copy()
        for kind, nodes in self._pods.items():
            asks = np.array(self._state.cluster.requests[self._packing.class_of[kind]], dtype=np.int64)
            for node, pods in nodes.items():
                ceiling[:, node] += len(pods) * asks
        return ceiling

    def _cheapest(self, cost: Ints) -> Ints:
        """Return the nodes of the lowest costs, which are (..., nodes); of equal ones those that are filled first."""
        order = self._in_order
        cheapest: Ints = cost.argmin(axis=-1) if order is None else order[cost[..., order].argmin(axis=-1)]
        return cheapest

    def _apart(self, row: int, node: int) -> tuple[int, int, int]:
        """Return the best of another source and another target than one node."""
        off, cost = self._off[row].copy(), self._cost[row].copy()
        off[node], cost[node] = -self._measure.none, self._measure.none
        source, target = int(off.argmax()), int(self._cheapest(cost))
        off_node, onto_node = int(off[source] - self._cost[row, node]), int(self._off[row, node] - cost[target])
        return (source, node, off_node) if off_node >= onto_node else (node, target, onto_node)

    def _carry(self, kind: int, source: int, target: int, times: int) -> None:
        asks, need = times * self._asks[kind], times * self._packing.need[self.kinds[kind]]
        self.free[:, source] += asks
        self.free[:, target] -= asks
        self._room[:, source] += need
        self._room[:, target] -= need
        self._left[kind, source] -= times
        for node in (source, target):
            self._now[node] = self._measure.fragmented(self.free[:, node : node + 1], np.array([node]))[0]
            self._weigh_node(node)

    def _weigh_kind(self, row: int) -> None:
        kind, asks = self.kinds[row], self._asks[row][:, None]
        nodes = np.flatnonzero(self._left[row])
        self._off[row, nodes] = self._now[nodes] - self._measure.fragmented(self.free[:, nodes] + asks, nodes)
        takes = self._allowed[row]
        for column in self._packing.asked[kind]:
            takes = takes & (self._room[column] >= self._packing.need[kind, column])
        nodes = np.flatnonzero(takes)
        self._cost[row, nodes] = self._measure.fragmented(self.free[:, nodes] - asks, nodes) - self._now[nodes]

    def _weigh_node(self, node: int) -> None:
        """Weigh every kind on a node anew."""
        free, now = self.free[:, node : node + 1], self._now[node]
        rows = np.flatnonzero(self._left[:, node] > 0)
        self._off[:, node] = -self._measure.none
        self._off[rows, node] = now - self._measure.fragmented(free + self._asks[rows].T, np.full(len(rows), node))
        takes = (self._needs <= self._room[:, node]).all(axis=1) & self._allowed[:, node] & ~self._banned[:, node]
        rows = np.flatnonzero(takes)
        self._cost[:, node] = self._measure.none
        self._cost[rows, node] = self._measure.fragmented(free - self._asks[rows].T, np.full(len(rows), node)) - now


def _movable_pods(problem: Problem, packing: PackingModel) -> dict[int, dict[int, list[PodIndex]]]:
    """Return the pods that may be moved, by kind and node, those whose moving disturbs least first."""
    may_leave = np.zeros(packing.nodes, dtype=bool)
    may_leave[list(find_sources(problem).to_take_from)] = True
    pods_by_kind: dict[int, dict[int, list[PodIndex]]] = defaultdict(lambda: defaultdict(list))
    for pod in DisruptionCost(problem).cheapest_first(
        [PodIndex(movable_pod) for movable_pod in packing.movable_on(may_leave)]
    ):
        pods_by_kind[int(packing.pod_kind[pod])][int(packing.pod_node[pod])].append(pod)
    return pods_by_kind


def _frequent_kinds(packing: PackingModel, pods: dict[int, dict[int, list[PodIndex]]]) -> list[int]:
    most_kinds = max(1, _MOST_CELLS // max(1, packing.nodes))
    return sorted(pods, key=lambda kind: (-sum(map(len, pods[kind].values())), kind))[:most_kinds]


class _Run:
    """One run of the strategy over a state that it changes."""

    def __init__(self, problem: Problem, state: State, deadline: Deadline) -> None:
        self._problem, self._state, self._deadline = problem, state, deadline
        self._sources = find_sources(problem)
        self._packing = build_packing_model(problem, state, self._sources.to_take_from)
        self._measure = _Measure(problem, read_mix(problem.cluster))
        self._moves = _Moves(problem, state, self._packing, self._measure, deadline)
        self._may_leave = frozenset(self._sources.to_take_from)
        self._bound = _Bound(self._measure, self._packing, self._sources.to_take_from, self._moves)
        self._chance = Random(problem.settings.search.seed)  # noqa: S311 - a search needs no secret
        self._out_of_time = self._moves.out_of_time

    def propose(self) -> Proposal:
        """Return the moves and why not more."""
        free_before = self._moves.free[self._measure.column].copy()
        self._climb(None)
        self._improve()
        self._escape()
        quality, change = self._quality(free_before), self._change(free_before)
        refusals = tuple(sorted(self._refused(quality)))
        return Proposal(self._state.steps, refusals, quality, reasons=self._reasons(free_before), fragmentation=change)

    # --- search -----------------------------------------------------------------------------------------------------

    def _climb(self, chance: Random | None) -> int:
        """Make the best moves as long as there are such; return how many were tried."""
        moves_tried, since_gain = 0, 0
        while self._moves.may_go_on and not self._is_late():
            move = self._moves.best(chance)
            if move is not None:
                moves_tried, since_gain = moves_tried + 1, since_gain + self._moves.make(move)
            elif since_gain and self._moves.allow_again():
                since_gain = 0
            else:
                break
        return moves_tried

    def _improve(self) -> None:
        """Take some moves back and go on otherwise; keep what is no worse."""
        effort = 0
        while self._moves.made and effort < _EFFORT and not self._is_late():
            moves_before, gained = tuple(self._moves.made), self._moves.gained
            if gained == self._bound.most:
                return
            dropped = set(self._draw(len(moves_before)))
            first_dropped = min(dropped)
            self._moves.undo_to(first_dropped)
            for number in range(first_dropped, len(moves_before)):
                if number not in dropped:
                    self._moves.make(moves_before[number])
            effort += len(moves_before) - first_dropped + self._climb(self._chance)
            if self._moves.gained < gained:
                same = _same_beginning(moves_before, self._moves.made)
                self._moves.undo_to(same)
                self._moves.allow_again()
                made_again = [self._moves.make(move) for move in moves_before[same:]]
                effort += len(made_again)

    def _escape(self) -> None:
        """Go on from the minimum by moves that raise the fragmentation, where those after them lower it by more."""
        tries, in_vain = 0, 0
        while tries < _ESCAPES and in_vain < _ESCAPES_IN_VAIN and self._moves.may_go_on and not self._is_late():
            if self._moves.gained == self._bound.most:
                return
            tries, in_vain = tries + 1, in_vain + 1
            mark, gained = len(self._moves.made), self._moves.gained
            for _ in range(self._chance.randint(1, _MOST_UPHILL)):
                move = self._moves.uphill(self._chance)
                if move is not None:
                    self._moves.make(move, may_raise=True)
            self._climb(None)
            if self._moves.gained > gained:
                in_vain = 0
                self._leave_out_useless(mark)
            else:
                self._moves.undo_to(mark)
                self._moves.allow_again()

    def _leave_out_useless(self, mark: int) -> None:
        """Leave out the moves after a mark that raise the fragmentation and without which it is no higher."""
        for number in reversed(range(mark, len(self._moves.made))):
            moves, gained = tuple(self._moves.made), self._moves.gained
            if moves[number].gain > 0:
                continue
            self._moves.undo_to(number)
            are_made = [self._moves.make(move, may_raise=True) for move in moves[number + 1 :]]
            if not all(are_made) or self._moves.gained < gained:
                self._moves.undo_to(number)
                self._moves.allow_again()
                for move in moves[number:]:
                    self._moves.make(move, may_raise=True)

    def _draw(self, number: int) -> Sequence[int]:
        """Return which moves are dropped, those with a small gain more often."""
        draws = self._chance.randint(1, min(_MOST_DROPPED, max(1, number // 3)))
        pairs = [self._chance.sample(range(number), min(2, number)) for _ in range(draws)]
        return [min(pair, key=lambda number_drawn: self._moves.made[number_drawn].gain) for pair in pairs]

    def _is_late(self) -> bool:
        self._out_of_time = self._out_of_time or is_over(self._deadline)
        return self._out_of_time

    # --- what is known ----------------------------------------------------------------------------------------------

    def _change(self, before: Ints) -> FragmentationChange:
        total_before = sum(self._moves.before.tolist())
        pods = max(1, self._measure.pods)
        return FragmentationChange(
            self._problem.settings.resource_type,
            _free(before),
            Fraction(total_before, pods),
            _free(self._moves.free[self._measure.column]),
            Fraction(total_before - self._moves.gained, pods),
        )

    def _quality(self, before: Ints) -> Quality:
        """Return the quality in millionths of what is free: the bound is rounded up, what is reached down."""
        gained, moves = self._moves.gained, len(self._moves.made)
        total_free = max(1, _free(before) * self._measure.pods)
        reached = gained * MILLIONTHS // total_free
        upper_bound = (
            reached if gained == self._bound.most else max(reached + 1, -(-self._bound.most * MILLIONTHS // total_free))
        )
        return Quality(
            reached=reached,
            upper_bound=upper_bound,
            moves=moves,
            fewest_moves=min(moves, self._bound.fewest_moves(gained)),
            out_of_time=self._out_of_time,
            is_snapshot_incomplete=bool(self._problem.cluster.snapshot.missing),
        )

    def _reasons(self, before: Ints) -> dict[PodIndex, str]:
        total_free, resource = max(1, _free(before) * self._measure.pods), self._problem.settings.resource_type
        return {
            step.pod: f"lowers the fragmented {resource} by {_in_percent(move.gain, total_free)} of what is free"
            if move.gain > 0
            else f"makes room for moves that lower the fragmented {resource} by more"
            for step, move in zip(self._state.steps, self._moves.made, strict=True)
        }

    def _refused(self, quality: Quality) -> Iterator[Refused]:
        """Yield for each node that is not emptied why no more pods leave it."""
        pods = Counter(placed_pod.node for placed_pod in self._problem.cluster.pods if _counts(placed_pod))
        pods_after = pods.copy()
        for step in self._state.steps:
            pods_after.update({step.source: -1, step.target: 1})
        for node in map(NodeIndex, range(self._packing.nodes)):
            if pods_after[node] or not pods[node]:
                yield Refused.of_node(self._problem.cluster.node_name(node), self._why_kept(node, quality))

    def _why_kept(self, node: NodeIndex, quality: Quality) -> Refusal:
        refusal = self._sources.refusals.get(node)
        if refusal is not None and (node not in self._may_leave or refusal.reason is RefusalReason.ALREADY_EMPTY):
            return refusal
        has_target = self._moves.has_target(node)
        if has_target is None:
            other_refusal = Refusal(RefusalReason.NOT_NEEDED, "no other pod of it is looked at")
            return holding_refusal(self._problem, node) or other_refusal
        return self._why_no_more(quality, has_target=has_target)

    def _why_no_more(self, quality: Quality, *, has_target: bool) -> Refusal:
        resource = self._problem.settings.resource_type
        if not self._moves.may_go_on:
            text = f"no more than {count(self._problem.settings.limits.max_moves or 0, 'move')} may be made"
            return Refusal(RefusalReason.MOVE_LIMIT, text)
        if self._out_of_time:
            return Refusal(RefusalReason.TIME_LIMIT, "the time limit ended the search")
        if quality.gap == 0:
            return Refusal(RefusalReason.BOUND_REACHED, f"no plan lowers the fragmented {resource} further")
        if not has_target:
            return Refusal(RefusalReason.NO_TARGET, "no other node takes one of its pods")
        text = f"no move of one of its pods lowers the fragmented {resource}"
        return Refusal(RefusalReason.NOT_NEEDED, text, resource=resource)


class _Bound:
    """What no plan exceeds, wherever its moves put the pods.

    Of what is free on a node, at least the pods of the mix that would not fit there without any movable pod cannot use
    it. All that is free together stays the same, so it is no better than where that is least. A move changes two nodes.
    """

    def __init__(self, measure: _Measure, packing: PackingModel, may_leave: Sequence[NodeIndex], moves: _Moves) -> None:
        changing = packing.takes.copy()
        changing[list(may_leave)] = True
        nodes = np.flatnonzero(changing)
        ceiling = moves.ceiling()[:, nodes]
        least: list[int] = (measure.pods - measure.popularity(ceiling, nodes)).tolist()
        before, free = moves.before[nodes].tolist(), moves.free[measure.column, nodes].tolist()
        lowest = min(least, default=0)
        falls = (now - lowest * piece for now, piece in zip(before, free, strict=True))
        self._falls = sorted((fall for fall in falls if fall > 0), reverse=True)
        pieces = sorted(zip(least, ceiling[measure.column].tolist(), strict=True))
        counted_falls = self._falls if moves.budget is None else self._falls[: 2 * moves.budget]
        self.most = max(0, min(sum(before) - _spread(sum(free), pieces), sum(counted_falls)))

    def fewest_moves(self, gained: int) -> int:
        """Return how many moves it takes at least to gain as much."""
        sums = list(accumulate(self._falls))
        return -(-(bisect_left(sums, gained) + 1) // 2) if gained else 0


def _spread(amount: int, pieces: Sequence[tuple[int, int]]) -> int:
    """Return the least that an amount costs over pieces, each with its cost and size, the cheapest first."""
    total = 0
    for cost, size in pieces:
        part = max(0, min(size, amount))
        total, amount = total + cost * part, amount - part
    return total


def _counts(placed: PlacedPod) -> bool:
    """Return whether a pod keeps its node from being empty."""
    return placed.presence is not PodPresence.EXPECTED and placed.pod.occupies_node


def _in_percent(gain: int, whole: int) -> str:
    """Return a part of a whole for people, small ones with more digits."""
    text = f"{100 * gain / whole:.3f}".rstrip("0").rstrip(".")
    return f"{text} %" if float(text) else "less than 0.001 %"


def _free(row: Ints) -> int:
    return sum(max(0, amount) for amount in row.tolist())


def _same_beginning(known: Sequence[_Move], made: Sequence[_Move]) -> int:
    pairs = enumerate(zip(known, made, strict=False))
    return next(
        (position for position, (known_move, made_move) in pairs if known_move != made_move), min(len(known), len(made))
    )
