"""Moves of pods that the same plan has moved before: which replacement such a move refers to."""

from collections.abc import Mapping, Sequence

import msgspec

from berth_core import MOVE_ANNOTATION, MoveState, MoveStatus, PlannedMove, Pod, reservation_name
from berth_descheduler.migration.moves.memory import MoveMemory
from berth_descheduler.migration.plans.watch import ObservedPlan


def earlier_moves(moves: Sequence[PlannedMove]) -> Mapping[int, int]:
    """Return the position of a pod's earlier move by the position of each further one."""
    last_index: dict[tuple[str, str], int] = {}
    earlier: dict[int, int] = {}
    for index, move in enumerate(moves):
        key = (move.namespace, move.pod)
        if key in last_index:
            earlier[index] = last_index[key]
        last_index[key] = index
    return earlier


def retarget(memory: MoveMemory, earlier: MoveStatus, plan: str, observed: ObservedPlan) -> bool:
    """Point a second move to the replacement of the earlier one.

    Returns whether such a replacement exists. In a continued plan the replacement may have been evicted already: then a
    Reservation names this move.
    """
    begun_reservation = _reservation_of(memory, observed)
    if not begun_reservation and earlier.state is not MoveState.LANDED:
        return False
    pod = _pod_named(memory.move.namespace, earlier.replacement, observed)
    if pod is None and not begun_reservation:
        return False
    uid, name = pod.metadata.uid if pod is not None else "", earlier.replacement or memory.move.pod
    memory.move = msgspec.structs.replace(memory.move, pod=name, pod_uid=uid)
    # The name is derived from the pod's uid, and the replacement has another one than the planned pod.
    memory.reservation = begun_reservation or reservation_name(plan, uid)
    return True


def note_landed(memory: MoveMemory, later: MoveMemory, plan: str, observed: ObservedPlan) -> None:
    """End a move of an interrupted run whose pod a later move has gone on with: the pod had landed, recorded or not."""
    begun_reservation = _reservation_of(later, observed)
    if not begun_reservation or memory.finished:
        return
    pods, recorded_status = observed.pods.values(), memory.status
    pod = next(
        (candidate for candidate in pods if reservation_name(plan, candidate.metadata.uid) == begun_reservation), None
    )
    memory.status = msgspec.structs.replace(
        recorded_status,
        state=MoveState.LANDED,
        message="",
        reservation=_reservation_of(memory, observed) or recorded_status.reservation,
        replacement=pod.metadata.name if pod is not None else recorded_status.replacement,
        node=memory.move.target,
    )


def _reservation_of(memory: MoveMemory, observed: ObservedPlan) -> str:
    """Return a move's Reservation name from an interrupted run, else ""."""
    for reservation in observed.reservations.values():
        if reservation.metadata.annotations.get(MOVE_ANNOTATION) == str(memory.index):
            return reservation.metadata.name
    return ""


def _pod_named(namespace: str, name: str, observed: ObservedPlan) -> Pod | None:
    pods = (pod for pod in observed.pods.values() if (pod.metadata.namespace, pod.metadata.name) == (namespace, name))
    return next(pods, None)
