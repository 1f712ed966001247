"""The plugin `LentNodes`: empties lent nodes that are closed, and moves pods to those that are open.

A node is lent if it has the label of a zone. It is closed while the operator's fence admits DaemonSet pods only, which
is from some time before the end of its zone's window until the next window. Each run moves as many pods of a job as its
budget allows, by default one per period. A preemptable pod that fits no other node is evicted without a target; once
time is short, no other node is tried. As a balance plugin it moves preemptable pods off nodes that are not lent where
other pods wait for room.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final

from berth_core import (
    LENT_NODES,
    REVOCABLE_ZONE_LABEL,
    Deadline,
    InputError,
    Node,
    Objective,
    Pod,
    closed_lent_nodes,
    group_key,
    may_lose_its_place,
    refuse_unknown,
)
from berth_descheduler.capabilities.lent_nodes.jobs import (
    JobOnLentNodes,
    groups_by_key,
    jobs_on_lent_nodes,
    preemptable_groups_in,
)
from berth_descheduler.capabilities.lent_nodes.room import RoomForOthers
from berth_descheduler.framework import Candidate, ClusterView
from berth_descheduler.framework.enabled_plugins import PluginSet
from berth_descheduler.goals.make_room.goal import MakeRoomGoal
from berth_descheduler.planner import EvictableNamespaces, Strategy

ARGUMENTS: Final[Mapping[str, str]] = {
    "namespaces": "Namespaces whose pods get room (`balance`): a list `include` or a list `exclude`; all by default.",
    "zones": "Names of the zones whose nodes are emptied (`deschedule`); all by default.",
    "evictions": "`LastResort` evicts preemptable pods where no moves make room (`balance`); `Never` by default.",
}
"""Each argument with its meaning, as the reference page shows it."""


class EvictionMode(StrEnum):
    """Whether pods are evicted without a target to make room for others."""

    NEVER = "Never"
    LAST_RESORT = "LastResort"


@dataclass(frozen=True, slots=True)
class LentNodes:
    """Proposes the pods that must leave lent nodes, and makes room for others by moving pods to open ones."""

    goal: ClassVar[MakeRoomGoal] = MakeRoomGoal()

    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    evictions: EvictionMode = EvictionMode.NEVER
    zones: frozenset[str] = frozenset()
    """The zones whose nodes are emptied; all if empty."""

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "LentNodes":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        refuse_unknown("args", args, ARGUMENTS)
        raw_evictions = args.get("evictions", EvictionMode.NEVER.value)
        if raw_evictions not in set(EvictionMode):
            raise InputError("evictions", raw_evictions, f"one of {', '.join(EvictionMode)}")
        namespaces = EvictableNamespaces.of_argument(args.get("namespaces"))
        return cls(namespaces, EvictionMode(raw_evictions), _read_zones(args.get("zones", [])))

    def strategy(self, deadline: Deadline) -> Strategy:
        from berth_descheduler.goals.make_room.strategy import MakeRoom  # noqa: PLC0415 - numpy takes a while to import

        evicts = self.evictions is EvictionMode.LAST_RESORT
        return RoomForOthers(MakeRoom(deadline=deadline), self.namespaces, evicts=evicts)

    @property
    def objective(self) -> Objective:
        """The objective that a MigrationPlan records."""
        args = {"namespaces": self.namespaces.to_mapping(), "evictions": self.evictions.value}
        return Objective(plugin=LENT_NODES, strategy=LENT_NODES, args=args)

    def deschedule(self, view: ClusterView) -> Iterator[Candidate]:
        """Yield the pods that may leave closed lent nodes now, by job."""
        closed = closed_lent_nodes(view.snapshot.nodes, view.snapshot.pods, view.own_namespace)
        if not closed:
            return
        groups, of_key = preemptable_groups_in(view.snapshot), groups_by_key(view.snapshot)
        emptied = frozenset(closed) if not self.zones else _nodes_of(view.snapshot.nodes, self.zones)
        for _, members in sorted(jobs_on_lent_nodes(view.snapshot).items()):
            job = JobOnLentNodes(members, of_key.get(group_key(members[0])), closed, view.now)
            leaving = [
                (pod, may_lose_its_place(pod, groups))
                for pod in (job.in_turn() if job.leaving else ())
                if pod.spec.node_name in emptied
            ]
            awake = [(pod, evicts) for pod, evicts in leaving if not job.rests(pod, view.failed, or_evict=evicts)]
            if job.rests_after(view.of_others, [pod for pod, _ in awake]):
                continue
            # As many as the job's own budget allows now. PodDisruptionBudgets count in addition, at the eviction.
            for pod, evicts in awake[: job.spare()]:
                yield _candidate(job, pod, or_evict=evicts)


def _read_zones(raw: object) -> frozenset[str]:
    if not isinstance(raw, list) or not all(isinstance(name, str) and name for name in raw):
        raise InputError("zones", raw, "a list of names of RevocableZones")
    return frozenset(raw)


def _nodes_of(nodes: Iterable[Node], zones: Collection[str]) -> frozenset[str]:
    return frozenset(node.metadata.name for node in nodes if node.metadata.labels.get(REVOCABLE_ZONE_LABEL) in zones)


def evicts_for_room(plugins: PluginSet) -> bool:
    """Return whether the enabled balance plugin is `LentNodes` with `evictions: LastResort`."""
    balance = plugins.balance
    return balance.name == LENT_NODES and balance.plugin.objective.args.get("evictions") == EvictionMode.LAST_RESORT


def _candidate(job: JobOnLentNodes, pod: Pod, *, or_evict: bool) -> Candidate:
    """Return the candidate for a pod; a preemptable one is evicted without a target once its node is due."""
    node, nodes = pod.spec.node_name, None
    reason = f"the lent node {node} is closed"
    if or_evict and job.is_late(job.closed[node]):
        # Past the hour a search for a place would only delay the owner of the node.
        reason, nodes = f"the lent node {node} is due to be empty; no other node is tried", frozenset[str]()
    return Candidate(pod.metadata.namespace, pod.metadata.name, reason, nodes=nodes, or_evict=or_evict)
