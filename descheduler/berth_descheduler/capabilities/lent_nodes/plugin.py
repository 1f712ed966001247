"""The plugin `LentNodes`: pods leave lent nodes that are closed, and make room on the others by open ones.

A node is lent if it carries the label of a zone, and closed while the operator's fence lets in DaemonSet pods only:
before the window of its zone ends, and until the next one begins. A run names as many pods of a job as its budget
allows, by default one in each period. A preemptable pod that no other node takes is evicted all the same, and without
trying others once there is no time left for that. As a balance plugin it moves preemptable pods off the nodes that are
not lent where other pods wait for room there.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Final

from berth_core import (
    EMPTY_BY_ANNOTATION,
    EVICT_PERIOD_ANNOTATION,
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
    LENT_NODES,
    RESERVATION_LABEL,
    REVOCABLE_ZONE_LABEL,
    Deadline,
    InputError,
    Node,
    Objective,
    ObjectMeta,
    Pod,
    Snapshot,
    budget_of,
    closed_fences,
    closed_lent_nodes,
    group_key,
    has_to_leave,
    is_lent_fence,
    is_preemptable,
    is_unschedulable,
    job_of,
    may_lose_its_place,
    parse_duration,
    preemptable_groups,
    read_timestamp,
    refuse_unknown,
    time_to_leave,
)
from berth_descheduler.capabilities.lent_nodes.room_by_eviction import with_evictions
from berth_descheduler.framework import Candidate, ClusterView, Refusal, RefusalReason
from berth_descheduler.framework.interfaces import FailedMoves, PastMove, PluginSet
from berth_descheduler.framework.rules import NodeRole, Rule
from berth_descheduler.goals.make_room.goal import MakeRoomGoal
from berth_descheduler.planner import (
    EvictableNamespaces,
    NodeIndex,
    PodIndex,
    Problem,
    Proposal,
    State,
    Step,
    Strategy,
    is_pending,
    odd_requests,
)
from berth_descheduler.planner.simulation.cluster import lent_nodes, node_and_presence
from berth_descheduler.planner.simulation.node_fit import lent_text

ARGUMENTS: Final[Mapping[str, str]] = {
    "namespaces": "Namespaces whose pods get room (`balance`): a list `include` or a list `exclude`; all by default.",
    "zones": "Names of the zones whose nodes are emptied (`deschedule`); all by default.",
    "evictions": "`LastResort` evicts preemptable pods where no moves make room (`balance`); `Never` by default.",
}
"""Each argument with its meaning, as the reference page shows it."""


class EvictionMode(StrEnum):
    """Whether pods are evicted for others without a place for them."""

    NEVER = "Never"
    LAST_RESORT = "LastResort"


_DEFAULT_PERIOD: Final = timedelta(minutes=1)
_WITHOUT_HOUR: Final = timedelta(minutes=10)
"""After so long pods leave a node that was closed outside of a window as they do after the hour of one."""
_LONGEST_PAUSE: Final = timedelta(minutes=30)
"""Between two moves of a pod that fail."""
_MOST_DOUBLINGS: Final = 10
_JITTER: Final = timedelta(seconds=10)
"""How much earlier than a period after the last one a run may begin."""


@dataclass(frozen=True, slots=True)
class LentNodes:
    """Names the pods that have to leave lent nodes now, and makes room by open ones."""

    goal: ClassVar[MakeRoomGoal] = MakeRoomGoal()

    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    evictions: EvictionMode = EvictionMode.NEVER
    zones: frozenset[str] = frozenset()
    """The zones whose nodes are emptied; none: all."""

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
        """Return the strategy that makes room."""
        from berth_descheduler.goals.make_room.strategy import MakeRoom  # noqa: PLC0415 - numpy takes a while to import

        evicts = self.evictions is EvictionMode.LAST_RESORT
        return _RoomForOthers(MakeRoom(deadline=deadline), self.namespaces, evicts=evicts)

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        args = {"namespaces": self.namespaces.to_mapping(), "evictions": self.evictions.value}
        return Objective(plugin=LENT_NODES, strategy=LENT_NODES, args=args)

    def deschedule(self, view: ClusterView) -> Iterator[Candidate]:
        """Yield the pods that may leave closed lent nodes now, by job."""
        closed = closed_lent_nodes(view.snapshot.nodes, view.snapshot.pods, view.own_namespace)
        if not closed:
            return
        groups, of_key = _groups(view.snapshot), _groups_by_key(view.snapshot)
        emptied = frozenset(closed) if not self.zones else _nodes_of(view.snapshot.nodes, self.zones)
        for _, members in sorted(_jobs(view.snapshot).items()):
            job = _JobOnLentNodes(members, of_key.get(group_key(members[0])), closed, view.now)
            leaving = [
                (pod, may_lose_its_place(pod, groups))
                for pod in (job.in_turn() if job.leaving else ())
                if pod.spec.node_name in emptied
            ]
            awake = [(pod, evicts) for pod, evicts in leaving if not job.rests(pod, view.failed, or_evict=evicts)]
            if job.rests_after(view.of_others, [pod for pod, _ in awake]):
                continue
            for pod, evicts in awake[: job.spare()]:
                yield _candidate(job, pod, or_evict=evicts)


def _read_zones(raw: object) -> frozenset[str]:
    if not isinstance(raw, list) or not all(isinstance(name, str) and name for name in raw):
        raise InputError("zones", raw, "a list of names of RevocableZones")
    return frozenset(raw)


def _nodes_of(nodes: Iterable[Node], zones: Collection[str]) -> frozenset[str]:
    return frozenset(node.metadata.name for node in nodes if node.metadata.labels.get(REVOCABLE_ZONE_LABEL) in zones)


# --- rules -----------------------------------------------------------------------------------------------------------
# Where pods are moved to lent nodes, and which are evicted though no place is held for them.

_SHORTEST_STAY: Final = timedelta(minutes=10)
"""A pod is moved to a lent node for at least so long."""


@dataclass(frozen=True, slots=True)
class LentNodesRule(Rule):
    """Moves no pod to lent nodes, unless the plugin plans for them, and evicts preemptable pods off closed ones."""

    takes_moves: bool = False
    """Whether preemptable pods are moved to lent nodes that are open."""

    evicts_for_room: bool = False
    """Whether preemptable pods are evicted as well off nodes that are not lent, where no moves make room for others."""

    def on(self, view: ClusterView, run_began: datetime | None) -> "LentNodesRule":
        del run_began
        return _LentNodesAtATime(self.takes_moves, self.evicts_for_room, view)


@dataclass(frozen=True)
class _LentNodesAtATime(LentNodesRule):
    """The rule for one cluster at one time."""

    view: ClusterView | None = None

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        if use is NodeRole.SOURCE or self._lent.get(node.metadata.name) is not True:
            return None  # a closed one takes nothing, whatever a policy says
        ends = self._ends.get(node.metadata.name, ())
        now = None if self.view is None else self.view.now
        if self.takes_moves and (now is None or all(end - now >= _SHORTEST_STAY for end in ends)):
            return None
        return Refusal(RefusalReason.LENT_NODE, f"{lent_text(node)}, to which no pod is moved now")

    def may_evict(self, pod: Pod) -> bool:
        node = pod.spec.node_name
        for_room = self.evicts_for_room and node not in self._lent
        return (node in self._closed or for_room) and may_lose_its_place(pod, self._preemptable)

    @cached_property
    def _snapshot(self) -> Snapshot:
        return Snapshot.empty() if self.view is None else self.view.snapshot

    @cached_property
    def _lent(self) -> Mapping[str, bool]:
        """The lent nodes by name, and whether each is open."""
        nodes = self._snapshot.nodes
        return {nodes[node].metadata.name: is_open for node, is_open in lent_nodes(self._snapshot).items()}

    @cached_property
    def _ends(self) -> Mapping[str, Sequence[datetime]]:
        """When lent nodes have to be empty, as their fences say."""
        ends: defaultdict[str, list[datetime]] = defaultdict(list)
        for fence in self._snapshot.pods if self._lent else ():
            end = read_timestamp(fence.metadata.annotations.get(EMPTY_BY_ANNOTATION)) if is_lent_fence(fence) else None
            if end is not None:
                ends[node_and_presence(fence)[0]].append(end)
        return ends

    @cached_property
    def _closed(self) -> Collection[str]:
        own_namespace = "" if self.view is None else self.view.own_namespace
        return closed_lent_nodes(self._snapshot.nodes, self._snapshot.pods, own_namespace)

    @cached_property
    def _preemptable(self) -> Collection[tuple[str, str]]:
        return _groups(self._snapshot)


def evicts_for_room(plugins: PluginSet) -> bool:
    """Return whether preemptable pods are evicted without a target where no moves make room for others."""
    balance = plugins.balance
    return balance.name == LENT_NODES and balance.plugin.objective.args.get("evictions") == EvictionMode.LAST_RESORT


# --- candidates ------------------------------------------------------------------------------------------------------


def _candidate(job: "_JobOnLentNodes", pod: Pod, *, or_evict: bool) -> Candidate:
    """Return a pod that has to leave; a preemptable one is not kept for a place that there is no time to wait for."""
    node, nodes = pod.spec.node_name, None
    reason = f"the lent node {node} is closed"
    if or_evict and job.is_late(job.closed[node]):
        reason, nodes = f"the lent node {node} is due to be empty; no other node is tried", frozenset[str]()
    return Candidate(pod.metadata.namespace, pod.metadata.name, reason, nodes=nodes, or_evict=or_evict)


def _jobs(snapshot: Snapshot) -> Mapping[str, list[Pod]]:
    """Return the pods of each job that have to leave a node when it closes."""
    jobs: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if has_to_leave(pod):
            jobs[job_of(pod)].append(pod)
    return jobs


def _groups_by_key(snapshot: Snapshot) -> Mapping[tuple[str, str], ObjectMeta]:
    return {
        (pod_group.metadata.namespace, pod_group.metadata.name): pod_group.metadata for pod_group in snapshot.pod_groups
    }


def why_not_evicted(
    pod: Pod, neighbours: Snapshot, own: Snapshot, own_namespace: str, now: datetime, *, for_room: bool = False
) -> str:
    """Return why a pod may not be evicted without a place now, "" if it may.

    `neighbours` has the pods and groups of its namespace, `own` the pods of Berth's. With `for_room` it may make room
    for others on a node that is not lent.
    """
    closed = closed_fences(own.pods, own_namespace)
    fence = closed.get(pod.spec.node_name)
    is_lent = any(
        is_lent_fence(placeholder) and placeholder.spec.node_name == pod.spec.node_name for placeholder in own.pods
    )
    if fence is None and (is_lent or not for_room):
        return f"the lent node {pod.spec.node_name} is not closed any more"
    if not may_lose_its_place(pod, _groups(neighbours)):
        return "it does not say that it is preemptable"
    members, group = _jobs(neighbours).get(job_of(pod), [pod]), _groups_by_key(neighbours).get(group_key(pod))
    return "" if _JobOnLentNodes(members, group, closed, now).spare() > 0 else "its job spares no pod now"


# --- budgets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _JobOnLentNodes:
    """One job at an instant: which of its pods have to leave lent nodes, how soon, and how many may."""

    members: Sequence[Pod]
    group: ObjectMeta | None
    closed: Mapping[str, Pod]
    """The fences of the lent nodes that are closed."""
    now: datetime | None

    @cached_property
    def leaving(self) -> list[Pod]:
        """Return the pods that have to leave now."""
        return [pod for pod in self.members if pod.spec.node_name in self.closed and not pod.is_terminating]

    def in_turn(self) -> list[Pod]:
        """Return the pods by the hour at which their nodes have to be empty, those that are not Ready first.

        In each period others come first, so that a pod that has to stay holds back no other.
        """
        ordered = sorted(self.leaving, key=lambda job_pod: job_pod.key)
        turn = 0 if self.now is None else int(self.now.timestamp() // self._period.total_seconds()) % len(ordered)
        return sorted(
            (*ordered[turn:], *ordered[:turn]), key=lambda job_pod: (self._hour_of(job_pod), job_pod.is_ready)
        )

    def spare(self) -> int:
        """Return how many pods may leave now; those that are not Ready on closed nodes are not waited for."""
        stated = stated_spare(self.members, self.group)
        if stated is not None:
            return stated
        if any(
            self._time_to_spare(self.closed[job_pod.spec.node_name]) <= self._period / 2 for job_pod in self.leaving
        ):
            # None is waited for if the node is empty in time only with one leaving in this run and in each period after
            # it: if others kept deleting pods of the job, the last ones would stay. Half a period earlier than for
            # `is_late`, because a run may come that late.
            return 1
        maybe_awaited = (pod for pod in self.members if pod.is_terminating or pod.spec.node_name not in self.closed)
        return 0 if any(map(self._is_awaited, maybe_awaited)) else 1

    def rests(self, pod: Pod, failed: Mapping[str, FailedMoves], *, or_evict: bool) -> bool:
        """Return whether a pod is left alone for now because its last moves failed, and the next one would, too.

        Each failure doubles the pause. It ends when the node is due, if the pod may be evicted.
        """
        failure = failed.get(pod.metadata.uid)
        if failure is None or self.now is None or (or_evict and self.is_late(self.closed[pod.spec.node_name])):
            return False
        pause = self._period * (1 << min(failure.times, _MOST_DOUBLINGS))
        return self.now - failure.at < max(self._period, min(pause, _LONGEST_PAUSE))

    def rests_after(self, of_others: Iterable[PastMove], pods: Sequence[Pod]) -> bool:
        """Return whether these pods rest because another policy took one of their job off a lent node in this period.

        Pods whose time is short do not rest for one that was taken with more time left.
        """
        if self.now is None or not pods:
            return False
        controllers = {member.controller.uid for member in self.members if member.controller is not None}
        began = self.now - self._period + min(_JITTER, self._period / 2)
        hours = [
            _hour(self.closed[move.source])
            for move in of_others
            if move.controller_uid in controllers and move.source in self.closed and move.at > began
        ]
        first = min((self.closed[pod.spec.node_name] for pod in pods), key=_hour)
        return bool(hours) and (min(hours) <= _hour(first) or self._time_to_spare(first) > self._period / 2)

    def is_late(self, fence: Pod) -> bool:
        """Return whether a node has to be empty before another period may be lost to moves that fail.

        The pods that leave by the same hour need a period each, or what their budget says, and their grace period.
        """
        return self._time_to_spare(fence) <= timedelta(0)

    def _time_to_spare(self, fence: Pod) -> timedelta:
        """Return how much later than now the pods of a node may begin to leave; without an hour, how far it is."""
        if self.now is None:
            return timedelta.max
        hour = _hour(fence)
        if EMPTY_BY_ANNOTATION not in fence.metadata.annotations:
            return hour - self.now
        period = _period(fence)
        due = [pod for pod in self.leaving if self._hour_of(pod) <= hour]
        groups = {} if self.group is None else {(self.group.namespace, self.group.name): self.group}
        return hour - self.now + period - time_to_leave(due, period, groups)

    def _is_awaited(self, pod: Pod) -> bool:
        """Return whether the next pod of a job waits for a missing one: not if that has lacked a node for a period."""
        if pod.is_ready and not pod.is_terminating:
            return False
        created = read_timestamp(pod.metadata.creation_timestamp)
        period = self._period
        if self.now is None or created is None or self.now - created < period - min(_JITTER, period / 2):
            return True
        if not self.leaving:  # one that makes room for others
            return bool(pod.spec.node_name) and self.now - created < _WITHOUT_HOUR
        return bool(pod.spec.node_name)

    @property
    def _period(self) -> timedelta:
        """Return how long apart its evictions are: as the zone says whose nodes have to be empty first."""
        fences = [self.closed[job_pod.spec.node_name] for job_pod in self.leaving]
        return _period(min(fences, key=_hour)) if fences else _DEFAULT_PERIOD

    def _hour_of(self, pod: Pod) -> datetime:
        return _hour(self.closed[pod.spec.node_name])


def stated_spare(members: Sequence[Pod], group: ObjectMeta | None) -> int | None:
    """Return how many pods of a job may leave now as the job says, None if it says nothing."""
    available = sum(pod.is_ready and not pod.is_terminating for pod in members)
    missing = len(members) - available
    max_unavailable = budget_of(JDB_MAX_UNAVAILABLE_ANNOTATION, members, group)
    min_available = budget_of(JDB_MIN_AVAILABLE_ANNOTATION, members, group)
    if max_unavailable is not None:
        return max(0, max_unavailable - missing)
    return None if min_available is None else max(0, available - min_available)


def _period(fence: Pod) -> timedelta:
    try:
        return parse_duration(fence.metadata.annotations[EVICT_PERIOD_ANNOTATION]) or _DEFAULT_PERIOD
    except (KeyError, InputError):
        return _DEFAULT_PERIOD


def _hour(fence: Pod) -> datetime:
    """Return when the node of a fence has to be empty; without a window some minutes after it was closed."""
    hour = read_timestamp(fence.metadata.annotations.get(EMPTY_BY_ANNOTATION))
    closed_at = read_timestamp(fence.metadata.creation_timestamp)
    return hour or (datetime.max.replace(tzinfo=UTC) if closed_at is None else closed_at + _WITHOUT_HOUR)


# --- room for others -------------------------------------------------------------------------------------------------
# Pods that are not preemptable and fit nowhere get room: preemptable pods move to lent nodes that are open, and to
# other nodes where these do not take them.

_NOT_PREEMPTABLE: Final = Refusal(RefusalReason.REFUSED_BY_PLUGIN, f"{LENT_NODES}: the pod is not preemptable")
_LENT_ALREADY: Final = Refusal(RefusalReason.REFUSED_BY_PLUGIN, f"{LENT_NODES}: the pod is on a lent node")


@dataclass(frozen=True, slots=True)
class _RoomForOthers:
    """Asks `MakeRoom` for moves of preemptable pods by which others fit."""

    make_room: Strategy
    namespaces: EvictableNamespaces
    evicts: bool = False
    """Whether preemptable pods are evicted without a target where no moves make room for others."""

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the pods that no node takes, the preemptable ones left out: these use lent nodes themselves."""
        groups = _groups(snapshot)
        return tuple(
            pod
            for pod in snapshot.pods
            if is_pending(pod)
            and is_unschedulable(pod)
            and not (pod.status.nominated_node_name or RESERVATION_LABEL in pod.metadata.labels)
            and self.namespaces.allows(pod.metadata.namespace)
            and not is_preemptable(pod, groups)
            and not odd_requests(pod)
        )

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        lent = problem.cluster.lent
        return tuple(node for node in self.make_room.possible_sources(problem) if node not in lent)

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the fewest moves of preemptable pods by which others fit, to open lent nodes where these take them."""
        if problem.cluster.waiting_node is None:
            return Proposal((), ())
        groups = _groups(problem.cluster.snapshot)
        staying_pods = {
            PodIndex(index): _LENT_ALREADY if placed.node in problem.cluster.lent else _NOT_PREEMPTABLE
            for index, placed in enumerate(problem.cluster.pods)
            if placed.node in problem.cluster.lent or not is_preemptable(placed.pod, groups)
            if placed.node != problem.cluster.waiting_node
        }
        before = state.mark()
        problem = problem.keeping(staying_pods)
        room_proposal = self.make_room.propose(problem, state)
        state.undo_to(before)
        moves_only = replace(room_proposal, steps=_to_lent_nodes(state, room_proposal.steps))
        if not self.evicts:
            return moves_only
        return with_evictions(problem, state, moves_only, _spare_by_job(problem))


def _spare_by_job(problem: Problem) -> dict[str, int]:
    """Return how many pods may leave now of each job."""
    snapshot, settings = problem.cluster.snapshot, problem.settings
    closed = closed_lent_nodes(snapshot.nodes, snapshot.pods, settings.scope.own_namespace)
    groups = _groups_by_key(snapshot)
    return {
        job: _JobOnLentNodes(members, groups.get(group_key(members[0])), closed, settings.run.now).spare()
        for job, members in _jobs(snapshot).items()
    }


def _groups(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    return preemptable_groups(pod_group.metadata for pod_group in snapshot.pod_groups)


def _to_lent_nodes(state: State, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Make the steps in the state, to lent nodes wherever one takes the pod, and return them.

    If the other steps no longer work then, all are made as they are.
    """
    lent = [node for node, is_open in state.cluster.lent.items() if is_open]
    moves = Counter(step.pod for step in steps)
    steps_before = state.mark()
    for step in steps:
        open_nodes = lent if moves[step.pod] == 1 else []
        target = next(
            (target_node for target_node in (*open_nodes, step.target) if state.refusal(step.pod, target_node) is None),
            None,
        )
        if target is None:
            state.undo_to(steps_before)
            for planned_step in steps:
                state.move(planned_step.pod, planned_step.target)
            break
        state.move(step.pod, target)
    return state.steps[steps_before:]
