"""The integer program over (node, kind) counts: fewest moves to an aim.

It may also prove that no moves reach the aim. It needs the extra `optimal` (HiGHS).

Pods of a kind on a node are one integer variable y: how many there are in the end. Variables o >= count - y are the
moves. An aim is a set of columns of which so many have to be reached: a node is freed (one binary column that takes all
of the node), or a pod to come finds room (an integer column per node that takes what the pod asks for). Minimising the
moves for a given aim is solved in a second or two where maximising the aim under a move budget takes minutes.
What makes pods depend on other pods is left out but for spreads that it knows (`spreads`): the program is then a
relaxation, and its bounds hold all the same.
Where nodes are few and small enough that all ways to fill them can be listed, one binary column per node and way takes
the place of the counts: such a program is larger and much tighter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from berth_core import Deadline, is_over
from berth_descheduler.planner.solver.fillings import NodeType, fewest_kept
from berth_descheduler.planner.solver.highs import (
    FIRST_ATTEMPT,
    FURTHER_ATTEMPTS,
    LONGER_ATTEMPT,
    LinearProgram,
    SolverResult,
    SolverStatus,
)
from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel
from berth_descheduler.planner.solver.spreads import KindSpread

# The listing of all ways in which one node can be filled: a count per kind, each within the node's room.


def list_patterns(need: Ints, limits: Ints, most: Ints, at_most: int) -> tuple[Ints, ...] | None:
    """Return the patterns per place; (patterns, kinds).

    Returns None if there are more than `at_most` in all.

    need: (kinds, resources), limits: (resources, places), most: (places, kinds) of each kind at each place.
    """
    patterns_of_places: list[Ints] = []
    patterns_by_key: dict[bytes, Ints] = {}
    patterns_left = at_most
    for place in range(limits.shape[1]):
        limit, bound = limits[:, place], most[place]
        key = limit.tobytes() + bound.tobytes()
        if key not in patterns_by_key:
            fillings = _list(need.tolist(), limit.tolist(), bound.tolist(), patterns_left)
            if fillings is None:
                return None
            patterns_by_key[key] = np.array(fillings, dtype=np.int64).reshape(-1, len(need))
        patterns_left -= len(patterns_by_key[key])
        if patterns_left < 0:
            return None
        patterns_of_places.append(patterns_by_key[key])
    return tuple(patterns_of_places)


def _list(
    need: Sequence[Sequence[int]], limit: Sequence[int], most: Sequence[int], at_most: int
) -> list[tuple[int, ...]] | None:
    fillings: list[tuple[int, ...]] = []
    for pattern in _fillings(need, tuple(limit), most, 0):
        fillings.append(pattern)
        if len(fillings) > at_most:
            return None
    return fillings


def _fillings(
    need: Sequence[Sequence[int]], room: tuple[int, ...], most: Sequence[int], kind: int
) -> Iterator[tuple[int, ...]]:
    """Yield every filling of a room with the kinds from `kind` on."""
    if kind == len(need):
        yield ()
        return
    row = need[kind]
    for count in range(most[kind] + 1):
        room_left = tuple(room_amount - count * need_amount for room_amount, need_amount in zip(room, row, strict=True))
        if any(need_amount and left_amount < 0 for need_amount, left_amount in zip(row, room_left, strict=True)):
            return
        for further_counts in _fillings(need, room_left, most, kind + 1):
            yield (count, *further_counts)


MOST_COLUMNS: Final = 10_000
MOST_COLUMNS_OF_MANY_KINDS: Final = 6_000
FEW_KINDS: Final = 12
_FEW_COLUMNS: Final = 400
"""So many columns are worth a longer search for what is most: what follows an open answer takes longer."""

_MOST_COLUMNS_UNBOUNDED: Final = 1_500
_TIGHT_BUDGET: Final = 4
"""A budget is tight if so many times of it are no more than the pods."""


_MOST_PATTERNS: Final = 4_000
_SURELY_SMALLER: Final = 1 - 1e-9


@dataclass(frozen=True)
class Solution:
    """The solver's answer: a lower bound on moves, and the counts.

    `bound` is the least number of moves; the counts are those after `moves`.
    """

    status: SolverStatus
    bound: int
    moves: int = 0
    arrivals: Ints | None = None  # (entries, 3): kind, node, count
    departures: Ints | None = None  # (entries, 3): kind, node, count
    aimed: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Per aim the nodes that bring something, and how much."""

    out_of_time: bool = False


@dataclass(frozen=True)
class Aim:
    """What has to be reached."""

    needs: Ints | None  # (resources,) of the pod that needs room; None: the aim is to free nodes
    nodes: Ints  # nodes that can bring it
    worth: Ints | None = None  # (nodes,), what each freed one counts; None: 1

    @property
    def weights(self) -> Ints:
        """Return what each node counts that brings it once."""
        return np.ones(len(self.nodes), dtype=np.int64) if self.worth is None else self.worth


@dataclass(frozen=True)
class Wanted:
    """How much of the objective has to be reached."""

    each: tuple[tuple[int, int | None], ...]
    """Per aim how often at least, and how often at most (None: no limit)."""

    together: int = 0
    """How often all of them together at least."""


class PlacementModel:
    """The part of the program that is independent of `Wanted`."""

    def __init__(
        self,
        packing: PackingModel,
        places: Mask,
        may_leave: Mask,
        aims: Sequence[Aim],
        spreads: Sequence[KindSpread] = (),
    ) -> None:
        """Prepare; pods may arrive on `places` and leave those that `may_leave` marks."""
        self._packing = packing
        self._aims = tuple(aims)
        is_place = (places & packing.takes) | may_leave
        for aim in self._aims:
            is_place[aim.nodes] = True
        self._places = np.flatnonzero(is_place)  # a node that takes no pods may give some, or be empty
        pods = np.flatnonzero((packing.pod_kind >= 0) & may_leave[packing.pod_node])
        cells = packing.pod_node[pods] * packing.kinds + packing.pod_kind[pods]
        self._cells, self._pods_in_cell = np.unique(cells, return_counts=True)  # (node and kind with pods,)
        self._kinds = np.unique(self._cells % packing.kinds)
        self._spreads = tuple(spread for spread in spreads if spread.kind in self._kinds)

    @property
    def kinds(self) -> int:
        """Return the number of kinds."""
        return len(self._kinds)

    @property
    def has_many_kinds(self) -> bool:
        """Return whether there are so many kinds that the search tree of a program gets deep."""
        return self.kinds > FEW_KINDS

    @property
    def is_small_enough(self) -> bool:
        """Return whether the solver is likely to finish soon."""
        return self._is_within(MOST_COLUMNS_OF_MANY_KINDS if self.has_many_kinds else MOST_COLUMNS)

    @property
    def is_slow_unbounded(self) -> bool:
        """Return whether the fewest moves are only asked for within a tight budget: else the relaxation takes long."""
        return self.has_many_kinds and not self._is_within(_MOST_COLUMNS_UNBOUNDED)

    def _is_within(self, most_columns: int) -> bool:
        sure_columns = len(self._cells) + sum(len(aim.nodes) for aim in self._aims)
        return sure_columns <= most_columns and sure_columns + int((self._most > 0).sum()) <= most_columns

    def is_tight(self, budget: int) -> bool:
        """Return whether so many moves are a small part of the pods."""
        return budget * _TIGHT_BUDGET <= int(self._pods_in_cell.sum())

    @cached_property
    def _counts(self) -> Ints:
        """Return how many pods may leave; (places, kinds)."""
        counts = np.zeros((len(self._places), self.kinds), dtype=np.int64)
        nodes, kinds = np.divmod(self._cells, self._packing.kinds)
        counts[np.searchsorted(self._places, nodes), np.searchsorted(self._kinds, kinds)] = self._pods_in_cell
        return counts

    @cached_property
    def _limit(self) -> Ints:
        """Return what the pods that may leave and those to come may ask for; (resources, places)."""
        usage: Ints = (self._counts @ self._packing.need[self._kinds]).T
        limit: Ints = np.maximum(self._packing.room[:, self._places] + usage, usage)
        return limit

    def fewest_moves(
        self, wanted: Wanted, budget: int | None, deadline: Deadline, *, any_solution: bool = False
    ) -> Solution:
        """Return the fewest moves that reach what is wanted, with `any_solution` the first that are within the budget.

        The status is `IMPOSSIBLE` if they exceed the budget. The counts are asked first, which most often decide it at
        once; what they leave open of few kinds is asked by patterns where these are few.
        """
        program, stay_at, aimed = self._program_of_counts(wanted)
        first = program.solve(deadline, budget, attempts=FIRST_ATTEMPT, any_solution=any_solution)
        if first.status is not SolverStatus.UNDECIDED or first.out_of_time or self.has_many_kinds:
            return self._read(first, stay_at, aimed, budget)
        if self._patterns is not None:
            return self._solve_by_patterns(wanted, budget, deadline, any_solution=any_solution)
        further = program.solve(deadline, budget, attempts=FURTHER_ATTEMPTS, any_solution=any_solution)
        return self._read(further, stay_at, aimed, budget)

    def _program_of_counts(self, wanted: Wanted) -> tuple[LinearProgram, Ints, list[Ints]]:
        """Return the program, the columns of the pods that stay, and those of what is aimed at."""
        program = LinearProgram()
        stay = program.add_columns(self._most[self._most > 0], whole=True)
        moved_columns = program.add_columns(
            self._counts[self._counts > 0], costs=np.ones(int((self._counts > 0).sum()), dtype=np.int64)
        )
        stay_at = _positions(self._most > 0, stay)
        moved_at = _positions(self._counts > 0, moved_columns)
        aimed = [program.add_columns(self._most_of(aim), whole=True) for aim in self._aims]
        self._add_moves(program, stay_at, moved_at)
        self._add_room(program, stay_at, aimed)
        self._add_freed(program, stay_at, moved_at, aimed)
        for aim, columns, (at_least, at_most) in zip(self._aims, aimed, wanted.each, strict=True):
            scale = float(aim.weights.max(initial=1))
            upper = np.inf if at_most is None else at_most / scale
            program.add_row(columns, aim.weights / scale, lower=at_least / scale, upper=upper)
        aimed_columns = np.concatenate(aimed)
        program.add_row(aimed_columns, np.ones(len(aimed_columns)), lower=wanted.together)
        return program, stay_at, aimed

    def most_freed(self, deadline: Deadline) -> Solution:
        """Return what frees the nodes of the first aim that are worth most, by however many moves.

        `bound` is here what the nodes that are kept are worth at least. Such a program has no columns of moves, and is
        solved where that of the fewest moves to as much, or to one node too many, is far too large.
        """
        program, aim = LinearProgram(), self._aims[0]
        stay_at = _positions(self._most > 0, program.add_columns(self._most[self._most > 0], whole=True))
        if aim.worth is None:
            kept = program.add_columns(self._most_of(aim), costs=aim.weights, whole=True)
            self._add_conservation(program, stay_at)
            self._add_room(program, stay_at, [kept], are_kept=True)
            freed = program.columns + np.arange(len(kept))
        else:  # the tree over weights ends sooner with a column for either side
            freed = program.add_columns(self._most_of(aim), whole=True)
            kept = program.add_columns(self._most_of(aim), costs=aim.weights)
            self._add_conservation(program, stay_at)
            self._add_room(program, stay_at, [freed])
            for freed_column, kept_column in zip(freed, kept, strict=True):
                program.add_row(np.array([freed_column, kept_column]), np.ones(2), lower=1.0)
        attempts = LONGER_ATTEMPT if program.columns <= _FEW_COLUMNS else FIRST_ATTEMPT
        solved = program.solve(deadline, None, attempts=attempts)
        if solved.values is not None and aim.worth is None:
            solved = replace(solved, values=np.concatenate([solved.values, 1 - solved.values[kept]]))
        return self._read(solved, stay_at, [freed], None)

    def fewest_kept(self, most_fillings: int, deadline: Deadline) -> Solution:
        """Return what keeps the fewest nodes of the first aim, decided by whole fillings; its moves are not the fewest.

        `bound` is how many are kept at least; there are no counts if it is not known whether so few do. All nodes have
        to be worth the same.
        """
        types, places_of = self._node_types()
        totals = self._counts.sum(axis=0)
        kept = fewest_kept(self._packing.need[self._kinds], totals, types, most_fillings, deadline)
        if kept.fillings is None:
            return Solution(SolverStatus.UNDECIDED, kept.fewest, out_of_time=is_over(deadline))
        stays = np.zeros_like(self._counts)
        for places, fillings in zip(places_of, kept.fillings, strict=True):
            for place, filling in self._nearest_places(places, fillings):
                stays[place] = filling
        is_freed = np.isin(self._places, self._aims[0].nodes) & ~stays.any(axis=1)
        freed = tuple((int(node), 1) for node in self._places[is_freed])
        return self._solution(SolverResult(SolverStatus.FOUND, kept.fewest, None, out_of_time=False), stays, (freed,))

    def _node_types(self) -> tuple[list[NodeType], list[Ints]]:
        """Return the places that can be filled in the same ways, and which they are."""
        is_aim = np.isin(self._places, self._aims[0].nodes)
        places_by_key: dict[tuple[bytes, bytes, bool], list[int]] = {}
        for place in range(len(self._places)):
            key = self._limit[:, place].tobytes(), self._most[place].tobytes(), bool(is_aim[place])
            places_by_key.setdefault(key, []).append(place)
        types = [
            NodeType(self._limit[:, places[0]], self._most[places[0]], len(places), may_be_empty=may_be_empty)
            for (_, _, may_be_empty), places in places_by_key.items()
        ]
        return types, [np.array(places, dtype=np.int64) for places in places_by_key.values()]

    def _nearest_places(self, places: Ints, fillings: Ints) -> Iterator[tuple[int, Ints]]:
        """Yield each filling with a place of its own, greedily the one that has most of it already."""
        overlap = np.minimum(fillings[:, None, :], self._counts[places][None, :, :]).sum(axis=2)
        overlap = overlap.astype(np.int64)  # (fillings, places)
        for _ in range(len(fillings)):
            number, position = np.unravel_index(int(overlap.argmax()), overlap.shape)
            yield int(places[position]), fillings[number]
            overlap[number], overlap[:, position] = -1, -1

    def _add_conservation(self, program: LinearProgram, stay_at: Ints) -> None:
        """Add the rows that keep every pod somewhere, and keep to spreads."""
        ones = np.ones(1, dtype=np.int64)
        self._add_spreads(
            program,
            lambda place, position: (stay_at[[place], position], ones) if stay_at[place, position] >= 0 else None,
        )
        for kind in range(len(self._kinds)):
            columns = stay_at[:, kind][stay_at[:, kind] >= 0]
            total = int(self._counts[:, kind].sum())
            program.add_row(columns, np.ones(len(columns)), lower=total, upper=total)

    def _add_spreads(self, program: LinearProgram, cells_of: Callable[[int, int], tuple[Ints, Ints] | None]) -> None:
        """Add the rows of the spreads; `cells_of` has the columns of a kind at a place, and how many pods each is."""
        for spread in self._spreads:
            position, domains = int(np.searchsorted(self._kinds, spread.kind)), spread.domain_of[self._places]
            lowest_before = int(spread.counts.min())
            total = int(spread.counts.sum() + self._counts[domains < 0, position].sum())  # some may come from outside
            rise = program.add_columns(np.array([total]), whole=True)  # of the lowest count
            for domain, count_before in enumerate(spread.counts.tolist()):
                places = np.flatnonzero(domains == domain).tolist()
                cells = {place: cells for place in places if (cells := cells_of(place, position)) is not None}
                staying_pods = count_before - int(self._counts[places, position].sum())
                columns = [*(columns for columns, _ in cells.values()), rise]
                values = [*(amounts.astype(float) for _, amounts in cells.values()), np.array([-1.0])]
                least, excess = lowest_before - staying_pods, count_before - lowest_before
                if excess > 1:  # it may stay so uneven until a pod comes
                    gains = program.add_columns(np.ones(1, dtype=np.int64), whole=True)
                    columns, values = [*columns, gains], [*values, np.array([excess - 1.0])]
                    program.add_row(np.concatenate(columns), np.concatenate(values), upper=least + excess)
                    columns, values = columns[:-1], values[:-1]
                    for place, (of_place, amounts) in cells.items():
                        most_gained = float(self._most[place, position])
                        program.add_row(
                            np.append(of_place, gains),
                            np.append(amounts.astype(float), -most_gained),
                            upper=int(self._counts[place, position]),
                        )
                program.add_row(
                    np.concatenate(columns), np.concatenate(values), lower=least, upper=least + max(1, excess)
                )

    def _add_moves(self, program: LinearProgram, stay_at: Ints, moved_at: Ints) -> None:
        """Add the rows that keep every pod somewhere and count moves.

        Pods that do not stay where they are have moved.
        """
        self._add_conservation(program, stay_at)
        for place, kind in np.argwhere(moved_at >= 0):
            pair = np.array([moved_at[place, kind], stay_at[place, kind]])
            program.add_row(pair, np.ones(2), lower=int(self._counts[place, kind]))

    def _add_room(
        self, program: LinearProgram, stay_at: Ints, aimed: Sequence[Ints], *, are_kept: bool = False
    ) -> None:
        """Add the rows that keep each node within its room.

        What an aim takes of a node is taken. With `are_kept` a column of `aimed` is 1 where it takes nothing.
        """
        need = self._packing.need[self._kinds]
        needs = [need, *(aim.needs[None, :] for aim in self._aims if aim.needs is not None)]
        redundant = _redundant_rows(np.concatenate(needs), self._limit)
        for place, node in enumerate(self._places):
            used_kinds = np.flatnonzero(stay_at[place] >= 0)
            for column in np.flatnonzero(~redundant[:, place]):
                limit = room_left = float(self._limit[column, place])
                index, value = [stay_at[place, used_kinds]], [need[used_kinds, column].astype(float)]
                for aim, columns in zip(self._aims, aimed, strict=True):
                    aimed_column = columns[aim.nodes == node]
                    amount = limit if aim.needs is None else float(aim.needs[column])
                    index.append(aimed_column)
                    value.append(np.full(len(aimed_column), -amount if are_kept else amount))
                    room_left -= amount * len(aimed_column) if are_kept else 0
                scale = _row_scale(limit)
                program.add_row(np.concatenate(index), np.concatenate(value) / scale, upper=room_left / scale)

    def _add_freed(self, program: LinearProgram, stay_at: Ints, moved_at: Ints, aimed: Sequence[Ints]) -> None:
        """Add the rows that keep freed nodes empty.

        A row per kind makes the relaxation much tighter.
        """
        place_of = {int(node): place for place, node in enumerate(self._places)}
        for aim, columns in zip(self._aims, aimed, strict=True):
            for node, freed_column in zip(aim.nodes, columns, strict=True) if aim.needs is None else ():
                place = place_of[int(node)]
                for kind in np.flatnonzero(stay_at[place] >= 0):
                    most_pods = float(self._most[place, kind])
                    program.add_row(
                        np.array([stay_at[place, kind], freed_column]), np.array([1.0, most_pods]), upper=most_pods
                    )
                for kind in np.flatnonzero(moved_at[place] >= 0):
                    count = float(self._counts[place, kind])
                    program.add_row(np.array([moved_at[place, kind], freed_column]), np.array([1.0, -count]), lower=0)

    @cached_property
    def _patterns(self) -> tuple[Ints, ...] | None:
        """Return all fillings per place; None if there are too many.

        A filling counts the kinds, then the new pods.
        """
        coming_aims = [aim for aim in self._aims if aim.needs is not None]
        need = np.concatenate(
            [self._packing.need[self._kinds], *(aim.needs[None, :] for aim in coming_aims if aim.needs is not None)]
        )
        most_pods = np.zeros((len(self._places), len(need)), dtype=np.int64)
        most_pods[:, : len(self._kinds)] = self._most
        place_of = {int(node): place for place, node in enumerate(self._places)}
        for position, aim in enumerate(coming_aims, len(self._kinds)):
            most_pods[[place_of[int(node)] for node in aim.nodes], position] = self._most_of(aim)
        return list_patterns(need, self._limit, most_pods, _MOST_PATTERNS)

    def _solve_by_patterns(
        self, wanted: Wanted, budget: int | None, deadline: Deadline, *, any_solution: bool
    ) -> Solution:
        patterns = self._patterns or ()
        program = LinearProgram()
        columns = [
            program.add_columns(
                np.ones(len(place_patterns), dtype=np.int64), costs=self._moves_to(place, place_patterns), whole=True
            )
            for place, place_patterns in enumerate(patterns)
        ]
        for place_columns in columns:
            program.add_row(place_columns, np.ones(len(place_columns)), lower=1, upper=1)
        all_columns = np.concatenate(columns)
        counts = np.concatenate(patterns)
        for kind in range(len(self._kinds)):
            total = int(self._counts[:, kind].sum())
            program.add_row(all_columns, counts[:, kind].astype(float), lower=total, upper=total)
        self._add_spreads(program, lambda place, position: (columns[place], patterns[place][:, position]))
        brought = self._brought(patterns)
        for amounts, (at_least, at_most) in zip(brought, wanted.each, strict=True):
            program.add_row(
                all_columns, amounts.astype(float), lower=at_least, upper=np.inf if at_most is None else at_most
            )
        program.add_row(all_columns, np.sum(brought, axis=0).astype(float), lower=wanted.together)
        result = program.solve(deadline, budget, any_solution=any_solution)
        return self._read_patterns(result, columns, brought, budget)

    def _moves_to(self, place: int, patterns: Ints) -> Ints:
        """Return how many pods have to leave a place for each pattern."""
        moves: Ints = np.maximum(self._counts[place] - patterns[:, : len(self._kinds)], 0).sum(axis=1)
        return moves

    def _brought(self, patterns: Sequence[Ints]) -> list[Ints]:
        """Return per aim what each pattern of each place brings."""
        brought = []
        position = len(self._kinds)
        for aim in self._aims:
            if aim.needs is None:
                worth = np.zeros(self._packing.nodes, dtype=np.int64)
                worth[aim.nodes] = aim.weights
                brought_by_place = [
                    ~place_patterns.any(axis=1) * worth[self._places[place]]
                    for place, place_patterns in enumerate(patterns)
                ]
            else:
                brought_by_place = [place_patterns[:, position] for place_patterns in patterns]
                position += 1
            brought.append(np.concatenate(brought_by_place).astype(np.int64))
        return brought

    def _read_patterns(
        self, found: SolverResult, columns: Sequence[Ints], brought: Sequence[Ints], budget: int | None
    ) -> Solution:
        if found.values is None or (budget is not None and found.bound > budget):
            return self._without_values(found, budget)
        values = np.rint(found.values).astype(np.int64)
        patterns = self._patterns or ()
        chosen_patterns = [int(values[place_columns].argmax()) for place_columns in columns]
        stays = np.stack(
            [
                place_patterns[chosen_pattern, : len(self._kinds)]
                for place_patterns, chosen_pattern in zip(patterns, chosen_patterns, strict=True)
            ]
        )
        cells = np.array(
            [
                place_columns[chosen_pattern]
                for place_columns, chosen_pattern in zip(columns, chosen_patterns, strict=True)
            ]
        )
        aimed_cells = tuple(_cells(self._places, amounts[cells]) for amounts in brought)
        return self._solution(found, stays, aimed_cells)

    @staticmethod
    def _without_values(found: SolverResult, budget: int | None) -> Solution:
        if budget is not None and found.bound > budget:
            return Solution(SolverStatus.IMPOSSIBLE, found.bound)
        return Solution(found.status, found.bound, out_of_time=found.out_of_time)

    def _solution(self, found: SolverResult, stays: Ints, aimed: tuple[tuple[tuple[int, int], ...], ...]) -> Solution:
        change = stays - self._counts
        arrivals, departures = self._entries(np.maximum(change, 0)), self._entries(np.maximum(-change, 0))
        moves = int(departures[:, 2].sum())
        return Solution(found.status, found.bound, moves, arrivals, departures, aimed, found.out_of_time)

    @cached_property
    def _most(self) -> Ints:
        """Return the most pods of each kind per place; (places, kinds)."""
        most_pods = np.zeros(self._counts.shape, dtype=np.int64)
        for position, kind in enumerate(self._kinds):
            need = self._packing.need[kind]
            fits = np.full(len(self._places), int(self._counts[:, position].sum()))
            for column in np.flatnonzero(need):
                fits = np.minimum(fits, np.maximum(self._limit[column], 0) // need[column])
            if self._packing.alone[kind]:
                fits = np.minimum(fits, 1)
            is_allowed = self._packing.allowed(int(kind))[self._places]
            most_pods[:, position] = np.maximum(np.where(is_allowed, fits, 0), self._counts[:, position])
        return most_pods

    def _most_of(self, aim: Aim) -> Ints:
        if aim.needs is None:
            return np.ones(len(aim.nodes), dtype=np.int64)
        place_of = {int(node): place for place, node in enumerate(self._places)}
        limits = self._limit[:, [place_of[int(node)] for node in aim.nodes]]
        asked_columns = np.flatnonzero(aim.needs)
        fits = np.maximum(limits[asked_columns], 0) // aim.needs[asked_columns, None]
        fitting_pods: Ints = fits.min(axis=0) if len(asked_columns) else np.zeros(len(aim.nodes), dtype=np.int64)
        return fitting_pods

    def _read(self, found: SolverResult, stay_at: Ints, aimed: Sequence[Ints], budget: int | None) -> Solution:
        if found.values is None or (budget is not None and found.bound > budget):
            return self._without_values(found, budget)
        values = np.rint(found.values).astype(np.int64)
        stays = np.where(stay_at >= 0, values[stay_at], 0)
        if not self._holds(stays, values, aimed):
            return Solution(SolverStatus.UNDECIDED, found.bound, out_of_time=found.out_of_time)
        aimed_cells = tuple(_cells(aim.nodes, values[columns]) for aim, columns in zip(self._aims, aimed, strict=True))
        return self._solution(found, stays, aimed_cells)

    def _holds(self, stays: Ints, values: Ints, aimed: Sequence[Ints]) -> bool:
        """Return whether a solution holds in whole numbers.

        The solver has a tolerance.
        """
        taken = (stays @ self._packing.need[self._kinds]).T  # (resources, places)
        aimed_amounts = np.zeros((self._limit.shape[0], self._packing.nodes), dtype=np.int64)
        freed = np.zeros(self._packing.nodes, dtype=bool)
        for aim, columns in zip(self._aims, aimed, strict=True):
            if aim.needs is None:
                freed[aim.nodes[values[columns] > 0]] = True
            else:
                aimed_amounts[:, aim.nodes] += aim.needs[:, None] * values[columns]
        has_room = bool((taken + aimed_amounts[:, self._places] <= self._limit).all())
        return has_room and not stays[freed[self._places]].any() and bool((stays.sum(0) == self._counts.sum(0)).all())

    def _entries(self, counts: Ints) -> Ints:
        where = np.argwhere(counts > 0)
        kinds, nodes = self._kinds[where[:, 1]], self._places[where[:, 0]]
        return np.stack([kinds, nodes, counts[where[:, 0], where[:, 1]]], axis=1)


def _cells(nodes: Ints, values: Ints) -> tuple[tuple[int, int], ...]:
    return tuple((int(node), int(value)) for node, value in zip(nodes, values, strict=True) if value)


def _redundant_rows(need: Ints, limit: Ints) -> Mask:
    """Return where another resource always runs out first; (resources, places)."""
    redundant = np.zeros(limit.shape, dtype=bool)
    redundant[need.max(axis=0, initial=0) == 0] = True
    shares = need.astype(float)[:, :, None] / np.maximum(limit, 1)[None]  # (kinds, resources, places)
    for column in range(len(limit)):
        for other in range(len(limit)):
            if other != column:
                smaller = (shares[:, column] <= shares[:, other] * _SURELY_SMALLER).all(axis=0)
                redundant[column] |= smaller & ~redundant[other] & (limit[other] > 0)
    return redundant


def _row_scale(limit: float) -> float:
    """Return a row's divisor: large amounts (bytes) would exceed the solver's tolerance."""
    return max(1.0, limit / 1000) if limit > MOST_COLUMNS else 1.0


def _positions(mask: Mask, columns: Ints) -> Ints:
    """Return the columns in the places of a mask, -1 elsewhere."""
    positions = np.full(mask.shape, -1, dtype=np.int64)
    positions[mask] = columns
    return positions
