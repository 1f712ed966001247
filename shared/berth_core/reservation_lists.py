"""Lists of Reservations: the nodes that they fence, a starving job's Reservation, and their order by age."""

import hashlib
from collections.abc import Iterable
from typing import Final

from berth_core.labels import STARVING_JOB_LABEL
from berth_core.reservations import Fence, ObjectReference, Reservation, ReservationReason, SlotState

_SLOT_OVER: Final = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


def job_uid(reference: ObjectReference) -> str:
    """Return a job's uid, or a digest of its name if it has none."""
    if reference.uid:
        return reference.uid
    text = f"{reference.kind}/{reference.namespace}/{reference.name}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_WITHOUT_NODES: Final = frozenset({ReservationReason.FENCE_LIMIT, ReservationReason.UNSCHEDULABLE_YET})


def fenced_nodes(reservations: Iterable[Reservation]) -> frozenset[str]:
    """Return the nodes that live Reservations fence, whoever made them.

    A node counts as long as one slot there is not occupied. Where a slot has no node yet, all nodes that its task names
    count. If the operator found no node for the Reservation, they count only for a starving job: a tenant may name any
    nodes.
    """
    nodes: set[str] = set()
    for reservation in reservations:
        if reservation.is_live and reservation.spec.fence is Fence.NODE:
            nodes |= _open_nodes(reservation)
    return frozenset(nodes)


def _open_nodes(reservation: Reservation) -> set[str]:
    slots = {(slot.task, slot.index): slot for slot in reservation.status.slots}
    state = reservation.status.state
    found_no_nodes = state is not None and state.reason in _WITHOUT_NODES
    counts_named = not found_no_nodes or STARVING_JOB_LABEL in reservation.metadata.labels
    nodes: set[str] = set()
    for task in reservation.spec.tasks:
        for index in range(task.replicas):
            slot = slots.get((task.name, index))
            if slot is None or (slot.state is SlotState.PENDING and not slot.node):
                nodes |= set(task.node_names) if counts_named else set()
            elif not slot.state.is_occupied and slot.state not in _SLOT_OVER:
                nodes.add(slot.node)
    return nodes


def reservation_for(job_uid: str, namespace: str, reservations: Iterable[Reservation]) -> Reservation | None:
    """Return the Reservation that was made for a starving job, live or over.

    Only a Reservation in the job's namespace counts: tenants may write the label in their own.
    """
    in_namespace = (reservation for reservation in reservations if reservation.metadata.namespace == namespace)
    return next(
        (reservation for reservation in in_namespace if reservation.metadata.labels.get(STARVING_JOB_LABEL) == job_uid),
        None,
    )


def oldest_first(reservations: Iterable[Reservation]) -> list[Reservation]:
    """Return Reservations by age; a plan's Reservations are as old as its first, in the order of its moves."""
    ordered = list(reservations)
    begun: dict[str, str] = {}
    for reservation in ordered:
        created = _created(reservation)
        begun[reservation.plan] = min(begun.get(reservation.plan, created), created)
    return sorted(ordered, key=lambda reservation: _age_order(reservation, begun[reservation.plan]))


def _age_order(reservation: Reservation, plan_begun: str) -> tuple[str, str, int, str]:
    begun = plan_begun if reservation.plan else _created(reservation)
    return begun, reservation.plan, reservation.move or 0, reservation.metadata.uid


def _created(reservation: Reservation) -> str:
    return reservation.metadata.creation_timestamp or ""
