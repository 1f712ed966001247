"""Pods on lent nodes: which may come and which have to leave, and how long that takes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from berth_core.labels import (
    DAEMON_POD_LABEL,
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
    MOVE_ANNOTATION,
    PREEMPTABLE_ANNOTATION,
    PREEMPTABLE_LABEL,
    REVOCABLE_ZONE_LABEL,
    STANDING_FENCE_LABEL,
)
from berth_core.objects.metadata import ObjectMeta
from berth_core.objects.nodes import Node
from berth_core.objects.pods import Pod
from berth_core.pod_groups import group_key, volcano_group_of
from berth_core.reservations import Reservation, ReservationTask
from berth_core.revocable_zones import LentFence

_LONGEST_GRACE_SECONDS: Final = 600


def says_preemptable(metadata: ObjectMeta) -> bool:
    """Return whether a pod or its group says that it may be preempted, by annotation or by label."""
    # Either is enough, while Volcano asks the annotation first (`GetPodPreemptable` in pkg/scheduler/api/pod_info.go):
    # the fence admits by the label alone, and what it admits has to leave again.
    return "true" in {metadata.annotations.get(PREEMPTABLE_ANNOTATION), metadata.labels.get(PREEMPTABLE_ANNOTATION)}


def preemptable_groups(groups: Iterable[ObjectMeta]) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the preemptable groups."""
    return frozenset((meta.namespace, meta.name) for meta in groups if says_preemptable(meta))


def is_preemptable(pod: Pod, groups: Collection[tuple[str, str]]) -> bool:
    """Return whether a pod may use lent nodes: it says that it may be preempted, or its group is one of these.

    `PREEMPTABLE_LABEL` is set by the operator, which has asked the group already.
    """
    if says_preemptable(pod.metadata) or PREEMPTABLE_LABEL in pod.metadata.labels:
        return True
    return bool(groups) and (pod.metadata.namespace, volcano_group_of(pod)) in groups


def is_place_of_preemptable(reservation: Reservation, task: ReservationTask) -> bool:
    """Return whether a place is for a preemptable pod that a plan moves, so that open lent nodes let it in.

    This grants nothing new: a user who can forge it can as well make a pod preemptable.
    """
    is_move = bool(reservation.plan) and MOVE_ANNOTATION in reservation.metadata.annotations
    return is_move and says_preemptable(task.template.metadata)


def has_to_leave(pod: Pod, own_namespace: str = "") -> bool:
    """Return whether a pod has to leave its node when the node's zone closes.

    With Berth's own namespace given, a pod elsewhere is no fence.
    """
    meta = pod.metadata
    is_fence = STANDING_FENCE_LABEL in meta.labels and own_namespace in {"", meta.namespace}
    is_daemon = DAEMON_POD_LABEL in meta.labels or pod.is_daemon
    return not (is_fence or is_daemon or pod.is_mirror or pod.is_terminal)


def may_lose_its_place(pod: Pod, groups: Collection[tuple[str, str]]) -> bool:
    """Return whether a pod is evicted from a closed lent node even if no other node takes it.

    It is preemptable, as `is_preemptable` has it, and a controller makes it again.
    """
    return pod.controller is not None and has_to_leave(pod) and is_preemptable(pod, groups)


def closed_lent_nodes(nodes: Iterable[Node], pods: Iterable[Pod], namespace: str) -> dict[str, Pod]:
    """Return the lent nodes that are closed, each with its fence in Berth's namespace.

    Fences elsewhere count for nothing, because any user could make them.
    """
    lent_nodes = {node.metadata.name for node in nodes if REVOCABLE_ZONE_LABEL in node.metadata.labels}
    return {name: fence for name, fence in closed_fences(pods, namespace).items() if name in lent_nodes}


def closed_fences(pods: Iterable[Pod], namespace: str) -> dict[str, Pod]:
    """Return the fences in Berth's namespace that let in nothing, by node."""
    return {
        pod.spec.node_name: pod
        for pod in pods
        if pod.metadata.labels.get(STANDING_FENCE_LABEL) == LentFence.CLOSED
        if pod.metadata.namespace == namespace and not pod.is_terminal and not pod.is_terminating
    }


def job_of(pod: Pod) -> str:
    """Return the name of a pod's job: its group, else its controller, else the pod.

    The namespace comes first, because any user can write another's controller into a pod's owner references.
    """
    uid = pod.controller.uid if pod.controller is not None else pod.metadata.uid
    return f"{pod.metadata.namespace}/{volcano_group_of(pod) or uid}"


def time_to_leave(
    pods: Iterable[Pod], period: timedelta, groups: Mapping[tuple[str, str], ObjectMeta] | None = None
) -> timedelta:
    """Return how long pods need to leave by the budgets of their jobs; by default one pod of a job in each period.

    No pods need no time. A period is added, because a run may begin that much later, or be refused once. `groups` are
    by namespace and name.
    """
    known_groups = groups or {}
    jobs: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        jobs[job_of(pod)].append(pod)
    if not jobs:
        return timedelta(0)
    rounds = max(
        -(-len(members) // _at_once(members, known_groups.get(group_key(members[0])))) for members in jobs.values()
    )
    graces = [member.spec.termination_grace_period_seconds for members in jobs.values() for member in members]
    # 30 is the default that the API server writes (`DefaultTerminationGracePeriodSeconds`). A pod that asks for hours
    # must not close a zone hours early for every other.
    longest = max((min(30 if grace is None else grace, _LONGEST_GRACE_SECONDS) for grace in graces), default=0)
    return period * (rounds + 1) + timedelta(seconds=longest)


def _at_once(members: list[Pod], group: ObjectMeta | None) -> int:
    """Return how many pods of a job may leave in one period, assuming that its other pods all run.

    It is what `getMaxPodEvictNum` of Volcano's plugin `tdm` returns, but at least one.
    """
    at_once = budget_of(JDB_MAX_UNAVAILABLE_ANNOTATION, members, group)
    if at_once is None and (available := budget_of(JDB_MIN_AVAILABLE_ANNOTATION, members, group)) is not None:
        at_once = len(members) - available
    return max(1, at_once or 0)


def budget_of(key: str, members: Sequence[Pod], group: ObjectMeta | None) -> int | None:
    """Return the budget in an annotation of a job's pods or their group, None without a readable one."""
    for meta in (members[0].metadata, group):
        if meta is not None and key in meta.annotations:
            return share_of(meta.annotations[key], len(members))
    return None


def share_of(text: str, total: int) -> int | None:
    """Return a number, or a percentage of a total rounded up as Volcano's `tdm` rounds it; None for anything else."""
    number = text.strip().removesuffix("%")
    if not number.isascii() or not number.isdigit() or len(number) > 9:  # noqa: PLR2004 - more is no count
        return None
    return -(-int(number) * total // 100) if text.strip().endswith("%") else int(number)
