"""Jobs with pods on lent nodes: which pods must leave, when, and how many may leave at once."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from berth_core import (
    EMPTY_BY_ANNOTATION,
    EVICT_PERIOD_ANNOTATION,
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
    InputError,
    ObjectMeta,
    Pod,
    Snapshot,
    budget_of,
    closed_fences,
    group_key,
    has_to_leave,
    is_lent_fence,
    job_of,
    may_lose_its_place,
    parse_duration,
    preemptable_groups,
    read_timestamp,
    time_to_leave,
)
from berth_descheduler.framework.interfaces import FailedMoves, PastMove

_DEFAULT_PERIOD: Final = timedelta(minutes=1)
_WITHOUT_HOUR: Final = timedelta(minutes=10)
"""How long after its closing a node must be empty if its zone has no window that ends."""
_LONGEST_PAUSE: Final = timedelta(minutes=30)
"""The longest pause between two failing moves of a pod."""
_MAX_DOUBLINGS: Final = 10
_JITTER: Final = timedelta(seconds=10)
"""How much earlier than one period after the last run the next run may begin."""


@dataclass(frozen=True)
class JobOnLentNodes:
    """One job at one time: which of its pods must leave lent nodes, when, and how many may leave now."""

    members: Sequence[Pod]
    group: ObjectMeta | None
    closed: Mapping[str, Pod]
    """The fence of each closed lent node, by the node's name."""
    now: datetime | None

    @cached_property
    def leaving(self) -> list[Pod]:
        """The pods that must leave now."""
        return [pod for pod in self.members if pod.spec.node_name in self.closed and not pod.is_terminating]

    def in_turn(self) -> list[Pod]:
        """Return the leaving pods in the order in which their nodes must be empty, pods that are not Ready first."""
        # Among equals the order rotates with each period, so that a pod that cannot leave holds back no other.
        ordered = sorted(self.leaving, key=lambda job_pod: job_pod.key)
        turn = 0 if self.now is None else int(self.now.timestamp() // self._period.total_seconds()) % len(ordered)
        return sorted(
            (*ordered[turn:], *ordered[:turn]), key=lambda job_pod: (self._hour_of(job_pod), job_pod.is_ready)
        )

    def spare(self) -> int:
        """Return how many pods of the job may leave now.

        Without a budget of its own that is one pod, once all pods are Ready that do not have to leave themselves.
        """
        stated = stated_spare(self.members, self.group)
        if stated is not None:
            return stated
        if any(
            self._time_to_spare(self.closed[job_pod.spec.node_name]) <= self._period / 2 for job_pod in self.leaving
        ):
            # If one pod must leave in this run and in each later period for the node to be empty in time, missing pods
            # are not waited for. Half a period earlier than `is_late`, as the next run may come that late.
            return 1
        maybe_awaited = (pod for pod in self.members if pod.is_terminating or pod.spec.node_name not in self.closed)
        return 0 if any(map(self._is_awaited, maybe_awaited)) else 1

    def rests(self, pod: Pod, failed: Mapping[str, FailedMoves], *, or_evict: bool) -> bool:
        """Return whether a pod rests because its last moves failed; `or_evict` if it may be evicted without a place."""
        failure = failed.get(pod.metadata.uid)
        if failure is None or self.now is None or (or_evict and self.is_late(self.closed[pod.spec.node_name])):
            return False
        # Exponential back-off, cut short for a pod that is evicted without a place once its node is due.
        pause = self._period * (1 << min(failure.times, _MAX_DOUBLINGS))
        return self.now - failure.at < max(self._period, min(pause, _LONGEST_PAUSE))

    def rests_after(self, of_others: Iterable[PastMove], pods: Sequence[Pod]) -> bool:
        """Return whether these pods rest because another policy has moved a pod of the job in this period."""
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
        # Pods with little time left do not rest for a move of a pod that had more time.
        return bool(hours) and (min(hours) <= _hour(first) or self._time_to_spare(first) > self._period / 2)

    def is_late(self, fence: Pod) -> bool:
        """Return whether losing another period to failing moves would keep a node from being empty in time.

        Each pod that leaves by the same time needs a period, or what its budget allows, and its grace period.
        """
        return self._time_to_spare(fence) <= timedelta(0)

    def _time_to_spare(self, fence: Pod) -> timedelta:
        """Return how long the pods of a node may still wait before they begin to leave."""
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
        """Return whether the next pod waits for this one to be Ready; not if it has lacked a node for a period."""
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
        """The eviction period of the zone whose nodes must be empty first."""
        fences = [self.closed[job_pod.spec.node_name] for job_pod in self.leaving]
        return _period(min(fences, key=_hour)) if fences else _DEFAULT_PERIOD

    def _hour_of(self, pod: Pod) -> datetime:
        return _hour(self.closed[pod.spec.node_name])


def stated_spare(members: Sequence[Pod], group: ObjectMeta | None) -> int | None:
    """Return how many pods may leave now by the job's own budget; None without one."""
    available = sum(pod.is_ready and not pod.is_terminating for pod in members)
    missing = len(members) - available
    # If both are set, max-unavailable counts, as in Volcano's tdm plugin (`getMaxPodEvictNum` in
    # pkg/scheduler/plugins/tdm/tdm.go).
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
    """Return when the node of a fence must be empty: at its window's end, else some minutes after it was closed."""
    hour = read_timestamp(fence.metadata.annotations.get(EMPTY_BY_ANNOTATION))
    closed_at = read_timestamp(fence.metadata.creation_timestamp)
    return hour or (datetime.max.replace(tzinfo=UTC) if closed_at is None else closed_at + _WITHOUT_HOUR)


def jobs_on_lent_nodes(snapshot: Snapshot) -> Mapping[str, list[Pod]]:
    """Return the pods that have to leave a lent node when it closes, by job."""
    jobs: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if has_to_leave(pod):
            jobs[job_of(pod)].append(pod)
    return jobs


def groups_by_key(snapshot: Snapshot) -> Mapping[tuple[str, str], ObjectMeta]:
    return {
        (pod_group.metadata.namespace, pod_group.metadata.name): pod_group.metadata for pod_group in snapshot.pod_groups
    }


def preemptable_groups_in(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    return preemptable_groups(pod_group.metadata for pod_group in snapshot.pod_groups)


def why_not_evicted(
    pod: Pod, neighbours: Snapshot, own: Snapshot, own_namespace: str, now: datetime, *, for_room: bool = False
) -> str:
    """Return why a pod may not be evicted without a target now, "" if it may.

    `neighbours` has the pods and groups of the pod's namespace, `own` those of Berth's. `for_room` also allows
    evictions off nodes that are not lent, to make room for others.
    """
    closed = closed_fences(own.pods, own_namespace)
    fence = closed.get(pod.spec.node_name)
    is_lent = any(
        is_lent_fence(placeholder) and placeholder.spec.node_name == pod.spec.node_name for placeholder in own.pods
    )
    if fence is None and (is_lent or not for_room):
        return f"the lent node {pod.spec.node_name} is not closed any more"
    if not may_lose_its_place(pod, preemptable_groups_in(neighbours)):
        return "it does not say that it is preemptable"
    members = jobs_on_lent_nodes(neighbours).get(job_of(pod), [pod])
    group = groups_by_key(neighbours).get(group_key(pod))
    return "" if JobOnLentNodes(members, group, closed, now).spare() > 0 else "its job spares no pod now"
