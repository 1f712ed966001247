"""Finds the jobs that starve: those that wait for capacity longer than a threshold.

A job is a gang, else a controller, else a pod of its own. It is ready when as many of its pods as it needs are placed,
and condition-ready when that many are placed or have a place reserved; neither starves. Without a gang one pod is
enough, as the controller's other pods can do without it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    InputError,
    ObjectReference,
    Pod,
    PodGroup,
    Reservation,
    ReservationTask,
    ResourceAmounts,
    SlotState,
    Snapshot,
    effective_requests,
    is_best_effort,
    is_unschedulable,
    job_uid,
    owner_matches,
    parse_timestamp,
    readable_requests,
    template_matches,
    volcano_group_of,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner import Gangs, NodeIndex, PodIndex, State, gangs_of, is_pending, odd_requests
from berth_descheduler.planner.gangs import Gang, GangKind
from berth_descheduler.planner.pending_pods import gang_of
from berth_descheduler.planner.simulation import Cluster
from berth_descheduler.planner.standing_fences import standing_fences, without_fences

_OVER: Final = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


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
    reserved: int
    """Slots of live Reservations that its pods may still take."""

    waiting: tuple[Pod, ...]
    missing: tuple[Pod, ...]
    """The waiting pods that a reservation for the job has to hold; fewer than it needs if they do not exist yet."""

    is_gang: bool
    placed_uids: frozenset[str]
    """Its pods that have a place and have not ended."""
    has_been_tried: bool
    """Whether a scheduler said of one of its pods that it fits nowhere."""

    @property
    def name(self) -> str:
        """Return `namespace/name`, for people."""
        return f"{self.reference.namespace}/{self.reference.name}"

    @property
    def is_ready(self) -> bool:
        return self.placed >= self.minimum and not self.missing

    @property
    def is_condition_ready(self) -> bool:
        """Return whether the job is ready with what is reserved for it."""
        return self.reserved >= max(1, len(self.missing), self.minimum - self.placed)

    def starves(self, now: datetime, threshold: timedelta) -> bool:
        """Return whether the job has waited for longer than the threshold and is neither ready nor condition-ready.

        A scheduler must have tried its pods: those of one that does not run would wait for ever.
        """
        waits = self.since is not None and now - self.since > threshold and self.has_been_tried
        return waits and not self.is_ready and not self.is_condition_ready

    def lacks_pods(self) -> Refusal | None:
        """Return why the job waits for pods rather than for capacity."""
        known_pods = self.placed + len(self.missing)
        if known_pods >= self.minimum:
            return None
        return Refusal(RefusalReason.TOO_FEW_PODS, f"it has {known_pods} of the {self.minimum} pods that it needs")


def order_of(job: PendingJob) -> tuple[int, bool, datetime | str, str]:
    """Return the key by which jobs are served: higher priority first, then the older."""
    return (-job.priority, job.since is None, job.since or "", job.name)


@dataclass(slots=True)
class _Members:
    """The pods of one job."""

    reference: ObjectReference
    created: str | None
    minimum: int | None
    """None: as many as the job has."""
    of_task: Mapping[str, int] = field(default_factory=dict)
    is_gang: bool = False
    waiting: list[Pod] = field(default_factory=list)
    placed: Counter[str] = field(default_factory=Counter)
    """By task, and under "" all of them."""
    placed_uids: set[str] = field(default_factory=set)


def find_pending_jobs(snapshot: Snapshot, *, on_their_way: bool = False) -> tuple[PendingJob, ...]:
    """Return the jobs with waiting pods in the order in which they are served.

    `on_their_way` adds jobs whose pods without a node are all on their way to one.
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
    """Return the PodGroups that Volcano has not let in and that have no pods, the oldest first."""
    kept_out = [group for group in snapshot.pod_groups if group.is_kept_out]
    with_pods = {(pod.metadata.namespace, volcano_group_of(pod)) for pod in snapshot.pods} if kept_out else set()
    without_pods = [group for group in kept_out if (group.metadata.namespace, group.metadata.name) not in with_pods]
    return tuple(sorted(without_pods, key=lambda group: (group.metadata.creation_timestamp or "", group.metadata.name)))


def _add(job: _Members, pod: Pod) -> None:
    if is_pending(pod) and not _has_place(pod):
        job.waiting.append(pod)
    elif pod.status.phase == "Succeeded" or (not pod.is_terminal and not pod.is_terminating):
        counts = pod.status.phase == "Succeeded" or bool(pod.spec.node_name) or _has_place(pod)
        task = pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")
        job.placed.update({"": int(counts), **({task: int(counts)} if task else {})})
        job.placed_uids |= {pod.metadata.uid} if counts and not pod.is_terminal else set()


def is_coming(pod: Pod) -> bool:
    """Return whether a pod waits behind our gate, or in a hand-over, for a slot of a Reservation."""
    waits = not pod.spec.node_name and not pod.is_terminal and not pod.is_terminating
    return waits and RESERVATION_LABEL in pod.metadata.labels and PLACEHOLDER_LABEL not in pod.metadata.labels


def _has_place(pod: Pod) -> bool:
    """Return whether a pod is on its way to a place: in a hand-over, or nominated by a preemption."""
    return RESERVATION_LABEL in pod.metadata.labels or bool(pod.status.nominated_node_name)


def _job(members: _Members, reservations: Sequence[Reservation]) -> PendingJob:
    waiting = tuple(sorted(members.waiting, key=lambda pod: (-(pod.spec.priority or 0), _created(pod), pod.key)))
    placed_count = members.placed[""]
    minimum = placed_count + len(waiting) if members.minimum is None else members.minimum
    missing = _missing(members, waiting, minimum)
    reference = members.reference
    first_created = min(map(_created, waiting), default="")
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
        has_been_tried=any(map(is_unschedulable, waiting)),
    )


def _missing(members: _Members, waiting: Sequence[Pod], minimum: int) -> tuple[Pod, ...]:
    """Return the pods to place: first what each task needs, then as many of any task as the job does."""
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
    """Return how many slots of live Reservations the waiting pods may still take."""
    open_slots = 0
    for reservation in reservations:
        if reservation.metadata.labels.get(STARVING_JOB_LABEL, uid) != uid:
            continue
        if any(owner_matches(owner, pod) for owner in reservation.spec.owners for pod in waiting):
            open_slots += reservation.spec.replicas - sum(slot.state in _OVER for slot in reservation.status.slots)
    return open_slots


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""


class _Directory:
    """Says which job a pod is of, and what the snapshot knows of that job."""

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
        """Return what the pods of one job share: the gang, the controller's uid, or the pod's own name."""
        gangs = gangs_of(pod)
        if gangs:
            return next((gang for gang in gangs if self._gangs.minimum(gang) is not None), gangs[0])
        group_name = gang_of(pod)
        if group_name is not None:
            return Gang(GangKind.POD_GROUP, *group_name)
        controller = pod.controller
        return (pod.metadata.namespace, controller.uid or controller.name) if controller else pod.key

    def describe(self, key: object, pod: Pod) -> _Members:
        """Return a job without its pods."""
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


# --- what may be reserved --------------------------------------------------------------------------------------------
# Whether a job's scheduler could place it now, which jobs come first, and which nodes are fenced.


class Placement:
    """Tries jobs on the cluster as it is, each alone; `cluster` has their pods on its waiting node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._state = State(cluster)

    def fits(self, job: PendingJob) -> bool:
        """Return whether all missing pods of a job fit now."""
        mark = self._state.mark()
        try:
            return all(self._place(pod) for pod in job.missing)
        finally:
            self._state.undo_to(mark)

    def _place(self, pod: Pod) -> bool:
        index = self._cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name]
        class_index = self._cluster.pods[index].class_index
        for node in self._nodes():
            if self._state.fits(class_index, node) and self._state.refusal(index, node) is None:
                self._state.move(index, node)
                return True
        return False

    def _nodes(self) -> Iterator[NodeIndex]:
        return (
            NodeIndex(node) for node in range(len(self._cluster.nodes)) if NodeIndex(node) != self._cluster.waiting_node
        )


def pod_index(cluster: Cluster, pod: Pod) -> PodIndex:
    """Return the number of a pod in a simulated cluster."""
    return cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name]


# --- what is kept ----------------------------------------------------------------------------------------------------
# Whether a Reservation for a starving job is still needed, and which pods the fences of such nodes keep off.


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """What becomes of a live Reservation for a starving job."""

    why_none: str = ""
    """Why it is of no use any more, "" while it is."""
    wanted: int | None = None
    """How many of its slots suffice by now, None for as many as before."""


def slots_needed(reservation: Reservation, snapshot: Snapshot, jobs: Iterable[PendingJob]) -> SlotNeed:
    """Return the slots that a job still needs of its Reservation, given the snapshot's jobs with those on their way.

    Neither a hand-over nor pods that wait behind our gate for others of their gang are interrupted. Pods that were
    placed elsewhere need no slot. No slot waits for a node that half of another gang took before the fence stood.
    """
    states = Counter(slot.state for slot in reservation.status.slots)
    if states[SlotState.HANDING_OVER]:
        return SlotNeed()
    coming_pods = [pod for pod in snapshot.pods if is_coming(pod) and _is_sent_to(reservation, pod)]
    job = next(
        (pending_job for pending_job in jobs if pending_job.uid == reservation.metadata.labels.get(STARVING_JOB_LABEL)),
        None,
    )
    if job is None or (job.is_ready and not coming_pods):
        return SlotNeed() if coming_pods else SlotNeed("the job is gone, runs, or has no pod that waits")
    needed = max(len(job.missing), job.minimum - job.placed) + len(coming_pods)
    slots_left = reservation.spec.replicas - sum(states[over_state] for over_state in _OVER)
    slots_wanted = states[SlotState.TAKEN] + needed
    if needed > slots_left or slots_wanted > reservation.spec.wanted:
        if coming_pods:
            return SlotNeed()
    elif slots_wanted == reservation.spec.wanted:
        return SlotNeed("" if coming_pods else _why_in_vain(reservation, job, snapshot, jobs))
    elif _may_want_fewer(reservation, (*coming_pods, *job.missing)):
        return SlotNeed(wanted=slots_wanted)
    return SlotNeed(f"the job needs {needed} slots by now, and {slots_left} are kept for it")


def _why_in_vain(reservation: Reservation, job: PendingJob, snapshot: Snapshot, jobs: Iterable[PendingJob]) -> str:
    """Return which node cannot hold a slot before another gang has its other pods, for which nothing is kept."""
    stuck = [
        other_job
        for other_job in jobs
        if other_job is not job and not other_job.is_ready and not other_job.is_condition_ready
    ]
    gang_of_pod = {uid: stuck_job.name for stuck_job in stuck for uid in stuck_job.placed_uids}
    waiting = [slot for slot in reservation.status.slots if slot.state is SlotState.PENDING and slot.node]
    specs = {task.name: task.template.spec for task in reservation.spec.tasks}
    for slot in waiting if gang_of_pod else ():
        users = [pod for pod in snapshot.pods if pod.spec.node_name == slot.node and pod.metadata.uid in gang_of_pod]
        try:
            taken_amounts = ResourceAmounts.total(readable_requests(pod) for pod in users)
            allocatable = ResourceAmounts.from_quantities(snapshot.nodes_by_name[slot.node].status.allocatable)
            is_in_vain = not effective_requests(specs[slot.task]).fits_within(allocatable.minus(taken_amounts))
        except (InputError, KeyError):
            continue
        if users and is_in_vain:
            return (
                f"{slot.node} is in use by pods of {gang_of_pod[users[0].metadata.uid]}, which waits for others itself"
            )
    return ""


def _is_sent_to(reservation: Reservation, pod: Pod) -> bool:
    meta = reservation.metadata
    return (pod.metadata.namespace, pod.metadata.labels[RESERVATION_LABEL]) == (meta.namespace, meta.uid)


def _may_want_fewer(reservation: Reservation, pods: Sequence[Pod]) -> bool:
    """Return whether these pods fit into slots that are left, each into one, and may have them without the others."""
    spec = reservation.spec
    if not spec.all_or_nothing:
        return False
    slots_over = Counter(slot.task for slot in reservation.status.slots if slot.state in _OVER)
    slots_free = {task.name: task.replicas - slots_over[task.name] for task in spec.tasks}
    for pod in pods:
        fitting = (
            reserved_task
            for reserved_task in spec.tasks
            if slots_free[reserved_task.name] > 0 and _fits(reserved_task, pod, spec.scheduler_name)
        )
        task = next(fitting, None)
        if task is None:
            return False
        slots_free[task.name] -= 1
    return True


def _fits(task: ReservationTask, pod: Pod, scheduler_name: str) -> bool:
    try:
        return template_matches(task.template, pod, scheduler_name=scheduler_name)
    except InputError:
        return False


def pods_kept_off(snapshot: Snapshot) -> tuple[tuple[Pod, str], ...]:
    """Return the waiting pods that would fit on a fenced node if it were not kept, each with the first such node.

    Pods that fences let in, that have something kept for them, or that are on their way to a place are left out.
    """
    fenced = standing_fences(snapshot)
    owners = [
        owner for reservation in snapshot.reservations if reservation.is_live for owner in reservation.spec.owners
    ]
    vain = (pod for pod in snapshot.pods if _waits_in_vain(pod) and not odd_requests(pod))
    waiting = [
        pod for pod in vain if not is_best_effort(pod.spec) and not any(owner_matches(owner, pod) for owner in owners)
    ]
    if not fenced or not waiting:
        return ()
    opened = without_fences(snapshot)
    pods_to_keep = tuple(
        pod for pod in opened.pods if pod.spec.node_name or PLACEHOLDER_LABEL not in pod.metadata.labels
    )
    cluster = Cluster.from_snapshot(replace(opened, pods=pods_to_keep, reservations=()), waiting)
    state = State(cluster)
    nodes = [cluster.node_numbers[name] for name in sorted(fenced) if name in cluster.node_numbers]
    kept_off = []
    for pod in waiting:
        index = pod_index(cluster, pod)
        class_index = cluster.pods[index].class_index
        node = next(
            (
                node_index
                for node_index in nodes
                if state.fits(class_index, node_index) and state.refusal(index, node_index) is None
            ),
            None,
        )
        if node is not None:
            kept_off.append((pod, cluster.node_name(node)))
    return tuple(kept_off)


def _waits_in_vain(pod: Pod) -> bool:
    return is_pending(pod) and not _has_place(pod) and is_unschedulable(pod)
