"""Partitions an ordered plan into waves of moves that may run together.

Each move goes to the earliest wave that
- is after the wave of every earlier move that leaves its target (room is made before it is used),
- is after the wave of an earlier move of the same pod, which only brings it to where this one takes it from,
- is after the wave of every earlier move of a pod that constrains it or that it constrains (affinity, spread), so that
  such moves are made one by one, in the order in which they were found feasible,
- has room by the limits: pods of one controller in flight beside those that it lacks already, moves of a wave,
  disruptions that a budget allows, pods that a gang can spare.

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

    Two orders are tried, and the one with fewer waves wins: the steps as they come, and those first that hold most
    others up.
    """
    group_of_class, limits = _constrained_groups(problem, state, steps), _Limits(problem)
    groups = [group_of_class.get(_class_of(problem, step)) for step in steps]
    limits_of_steps = [limits.of(step.pod) for step in steps]
    in_given_order = _fill_waves(steps, groups, limits_of_steps, range(len(steps)))
    # List scheduling (Graham, 1966) has no order that is best for every input: two are tried, as both are cheap.
    urgent_first = _fill_waves(steps, groups, limits_of_steps, _by_urgency(steps, groups, limits_of_steps))
    return min(in_given_order, urgent_first, key=lambda waves: max(waves, default=0))


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
    """Yield the steps in list-scheduling order: each after those it waits for, the longest chains first.

    A chain counts the waves that a step and what waits for it need. Those that share a limit count as well, since the
    pods of a large controller have to begin at once.
    """
    steps_before = [set(earlier_steps) for earlier_steps in _steps_before(steps, groups)]
    steps_after: list[list[int]] = [[] for _ in steps]
    steps_per_limit = Counter(limited_by for limits in limited for limited_by in limits)
    waves_needed: list[int] = [0] * len(steps)
    for index in reversed(range(len(steps))):
        longest = max((waves_needed[step_after] for step_after in steps_after[index]), default=0)
        shared = max(
            (
                -(-steps_per_limit[limited_by] // at_most)
                for limited_by, at_most in limited[index].items()
                if limited_by != _OF_WAVE
            ),
            default=1,
        )
        waves_needed[index] = max(longest + 1, shared)
        for other_index in steps_before[index]:
            steps_after[other_index].append(index)
    steps_awaited = [len(earlier_steps) for earlier_steps in steps_before]
    ready = [(-waves_needed[index], index) for index in range(len(steps)) if not steps_awaited[index]]
    heapify(ready)
    while ready:
        _, index = heappop(ready)
        yield index
        for other_index in steps_after[index]:
            steps_awaited[other_index] -= 1
            if not steps_awaited[other_index]:
                heappush(ready, (-waves_needed[other_index], other_index))


def _steps_before(steps: Sequence[Step], groups: Sequence[ClassIndex | None]) -> Iterator[list[int]]:
    """Yield for each step those before it that make room for it, move its pod, or constrain it."""
    leaving: defaultdict[NodeIndex, list[int]] = defaultdict(list)
    step_of_pod: dict[PodIndex, int] = {}
    constrained: dict[ClassIndex, int] = {}
    for index, (step, group) in enumerate(zip(steps, groups, strict=True)):
        earlier_steps = [step_of_pod[step.pod]] if step.pod in step_of_pod else []
        if step.target != step.source:
            earlier_steps += leaving[step.target]
        if group is not None:
            earlier_steps += [constrained[group]] if group in constrained else []
            constrained[group] = index
        yield earlier_steps
        step_of_pod[step.pod] = index
        leaving[step.source].append(index)


def _place(step: Step, table: _Timetable, group: ClassIndex | None, limits: dict[Limited, int]) -> int:
    waves_awaited = [table.moved_pod.get(step.pod, -1)]
    if step.target != step.source:  # else the pod is evicted and goes nowhere
        waves_awaited.append(table.left_node.get(step.target, -1))
    if group is not None:
        waves_awaited.append(table.moved_group.get(group, -1))
    wave = max(max(waves_awaited) + 1, *(table.first_open.get(limited_by, 0) for limited_by in limits))
    while wave < len(table.in_flight) and _is_full(table.in_flight[wave], limits):
        wave += 1
    _note(table, wave, step, group, limits)
    return wave


def _is_full(in_flight: Counter[Limited], limits: dict[Limited, int]) -> bool:
    return any(in_flight[limited_by] >= at_most for limited_by, at_most in limits.items())


def _note(table: _Timetable, wave: int, step: Step, group: ClassIndex | None, limits: dict[Limited, int]) -> None:
    while len(table.in_flight) <= wave:
        table.in_flight.append(Counter())
    for limited_by, at_most in limits.items():
        table.in_flight[wave][limited_by] += 1
        open_from = table.first_open.get(limited_by, 0)
        while open_from < len(table.in_flight) and table.in_flight[open_from][limited_by] >= at_most:
            open_from += 1
        table.first_open[limited_by] = open_from
    table.moved_pod[step.pod] = wave
    table.left_node[step.source] = max(wave, table.left_node.get(step.source, -1))
    if group is not None:
        table.moved_group[group] = wave


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
    predecessors: list[tuple[int, ...] | None] = [None] * len(steps)
    for index in sorted(range(len(steps)), key=waves.__getitem__):
        needed, covered = [], 0
        for earlier_step in sorted(direct[index], key=waves.__getitem__, reverse=True):
            # A transitive reduction: a step that is awaited through another one need not be named, which keeps the
            # object small.
            if not covered >> earlier_step & 1:
                needed.append(earlier_step)
                covered |= ancestors[earlier_step] | 1 << earlier_step
        is_named = len(needed) <= MOST_NAMED
        predecessors[index] = tuple(sorted(needed)) if is_named else None
        ancestors[index] = covered if is_named else below[waves[index]]
    return tuple(predecessors)


def longest_chain(waves: Sequence[int], predecessors: Sequence[tuple[int, ...] | None]) -> int:
    """Return the most steps of which each has to wait for the one before, as `find_predecessors` says; 0 of none."""
    chains = [0] * len(waves)
    wave_now, longest, longest_below = 0, 0, 0
    for index in sorted(range(len(waves)), key=waves.__getitem__):
        if waves[index] > wave_now:
            wave_now, longest_below = waves[index], longest
        named = predecessors[index]
        chains[index] = 1 + (longest_below if named is None else max((chains[step] for step in named), default=0))
        longest = max(longest, chains[index])
    return longest


def _steps_below(waves: Sequence[int]) -> list[int]:
    """Return the steps of lower waves than each wave, as the bits of a number."""
    steps_below = [0] * (max(waves, default=0) + 2)
    for index, wave in enumerate(waves):
        steps_below[wave + 1] |= 1 << index
    for wave in range(1, len(steps_below)):
        steps_below[wave] |= steps_below[wave - 1]
    return steps_below


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
        predecessors = [set(earlier_steps) for earlier_steps in _steps_before(self._steps, self._groups)]
        members: defaultdict[Limited, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for index, limited in enumerate(self._limited):
            for limited_by in limited:
                members[limited_by][self._waves[index]].append(index)
        for by_wave in members.values():
            waves = sorted(by_wave)
            for wave_before, wave in pairwise(waves):
                for index in by_wave[wave]:
                    predecessors[index].update(by_wave[wave_before])
        return predecessors


_OF_WAVE: Final = ("wave", "")


class _Limits:
    """The limits that each pod counts for."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._budgets = problem.budgets
        self._gangs = Gangs(problem.cluster.snapshot)

    def of(self, pod: PodIndex) -> dict[Limited, int]:
        """Return the limits on moves in flight that a pod counts for."""
        moved_pod = self._problem.cluster.pods[pod].pod
        waves = self._problem.settings.limits.waves
        limits: dict[Limited, int] = {_OF_WAVE: waves.per_wave}
        owner = moved_pod.controller
        if owner is not None:
            key = owner.uid or f"{moved_pod.metadata.namespace}/{owner.kind}/{owner.name}"
            still_to_go = self._problem.availability.still_to_go(moved_pod)
            limits["controller", key] = min(waves.per_controller, still_to_go or waves.per_controller)
        for budget in self._budgets.covering(moved_pod):
            # At least one: a budget that allows none now may allow it by the time of the wave, and with 0 no wave would
            # take the pod.
            limits["budget", budget_key(budget)] = max(1, disruptions_allowed(budget))
        limits.update({("gang", gang): spare for gang, spare in self._gangs.spare(moved_pod).items()})
        return limits


def _class_of(problem: Problem, step: Step) -> ClassIndex:
    return problem.cluster.pods[step.pod].class_index


def _constrained_groups(problem: Problem, state: State, steps: Iterable[Step]) -> dict[ClassIndex, ClassIndex]:
    """Return for each moved class the group of classes that it constrains or that constrain it."""
    moved_classes = {_class_of(problem, step) for step in steps}
    links = [*state.pod_affinity.links.among(moved_classes), *state.topology_spread.links.among(moved_classes)]
    parent = {linked: linked for link in links for linked in link}

    def root(class_index: ClassIndex) -> ClassIndex:
        """Return the representative of a class's group, halving the way to it."""
        # Union-find with path halving (Tarjan and van Leeuwen, "Worst-Case Analysis of Set Union Algorithms", JACM
        # 1984).
        while parent[class_index] != class_index:
            parent[class_index] = parent[parent[class_index]]
            class_index = parent[class_index]
        return class_index

    for first_class, second_class in links:
        parent[root(first_class)] = root(second_class)
    return {linked: root(linked) for linked in parent}
