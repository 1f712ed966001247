"""Refuses to evict pods whose eviction would restart or break their gang.

A gang is a Volcano Job, a PodGroup of Volcano or of Kubernetes, or a pod group of a Workload. Volcano's job controller
looks for the first policy that answers what happened to a pod, its task's before its job's, and does nothing more than
make the pod again where there is none. A gang needs a number of pods, all together or of each task; below it the rest
is of no use. Minima of tasks count where the job's own is not below their sum, as Volcano's scheduler has it. A gang of
which nothing else runs or waits cannot lose anything but the pod. What is not known of a gang keeps its pods where they
are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from berth_core import (
    VOLCANO_POD_GROUP_API_VERSION,
    VOLCANO_TASK_ANNOTATION,
    LifecyclePolicy,
    Pod,
    PodGroup,
    Snapshot,
    VolcanoJob,
    api_group,
    volcano_group_of,
)
from berth_descheduler.framework import Refusal, RefusalReason

VOLCANO_JOB_KIND: Final = ("batch.volcano.sh", "Job")

_EVENTS: Final = ("PodEvicted", "PodFailed")
_ANY_EVENT: Final = "*"
_OF_THE_POD_ALONE: Final = frozenset({"SyncJob"})
"""Not `RestartPod`: it ends the pod that was made again once more, and after `maxRetry` of them the Job fails."""
_VOLCANO_GROUP: Final = api_group(VOLCANO_POD_GROUP_API_VERSION)


class GangKind(Enum):
    """The kinds of gangs, in words."""

    VOLCANO_JOB = "Volcano Job"
    VOLCANO_POD_GROUP = "Volcano PodGroup"
    POD_GROUP = "PodGroup"
    WORKLOAD = "Workload"


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang as its pods name it; `group` and `replica` are parts of a Workload."""

    kind: GangKind
    namespace: str
    name: str
    group: str = ""
    replica: str = ""

    def __str__(self) -> str:
        """Return the gang's name for people."""
        part = f" (pod group {'/'.join(filter(None, (self.group, self.replica)))})" if self.group else ""
        return f"{self.kind.value} {self.name}{part}"


@dataclass(frozen=True, slots=True)
class _Needs:
    """A gang's minimum numbers of pods, and refusals by its policies."""

    minimum: int = 0
    of_task: Mapping[str, int] = field(default_factory=dict)
    whole: bool = False
    job: VolcanoJob | None = None


class Gangs:
    """Answers for the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._needs = dict(_all_needs(snapshot))
        self._alive: Counter[Gang] = Counter()
        self._running: Counter[tuple[Gang, str]] = Counter()
        """Running pods of each gang by their task, and under "" all of them."""

        for pod in snapshot.pods if self._needs else ():
            if not pod.is_terminal and not pod.is_terminating:
                self._count(pod)

    def _count(self, pod: Pod) -> None:
        for gang in gangs_of(pod):
            self._alive[gang] += 1
            if pod.status.phase == "Running":
                # A set, so that a pod without a task counts once.
                self._running.update({(gang, ""), (gang, _task_of(pod))})

    def refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why evicting a pod would disrupt its gangs, each reason once."""
        refusals: dict[RefusalReason, Refusal] = {}
        for gang in gangs_of(pod):  # nearly no pod has a gang
            for refusal in self._refusals(gang, pod):
                refusals.setdefault(refusal.reason, refusal)
        return tuple(refusals.values())

    def spare(self, pod: Pod) -> Mapping[str, int]:
        """Return how many pods each of a pod's gangs can spare, by the gang and the task of it."""
        spare_by_task: dict[str, int] = {}
        for gang in gangs_of(pod):
            needs = self._needs.get(gang)
            if needs is None or not self._others(gang, pod):
                continue
            for task, minimum in _minima(needs, pod):
                key = f"{gang.namespace}/{gang} {task}".rstrip()
                # At least one: a pod that its gang cannot spare is refused before, and by a limit of 0 no wave would
                # take a move.
                spare_by_task[key] = max(1, self._running[gang, task] - minimum)
        return spare_by_task

    def minimum(self, gang: Gang) -> tuple[int, Mapping[str, int]] | None:
        """Return how many pods a gang needs, in all and of each task; None if the snapshot lacks the gang."""
        needs = self._needs.get(gang)
        return None if needs is None else (needs.minimum, needs.of_task)

    def _refusals(self, gang: Gang, pod: Pod) -> Iterator[Refusal]:
        needs = self._needs.get(gang)
        if needs is None or not _is_of(needs.job, pod):
            text = f"its {gang} is not in the snapshot, so it is not known what else an eviction would take away"
            yield Refusal(RefusalReason.GANG_UNKNOWN, text)
            return
        if needs.job is not None:
            yield from _answer_refusals(gang, needs.job, _task_of(pod))
        if not self._others(gang, pod):
            return
        if needs.whole:
            yield Refusal(RefusalReason.GANG_WOULD_BREAK, f"the pods of its {gang} go together or not at all")
        for task, minimum in _minima(needs, pod):
            running = self._running[gang, task]
            if running - (pod.status.phase == "Running") < minimum:
                part = f"the task {task} of its {gang}" if task else f"its {gang}"
                text = f"{part} needs {minimum} running pods and has {running}"
                yield Refusal(RefusalReason.GANG_WOULD_BREAK, text)

    def _others(self, gang: Gang, pod: Pod) -> int:
        """Return how many other pods of a gang there are."""
        return max(0, self._alive[gang] - (not pod.is_terminal and not pod.is_terminating))


def gangs_of(pod: Pod) -> tuple[Gang, ...]:
    """Return the gangs that a pod names, in a fixed order."""
    namespace = pod.metadata.namespace
    gangs: tuple[Gang, ...] = ()
    owner = pod.controller
    if owner is not None and owner.group_kind == VOLCANO_JOB_KIND:
        gangs = (Gang(GangKind.VOLCANO_JOB, namespace, owner.name),)
    if name := volcano_group_of(pod):
        gangs = (*gangs, Gang(GangKind.VOLCANO_POD_GROUP, namespace, name))
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        gangs = (*gangs, Gang(GangKind.POD_GROUP, namespace, pod.spec.scheduling_group.pod_group_name))
    # The first form of gangs in Kubernetes (KEP-4671); later a pod names its PodGroup by `schedulingGroup` (KEP-5832).
    if (ref := pod.spec.workload_ref) is not None:
        gangs = (*gangs, Gang(GangKind.WORKLOAD, namespace, ref.name, ref.pod_group, ref.pod_group_replica_key))
    return gangs


def _all_needs(snapshot: Snapshot) -> Iterator[tuple[Gang, _Needs]]:
    for job in snapshot.volcano_jobs:
        yield Gang(GangKind.VOLCANO_JOB, job.metadata.namespace, job.metadata.name), _needs_of_job(job)
    for group in snapshot.pod_groups:
        kind = GangKind.VOLCANO_POD_GROUP if group.api_group == _VOLCANO_GROUP else GangKind.POD_GROUP
        yield Gang(kind, group.metadata.namespace, group.metadata.name), _needs_of_group(group)
    workloads = {
        (group_workload.metadata.namespace, group_workload.metadata.name): group_workload
        for group_workload in snapshot.pod_group_workloads
    }
    for gang in {pod_gang for pod in snapshot.pods if pod.spec.workload_ref for pod_gang in gangs_of(pod)}:
        workload = workloads.get((gang.namespace, gang.name)) if gang.kind is GangKind.WORKLOAD else None
        for part in workload.spec.pod_groups if workload is not None else ():
            if part.name == gang.group:
                yield gang, _Needs(part.policy.gang.min_count if part.policy.gang else 0)


def _needs_of_job(job: VolcanoJob) -> _Needs:
    of_task = {
        task.name: task.replicas if task.min_available is None else task.min_available for task in job.spec.tasks
    }
    total = sum(of_task.values())
    minimum = total if job.spec.min_available is None else job.spec.min_available
    return _Needs(minimum, of_task if minimum >= total else {}, job=job)


def _needs_of_group(group: PodGroup) -> _Needs:
    of_task, minimum = group.spec.min_task_member, group.minimum
    return _Needs(minimum, of_task if minimum >= sum(of_task.values()) else {}, group.is_disrupted_as_a_whole)


def _minima(needs: _Needs, pod: Pod) -> Iterator[tuple[str, int]]:
    """Yield the minimum of a pod's gang under "", and that of its task."""
    yield "", needs.minimum
    task = _task_of(pod)
    if task and needs.of_task.get(task):
        yield task, needs.of_task[task]


def _is_of(job: VolcanoJob | None, pod: Pod) -> bool:
    """Return whether a pod belongs to this Job, not an earlier namesake."""
    owner = pod.controller
    if job is None or owner is None or not owner.uid or not job.metadata.uid:
        return True
    return owner.uid == job.metadata.uid


def _task_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")


def _answer_refusals(gang: Gang, job: VolcanoJob, task_name: str) -> Iterator[Refusal]:
    if job.metadata.deletion_timestamp is not None:
        yield Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, f"its {gang} is being deleted")
    task = next((job_task for job_task in job.spec.tasks if job_task.name == task_name), None)
    if task is None:
        text = f"its {gang} has no task {task_name or 'that it names'}, so it is not known what answers its eviction"
        yield Refusal(RefusalReason.GANG_UNKNOWN, text)
        return
    policies = (*task.policies, *job.spec.policies)
    for event in _EVENTS:
        for event_answered, action in _first_answer(policies, event):
            text = f"its {gang} answers {event_answered} with {action}, which takes away more than this pod"
            yield Refusal(RefusalReason.GANG_WOULD_RESTART, text)
            return


def _first_answer(policies: tuple[LifecyclePolicy, ...], event: str) -> Iterator[tuple[str, str]]:
    """Yield the events whose actions do more than recreate the pod, each with its action.

    A policy for an exit code counts whichever it is: the code that an evicted pod ends with is not known.
    """
    for policy in policies:
        events = (policy.event, *policy.events)
        answers = event in events or _ANY_EVENT in events
        if (answers or policy.exit_code is not None) and policy.action not in _OF_THE_POD_ALONE:
            yield event if answers else f"the exit code {policy.exit_code}", policy.action
        if answers:
            return
