"""Which pod may take which slot: namespace, owner, template, and the tightest of several tasks."""

from collections.abc import Collection, Mapping

from berth_core import (
    InputError,
    Pod,
    Reservation,
    ReservationTask,
    Slot,
    owner_matches,
    shape_of,
    template_differences,
    template_matches,
)
from berth_operator.reservation.assignment import Assignment


def may_own(reservation: Reservation, pod: Pod) -> bool:
    """Return whether a pod matches an owner in the Reservation's namespace."""
    return pod.metadata.namespace == reservation.metadata.namespace and any(
        owner_matches(owner, pod) for owner in reservation.spec.owners
    )


def choose_task(reservation: Reservation, pod: Pod, free: Mapping[str, int]) -> ReservationTask | None:
    """Return the smallest task whose slot the pod may take.

    Its requests are the smallest. `free` counts the free slots by task name. Taking the smallest leaves the larger
    slots to larger pods.
    """
    if not may_own(reservation, pod):
        return None
    fitting = [task for task in reservation.spec.tasks if free.get(task.name, 0) > 0 and _fits(reservation, task, pod)]
    return min(fitting, key=_size) if len(fitting) > 1 else next(iter(fitting), None)


def why_not_fitting(reservation: Reservation, pod: Pod, held: Collection[str]) -> str:
    """Return why an owner's pod fits no task in `held`.

    The text is on the closest task. "" if it fits one, or if the Reservation is not for the pod or holds nothing.
    Raises `InputError` for a bad quantity.
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


def why_not_owner(reservation: Reservation, pod: Pod, held: Collection[str]) -> str:
    """Return why a pod is none of an owner's whose entry has the name of its controller; "" if none has.

    That is so for a controller that was made again under its name: the entry has the uid of the one before.
    """
    controller = pod.controller
    if not held or controller is None or pod.metadata.namespace != reservation.metadata.namespace:
        return ""
    named = (owner.object for owner in reservation.spec.owners if owner.object is not None and owner.object.uid)
    same_name = [entry for entry in named if (entry.kind, entry.name) == (controller.kind, controller.name)]
    if not same_name or may_own(reservation, pod):
        return ""
    return f"{controller.kind} {controller.name} has the uid {controller.uid}, not {same_name[0].uid}"


def slots_by_key(reservation: Reservation) -> dict[tuple[str, int], Slot]:
    """Return the slots of a Reservation's status by (task, index)."""
    return {(slot.task, slot.index): slot for slot in reservation.status.slots}


def trusted_assignment(reservation: Reservation, pod: Pod, slots: Mapping[tuple[str, int], Slot]) -> Assignment | None:
    """Return the slot that a pod's note names.

    None for a forged note. Anyone who may create pods may write any note: it counts only on a pod that could be given
    that slot, and only for the node that the status names (`slots`, from `slots_by_key`).
    """
    assignment = Assignment.from_pod(pod)
    if assignment is None or not may_own(reservation, pod):
        return None
    task = next((task for task in reservation.spec.tasks if task.name == assignment.task), None)
    slot = slots.get((assignment.task, assignment.index))
    if task is None or slot is None or not slot.node or not _fits(reservation, task, pod):
        return None
    return assignment if slot.node in {assignment.node, pod.spec.node_name} else None


def _fits(reservation: Reservation, task: ReservationTask, pod: Pod) -> bool:
    """Return whether a pod may take a slot of a task.

    Unreadable requests fit no task.
    """
    try:
        return template_matches(task.template, pod, scheduler_name=reservation.spec.scheduler_name)
    except InputError:
        return False


def _size(task: ReservationTask) -> tuple[int, int, str]:
    requests = shape_of(task.template.spec).requests
    return requests.get("cpu"), requests.get("memory"), task.name
