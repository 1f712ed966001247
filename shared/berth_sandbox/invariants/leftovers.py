"""Owns the invariants about what Berth puts on pods, nodes and the cluster: nothing of it stays where nobody needs it.

It does not own what Berth says of itself (`statuses`).
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from berth_core.clock import LATEST_UNIX_SECONDS, read_timestamp
from berth_core.labels import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    DRAINING_TAINT,
    FENCE_LABEL,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    INDEX_ANNOTATION,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    ROOM_TAINT,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
)
from berth_core.migration_plans import PlanPhase
from berth_core.names import WEBHOOK_CONFIGURATION, is_room_taint_of
from berth_core.objects import Pod
from berth_core.quantity import read_whole_number
from berth_core.reservations import Reservation, Slot, SlotState
from berth_sandbox.invariants.state import ClusterState
from berth_sandbox.invariants.violations import Invariant, Violation


def things_left_behind(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield everything of Berth's that nobody needs."""
    by_uid = {reservation.metadata.uid: reservation for reservation in state.reservations}
    waiting: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in state.pods:
        reservation = by_uid.get(_reservation_uid(pod))
        if PLACEHOLDER_LABEL in pod.metadata.labels:
            yield from _placeholder_left(pod, reservation)
            continue
        if _is_gated(pod) and not pod.is_terminating and not _is_taking_a_slot(pod, reservation):
            waiting[_reservation_uid(pod)].append(pod)
        else:
            yield from _label_left(pod, reservation)
        yield from _late_hand_over(pod, now)
        yield from _nomination_left(pod, reservation)
    for uid, pods in waiting.items():
        yield from _gates_left(pods, uid, by_uid.get(uid))
    yield from _guards_left(state, now)
    yield from _taints_of_plans_left(state)
    yield from _freed_marks_left(state)
    yield from _cooling_marks_left(state, now)
    yield from _cluster_objects_left(state)


def _reservation_uid(pod: Pod) -> str:
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


def _is_gated(pod: Pod) -> bool:
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def _is_taking_a_slot(pod: Pod, reservation: Reservation | None) -> bool:
    """Tell whether a Reservation, live or not, says that this pod is on the way to one of its slots."""
    return reservation is not None and any(
        slot.state is SlotState.HANDING_OVER and slot.owner is not None and slot.owner.uid == pod.metadata.uid
        for slot in reservation.status.slots
    )


def _gates_left(pods: list[Pod], uid: str, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield the gated pods of one Reservation for which no held slot is there; the oldest get what there is."""
    if reservation is None or not reservation.is_live:
        free, why = 0, f"Reservation {uid or '(none named)'} is not live"
    else:
        free = sum(slot.state is SlotState.HELD for slot in reservation.status.slots)
        why = f"Reservation {reservation.key} has no slot for it"
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid))[free:]:
        yield Violation(Invariant.GATE_LEFT, f"pod {pod.key}", why)


def _label_left(pod: Pod, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield a pod that is not gated and carries the label though its Reservation is over."""
    if RESERVATION_LABEL not in pod.metadata.labels or _is_gated(pod) or _is_taking_a_slot(pod, reservation):
        return
    if reservation is None or not reservation.is_live:
        detail = f"Reservation {_reservation_uid(pod) or '(none named)'} is not live"
        yield Violation(Invariant.LABEL_LEFT, f"pod {pod.key}", detail)


def _late_hand_over(pod: Pod, now: datetime) -> Iterator[Violation]:
    """Yield a pod that is gated though the time that it was given for its slot is over."""
    noted = pod.metadata.annotations.get(SLOT_ANNOTATION, "").rpartition("/")[2]
    deadline = read_whole_number(noted, most=LATEST_UNIX_SECONDS)
    if _is_gated(pod) and not pod.is_terminating and deadline is not None and deadline < now.timestamp():
        yield Violation(Invariant.GATE_LEFT, f"pod {pod.key}", "its hand-over should be over")


def _nomination_left(pod: Pod, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield a pod that waits, nominated to the node of our note, and is on the way to no slot."""
    _, _, rest = pod.metadata.annotations.get(SLOT_ANNOTATION, "").partition("/")
    node = rest.split("/")[1] if rest.count("/") > 1 else ""
    if not node or pod.spec.node_name or pod.status.nominated_node_name != node or pod.is_terminating:
        return
    if not _is_taking_a_slot(pod, reservation):
        yield Violation(Invariant.NOMINATION_LEFT, f"pod {pod.key}", f"it is nominated to node {node} for no hand-over")


def _placeholder_left(pod: Pod, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield a placeholder whose Reservation is not live, or does not count it among its slots."""
    target = f"pod {pod.key}"
    slot = _slot_of(pod, reservation)
    if slot is not None and slot.state is SlotState.HANDING_OVER:
        return
    if reservation is None or not reservation.is_live:
        detail = f"Reservation {_reservation_uid(pod) or '(none named)'} is not live"
        yield Violation(Invariant.PLACEHOLDER_LEFT, target, detail)
    elif reservation.status.slots and (slot is None or slot.state in {SlotState.TAKEN, SlotState.LOST}):
        state = "there is no such slot" if slot is None else f"its slot is {slot.state}"
        yield Violation(Invariant.PLACEHOLDER_LEFT, target, f"Reservation {reservation.key}: {state}")


def _slot_of(placeholder: Pod, reservation: Reservation | None) -> Slot | None:
    """Return the slot that a placeholder says it holds."""
    notes = placeholder.metadata.annotations
    wanted = notes.get(TASK_ANNOTATION), notes.get(INDEX_ANNOTATION)
    slots = reservation.status.slots if reservation is not None else ()
    return next((slot for slot in slots if (slot.task, str(slot.index)) == wanted), None)


def _guards_left(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield the nodes that are guarded past the deadline or for nobody, and fences; a taint's value is its deadline."""
    changing_hands = {
        slot.node
        for reservation in state.reservations
        for slot in reservation.status.slots
        if slot.state is SlotState.HANDING_OVER
    } | _nodes_of_successions(state)
    for node in state.nodes:
        for taint in node.spec.taints:
            if taint.key != HANDOVER_TAINT:
                continue
            target = f"node {node.metadata.name}"
            deadline = read_whole_number(taint.value, most=LATEST_UNIX_SECONDS)
            if deadline is None or deadline < now.timestamp():
                yield Violation(Invariant.GUARD_LEFT, target, f"its deadline {taint.value!r} has passed")
            elif node.metadata.name not in changing_hands:
                yield Violation(Invariant.GUARD_LEFT, target, "no slot there is being handed over")
    for pod in state.pods:
        is_fence = FENCE_LABEL in pod.metadata.labels and pod.metadata.namespace == state.own_namespace
        if is_fence and pod.spec.node_name not in changing_hands:
            detail = f"no slot on node {pod.spec.node_name} is being handed over"
            yield Violation(Invariant.FENCE_LEFT, f"pod {pod.key}", detail)


def _nodes_of_successions(state: ClusterState) -> set[str]:
    """Return the nodes on which one placeholder takes the place of another of the same slot."""
    nodes: defaultdict[tuple[str, str | None, str | None], list[str]] = defaultdict(list)
    for pod in state.pods:
        if PLACEHOLDER_LABEL in pod.metadata.labels:
            notes = pod.metadata.annotations
            slot = _reservation_uid(pod), notes.get(TASK_ANNOTATION), notes.get(INDEX_ANNOTATION)
            nodes[slot].append(pod.spec.node_name)
    return {node for group in nodes.values() if len(group) > 1 for node in group} - {""}


def _taints_of_plans_left(state: ClusterState) -> Iterator[Violation]:
    """Yield the nodes that are drained, or kept from others, for a plan that is not running."""
    running = [plan.metadata.name for plan in state.plans if plan.phase is PlanPhase.RUNNING]
    for node in state.nodes:
        for taint in node.spec.taints:
            detail = f"plan {taint.value.partition('.')[0]!r} is not running"
            if taint.key == DRAINING_TAINT and taint.value not in running:
                yield Violation(Invariant.DRAINING_LEFT, f"node {node.metadata.name}", detail)
            if taint.key == ROOM_TAINT and not any(is_room_taint_of(plan, taint.value) for plan in running):
                yield Violation(Invariant.ROOM_GUARD_LEFT, f"node {node.metadata.name}", detail)


def _freed_marks_left(state: ClusterState) -> Iterator[Violation]:
    """Yield the nodes that keep what a plan put on them when it freed them, though they are used or nobody wants it."""
    in_use = {pod.spec.node_name for pod in state.pods if _uses_its_node(pod)}
    for node in state.nodes:
        name, marked = node.metadata.name, FREED_ANNOTATION in node.metadata.annotations
        tainted = any(taint.key == FREED_TAINT for taint in node.spec.taints)
        if (marked or tainted) and name in in_use:
            yield Violation(Invariant.FREED_LEFT, f"node {name}", "pods are on it")
        elif tainted and not marked:
            yield Violation(Invariant.FREED_LEFT, f"node {name}", "no mark says which plan freed it")


def _cooling_marks_left(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield the nodes that other deschedulers still leave alone though they have rested."""
    for node in state.nodes:
        if COOLING_LABEL not in node.metadata.labels:
            continue
        until = node.metadata.annotations.get(COOLING_UNTIL_ANNOTATION, "")
        ends_at = read_timestamp(until)
        if ends_at is None or ends_at <= now:
            detail = f"its rest is over since {until}" if until else "no annotation says until when it rests"
            yield Violation(Invariant.COOLING_LEFT, f"node {node.metadata.name}", detail)


def _uses_its_node(pod: Pod) -> bool:
    """Tell whether a pod makes its node one that is used: DaemonSet and mirror pods do not."""
    return not (pod.belongs_to_node or pod.is_terminal or pod.is_terminating)


def _cluster_objects_left(state: ClusterState) -> Iterator[Violation]:
    """Yield what the operator makes for live Reservations and none is."""
    if state.live_reservations:
        return
    for priority_class in state.priority_classes:
        if priority_class.metadata.labels.get(MANAGED_LABEL) == MANAGED_BY_OPERATOR:
            target = f"priorityclass {priority_class.metadata.name}"
            yield Violation(Invariant.PRIORITY_CLASS_LEFT, target, "no Reservation is live")
    for webhook in state.webhooks:
        if webhook.metadata.name == WEBHOOK_CONFIGURATION:
            target = f"mutatingwebhookconfiguration {webhook.metadata.name}"
            yield Violation(Invariant.WEBHOOK_LEFT, target, "no Reservation is live")
