"""Finds the jobs that starve: those that wait for capacity longer than a threshold.

A job is a gang, else a controller, else a pod of its own. It is ready when as many of its pods as it needs are placed,
and condition-ready when that many are placed or have a place reserved; neither starves. Without a gang one pod is
enough, as the controller's other pods can do without it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from berth_core import (
    PLACEHOLDER_LABEL,
    POD_GROUP_KIND,
    RESERVATION_LABEL,
    STARVING_JOB_LABEL,
    VOLCANO_JOB_API_VERSION,
    VOLCANO_JOB_KIND,
    VOLCANO_TASK_ANNOTATION,
    ObjectReference,
    Pod,
    PodGroup,
    Reservation,
    SlotState,
    Snapshot,
    job_uid,
    owner_matches,
    parse_timestamp,
    volcano_group_of,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner import Gangs, gangs_of, is_pending
from berth_descheduler.planner.gangs import Gang, GangKind
from berth_descheduler.planner.pending_pods import gang_of

OVER: Final = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job with pods that wait for a place."""

    reference: ObjectReference
    """Without a uid where its pods only name a group that the snapshot does not have."""

    uid: str
    """Its uid, else a digest of its name."""

    priority: int
    since: datetime | None
    """When it and the first of its waiting pods had been created; None if the API does not say."""

    minimum: int
    """How many of its pods must be placed for it to be ready."""

    placed: int
    """How many of its pods have a node or are on their way to one, or have succeeded."""

    reserved: int
    """How many slots of live Reservations its waiting pods may still take."""

    waiting: tuple[Pod, ...]
    missing: tuple[Pod, ...]
    """The waiting pods for which a Reservation would hold slots; fewer than the job needs if some do not exist yet."""

    is_gang: bool
    placed_uids: frozenset[str]
    """Uids of its pods that have a place and have not ended."""
    has_been_tried: bool
    """Whether a scheduler has marked one of its waiting pods as unschedulable."""

    @property
    def name(self) -> str:
        """`namespace/name`, for messages."""
        return f"{self.reference.namespace}/{self.reference.name}"

    @property
    def is_ready(self) -> bool:
        return self.placed >= self.minimum and not self.missing

    @property
    def is_condition_ready(self) -> bool:
        """Whether what is reserved for the job is enough to make it ready."""
        return self.reserved >= max(1, len(self.missing), self.minimum - self.placed)

    def starves(self, now: datetime, threshold: timedelta) -> bool:
        """Return whether the job has waited for longer than the threshold and is neither ready nor condition-ready."""
        # Its scheduler must have tried a pod. Pods whose `schedulerName` no running scheduler serves never get the
        # condition PodScheduled, and freed capacity would not help them.
        waits = self.since is not None and now - self.since > threshold and self.has_been_tried
        return waits and not self.is_ready and not self.is_condition_ready

    def lacks_pods(self) -> Refusal | None:
        """Return why reserving cannot help a job whose pods have not all been created; None for any other job."""
        known_pods = self.placed + len(self.missing)
        if known_pods >= self.minimum:
            return None
        return Refusal(RefusalReason.TOO_FEW_PODS, f"it has {known_pods} of the {self.minimum} pods that it needs")


def order_of(job: PendingJob) -> tuple[int, bool, datetime | str, str]:
    """Sort key: jobs of higher priority are served first, of equal priority the one that has waited longest."""
    return (-job.priority, job.since is None, job.since or "", job.name)


@dataclass(slots=True)
class _Members:
    """The pods of one job."""

    reference: ObjectReference
    created: str | None
    minimum: int | None
    """None if the job needs all the pods that it has."""
    of_task: Mapping[str, int] = field(default_factory=dict)
    """How many pods each task of a Volcano Job needs, if the Job sets that per task (`minAvailable`)."""
    is_gang: bool = False
    waiting: list[Pod] = field(default_factory=list)
    placed: Counter[str] = field(default_factory=Counter)
    """The number of placed pods by task, and of all tasks together under ""."""
    placed_uids: set[str] = field(default_factory=set)


def find_pending_jobs(snapshot: Snapshot, *, on_their_way: bool = False) -> tuple[PendingJob, ...]:
    """Return the jobs with waiting pods in the order in which they are served.

    `on_their_way` adds the jobs whose unbound pods all have a slot or a nominated node already.
    """
    directory = _Directory(snapshot)
    keys = {directory.key_of(pod) for pod in snapshot.pods if is_pending(pod) or (on_their_way and is_coming(pod))}
    members: dict[object, _Members] = {}
    for pod in snapshot.pods:
        key = directory.key_of(pod)
        if key not in keys:
            continue
        if key not in members:
            members[key] = directory.describe(key, pod)
        _add(members[key], pod)
    live_reservations = [any_reservation for any_reservation in snapshot.reservations if any_reservation.is_live]
    by_namespace: defaultdict[str, list[Reservation]] = defaultdict(list)
    for reservation in live_reservations:
        by_namespace[reservation.metadata.namespace].append(reservation)
    pending = (job_members for job_members in members.values() if job_members.waiting or on_their_way)
    return tuple(
        sorted(
            (_job(job_members, by_namespace[job_members.reference.namespace]) for job_members in pending), key=order_of
        )
    )


def groups_without_pods(snapshot: Snapshot) -> tuple[PodGroup, ...]:
    """Return the PodGroups without pods that Volcano has not admitted (phase Pending), the oldest first."""
    # Volcano creates a Job's pods only once its action `enqueue` has moved the PodGroup from Pending to Inqueue
    # (volcano-sh/volcano, docs/design/delay-pod-creation.md).
    kept_out = [group for group in snapshot.pod_groups if group.is_kept_out]
    with_pods = {(pod.metadata.namespace, volcano_group_of(pod)) for pod in snapshot.pods} if kept_out else set()
    without_pods = [group for group in kept_out if (group.metadata.namespace, group.metadata.name) not in with_pods]
    return tuple(sorted(without_pods, key=lambda group: (group.metadata.creation_timestamp or "", group.metadata.name)))


def _add(job: _Members, pod: Pod) -> None:
    if is_pending(pod) and not has_place(pod):
        job.waiting.append(pod)
    elif pod.status.phase == "Succeeded" or (not pod.is_terminal and not pod.is_terminating):
        # A succeeded pod needs no capacity again, so it counts towards the gang's minimum; a failed one does not.
        # Volcano counts them like this, too (`ReadyTaskNum` in pkg/scheduler/api/job_info.go).
        counts = pod.status.phase == "Succeeded" or bool(pod.spec.node_name) or has_place(pod)
        task = pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")
        job.placed.update({"": int(counts), **({task: int(counts)} if task else {})})
        job.placed_uids |= {pod.metadata.uid} if counts and not pod.is_terminal else set()


def is_coming(pod: Pod) -> bool:
    """Return whether an unbound pod waits behind our gate, or in a hand-over, for a slot of a Reservation."""
    waits = not pod.spec.node_name and not pod.is_terminal and not pod.is_terminating
    return waits and RESERVATION_LABEL in pod.metadata.labels and PLACEHOLDER_LABEL not in pod.metadata.labels


def has_place(pod: Pod) -> bool:
    """Return whether an unbound pod is on its way to a node: in a hand-over, or nominated after a preemption."""
    return RESERVATION_LABEL in pod.metadata.labels or bool(pod.status.nominated_node_name)


def _job(members: _Members, reservations: Sequence[Reservation]) -> PendingJob:
    waiting = tuple(sorted(members.waiting, key=lambda pod: (-(pod.spec.priority or 0), _created(pod), pod.key)))
    placed_count = members.placed[""]
    minimum = placed_count + len(waiting) if members.minimum is None else members.minimum
    missing = _missing(members, waiting, minimum)
    reference = members.reference
    first_created = min(map(_created, waiting), default="")
    # The later of the two: an old Deployment waits only since its first waiting pod was created. Timestamps of the API
    # can be compared as text, since all are RFC 3339 in UTC and in whole seconds.
    since = max((text for text in (first_created, members.created) if text), default=None)
    return PendingJob(
        reference=reference,
        uid=job_uid(reference),
        priority=max((pod.spec.priority or 0 for pod in waiting), default=0),
        since=parse_timestamp(since) if since else None,
        minimum=minimum,
        placed=placed_count,
        reserved=_reserved(job_uid(reference), waiting, reservations),
        waiting=waiting,
        missing=missing,
        is_gang=members.is_gang,
        placed_uids=frozenset(members.placed_uids),
        has_been_tried=any(pod.is_unschedulable for pod in waiting),
    )


def _missing(members: _Members, waiting: Sequence[Pod], minimum: int) -> tuple[Pod, ...]:
    """Return the pods to place: first those that each task needs, then pods of any task up to the job's minimum."""
    chosen_pods: dict[str, Pod] = {}
    for task, needed in members.of_task.items():
        pods_lacking = max(0, needed - members.placed[task])
        of_task = [pod for pod in waiting if pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "") == task]
        chosen_pods |= {pod.key: pod for pod in of_task[:pods_lacking]}
    for pod in waiting:
        if len(chosen_pods) >= minimum - members.placed[""]:
            break
        chosen_pods.setdefault(pod.key, pod)
    return tuple(pod for pod in waiting if pod.key in chosen_pods)


def _reserved(uid: str, waiting: Sequence[Pod], reservations: Iterable[Reservation]) -> int:
    open_slots = 0
    for reservation in reservations:
        # Slots that people reserved, without the label, serve any job whose pods match; slots for another job do not.
        if reservation.metadata.labels.get(STARVING_JOB_LABEL, uid) != uid:
            continue
        if any(owner_matches(owner, pod) for owner in reservation.spec.owners for pod in waiting):
            open_slots += reservation.spec.replicas - sum(slot.state in OVER for slot in reservation.status.slots)
    return open_slots


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""


class _Directory:
    """Finds the job of a pod, and what the snapshot knows of that job."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._gangs = Gangs(snapshot)
        self._volcano_jobs = {
            (volcano_job.metadata.namespace, volcano_job.metadata.name): volcano_job
            for volcano_job in snapshot.volcano_jobs
        }
        self._groups = {
            (pod_group.metadata.namespace, pod_group.metadata.name): pod_group for pod_group in snapshot.pod_groups
        }
        self._workloads = {workload.metadata.uid: workload for workload in snapshot.workloads}

    def key_of(self, pod: Pod) -> object:
        """Return the key that all pods of a job share: their gang, their controller's uid, or the pod's own name."""
        gangs = gangs_of(pod)
        if gangs:
            return next((gang for gang in gangs if self._gangs.minimum(gang) is not None), gangs[0])
        group_name = gang_of(pod)
        if group_name is not None:
            return Gang(GangKind.POD_GROUP, *group_name)
        controller = pod.controller
        return (pod.metadata.namespace, controller.uid or controller.name) if controller else pod.key

    def describe(self, key: object, pod: Pod) -> _Members:
        """Return an empty job, to which its pods are added."""
        if isinstance(key, Gang):
            return self._describe_gang(key)
        controller = pod.controller
        if controller is None:
            reference = ObjectReference.of("v1", "Pod", pod.metadata)
            return _Members(reference, pod.metadata.creation_timestamp, 1)
        workload = self._workloads.get(controller.uid)
        reference = ObjectReference(
            api_version=controller.api_version,
            kind=controller.kind,
            namespace=pod.metadata.namespace,
            name=controller.name,
            uid=controller.uid,
        )
        return _Members(reference, workload.metadata.creation_timestamp if workload else None, 1)

    def _describe_gang(self, gang: Gang) -> _Members:
        needs = self._gangs.minimum(gang)
        reference, created = self._reference(gang)
        if needs is None:
            return _Members(reference, created, None, is_gang=True)
        # A gang whose group asks for no pods would be ready while all of its pods wait, and never count as starving.
        return _Members(reference, created, max(1, needs[0]), needs[1], is_gang=True)

    def _reference(self, gang: Gang) -> tuple[ObjectReference, str | None]:
        key = gang.namespace, gang.name
        if gang.kind is GangKind.VOLCANO_JOB and (job := self._volcano_jobs.get(key)) is not None:
            metadata, api_version, kind = job.metadata, VOLCANO_JOB_API_VERSION, VOLCANO_JOB_KIND
        elif gang.kind in {GangKind.POD_GROUP, GangKind.VOLCANO_POD_GROUP} and (group := self._groups.get(key)):
            metadata, api_version, kind = group.metadata, group.api_version, group.kind
        else:
            name = "/".join(filter(None, (gang.name, gang.group, gang.replica)))
            return ObjectReference(kind=POD_GROUP_KIND, namespace=gang.namespace, name=name), None
        return ObjectReference.of(api_version, kind, metadata), metadata.creation_timestamp
