"""Owns which pod stands in the way of another where a node refuses that for the sake of neighbours or host ports.

It does not own the refusal itself (`state`): this is asked afterwards, for what is told, and not while searching.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from berth_core.resources import PODS
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner.problem import Problem, Quality, Sources
from berth_descheduler.planner.simulation.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.simulation.pod_classes import ClassIndex
from berth_descheduler.planner.simulation.state import State
from berth_descheduler.planner.simulation.topology_counts import Domain, Tally
from berth_descheduler.planner.solver.model import Columns

_BY_NEIGHBOURS = frozenset({RefusalReason.POD_ANTI_AFFINITY, RefusalReason.OTHERS_ANTI_AFFINITY})


class Blockers:
    """Answers for a state that is not changed any more."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._first: dict[int, dict[Domain, PodIndex]] = {}
        """Per tally, by its identity, the first counted pod of each domain."""

    def name(self, refusal: Refusal, pod: PodIndex, target: NodeIndex) -> Refusal:
        """Return the refusal of a pod by a node with the pod in the way named, where there is one."""
        if refusal.reason in _BY_NEIGHBOURS:
            blocking = self._neighbour(pod, target)
        elif refusal.reason is RefusalReason.HOST_PORT:
            blocking = self._port_holder(pod, target)
        else:
            return refusal
        return refusal if blocking is None else replace(refusal, blocking_pod=self._key(blocking))

    def _key(self, pod: PodIndex) -> str:
        return self._state.cluster.pods[pod].pod.key

    def _class_of(self, pod: PodIndex) -> ClassIndex:
        return self._state.cluster.pods[pod].class_index

    def _neighbour(self, pod: PodIndex, target: NodeIndex) -> PodIndex | None:
        tally = self._state.neighbours.in_the_way(self._class_of(pod), target)
        domain = tally.domain(target) if tally is not None else None
        return None if tally is None or domain is None else self._first_in(tally).get(domain)

    def _first_in(self, tally: Tally) -> dict[Domain, PodIndex]:
        if id(tally) not in self._first:
            found = self._first[id(tally)] = {}
            counted = self._state.neighbours.counted_in(tally)
            for index, node in enumerate(self._state.node_of):
                domain = tally.domain(node)
                if domain is not None and self._class_of(PodIndex(index)) in counted:
                    found.setdefault(domain, PodIndex(index))
        return self._first[id(tally)]

    def _port_holder(self, pod: PodIndex, target: NodeIndex) -> PodIndex | None:
        classes = self._state.cluster.classes
        wanted = classes[self._class_of(pod)].host_ports
        for other in self._with_ports.get(target, ()):
            if any(one.conflicts(taken) for one in wanted for taken in classes[self._class_of(other)].host_ports):
                return other
        return None

    @cached_property
    def _with_ports(self) -> dict[NodeIndex, list[PodIndex]]:
        """Return the pods with host ports by the node on which they are now."""
        found: defaultdict[NodeIndex, list[PodIndex]] = defaultdict(list)
        classes = self._state.cluster.classes
        for index, node in enumerate(self._state.node_of):
            if classes[self._class_of(PodIndex(index))].host_ports:
                found[node].append(PodIndex(index))
        return found


# --- refusing nodes --------------------------------------------------------------------------------------------------
# The summary of why many nodes refuse one pod: in words by number, and what most of them have in common.


@dataclass(slots=True)
class RefusingNodes:
    """The nodes that refuse a pod, counted by reason."""

    pod: PodIndex
    _counts: Counter[Refusal] = field(default_factory=Counter)
    _first: dict[Refusal, NodeIndex] = field(default_factory=dict)

    def count(self, node: NodeIndex, refusal: Refusal) -> None:
        """Count a node."""
        self._counts[refusal] += 1
        self._first.setdefault(refusal, node)

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._counts)

    def in_words(self) -> str:
        """Return the reasons with their numbers, the most frequent first; "" if no node was counted."""
        texts: Counter[str] = Counter()
        for refusal, number in self._counts.items():
            texts[refusal.message] += number
        ordered = sorted(texts.items(), key=lambda one: (-one[1], one[0]))
        return "; ".join(f"{number} x {text}" for text, number in ordered)

    def summary(self, text: str, blockers: Blockers) -> Refusal:
        """Return in one refusal that no node takes the pod, with the most frequent reason as its constraint."""
        if not self._counts:
            return Refusal(RefusalReason.NO_TARGET, text)
        kinds: Counter[tuple[RefusalReason, str]] = Counter()
        for refusal, number in self._counts.items():
            kinds[refusal.reason, refusal.resource] += number
        usual = min(kinds, key=lambda kind: (-kinds[kind], kind))
        example = min(one for one in self._counts if (one.reason, one.resource) == usual)
        named = blockers.name(example, self.pod, self._first[example])
        return replace(named, reason=RefusalReason.NO_TARGET, message=text, constraint=example.reason)


# --- why not freed ---------------------------------------------------------------------------------------------------
# The reasons for what `Consolidate` left: why each node was not freed, and which pod stands in the way.

_MOST_ASKED: Final = 2_000_000
"""So often is asked about a pod and a node; after that nodes get the general reason."""

_STAYS_EMPTY: Final = Refusal(RefusalReason.ALREADY_EMPTY, "is empty and stays so")


def why_not_freed(
    problem: Problem, state: State, columns: Columns, sources: Sources, outcome: tuple[frozenset[NodeIndex], Quality]
) -> tuple[Refused, ...]:
    """Return why each node that was not freed was not, and for the pods that keep it so, why they stay.

    `state` is after the moves; `outcome` is what was freed and how good that is. A pod that is not named stays because
    its node does.
    """
    return tuple(sorted(_Reasons(problem, state, columns, sources, outcome).all()))


class _Reasons:
    """The reasons after one plan."""

    def __init__(
        self,
        problem: Problem,
        state: State,
        columns: Columns,
        sources: Sources,
        outcome: tuple[frozenset[NodeIndex], Quality],
    ) -> None:
        self._problem = problem
        self._state = state
        self._columns = columns
        self._sources = sources
        self._freed, self._quality = outcome
        self._why_kind: dict[int, Refusal | None] = {}
        self._asks_left = _MOST_ASKED
        self._blockers = Blockers(state)
        self._targets = [node for node in range(columns.nodes) if NodeIndex(node) not in self._freed]

    def all(self) -> Iterable[Refused]:
        """Yield every reason."""
        for node, refusal in self._sources.refusals.items():
            if refusal.reason is RefusalReason.NO_TARGET:
                yield from self._stuck(node, refusal)
            else:
                yield self._of_node(node, refusal)
                yield from self._immovable(node)
        for node in self._sources.to_empty:
            if node not in self._freed:
                yield from self._left(node)

    def _immovable(self, node: NodeIndex) -> Iterable[Refused]:
        for pod in self._problem.pods_to_move(node):
            if pod in self._problem.pod_refusals:
                yield self._of_pod(pod, self._problem.pod_refusals[pod])

    def _stuck(self, node: NodeIndex, refusal: Refusal) -> Iterable[Refused]:
        """Yield why a node that no plan can empty cannot be, and which pod fits on no other node."""
        blocked = self._blocked(node)
        yield from blocked or (self._of_node(node, refusal),)

    def _left(self, node: NodeIndex) -> Iterable[Refused]:
        """Yield why a node that might have been emptied was not."""
        pods = self._sources.pods_of[node]
        left = self._moves_left()
        if left is not None and len(pods) > left:
            text = f"{len(pods)} moves are needed and {left} are left"
            yield self._of_node(node, Refusal(RefusalReason.MOVE_LIMIT, text))
            return
        here = [pod for pod in pods if self._state.node_of[pod] == node]
        yield from self._blocked(node) or (self._of_node(node, self._why_not_together(len(here))),)

    def _blocked(self, node: NodeIndex) -> tuple[Refused, ...]:
        """Return the largest pod of a node that fits nowhere now and the node, each with the reason; or nothing."""
        here = [pod for pod in self._problem.pods_to_move(node) if self._state.node_of[pod] == node]
        for pod in sorted(here, key=self._size, reverse=True):
            blocked = self._why_nowhere(pod)
            if blocked is not None:
                key = self._problem.cluster.pods[pod].pod.key
                of_node = replace(blocked, message=f"pod {key} finds no target: {blocked.message}", blocking_pod=key)
                return self._of_pod(pod, blocked), self._of_node(node, of_node)
        return ()

    def _why_not_together(self, pods: int) -> Refusal:
        name = self._problem.cluster.resources[self._columns.binding]
        if self._quality.proven_optimal:
            text = f"no plan frees more than {self._quality.upper_bound} nodes"
            return Refusal(RefusalReason.BOUND_REACHED, text)
        if self._quality.out_of_time:
            text = f"the time limit ended the search; at most {self._quality.gap} more nodes could be freed"
            return Refusal(RefusalReason.TIME_LIMIT, text)
        text = f"each of its {pods} pods fits somewhere, but not all of them together; {name} is the scarcest"
        return Refusal(RefusalReason.NO_ROOM_TOGETHER, text, resource=name)

    def _moves_left(self) -> int | None:
        limit = self._problem.settings.max_moves
        return None if limit is None else limit - self._state.mark()

    def _size(self, pod: PodIndex) -> tuple[int, int]:
        return int(self._columns.size[self._columns.pod_kind[pod]]), -pod

    def _why_nowhere(self, pod: PodIndex) -> Refusal | None:
        """Return why a pod fits nowhere now, None if it does; one answer for all pods alike that stand alone."""
        kind = int(self._columns.pod_kind[pod])
        if self._columns.tied[kind]:
            return self._ask(pod) if self._asks_left > 0 else None
        if kind not in self._why_kind:
            self._why_kind[kind] = self._ask(pod)
        return self._why_kind[kind]

    def _ask(self, pod: PodIndex) -> Refusal | None:
        home = self._state.node_of[pod]
        refusing = RefusingNodes(pod)
        empty = frozenset(self._sources.empty)
        for target in self._targets:
            if target == home:
                continue
            self._asks_left -= 1
            refusal = self._state.refusal(pod, NodeIndex(target))
            if refusal is None and target not in empty:
                return None
            refusing.count(NodeIndex(target), refusal or _STAYS_EMPTY)
        text = f"{self._asked(pod)} {refusing.in_words() or 'there is no other node'}"
        return refusing.summary(text, self._blockers)

    def _asked(self, pod: PodIndex) -> str:
        amounts = self._problem.cluster.amounts_of(pod).to_quantities()
        asked = ", ".join(f"{name} {amount}" for name, amount in amounts.items() if name != PODS)
        return f"asks for {asked or 'no resources'}:"

    def _of_node(self, node: NodeIndex, refusal: Refusal) -> Refused:
        return Refused.of_node(self._problem.cluster.node_name(node), refusal)

    def _of_pod(self, pod: PodIndex, refusal: Refusal) -> Refused:
        placed = self._problem.cluster.pods[pod]
        meta = placed.pod.metadata
        return Refused.of_pod(self._problem.cluster.node_name(placed.node), meta.namespace, meta.name, refusal)
