"""Owns which pod stands in the way of another where a node refuses that for the sake of neighbours or host ports.

It does not own the refusal itself (`state`): this is asked afterwards, for what is told, and not while searching.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cached_property

from berth_descheduler.planner.classes import ClassIndex
from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.state import State
from berth_descheduler.planner.tallies import Domain, Tally
from berth_descheduler.refusals import Refusal, RefusalReason

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
