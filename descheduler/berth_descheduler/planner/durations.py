"""Estimates how long the moves of a plan take, by the order in which a run begins them.

A move begins once those are over that it waits for, the moves of one wave off one source together, and no more are
under way than the largest wave has. Of those that may begin, the ones with the longest chain of moves behind them come
first; what does not fit keeps back those behind it. So does a run (`berth_descheduler.migration.moves.order`).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from math import inf

from berth_core import PlannedMove


@dataclass(slots=True)
class _Group:
    """Moves that begin together."""

    wave: int
    moves: list[int] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)
    """The moves that have to be over before."""

    awaits_lower_waves: bool = False
    """All moves of lower waves have to be over before, as one of these names none."""

    chain: int = 1


def estimate_seconds(moves: Sequence[PlannedMove], seconds: Sequence[int]) -> int:
    """Return how many seconds the moves take in all, where `seconds` has the duration of each; 0 without moves."""
    at_once = max(Counter(move.wave for move in moves).values(), default=0)
    waiting = _WaitingGroups(moves)
    ends: list[tuple[int, int]] = []
    now = 0
    while True:
        for index in waiting.begin(at_once, under_way=len(ends)):
            # An event-driven simulation: time jumps from the end of one move to the next, however long the moves take.
            heappush(ends, (now + seconds[index], index))
        if not ends:
            return now
        now, index = heappop(ends)
        waiting.end(index)


class _WaitingGroups:
    """The groups that have not begun, and what each still waits for."""

    def __init__(self, moves: Sequence[PlannedMove]) -> None:
        self._moves = moves
        self._groups = _group(moves)
        self._left = [len(group.awaited) + group.awaits_lower_waves for group in self._groups]
        self._behind: defaultdict[int, list[int]] = defaultdict(list)
        """The groups that wait for each move."""
        self._left_of_wave = Counter(move.wave for move in moves)
        self._waves = deque(sorted(self._left_of_wave))
        self._held_by_waves = deque(number for number, group in enumerate(self._groups) if group.awaits_lower_waves)
        self._ready: list[tuple[int, int]] = []
        for number, group in enumerate(self._groups):
            for index in group.awaited:
                self._behind[index].append(number)
            if not self._left[number]:
                heappush(self._ready, (-group.chain, number))
        self._pass_waves()

    def begin(self, limit: int, *, under_way: int) -> Iterator[int]:
        """Yield the moves that begin beside so many under way; a group that no other is beside always fits."""
        while self._ready:
            group = self._groups[self._ready[0][1]]
            if under_way and under_way + len(group.moves) > limit:
                return
            heappop(self._ready)
            under_way += len(group.moves)
            yield from group.moves

    def end(self, index: int) -> None:
        """Note that a move is over."""
        for number in self._behind[index]:
            self._release(number)
        wave = self._moves[index].wave
        self._left_of_wave[wave] -= 1
        if not self._left_of_wave[wave]:
            self._pass_waves()

    def _pass_waves(self) -> None:
        """Release the groups that wait for lower waves of which no move is left."""
        while self._waves and not self._left_of_wave[self._waves[0]]:
            self._waves.popleft()
        while self._held_by_waves and self._groups[self._held_by_waves[0]].wave <= (self._waves or (inf,))[0]:
            self._release(self._held_by_waves.popleft())

    def _release(self, number: int) -> None:
        self._left[number] -= 1
        if not self._left[number]:
            heappush(self._ready, (-self._groups[number].chain, number))


def _group(moves: Sequence[PlannedMove]) -> list[_Group]:
    """Return the moves in groups, by wave."""
    by_wave = sorted(range(len(moves)), key=lambda index: moves[index].wave)
    chains = _chains(moves, by_wave)
    groups: dict[tuple[int, str | int], _Group] = {}
    for index in by_wave:
        move = moves[index]
        group = groups.setdefault((move.wave, index if move.stands_alone else move.source), _Group(move.wave))
        group.moves.append(index)
        group.awaited.update(move.after or ())
        group.awaits_lower_waves |= move.after is None
        group.chain = max(group.chain, chains[index])
    return [*groups.values()]


def _chains(moves: Sequence[PlannedMove], by_wave: Sequence[int]) -> list[int]:
    """Return for each move how many come one after the other from it on, itself included."""
    chains, behind_waves = [1] * len(moves), 0
    for _, of_wave in groupby(reversed(by_wave), key=lambda index: moves[index].wave):
        awaiting_lower_waves = 0
        for index in of_wave:
            chains[index] = max(chains[index], behind_waves + 1)
            for earlier in moves[index].after or ():
                chains[earlier] = max(chains[earlier], chains[index] + 1)
            if moves[index].after is None:
                awaiting_lower_waves = max(awaiting_lower_waves, chains[index])
        behind_waves = max(behind_waves, awaiting_lower_waves)
    return chains
