"""Moves of pods that the same plan has moved before: which replacement such a move refers to."""

from collections.abc import Mapping, Sequence

import msgspec

from berth_core import MOVE_ANNOTATION, MoveState, MoveStatus, PlannedMove, Pod, reservation_name
from berth_descheduler.migration.moves.memory import MoveMemory
from berth_descheduler.migration.plans.watch import ObservedPlan


def earlier_moves(moves: Sequence[PlannedMove]) -> Mapping[int, int]:
    """Return, for each second move, the pod's earlier move.

    Both are positions.
    """
    last: dict[tuple[str, str], int] = {}
    found: dict[int, int] = {}
    for index, move in enumerate(moves):
        key = (move.namespace, move.pod)
        if key in last:
            found[index] = last[key]
        last[key] = index
    return found


def retarget(memory: MoveMemory, earlier: MoveStatus, plan: str, observed: ObservedPlan) -> bool:
    """Point a second move to the replacement of the earlier one.

    Returns whether such a replacement exists. In a continued plan the replacement may have been evicted already: then a
    Reservation names this move.
    """
    begun = _reservation_of(memory, observed)
    if not begun and earlier.state is not MoveState.LANDED:
        return False
    pod = _pod_named(memory.move.namespace, earlier.replacement, observed)
    if pod is None and not begun:
        return False
    uid, name = pod.metadata.uid if pod is not None else "", earlier.replacement or memory.move.pod
    memory.move = msgspec.structs.replace(memory.move, pod=name, pod_uid=uid)
    memory.reservation = begun or reservation_name(plan, uid)
    return True


def note_landed(memory: MoveMemory, later: MoveMemory, plan: str, observed: ObservedPlan) -> None:
    """End a move of an interrupted run whose pod a later move has gone on with: it had landed, recorded or not."""
    begun = _reservation_of(later, observed)
    if not begun or memory.finished:
        return
    pods, known = observed.pods.values(), memory.status
    pod = next((one for one in pods if reservation_name(plan, one.metadata.uid) == begun), None)
    memory.status = msgspec.structs.replace(
        known,
        state=MoveState.LANDED,
        message="",
        reservation=_reservation_of(memory, observed) or known.reservation,
        replacement=pod.metadata.name if pod is not None else known.replacement,
        node=memory.move.target,
    )


def _reservation_of(memory: MoveMemory, observed: ObservedPlan) -> str:
    """Return a move's Reservation name from an interrupted run, else ""."""
    for found in observed.reservations.values():
        if found.metadata.annotations.get(MOVE_ANNOTATION) == str(memory.index):
            return found.metadata.name
    return ""


def _pod_named(namespace: str, name: str, observed: ObservedPlan) -> Pod | None:
    found = (pod for pod in observed.pods.values() if (pod.metadata.namespace, pod.metadata.name) == (namespace, name))
    return next(found, None)
