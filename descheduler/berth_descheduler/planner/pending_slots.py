"""Owns the places of Reservations that are asked for on one node and that no pod holds yet.

It does not own places that a placeholder holds or waits for: those pods speak for themselves.

Between the making of a Reservation and that of its placeholders, and between the end of a placeholder and the binding
of its owner, no pod may show that a place is promised. A place that may be on several nodes is the scheduler's to
choose: like any pod that waits, it holds nothing until then.
"""

from collections.abc import Iterable, Iterator

import msgspec

from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL, PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_core.names import DEFAULT_NAMESPACE, placeholder_name
from berth_core.objects import Affinity, ObjectMeta, Pod, PodSpec, PodStatus
from berth_core.reservations import Reservation, ReservationTask, Slot, SlotState
from berth_core.snapshot import Snapshot

_OVER = frozenset({SlotState.TAKEN, SlotState.LOST, SlotState.RELEASED})


def pending_slots(snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return a pod, nominated to its node, for each place that is promised there and that no pod holds."""
    live = [one for one in snapshot.reservations if one.is_live]
    if not live:
        return ()
    placeholders = {pod.metadata.name for pod in snapshot.pods if PLACEHOLDER_LABEL in pod.metadata.labels}
    placed = {pod.metadata.uid for pod in snapshot.pods if pod.spec.node_name or pod.status.nominated_node_name}
    return tuple(_stand_ins(live, placeholders, placed))


def _stand_ins(live: Iterable[Reservation], placeholders: set[str], placed: set[str]) -> Iterator[Pod]:
    for reservation in live:
        slots = {(slot.task, slot.index): slot for slot in reservation.status.slots}
        for task in reservation.spec.tasks:
            for index in range(task.replicas):
                slot = slots.get((task.name, index))
                name = placeholder_name(reservation.metadata.name, reservation.metadata.uid, task.name, index)
                node = _promised_node(task, slot)
                if node and name not in placeholders and not _is_held(slot, placed):
                    yield _stand_in(reservation, task, name, node)


def _promised_node(task: ReservationTask, slot: Slot | None) -> str:
    if slot is not None and slot.node:
        return slot.node
    names = set(task.reservation_node_names)
    return names.pop() if len(names) == 1 else ""


def _is_held(slot: Slot | None, placed: set[str]) -> bool:
    """Tell whether a slot is over, or its owner is on a node or nominated to one."""
    if slot is None:
        return False
    return slot.state in _OVER or (slot.owner is not None and slot.owner.uid in placed)


def _stand_in(reservation: Reservation, task: ReservationTask, name: str, node: str) -> Pod:
    """Return a pod that stands for the placeholder to come, and for the ports of its owner."""
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
    """Return a spec without what a placeholder does not ask of other pods, nor of volumes."""
    affinity = None if spec.affinity is None else Affinity(node_affinity=spec.affinity.node_affinity)
    return msgspec.structs.replace(
        spec, node_name="", affinity=affinity, topology_spread_constraints=(), volumes=(), scheduling_gates=()
    )
