"""The places of Reservations that are asked for on one node and that no pod holds yet.

Between the creation of a Reservation and that of its placeholders, and between the end of a placeholder and the
binding of its owner, no pod may show that a place is promised. Where a place may be on several nodes, the scheduler
chooses one: like any pod that waits, such a place holds nothing until then.
"""

from collections.abc import Iterable, Iterator

import msgspec

from berth_core import (
    DEFAULT_NAMESPACE,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    Affinity,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Reservation,
    ReservationTask,
    Slot,
    SlotState,
    Snapshot,
    placeholder_name,
)

_OVER = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


def reserved_slots(snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return a pod for each promised place that no pod holds, nominated to the node of the place."""
    live_reservations = [reservation for reservation in snapshot.reservations if reservation.is_live]
    if not live_reservations:
        return ()
    placeholders = {pod.metadata.name for pod in snapshot.marked_pods if PLACEHOLDER_LABEL in pod.metadata.labels}
    slots = (slot for reservation in live_reservations for slot in reservation.status.slots)
    owner_uids = {slot.owner.uid for slot in slots if slot.owner is not None}
    owners = [pod for pod in snapshot.pods if pod.metadata.uid in owner_uids] if owner_uids else []
    placed_uids = {pod.metadata.uid for pod in owners if pod.spec.node_name or pod.status.nominated_node_name}
    return tuple(_slot_pods(live_reservations, placeholders, placed_uids))


def _slot_pods(live: Iterable[Reservation], placeholders: set[str], placed: set[str]) -> Iterator[Pod]:
    for reservation in live:
        slots = {(slot.task, slot.index): slot for slot in reservation.status.slots}
        for task in reservation.spec.tasks:
            for index in range(task.replicas):
                slot = slots.get((task.name, index))
                name = placeholder_name(reservation.metadata.name, reservation.metadata.uid, task.name, index)
                node = _promised_node(task, slot)
                if node and name not in placeholders and not _is_held(slot, placed):
                    yield _slot_pod(reservation, task, name, node)


def _promised_node(task: ReservationTask, slot: Slot | None) -> str:
    if slot is not None and slot.node:
        return slot.node
    names = set(task.node_names)
    return names.pop() if len(names) == 1 else ""


def _is_held(slot: Slot | None, placed: set[str]) -> bool:
    """Return whether a slot is over, or its owner is bound or nominated to a node."""
    if slot is None:
        return False
    # Once the owner is bound or nominated it takes the room itself; with the slot it would count twice.
    return slot.state in _OVER or (slot.owner is not None and slot.owner.uid in placed)


def _slot_pod(reservation: Reservation, task: ReservationTask, name: str, node: str) -> Pod:
    """Return a pod that stands for a placeholder to come, with the ports of its owner."""
    labels = {
        PLACEHOLDER_LABEL: "true",
        RESERVATION_LABEL: reservation.metadata.uid,
        MANAGED_LABEL: MANAGED_BY_OPERATOR,
    }
    return Pod(
        metadata=ObjectMeta(namespace=DEFAULT_NAMESPACE, name=name, uid=name, labels=labels),
        spec=_without_neighbours(task.template.spec),
        status=PodStatus(phase="Pending", nominated_node_name=node),
    )


def _without_neighbours(spec: PodSpec) -> PodSpec:
    """Return a spec without the constraints on other pods and volumes for which a placeholder does not ask."""
    affinity = None if spec.affinity is None else Affinity(node_affinity=spec.affinity.node_affinity)
    return msgspec.structs.replace(
        spec, node_name="", affinity=affinity, topology_spread_constraints=(), volumes=(), scheduling_gates=()
    )
