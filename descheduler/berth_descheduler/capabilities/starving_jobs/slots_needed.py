"""Decides whether a starving job still needs its Reservation, and how many slots of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from berth_core import (
    RESERVATION_LABEL,
    STARVING_JOB_LABEL,
    InputError,
    Pod,
    Reservation,
    ReservationTask,
    ResourceAmounts,
    SlotState,
    Snapshot,
    effective_requests,
    readable_requests,
    template_matches,
)
from berth_descheduler.capabilities.starving_jobs.pending_jobs import OVER, PendingJob, is_coming


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """What to do with a live Reservation for a starving job; the default keeps it as it is."""

    why_none: str = ""
    """Why the Reservation is no longer of use; "" while it is."""
    wanted: int | None = None
    """The `minAvailable` that suffices by now; None leaves it unchanged."""


def slots_needed(reservation: Reservation, snapshot: Snapshot, jobs: Iterable[PendingJob]) -> SlotNeed:
    """Return how many slots of its Reservation a job still needs; `jobs` includes those with all pods on their way.

    A hand-over is never interrupted, nor are pods that wait behind our gate for the rest of their gang. Pods that were
    placed elsewhere need no slot. A slot is given up if it awaits a node on which an incomplete gang runs.
    """
    states = Counter(slot.state for slot in reservation.status.slots)
    # The placeholder of such a slot goes before the owner is bound: deleted now, the pod would lose its place.
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
    slots_left = reservation.spec.replicas - sum(states[over_state] for over_state in OVER)
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
    """Return which awaited node is in use by an incomplete gang for which nothing is reserved; "" if none is.

    Such a gang ends only after its missing pods have run, and they may be waiting for this very node: a deadlock.
    """
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
    """Return whether each pod fits into a remaining slot of its own, so that a lower `minAvailable` lets them start."""
    spec = reservation.spec
    if not spec.all_or_nothing:
        return False
    slots_over = Counter(slot.task for slot in reservation.status.slots if slot.state in OVER)
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
