"""Owns who may take which slot: namespace, owner and template, and of several tasks the tightest.

It does not give slots away: `decisions.reconcile` does.
"""

from collections.abc import Collection, Mapping

from berth_core.errors import InputError
from berth_core.matching import owner_matches, shape_of, template_differences, template_matches
from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationTask, Slot
from berth_operator.decisions.assignments import Assignment


def may_own(reservation: Reservation, pod: Pod) -> bool:
    """Tell whether a pod is in the Reservation's namespace and one of its owners."""
    return pod.metadata.namespace == reservation.metadata.namespace and any(
        owner_matches(owner, pod) for owner in reservation.spec.owners
    )


def choose_task(reservation: Reservation, pod: Pod, free: Mapping[str, int]) -> ReservationTask | None:
    """Return the task with the smallest requests whose slot the pod may take; None where there is none.

    `free` counts the free slots by task name. Taking the smallest leaves the larger slots to larger pods.
    """
    if not may_own(reservation, pod):
        return None
    fitting = [task for task in reservation.spec.tasks if free.get(task.name, 0) > 0 and _fits(reservation, task, pod)]
    return min(fitting, key=_size) if len(fitting) > 1 else next(iter(fitting), None)


def why_not_fitting(reservation: Reservation, pod: Pod, held: Collection[str]) -> str:
    """Return what keeps a pod of an owner from every task in `held`, of the closest one; "" where nothing does.

    Also "" where the Reservation is not for the pod, or holds nothing. Raises `InputError` for a bad quantity.
    """
    if not held or not may_own(reservation, pod):
        return ""
    tasks = [task for task in reservation.spec.tasks if task.name in held]
    if not tasks or any(_fits(reservation, task, pod) for task in tasks):
        return ""
    scheduler = reservation.spec.scheduler_name
    refusals = [(task, template_differences(task.template, pod, scheduler_name=scheduler)) for task in tasks]
    closest, differences = min(refusals, key=lambda refusal: len(refusal[1]))
    return f"{', '.join(differences)} (task {closest.name})"


def slots_by_key(reservation: Reservation) -> dict[tuple[str, int], Slot]:
    """Return the slots of a Reservation's status by (task, index)."""
    return {(slot.task, slot.index): slot for slot in reservation.status.slots}


def trusted_assignment(reservation: Reservation, pod: Pod, slots: Mapping[tuple[str, int], Slot]) -> Assignment | None:
    """Return the slot that a pod's note names, None where the operator cannot have written the note.

    Whoever may create pods may write any note: it counts only on a pod that could be given that slot, and only for
    the node that the status names (`slots`, from `slots_by_key`).
    """
    given = Assignment.from_pod(pod)
    if given is None or not may_own(reservation, pod):
        return None
    task = next((task for task in reservation.spec.tasks if task.name == given.task), None)
    slot = slots.get((given.task, given.index))
    if task is None or slot is None or not slot.node or not _fits(reservation, task, pod):
        return None
    return given if slot.node in {given.node, pod.spec.node_name} else None


def _fits(reservation: Reservation, task: ReservationTask, pod: Pod) -> bool:
    """Return whether a pod may take a slot of a task; one whose requests cannot be read may take none."""
    try:
        return template_matches(task.template, pod, scheduler_name=reservation.spec.scheduler_name)
    except InputError:
        return False


def _size(task: ReservationTask) -> tuple[int, int, str]:
    requests = shape_of(task.template.spec).requests
    return requests.get("cpu"), requests.get("memory"), task.name
