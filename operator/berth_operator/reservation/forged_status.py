"""Claims of a status, of taken or lost slots or of an end, that running placeholders disprove.

While this process leads it trusts only its own statuses (`store.own_statuses`); this covers those that it finds when it
begins to lead. A claim that no placeholder disproves is accepted: a slot without one, an end before all was held.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from berth_core import Pod, ReservationPhase, ReservationReason, ReservationStatus, Slot, SlotState, is_expired
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.slots import SlotView, is_closed, view_slots
from berth_operator.reservation.validation import refuse
from berth_operator.settings import HandoverSettings

_ENDED: Final = frozenset({SlotState.TAKEN, SlotState.LOST})

_LOSS_BESIDE_PLACEHOLDER: Final = ReservationReason.HANDOVER_TIMEOUT
"""The only loss after which the placeholder may still run, so that nothing disproves it."""


def without_forged_claims(
    seen: Observation, now: datetime, handover: HandoverSettings, is_there: Callable[[Pod], bool]
) -> Observation:
    """Return the observation without claims that running placeholders disprove.

    A placeholder is deleted before its slot is taken or lost, and with the last one its Reservation is over. Pods and
    status arrive separately, so `is_there` checks whether a placeholder still runs.
    """
    if seen.reservation.phase is ReservationPhase.FAILED:
        return _without_end(seen, now, handover, is_there)
    ended_slots = (slot for slot in seen.reservation.status.slots if slot.state in _ENDED)
    doubted_slots = [slot for slot in ended_slots if slot.reason != _LOSS_BESIDE_PLACEHOLDER]
    if not doubted_slots:
        return seen
    running_pods = {view.key: _running(view) for view in view_slots(_forget_all(seen), handover)}
    claims = ((slot, running_pods.get((slot.task, slot.index))) for slot in doubted_slots)
    denied = [slot for slot, placeholder in claims if placeholder is not None and is_there(placeholder)]
    return _forget(seen, denied) if denied else seen


def _without_end(
    seen: Observation, now: datetime, handover: HandoverSettings, is_there: Callable[[Pod], bool]
) -> Observation:
    """Return the observation without an unexplained failure while all is held."""
    reservation = seen.reservation
    state = reservation.status.state
    has_reason = reservation.metadata.deletion_timestamp or seen.verdict or refuse(reservation)
    bare = _forget_all(seen)
    if (
        has_reason
        or (state is not None and state.reason == _LOSS_BESIDE_PLACEHOLDER)
        or is_expired(bare.reservation, now)
    ):
        return seen
    pods = [_running(view) for view in view_slots(bare, handover)]
    return bare if pods and all(pod is not None and is_there(pod) for pod in pods) else seen


def _running(view: SlotView) -> Pod | None:
    """Return the placeholder that runs for a slot, even on a node that is closed to its owner."""
    return view.placeholder if view.slot.state is SlotState.HELD or is_closed(view) else None


def _forget_all(seen: Observation) -> Observation:
    """Return the observation without any status."""
    return replace(seen, reservation=msgspec.structs.replace(seen.reservation, status=ReservationStatus()))


def _forget(seen: Observation, denied: list[Slot]) -> Observation:
    """Return the observation without the status of these slots, and without an end that followed from it."""
    status = seen.reservation.status
    slots_left = tuple(slot for slot in status.slots if slot not in denied)
    state = None if seen.reservation.phase.terminal else status.state
    status = msgspec.structs.replace(status, slots=slots_left, state=state)
    return replace(seen, reservation=msgspec.structs.replace(seen.reservation, status=status))
