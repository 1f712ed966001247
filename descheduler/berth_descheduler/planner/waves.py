"""Partitions an ordered plan into waves of moves that may run together.

Each move goes to the earliest wave that
- is after the wave of every earlier move that leaves its target (room is made before it is used),
- is after the wave of an earlier move of the same pod, which only brings it to where this one takes it from,
- is after the wave of every earlier move of a pod that constrains it or that it constrains (affinity, spread), so that
  such moves are made one by one, in the order in which they were found feasible,
- has room by the limits: pods of one controller in flight, moves of a wave, disruptions that a budget allows, pods that
  a gang can spare.

Why the waves fit: take the last move in order among those that have come to a node by some wave. When the plan was
made, every arrival before it was counted on that node, and only departures before it were not. By the first rule all
those departures are in earlier waves. So during any wave, with none of its own sources released, a node never holds
more than was found to fit.

The same holds without waves, if each move waits for those that the rules name. They are the room that it needs, the
earlier move of its pod, those that constrain it, and of each limited thing those of the last wave before its own that
has any: so what is in flight of a controller, a budget or a gang is never more than one wave has of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, TypeAlias

from berth_descheduler.planner.disruption_budgets import budget_key, disruptions_allowed
from berth_descheduler.planner.gangs import Gangs
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import ClassIndex, NodeIndex, PodIndex, State, Step

Limited: TypeAlias = tuple[str, str]
"""A limit on moves in flight: of a controller, a disruption budget, a gang, the wave itself."""


@dataclass(slots=True)
class _Timetable:
    """Moves in flight per wave, and the earliest waves of further moves."""

    in_flight: list[Counter[Limited]] = field(default_factory=list)
    left_node: dict[NodeIndex, int] = field(default_factory=dict)
    """Per node: the last wave in which a pod leaves it."""

    moved_group: dict[ClassIndex, int] = field(default_factory=dict)
    """Per group of classes that constrain one another: the last wave in which a pod of it moves."""

    moved_pod: dict[PodIndex, int] = field(default_factory=dict)
    """Per pod: the last wave in which it moves."""

    first_open: dict[Limited, int] = field(default_factory=dict)
    """Per limited thing: every wave before this one is full."""


def assign_waves(problem: Problem, state: State, steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the wave of each step, from 0.

    The fewer waves of two tries: the steps as they come, and those first that hold most others up.
    """
    known, limits = _constrained_groups(problem, state, steps), _Limits(problem)
    groups = [known.get(_class_of(problem, step)) for step in steps]
    limited = [limits.of(step.pod) for step in steps]
    as_they_come = _fill_waves(steps, groups, limited, range(len(steps)))
    urgent_first = _fill_waves(steps, groups, limited, _by_urgency(steps, groups, limited))
    return min(as_they_come, urgent_first, key=lambda waves: max(waves, default=0))


def _fill_waves(
    steps: Sequence[Step],
    groups: Sequence[ClassIndex | None],
    limited: Sequence[dict[Limited, int]],
    order: Iterable[int],
) -> tuple[int, ...]:
    """Return the wave of each step, placed in an order in which none comes before one that it has to wait for."""
    table, waves = _Timetable(), [0] * len(steps)
    for index in order:
        waves[index] = _place(steps[index], table, groups[index], limited[index])
    return tuple(waves)


def _by_urgency(
    steps: Sequence[Step], groups: Sequence[ClassIndex | None], limited: Sequence[dict[Limited, int]]
) -> Iterator[int]:
    """Yield the steps, each after those it has to wait for, those first that need most waves from theirs on.

    That is as many as wait for one another, or share a limit: the pods of a large controller have to begin at once.
    """
    before = [set(one) for one in _steps_before(steps, groups)]
    after: list[list[int]] = [[] for _ in steps]
    total = Counter(one for limits in limited for one in limits)
    waiting: list[int] = [0] * len(steps)
    for index in reversed(range(len(steps))):
        longest = max((waiting[one] for one in after[index]), default=0)
        shared = max((-(-total[one] // most) for one, most in limited[index].items() if one != _OF_WAVE), default=1)
        waiting[index] = max(longest + 1, shared)
        for one in before[index]:
            after[one].append(index)
    left = [len(one) for one in before]
    ready = [(-waiting[index], index) for index in range(len(steps)) if not left[index]]
    heapify(ready)
    while ready:
        _, index = heappop(ready)
        yield index
        for one in after[index]:
            left[one] -= 1
            if not left[one]:
                heappush(ready, (-waiting[one], one))


def _steps_before(steps: Sequence[Step], groups: Sequence[ClassIndex | None]) -> Iterator[list[int]]:
    """Yield for each step those before it that make room for it, move its pod, or constrain it."""
    leaving: defaultdict[NodeIndex, list[int]] = defaultdict(list)
    moved: dict[PodIndex, int] = {}
    constrained: dict[ClassIndex, int] = {}
    for index, (step, group) in enumerate(zip(steps, groups, strict=True)):
        found = [moved[step.pod]] if step.pod in moved else []
        if step.target != step.source:
            found += leaving[step.target]
        if group is not None:
            found += [constrained[group]] if group in constrained else []
            constrained[group] = index
        yield found
        moved[step.pod] = index
        leaving[step.source].append(index)


def _place(step: Step, table: _Timetable, group: ClassIndex | None, limits: dict[Limited, int]) -> int:
    after = [table.moved_pod.get(step.pod, -1)]
    if step.target != step.source:  # else the pod is evicted and goes nowhere
        after.append(table.left_node.get(step.target, -1))
    if group is not None:
        after.append(table.moved_group.get(group, -1))
    wave = max(max(after) + 1, *(table.first_open.get(limited, 0) for limited in limits))
    while wave < len(table.in_flight) and _is_full(table.in_flight[wave], limits):
        wave += 1
    _note(table, wave, step, group, limits)
    return wave


def _is_full(in_flight: Counter[Limited], limits: dict[Limited, int]) -> bool:
    return any(in_flight[limited] >= most for limited, most in limits.items())


def _note(table: _Timetable, wave: int, step: Step, group: ClassIndex | None, limits: dict[Limited, int]) -> None:
    while len(table.in_flight) <= wave:
        table.in_flight.append(Counter())
    for limited, most in limits.items():
        table.in_flight[wave][limited] += 1
        open_from = table.first_open.get(limited, 0)
        while open_from < len(table.in_flight) and table.in_flight[open_from][limited] >= most:
            open_from += 1
        table.first_open[limited] = open_from
    table.moved_pod[step.pod] = wave
    table.left_node[step.source] = max(wave, table.left_node.get(step.source, -1))
    if group is not None:
        table.moved_group[group] = wave


# --- order -----------------------------------------------------------------------------------------------------------
# Which moves have to be over before one begins, where nothing waits for a wave as a whole.

MOST_NAMED: Final = 24
"""A move that has to wait for more moves than this waits for all lower waves instead: a plan is one object."""


def find_predecessors(
    problem: Problem, state: State, steps: Sequence[Step], waves: Sequence[int]
) -> tuple[tuple[int, ...] | None, ...]:
    """Return for each step the positions of those that have to be over before it begins.

    They are all in lower waves, and none waits for another of them. None stands for all steps of lower waves.
    """
    direct = _Predecessors(problem, state, steps, waves).all()
    below = _steps_below(waves)
    ancestors = [0] * len(steps)
    found: list[tuple[int, ...] | None] = [None] * len(steps)
    for index in sorted(range(len(steps)), key=waves.__getitem__):
        needed, known = [], 0
        for one in sorted(direct[index], key=waves.__getitem__, reverse=True):
            if not known >> one & 1:
                needed.append(one)
                known |= ancestors[one] | 1 << one
        is_named = len(needed) <= MOST_NAMED
        found[index] = tuple(sorted(needed)) if is_named else None
        ancestors[index] = known if is_named else below[waves[index]]
    return tuple(found)


def _steps_below(waves: Sequence[int]) -> list[int]:
    """Return the steps of lower waves than each wave, as the bits of a number."""
    own = [0] * (max(waves, default=0) + 2)
    for index, wave in enumerate(waves):
        own[wave + 1] |= 1 << index
    for wave in range(1, len(own)):
        own[wave] |= own[wave - 1]
    return own


class _Predecessors:
    """The steps that each step waits for."""

    def __init__(self, problem: Problem, state: State, steps: Sequence[Step], waves: Sequence[int]) -> None:
        self._steps = steps
        self._waves = waves
        groups, limits = _constrained_groups(problem, state, steps), _Limits(problem)
        self._groups = [groups.get(_class_of(problem, step)) for step in steps]
        self._limited = [limits.of(step.pod).keys() - {_OF_WAVE} for step in steps]

    def all(self) -> list[set[int]]:
        """Return them for all steps."""
        found = [set(one) for one in _steps_before(self._steps, self._groups)]
        members: defaultdict[Limited, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for index, limited in enumerate(self._limited):
            for one in limited:
                members[one][self._waves[index]].append(index)
        for by_wave in members.values():
            waves = sorted(by_wave)
            for before, wave in pairwise(waves):
                for index in by_wave[wave]:
                    found[index].update(by_wave[before])
        return found


# --- limits ----------------------------------------------------------------------------------------------------------
# What limits how many moves are in flight, and which pods constrain one another.

_OF_WAVE: Final = ("wave", "")


class _Limits:
    """The limits that each pod counts for."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._budgets = problem.budgets
        self._gangs = Gangs(problem.cluster.snapshot)

    def of(self, pod: PodIndex) -> dict[Limited, int]:
        """Return the limits on moves in flight that a pod counts for."""
        placed = self._problem.cluster.pods[pod].pod
        waves = self._problem.settings.limits.waves
        limits: dict[Limited, int] = {_OF_WAVE: waves.per_wave}
        owner = placed.controller
        if owner is not None:
            key = owner.uid or f"{placed.metadata.namespace}/{owner.kind}/{owner.name}"
            limits["controller", key] = waves.per_controller
        for budget in self._budgets.covering(placed):
            limits["budget", budget_key(budget)] = max(1, disruptions_allowed(budget))
        limits.update({("gang", gang): spare for gang, spare in self._gangs.spare(placed).items()})
        return limits


def _class_of(problem: Problem, step: Step) -> ClassIndex:
    return problem.cluster.pods[step.pod].class_index


def _constrained_groups(problem: Problem, state: State, steps: Iterable[Step]) -> dict[ClassIndex, ClassIndex]:
    """Return the groups of moved classes that constrain one another.

    By class, with the group of each.
    """
    moved = {_class_of(problem, step) for step in steps}
    links = [*state.pod_affinity.links.among(moved), *state.topology_spread.links.among(moved)]
    parent = {one: one for link in links for one in link}

    def root(one: ClassIndex) -> ClassIndex:
        """Return the representative of a class's group, halving the way to it."""
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    for one, other in links:
        parent[root(one)] = root(other)
    return {one: root(one) for one in parent}
