"""Decides which moves may begin.

A move waits for those that it names, not for whole waves. The moves of one wave off one source begin together, since
none of their pods is evicted before each has its place. In all no more are under way than the largest wave has, and
those of one controller are all of one wave: so each limit that the waves keep holds at every instant.

A drain has places held *ahead*: moves begin together with those that they wait for, and only their pods wait. None of
these pods may constrain another, and the operator hands places over in the order of the moves.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from berth_core import MoveState, Pod
from berth_descheduler.migration.moves.memory import MoveMemory, OwnerKey, Turn
from berth_descheduler.migration.plans.watch import ObservedPlan

_BEGUN: Final = frozenset({MoveState.RESERVING, MoveState.RESERVED, MoveState.EVICTED})


@dataclass(slots=True)
class MoveGroup:
    """Moves that begin together; `waits_for` are positions."""

    wave: int
    moves: list[MoveMemory] = field(default_factory=list)
    waits_for: set[int] = field(default_factory=set)
    chain: int = 1
    """How many moves one after the other begin with one of these."""

    opened_at: float | None = None
    """In monotonic seconds; None: they have not begun."""

    was_begun: bool = False
    """An interrupted run began it."""

    is_ahead: bool = False
    """It may begin together with the moves that it waits for."""

    @property
    def left(self) -> list[MoveMemory]:
        """Return the moves that are not over."""
        return [memory for memory in self.moves if not memory.finished]


class MoveOrder:
    """The moves of one plan in groups, of which some are open."""

    def __init__(
        self, moves: Sequence[MoveMemory], max_open: int, begun: Collection[str] = (), *, free: Collection[int] = ()
    ) -> None:
        """`begun` holds positions, as text, of moves that an interrupted run began, beside those whose status says so.

        `free` holds positions of moves whose places may be held ahead, if all that they wait for are free as well.
        """
        self._moves = moves
        self._after = _find_predecessors(moves)
        self._by_wave = sorted(range(len(moves)), key=lambda index: moves[index].move.wave)
        chains = self._find_chains()
        self._note_ahead(free)
        sizes = Counter(memory.move.wave for memory in moves if not memory.finished)
        largest_wave = max(sizes.values(), default=0)
        # Without places ahead no more can be useful than the largest wave: the limits were computed for the waves.
        self.max_open = max_open if any(memory.turn.ahead for memory in moves) else min(max_open, largest_wave)
        """How many moves may be under way at once."""

        self._over: tuple[int, frozenset[int]] = (-1, frozenset())
        groups: dict[tuple[int, str | int, bool], MoveGroup] = {}
        for index in self._by_wave:
            memory = moves[index]
            key = (
                memory.move.wave,
                memory.index if memory.move.stands_alone else memory.move.source,
                memory.turn.ahead,
            )
            group = groups.setdefault(key, MoveGroup(memory.move.wave, is_ahead=memory.turn.ahead))
            group.moves.append(memory)
            group.waits_for |= self._after[index]
            group.chain = max(group.chain, chains[index])
            group.was_begun |= not memory.finished and (memory.status.state in _BEGUN or str(index) in begun)
        self.groups: Sequence[MoveGroup] = tuple(groups.values())
        # The longest path first, the usual priority of list scheduling: what holds up most moves begins first.
        self._by_chain = sorted(self.groups, key=lambda group: -group.chain)

    @property
    def open_moves(self) -> list[MoveMemory]:
        """Return the moves under way and those of their controllers and waves that are over, in the plan's order.

        Moves that began together count as one wave.
        """
        opened_moves = [memory for group in self.groups if group.opened_at is not None for memory in group.moves]
        live = {(memory.turn.begins_with, memory.replicas) for memory in opened_moves if not memory.finished}
        return sorted(
            (memory for memory in opened_moves if (memory.turn.begins_with, memory.replicas) in live),
            key=lambda memory: memory.index,
        )

    @property
    def under_way(self) -> list[MoveMemory]:
        """Return the moves under way."""
        return [memory for group in self.groups if group.opened_at is not None for memory in group.left]

    @property
    def wave(self) -> int:
        """Return the lowest wave with a move that is not over; the last one where there is none."""
        waves = [group.wave for group in self.groups if group.left] or [group.wave for group in self.groups][-1:]
        return min(waves, default=1)

    def ready(self) -> Iterator[MoveGroup]:
        """Yield the groups that wait for nothing more: those that an interrupted run began, then by longest chain."""
        moves_over = self._moves_over()
        unopened_groups = [group for group in self._by_chain if group.opened_at is None]
        # Half-done moves come first, and wait for nothing: their Reservations expire, and their pods may have left.
        yield from (group for group in unopened_groups if group.was_begun)
        yield from (group for group in unopened_groups if not group.was_begun and group.waits_for <= moves_over)

    def fitting(self, *, beside: int) -> list[MoveGroup]:
        """Return the groups that may be under way beside so many moves: ready ones, then those held ahead of them.

        The first ready one that does not fit keeps back those after it. One that a run has begun, or beside which no
        move is in its turn, always fits.
        """
        chosen_groups: list[MoveGroup] = []
        moves_waiting = len(self.not_in_turn())
        for group in self.ready():
            fits = beside + len(group.left) <= self.max_open or beside == moves_waiting
            if not fits and not group.was_begun:
                return chosen_groups
            beside += len(group.left)
            chosen_groups.append(group)
        return [*chosen_groups, *self._ahead_of(chosen_groups, self.max_open - beside)]

    def _ahead_of(self, opened: Collection[MoveGroup], room: int) -> Iterator[MoveGroup]:
        """Yield the groups to begin together with those that they wait for, as many moves as there is room for."""
        chosen_ids = {id(group) for group in opened}
        begun_groups = [group for group in self.groups if group.opened_at is not None or id(group) in chosen_ids]
        known_moves = {memory.index for group in begun_groups for memory in group.moves} | self._moves_over()
        for group in self.groups:
            if (
                group.opened_at is None
                and id(group) not in chosen_ids
                and group.is_ahead
                and group.waits_for <= known_moves
            ):
                # Not the next smaller one instead: it might be one that waits for this, and a stream of small ones
                # would keep it waiting.
                if len(group.left) > room:
                    return
                room -= len(group.left)
                known_moves |= {memory.index for memory in group.moves}
                yield group

    def not_in_turn(self, now: float | None = None) -> frozenset[int]:
        """Return the moves under way whose pods wait for other moves; at `now` their time has not begun."""
        moves_over = self._moves_over()
        indices: set[int] = set()
        for group in self.groups:
            if group.opened_at is None or not group.is_ahead or group.waits_for <= moves_over:
                continue
            # The time limit of a wave must not run while its pods may not go.
            group.opened_at = group.opened_at if now is None else now
            indices |= {memory.index for memory in group.left if not self._after[memory.index] <= moves_over}
        return frozenset(indices)

    def _find_chains(self) -> list[int]:
        """Return for each move the number of moves on the longest chain that begins with it."""
        chains = [1] * len(self._moves)
        for index in reversed(self._by_wave):
            for predecessor in self._after[index]:
                # Waves are a topological order of the waits, so one pass from the last wave to the first finds the
                # longest paths.
                chains[predecessor] = max(chains[predecessor], chains[index] + 1)
        return chains

    def _note_ahead(self, free: Collection[int]) -> None:
        """Note which moves have their places held ahead, with which wave they begin, and how many come before them."""
        last_wave: dict[OwnerKey, int] = {}
        mixed_controllers = set()
        for memory in self._moves:
            if memory.move.wave < last_wave.get(memory.replicas, 0):
                # Places are handed over in the order of the moves, and the waves of this controller do not keep to it.
                mixed_controllers.add(memory.replicas)
            last_wave[memory.replicas] = memory.move.wave
        places: Counter[OwnerKey] = Counter()
        for index in self._by_wave:
            memory = self._moves[index]
            predecessors = [self._moves[index_before] for index_before in self._after[index]]
            if (
                index not in free
                or memory.replicas in mixed_controllers
                or not all(predecessor.turn.ahead for predecessor in predecessors)
            ):
                memory.turn = replace(memory.turn, begins_with=memory.move.wave, ahead=False)
                continue
            places[memory.replicas] += 1
            begins_with = min((predecessor.turn.begins_with for predecessor in predecessors), default=memory.move.wave)
            number = max(
                places[memory.replicas], 1 + max((predecessor.turn.number for predecessor in predecessors), default=0)
            )
            memory.turn = Turn(begins_with, number, ahead=True)

    def open_waves(self) -> Iterator[tuple[int, float, list[MoveMemory]]]:
        """Yield the waves with moves under way, when the last of each began, and all of it that has begun."""
        by_wave: dict[int, list[MoveGroup]] = {}
        for group in self.groups:
            if group.opened_at is not None:
                by_wave.setdefault(group.wave, []).append(group)
        for wave, groups in by_wave.items():
            if any(group.left for group in groups):
                moves = [memory for group in groups for memory in group.moves]
                yield wave, max(group.opened_at or 0.0 for group in groups), moves

    def waiting(self) -> set[int]:
        """Return the moves that wait for some under way, also those that wait for such moves."""
        running_indices = {memory.index for memory in self.under_way}
        blocked_indices = set(running_indices)
        for index in self._by_wave:
            if not self._after[index].isdisjoint(blocked_indices):
                blocked_indices.add(index)
        return blocked_indices - running_indices

    def _moves_over(self) -> frozenset[int]:
        """Return the moves that are over, and all that they waited for as well: one may be skipped early."""
        finished = sum(memory.finished for memory in self._moves)
        if self._over[0] != finished:
            indices_over: set[int] = set()
            for index in self._by_wave:
                if self._moves[index].finished and self._after[index] <= indices_over:
                    indices_over.add(index)
            self._over = finished, frozenset(indices_over)
        return self._over[1]


def _find_predecessors(moves: Sequence[MoveMemory]) -> list[frozenset[int]]:
    """Return for each move the positions of those that are over before it begins.

    Where the plan does not name them, or names impossible ones, these are the moves of all lower waves. Moves of the
    same pod and controller count whatever the plan says: places and evicted pods are counted per wave.
    """
    by_key: dict[OwnerKey, dict[int, set[int]]] = {}
    for index, memory in enumerate(moves):
        for key in _keys(memory):
            by_key.setdefault(key, {}).setdefault(memory.move.wave, set()).add(index)
    indices_before = {
        (key, later_wave): frozenset(by_wave[earlier_wave])
        for key, by_wave in by_key.items()
        for earlier_wave, later_wave in pairwise(sorted(by_wave))
    }
    waves = {memory.move.wave for memory in moves}
    indices_of_earlier_waves = {
        wave: frozenset(index for index, memory in enumerate(moves) if memory.move.wave < wave) for wave in waves
    }
    no_indices: frozenset[int] = frozenset()
    predecessors = []
    for memory in moves:
        wave, named_predecessors = memory.move.wave, memory.move.after
        if named_predecessors is None or not indices_of_earlier_waves[wave].issuperset(named_predecessors):
            predecessors.append(indices_of_earlier_waves[wave])
        else:
            predecessors.append(
                no_indices.union(
                    named_predecessors, *(indices_before.get((key, wave), no_indices) for key in _keys(memory))
                )
            )
    return predecessors


def find_free(moves: Sequence[MoveMemory], observed: ObservedPlan) -> frozenset[int]:
    """Return the positions of moves whose pods have left, or have no rules of their own about other pods."""
    return frozenset(memory.index for memory in moves if _is_free(observed.pods.get(memory.move.pod_uid)))


def _is_free(pod: Pod | None) -> bool:
    if pod is None:
        return True
    affinity = pod.spec.affinity
    is_tied = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    # Such rules are judged by where the other pods are, which the moves before it change: a place that fits ahead may
    # not fit in its turn.
    return not (is_tied or pod.spec.topology_spread_constraints)


def _keys(memory: MoveMemory) -> tuple[OwnerKey, ...]:
    return memory.replicas, ("pod", memory.move.namespace, memory.move.pod)
