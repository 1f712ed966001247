"""The strategy `MinimizeFragmentation`, which lowers what the workload cannot use of a free resource.

What is free on a node is fragmented for a pod that does not fit there or asks for none of it; the average over the pods
of the cluster is the measure (Weng et al., "Beware of Fragmentation", USENIX ATC '23, there for GPUs). A move changes
two nodes only, so its gain is the sum of what taking a pod off its node and putting it on another one bring, and both
are kept for every kind of pods on every node. The search makes the move with the greatest gain until none is left, then
takes some moves back and goes on otherwise. With moves left at such a minimum it makes some that raise the measure, if
those after them lower it by more.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Final

from berth_core import Deadline, NoDeadline, Pod, Snapshot, count, is_over
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.goals.lower_fragmentation.bound import FragmentationBound
from berth_descheduler.goals.lower_fragmentation.moves import FragmentationMeasure, FragmentationMove, PossibleMoves
from berth_descheduler.planner import FragmentationChange, NodeIndex, PodIndex, Problem, Proposal, Quality, State
from berth_descheduler.planner.problem import find_sources, holding_refusal
from berth_descheduler.planner.solver import Ints, build_packing_model
from berth_descheduler.planner.workload_mix import read_mix

MILLIONTHS: Final = 1_000_000
"""The quality of a plan counts parts per million of what is free."""


_EFFORT: Final = 4_000
"""How many moves are remade to improve on the first pass."""

_ESCAPES: Final = 2_000
"""How often moves that raise the measure are tried, to leave a local minimum."""

_ESCAPES_IN_VAIN: Final = 500
"""How often in a row they may bring no gain."""

_MAX_UPHILL: Final = 3
"""How many such moves are made at once, each between some of the nodes where it costs least."""

_MAX_DROPPED: Final = 24


class MinimizeFragmentation:
    """Lowers the fragmentation of one resource by the mix of workloads."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline or NoDeadline()

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return find_sources(problem).to_take_from

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        return ()

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the moves that lower the fragmentation most, and why not more."""
        return _Run(problem, state, self._deadline).propose()


class _Run:
    """One run of the strategy over a state that it changes."""

    def __init__(self, problem: Problem, state: State, deadline: Deadline) -> None:
        self._problem, self._state, self._deadline = problem, state, deadline
        self._sources = find_sources(problem)
        self._packing = build_packing_model(problem, state, self._sources.to_take_from)
        self._measure = FragmentationMeasure(problem, read_mix(problem.cluster))
        self._moves = PossibleMoves(problem, state, self._packing, self._measure, deadline)
        self._may_leave = frozenset(self._sources.to_take_from)
        self._bound = FragmentationBound(self._measure, self._packing, self._sources.to_take_from, self._moves)
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
        """Take some moves back and go on otherwise; keep the result if it is no worse."""
        # Ruin and recreate (Schrimpf et al., 2000), with moves of a small gain ruined more often.
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
        # Iterated local search (Lourenço, Martin and Stützle, 2003): a small kick, another climb, and back unless the
        # new minimum is lower.
        tries, in_vain = 0, 0
        while tries < _ESCAPES and in_vain < _ESCAPES_IN_VAIN and self._moves.may_go_on and not self._is_late():
            if self._moves.gained == self._bound.most:
                return
            tries, in_vain = tries + 1, in_vain + 1
            mark, gained = len(self._moves.made), self._moves.gained
            for _ in range(self._chance.randint(1, _MAX_UPHILL)):
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
        draws = self._chance.randint(1, min(_MAX_DROPPED, max(1, number // 3)))
        pairs = [self._chance.sample(range(number), min(2, number)) for _ in range(draws)]
        return [min(pair, key=lambda number_drawn: self._moves.made[number_drawn].gain) for pair in pairs]

    def _is_late(self) -> bool:
        self._out_of_time = self._out_of_time or is_over(self._deadline)
        return self._out_of_time

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
        # Rounding must not make a plan look proven optimal that is not, nor reach more than its bound.
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
        pods = Counter(placed_pod.node for placed_pod in self._problem.cluster.pods if placed_pod.occupies_node)
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


def _in_percent(gain: int, whole: int) -> str:
    """Return a part of a whole for people, small ones with more digits."""
    text = f"{100 * gain / whole:.3f}".rstrip("0").rstrip(".")
    return f"{text} %" if float(text) else "less than 0.001 %"


def _free(row: Ints) -> int:
    return sum(max(0, amount) for amount in row.tolist())


def _same_beginning(known: Sequence[FragmentationMove], made: Sequence[FragmentationMove]) -> int:
    pairs = enumerate(zip(known, made, strict=False))
    return next(
        (position for position, (known_move, made_move) in pairs if known_move != made_move), min(len(known), len(made))
    )
