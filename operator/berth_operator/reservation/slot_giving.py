"""Which waiting pod gets which held slot, and which pods are let go."""

from collections import Counter
from datetime import datetime

from berth_core import RESERVATION_LABEL, Pod, SlotState
from berth_operator.reservation.actions import Action, AssignSlot, Release
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.fitting import choose_task
from berth_operator.reservation.handover import deadline_from
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import holds_other_gates, holds_our_gate
from berth_operator.reservation.slots import SlotView
from berth_operator.settings import HandoverSettings


def give_slots(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: HandoverSettings
) -> list[Action]:
    """Give each waiting pod a held slot that it fits.

    Gated pods without one are released. Pods that waited earlier get theirs once as many slots as the Reservation wants
    are held: they may be useful only together, and lose nothing by waiting.
    """
    held_views = [view for view in views if view.slot.state is SlotState.HELD]
    free_by_task = Counter(view.task.name for view in held_views)
    deadline = deadline_from(now, settings)
    actions: list[Action] = []
    for pod in (*_unassigned(seen, views), *(seen.waiting if has_enough(seen, views) else ())):
        is_sent = pod.metadata.labels.get(RESERVATION_LABEL) == seen.reservation.metadata.uid
        # A pod that was sent and has lost its gate may be bound at any moment, wherever it likes.
        is_served = holds_our_gate(pod) or not is_sent
        task = choose_task(seen.reservation, pod, free_by_task) if is_served else None
        if task is None:
            actions += [Release(pod, elsewhere=holds_our_gate(pod))] if is_sent else []
            continue
        free_by_task[task.name] -= 1
        if holds_other_gates(pod):
            continue  # its slot stays held until only our gate is left
        slot = next((view.slot for view in held_views if view.task is task and not view.is_renewed), None)
        if slot is None:
            continue  # the placeholder hands its slot to its successor
        held_views = [view for view in held_views if view.slot is not slot]
        assignment = Assignment(task=slot.task, index=slot.index, node=slot.node, deadline=deadline)
        actions.append(AssignSlot(pod, assignment))
    return (
        actions if _may_begin(seen, views, actions) else [action for action in actions if isinstance(action, Release)]
    )


def _may_begin(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Return whether slots may change hands now.

    With `allOrNothing` pods for all wanted slots must have come; slots that have begun count. A slot that is lost
    during its hand-over does not take back the others.
    """
    if not seen.reservation.spec.all_or_nothing:
        return True
    slots_begun = sum(view.slot.state in {SlotState.HANDING_OVER, SlotState.TAKEN} for view in views)
    return slots_begun + sum(isinstance(action, AssignSlot) for action in actions) >= seen.reservation.spec.wanted


def has_enough(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Return whether as many slots as wanted are held, changing hands or taken."""
    return sum(view.slot.state.is_occupied for view in views) >= seen.reservation.spec.wanted


def has_spare_slots(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Return whether to search for pods that could take the slots that these actions leave."""
    slots_held = sum(view.slot.state is SlotState.HELD for view in views)
    is_left = slots_held > sum(isinstance(action, AssignSlot) for action in actions)
    return not seen.searched and is_left and has_enough(seen, views)


def _unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Pod]:
    assigned_uids = {view.owner.metadata.uid for view in views if view.owner is not None}
    return [pod for pod in seen.owners if pod.metadata.uid not in assigned_uids and not pod.is_terminating]


def release_unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Action]:
    return [Release(pod, elsewhere=holds_our_gate(pod)) for pod in _unassigned(seen, views)]
