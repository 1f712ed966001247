"""Which waiting pod gets which held slots, and which pods are let go."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from berth_core import RESERVATION_LABEL, Pod, Slot, SlotState
from berth_operator.reservation.actions import Action, AssignSlot, Release
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.fitting import FreeSlots, SlotChoice
from berth_operator.reservation.handover import deadline_from
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import holds_other_gates, holds_our_gate
from berth_operator.reservation.slots import SlotView
from berth_operator.settings import HandoverSettings


def give_slots(
    seen: Observation, views: tuple[SlotView, ...], now: datetime, settings: HandoverSettings
) -> list[Action]:
    """Give each waiting pod a held slot that it fits, and release gated pods that fit none."""
    # Pods that waited before the Reservation get theirs once as many slots as it wants are held: they may be useful
    # only together, and lose nothing by waiting.
    held_views = [view for view in views if view.slot.state is SlotState.HELD]
    free = FreeSlots(view.slot for view in held_views)
    deadline = deadline_from(now, settings)
    actions: list[Action] = []
    for pod in (*_unassigned(seen, views), *(seen.waiting if has_enough(seen, views) else ())):
        is_sent = pod.metadata.labels.get(RESERVATION_LABEL) == seen.reservation.metadata.uid
        # A pod that was sent and has lost its gate may be bound at any moment, wherever it likes.
        is_served = holds_our_gate(pod) or not is_sent
        choice = free.choose(seen.reservation, pod) if is_served else None
        if choice is None:
            actions += [Release(pod, elsewhere=holds_our_gate(pod))] if is_sent else []
            continue
        free.take(choice)
        # Another controller may keep the pod for long, or give it other node affinity before it takes its gate off
        # (KEP-3838).
        if holds_other_gates(pod):
            continue  # its slots stay held until only our gate is left
        slots = _chosen_slots(held_views, choice)
        if len(slots) < choice.number:
            continue  # a placeholder hands its slot to its successor
        held_views = [view for view in held_views if view.slot not in slots]
        first, *further = slots
        indices = tuple(slot.index for slot in further)
        actions.append(AssignSlot(pod, Assignment(first.task, first.index, first.node, deadline, indices)))
    return (
        actions if _may_begin(seen, views, actions) else [action for action in actions if isinstance(action, Release)]
    )


def _chosen_slots(held_views: Sequence[SlotView], choice: SlotChoice) -> list[Slot]:
    """Return the slots of a choice that are not just being renewed."""
    usable = (
        view.slot
        for view in held_views
        if view.task is choice.task and not view.is_renewed and choice.node in {"", view.slot.node}
    )
    return list(islice(usable, choice.number))


def _count_given(actions: Iterable[Action]) -> int:
    """Return how many slots the actions give to pods."""
    return sum(len(action.assignment.slots) for action in actions if isinstance(action, AssignSlot))


def _may_begin(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Return whether slots may change hands now: with `allOrNothing` once pods for all wanted slots have come.

    Hand-overs that have begun count, and are not taken back if another one fails.
    """
    if not seen.reservation.spec.all_or_nothing:
        return True
    slots_begun = sum(view.slot.state in {SlotState.HANDING_OVER, SlotState.TAKEN} for view in views)
    return slots_begun + _count_given(actions) >= seen.reservation.spec.wanted


def has_enough(seen: Observation, views: tuple[SlotView, ...]) -> bool:
    """Return whether as many slots as wanted are held, changing hands or taken."""
    return sum(view.slot.state.is_occupied for view in views) >= seen.reservation.spec.wanted


def has_spare_slots(seen: Observation, views: tuple[SlotView, ...], actions: list[Action]) -> bool:
    """Return whether to search for pods that could take the slots that these actions leave."""
    slots_held = sum(view.slot.state is SlotState.HELD for view in views)
    is_left = slots_held > _count_given(actions)
    return not seen.searched and is_left and has_enough(seen, views)


def _unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Pod]:
    assigned_uids = {view.owner.metadata.uid for view in views if view.owner is not None}
    return [pod for pod in seen.owners if pod.metadata.uid not in assigned_uids and not pod.is_terminating]


def release_unassigned(seen: Observation, views: tuple[SlotView, ...]) -> list[Action]:
    return [Release(pod, elsewhere=holds_our_gate(pod)) for pod in _unassigned(seen, views)]
