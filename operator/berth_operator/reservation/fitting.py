"""Matches pods with slots, by namespace, owner and template, and chooses the tightest fit of several."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from berth_core import (
    InputError,
    Pod,
    Reservation,
    ReservationTask,
    Slot,
    SlotState,
    owner_matches,
    shape_of,
    slots_needed,
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
    """Return the task with the smallest requests whose slot the pod may take: larger slots are left to larger pods.

    `free` counts the free slots by task name.
    """
    if not may_own(reservation, pod):
        return None
    fitting = [task for task in reservation.spec.tasks if free.get(task.name, 0) > 0 and _fits(reservation, task, pod)]
    return min(fitting, key=_size) if len(fitting) > 1 else next(iter(fitting), None)


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """The slots that a pod may take: so many of a task, on one node where it takes several."""

    task: ReservationTask
    number: int = 1
    node: str = ""
    """"" for any node."""


class FreeSlots:
    """The free slots of one Reservation by task and node, which pods take one after the other."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._by_place = Counter((slot.task, slot.node) for slot in slots)
        self._by_task: Counter[str] = Counter()
        for (task, _), number in self._by_place.items():
            self._by_task[task] += number

    def __bool__(self) -> bool:
        return any(self._by_task.values())

    def choose(self, reservation: Reservation, pod: Pod) -> SlotChoice | None:
        """Return the slots that the pod may take, None if it may take none.

        They are of the smallest task that fits. Where slots add up, a pod gets as many as it needs, on the node that
        has so many with the fewest free ones: the others keep room for larger pods.
        """
        if not reservation.slots_add_up:
            task = choose_task(reservation, pod, self._by_task)
            return None if task is None else SlotChoice(task)
        choices = (
            SlotChoice(task, number, node)
            for task, number in _needed_of_each(reservation, pod)
            if (node := self._tightest(task.name, number)) is not None
        )
        return min(choices, key=lambda choice: _size(choice.task), default=None)

    def may_suffice(self, reservation: Reservation, pod: Pod) -> bool:
        """Return whether the pod could take slots if all of them were on one node."""
        if not reservation.slots_add_up:
            return choose_task(reservation, pod, self._by_task) is not None
        return any(self._by_task[task.name] >= number for task, number in _needed_of_each(reservation, pod))

    def take(self, choice: SlotChoice) -> None:
        """Count slots as taken."""
        self._by_task[choice.task.name] -= choice.number
        self._by_place[choice.task.name, choice.node] -= choice.number

    def _tightest(self, task: str, number: int) -> str | None:
        """Return the node with the fewest free slots of a task that has so many, None if none has."""
        fitting = [(free, node) for (name, node), free in self._by_place.items() if name == task and free >= number]
        return min(fitting)[1] if fitting else None


def _needed_of_each(reservation: Reservation, pod: Pod) -> Iterator[tuple[ReservationTask, int]]:
    """Yield the tasks whose slots the pod may take, each with the number that it needs."""
    if may_own(reservation, pod):
        for task in reservation.spec.tasks:
            if number := _slots_needed(reservation, task, pod):
                yield task, number


def _slots_needed(reservation: Reservation, task: ReservationTask, pod: Pod) -> int:
    """Return how many slots of a task the pod needs, 0 if no number is enough or its requests cannot be read."""
    if not reservation.slots_add_up:
        return int(_fits(reservation, task, pod))
    try:
        return slots_needed(
            task.template, pod, scheduler_name=reservation.spec.scheduler_name, divided=reservation.divided
        )
    except InputError:
        return 0


def why_not_fitting(reservation: Reservation, pod: Pod, held: Collection[Slot]) -> str:
    """Return how an owner's pod differs from the task in `held` that is closest to it.

    "" if it fits a task, or if the Reservation is not for the pod or holds nothing. Raises `InputError` for a bad
    quantity.
    """
    if not held or not may_own(reservation, pod):
        return ""
    names = {slot.task for slot in held}
    tasks = [task for task in reservation.spec.tasks if task.name in names]
    if not tasks or any(_fits(reservation, task, pod) for task in tasks):
        return ""
    needed = [(task, number) for task in tasks if (number := _slots_needed(reservation, task, pod))]
    if needed:
        fewest = min(needed, key=itemgetter(1))
        return "" if FreeSlots(held).choose(reservation, pod) else _too_few_together(held, *fewest)
    scheduler = reservation.spec.scheduler_name
    refusals = [(task, template_differences(task.template, pod, scheduler_name=scheduler)) for task in tasks]
    closest, differences = min(refusals, key=lambda refusal: len(refusal[1]))
    return f"{', '.join(differences)} (task {closest.name})"


def _too_few_together(held: Iterable[Slot], task: ReservationTask, needed: int) -> str:
    by_node = Counter(slot.node for slot in held if slot.task == task.name)
    return f"it needs {needed} slots of one node, and no node has more than {max(by_node.values())} (task {task.name})"


def why_not_owner(reservation: Reservation, pod: Pod, held: Collection[Slot]) -> str:
    """Return why a pod is not an owner although an entry names its controller; "" if it is one, or no entry does.

    The entry has the uid of an earlier object, and the controller was created again under the same name.
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
    """Return the slots that a pod's note names, None for a note that cannot be trusted.

    `slots` has the status's slots by (task, index), as `slots_by_key` returns them.
    """
    # Anyone who may create pods may write any note, so it counts only on a pod that could be given those slots, and
    # only for the node that the status names.
    assignment = Assignment.from_pod(pod)
    if assignment is None or not may_own(reservation, pod):
        return None
    task = next((task for task in reservation.spec.tasks if task.name == assignment.task), None)
    slot = slots.get((assignment.task, assignment.index))
    if task is None or slot is None or not slot.node or not _fits_slots(reservation, task, pod, assignment):
        return None
    noted = [slots.get(key) for key in assignment.slots]
    if not pod.spec.node_name and any(map(_is_ended, noted)) and not all(_is_ended(slot, of=pod) for slot in noted):
        # Some hand-overs of the note are over, and not all for this pod: it is let go, and must free no other slot.
        return None
    nodes = {slot.node if slot is not None else "" for slot in noted}
    return assignment if nodes <= {assignment.node, pod.spec.node_name} - {""} else None


def _is_ended(slot: Slot | None, *, of: Pod | None = None) -> bool:
    """Return whether the hand-over of a slot to the pod `of`, by default to any pod, is over."""
    if slot is None or slot.state not in {SlotState.TAKEN, SlotState.LOST}:
        return False
    return of is None or (slot.owner is not None and slot.owner.uid == of.metadata.uid)


def _fits_slots(reservation: Reservation, task: ReservationTask, pod: Pod, assignment: Assignment) -> bool:
    """Return whether a pod may take the slots of a note, and no more than it needs."""
    if not assignment.further:
        return _fits(reservation, task, pod)
    return reservation.slots_add_up and _slots_needed(reservation, task, pod) == len(assignment.slots)


def _fits(reservation: Reservation, task: ReservationTask, pod: Pod) -> bool:
    """Return whether a pod may take a slot of a task; one with unreadable requests may take none."""
    try:
        return template_matches(task.template, pod, scheduler_name=reservation.spec.scheduler_name)
    except InputError:
        return False


def _size(task: ReservationTask) -> tuple[int, int, str]:
    requests = shape_of(task.template.spec).requests
    return requests.get("cpu"), requests.get("memory"), task.name
