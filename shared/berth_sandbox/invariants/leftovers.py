"""Invariants about what Berth puts on pods, nodes and the cluster: nothing stays that is not needed."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime

from berth_core import (
    AWAITS_CAPACITY_LABEL,
    CHOSEN_NODE_ANNOTATION,
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    DRAINING_TAINT,
    FENCE_LABEL,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    INDEX_ANNOTATION,
    LATEST_UNIX_SECONDS,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    OPERATOR_LEASE,
    PLACEHOLDER_LABEL,
    QUEUE_WEBHOOK_CONFIGURATION,
    RELEASED_ANNOTATION,
    RELEASED_HASH,
    RESERVATION_LABEL,
    REVOCABLE_ZONE_LABEL,
    ROOM_TAINT,
    SLOT_ANNOTATION,
    STANDING_FENCE_LABEL,
    TASK_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    WEBHOOK_CONFIGURATION,
    PlanPhase,
    Pod,
    Reservation,
    Slot,
    SlotState,
    is_lent_fence,
    is_room_taint_of,
    matches_labels,
    read_timestamp,
    read_whole_number,
)
from berth_kube import is_awaited
from berth_sandbox.invariants.services import why_not_held
from berth_sandbox.invariants.state import ClusterState, is_queued
from berth_sandbox.invariants.violations import Invariant, Violation


def find_leftovers(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield all objects and marks of Berth that are not needed."""
    by_uid = {reservation.metadata.uid: reservation for reservation in state.reservations}
    waiting_by_uid: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in state.pods:
        reservation = by_uid.get(_reservation_uid(pod))
        if PLACEHOLDER_LABEL in pod.metadata.labels:
            yield from _placeholder_left(pod, reservation)
            continue
        if _is_gated(pod) and not pod.is_terminating and not _is_taking_a_slot(pod, reservation):
            waiting_by_uid[_reservation_uid(pod)].append(pod)
        else:
            yield from _label_left(pod, reservation)
        yield from _late_hand_over(pod, now)
        yield from _nomination_left(pod, reservation)
    for uid, pods in waiting_by_uid.items():
        yield from _gates_left(pods, uid, by_uid.get(uid))
    yield from _guards_left(state, now)
    yield from _taints_of_plans_left(state)
    yield from _released_pods_left(state, now)
    yield from _freed_marks_left(state)
    yield from _cooling_marks_left(state, now)
    yield from _cluster_objects_left(state, now)
    yield from _queues_left(state)


def _reservation_uid(pod: Pod) -> str:
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


def _is_gated(pod: Pod) -> bool:
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def _is_taking_a_slot(pod: Pod, reservation: Reservation | None) -> bool:
    """Return whether a Reservation, live or not, hands a slot to this pod."""
    return reservation is not None and any(
        slot.state is SlotState.HANDING_OVER and slot.owner is not None and slot.owner.uid == pod.metadata.uid
        for slot in reservation.status.slots
    )


def _gates_left(pods: list[Pod], uid: str, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield a Reservation's gated pods without a held slot; the oldest pods get the held slots first."""
    if reservation is None or not reservation.is_live:
        free_slots, why = 0, f"Reservation {uid or '(none named)'} is not live"
    else:
        free_slots = sum(slot.state is SlotState.HELD for slot in reservation.status.slots)
        why = f"Reservation {reservation.key} has no slot for it"
    for pod in sorted(pods, key=lambda pod: pod.metadata.age_order)[free_slots:]:
        yield Violation(Invariant.GATE_LEFT, f"pod {pod.key}", why)


def _label_left(pod: Pod, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield an ungated pod whose label names a finished Reservation."""
    if RESERVATION_LABEL not in pod.metadata.labels or _is_gated(pod) or _is_taking_a_slot(pod, reservation):
        return
    if reservation is None or not reservation.is_live:
        detail = f"Reservation {_reservation_uid(pod) or '(none named)'} is not live"
        yield Violation(Invariant.LABEL_LEFT, f"pod {pod.key}", detail)


def _late_hand_over(pod: Pod, now: datetime) -> Iterator[Violation]:
    """Yield a gated pod whose hand-over is past its deadline."""
    deadline_note = pod.metadata.annotations.get(SLOT_ANNOTATION, "").rpartition("/")[2]
    deadline = read_whole_number(deadline_note, most=LATEST_UNIX_SECONDS)
    if _is_gated(pod) and not pod.is_terminating and deadline is not None and deadline < now.timestamp():
        yield Violation(Invariant.GATE_LEFT, f"pod {pod.key}", "its hand-over should be over")


def _nomination_left(pod: Pod, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield a waiting pod whose nomination belongs to no hand-over."""
    _, _, task_and_node = pod.metadata.annotations.get(SLOT_ANNOTATION, "").partition("/")
    node = task_and_node.split("/")[1] if task_and_node.count("/") > 1 else ""
    if not node or pod.spec.node_name or pod.status.nominated_node_name != node or pod.is_terminating:
        return
    if not _is_taking_a_slot(pod, reservation):
        yield Violation(Invariant.NOMINATION_LEFT, f"pod {pod.key}", f"it is nominated to node {node} for no hand-over")


def _placeholder_left(pod: Pod, reservation: Reservation | None) -> Iterator[Violation]:
    """Yield a placeholder without a live Reservation that counts it."""
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
    """Return the slot that a placeholder claims to hold."""
    notes = placeholder.metadata.annotations
    noted_slot = notes.get(TASK_ANNOTATION), notes.get(INDEX_ANNOTATION)
    slots = reservation.status.slots if reservation is not None else ()
    return next((slot for slot in slots if (slot.task, str(slot.index)) == noted_slot), None)


def _guards_left(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield overdue or unneeded guards of nodes, and unneeded fences.

    A guard is overdue past its deadline; both are unneeded without a hand-over on the node.
    """
    changing_hands = {
        slot.node
        for reservation in state.reservations
        for slot in reservation.status.slots
        if slot.state is SlotState.HANDING_OVER
    } | _nodes_of_successions(state)
    awaited_nodes = _awaited_nodes(state)
    lent_nodes = {node.metadata.name for node in state.nodes if REVOCABLE_ZONE_LABEL in node.metadata.labels}
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
        if FENCE_LABEL not in pod.metadata.labels or pod.metadata.namespace != state.own_namespace:
            continue
        stands = STANDING_FENCE_LABEL in pod.metadata.labels
        if is_lent_fence(pod) and pod.spec.node_name in lent_nodes:
            continue
        if pod.spec.node_name not in (awaited_nodes if stands else changing_hands):
            missing_state = "awaited" if stands else "being handed over"
            detail = f"no slot on node {pod.spec.node_name} is {missing_state}"
            yield Violation(Invariant.FENCE_LEFT, f"pod {pod.key}", detail)


def _awaited_nodes(state: ClusterState) -> set[str]:
    """Return the nodes whose capacity a placeholder awaits, or that a queue keeps."""
    waiting_pods = (
        pod for pod in state.pods if AWAITS_CAPACITY_LABEL in pod.metadata.labels and not pod.spec.node_name
    )
    kept_nodes = {node for queue in state.queues for node in queue.status.fenced_nodes}
    return kept_nodes | {pod.metadata.annotations.get(CHOSEN_NODE_ANNOTATION, "") for pod in waiting_pods}


def _nodes_of_successions(state: ClusterState) -> set[str]:
    """Return the nodes on which a placeholder hands its slot to its successor."""
    nodes: defaultdict[tuple[str, str | None, str | None], list[str]] = defaultdict(list)
    for pod in state.pods:
        if PLACEHOLDER_LABEL in pod.metadata.labels:
            notes = pod.metadata.annotations
            slot = _reservation_uid(pod), notes.get(TASK_ANNOTATION), notes.get(INDEX_ANNOTATION)
            nodes[slot].append(pod.spec.node_name)
    return {node for group in nodes.values() if len(group) > 1 for node in group} - {""}


def _released_pods_left(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield released pods that no running plan moves and no pending eviction by others needs."""
    running_plans = {plan.metadata.name for plan in state.plans if plan.phase is PlanPhase.RUNNING}
    for pod in state.pods:
        metadata = pod.metadata
        if metadata.labels.get(TEMPLATE_HASH_LABEL) != RELEASED_HASH or pod.is_terminating:
            continue
        note = _read_note(metadata.annotations.get(RELEASED_ANNOTATION, ""))
        if note.get("plan") not in running_plans and not is_awaited(str(note.get("until", "")), now):
            value = str(note.get("hash", ""))
            value = value if value.isalnum() and value.isascii() else "unknown"
            detail = f"no plan that runs moves it; its label {TEMPLATE_HASH_LABEL} was {value}"
            yield Violation(Invariant.RELEASED_LEFT, f"pod {metadata.namespace}/{metadata.name}", detail)


def _read_note(text: str) -> Mapping[str, object]:
    try:
        note = json.loads(text)
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _taints_of_plans_left(state: ClusterState) -> Iterator[Violation]:
    """Yield the nodes with taints of a plan that is not running."""
    running_plans = [plan.metadata.name for plan in state.plans if plan.phase is PlanPhase.RUNNING]
    for node in state.nodes:
        for taint in node.spec.taints:
            detail = f"plan {taint.value.partition('.')[0]!r} is not running"
            if taint.key == DRAINING_TAINT and taint.value not in running_plans:
                yield Violation(Invariant.DRAINING_LEFT, f"node {node.metadata.name}", detail)
            if taint.key == ROOM_TAINT and not any(is_room_taint_of(plan, taint.value) for plan in running_plans):
                yield Violation(Invariant.ROOM_GUARD_LEFT, f"node {node.metadata.name}", detail)


def _freed_marks_left(state: ClusterState) -> Iterator[Violation]:
    """Yield used nodes that are still marked or tainted as freed, and nodes with the taint but without the mark."""
    nodes_in_use = {pod.spec.node_name for pod in state.pods if _uses_its_node(pod)}
    for node in state.nodes:
        name, marked = node.metadata.name, FREED_ANNOTATION in node.metadata.annotations
        tainted = any(taint.key == FREED_TAINT for taint in node.spec.taints)
        if (marked or tainted) and name in nodes_in_use:
            yield Violation(Invariant.FREED_LEFT, f"node {name}", "pods are on it")
        elif tainted and not marked:
            yield Violation(Invariant.FREED_LEFT, f"node {name}", "no mark says which plan freed it")


def _cooling_marks_left(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield the nodes that other deschedulers still leave alone after their rest."""
    for node in state.nodes:
        if COOLING_LABEL not in node.metadata.labels:
            continue
        until = node.metadata.annotations.get(COOLING_UNTIL_ANNOTATION, "")
        ends_at = read_timestamp(until)
        if ends_at is None or ends_at <= now:
            detail = f"its rest is over since {until}" if until else "no annotation says until when it rests"
            yield Violation(Invariant.COOLING_LEFT, f"node {node.metadata.name}", detail)


def _uses_its_node(pod: Pod) -> bool:
    """Return whether a pod makes its node used, as DaemonSet, mirror, ended and terminating pods do not."""
    return not (pod.belongs_to_node or pod.is_terminal or pod.is_terminating)


def _queues_left(state: ClusterState) -> Iterator[Violation]:
    """Yield the pods with the gate of queues in namespaces that no queue chooses, and a webhook without any queue."""
    labels = {namespace.metadata.name: namespace.metadata.labels for namespace in state.namespaces}
    selectors = [queue.spec.namespace_selector for queue in state.active_queues]
    for pod in state.pods:
        home = labels.get(pod.metadata.namespace, {})
        if (
            is_queued(pod)
            and not pod.is_terminating
            and not any(matches_labels(selector, home) for selector in selectors)
        ):
            yield Violation(Invariant.QUEUE_GATE_LEFT, f"pod {pod.key}", "no queue has its namespace")
    for webhook in state.webhooks:
        if webhook.metadata.name == QUEUE_WEBHOOK_CONFIGURATION and not state.active_queues:
            target = f"mutatingwebhookconfiguration {webhook.metadata.name}"
            yield Violation(Invariant.WEBHOOK_LEFT, target, "no queue is switched on")


def _cluster_objects_left(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield the operator's cluster objects while no Reservation is live.

    Its priority classes may stay between uses, as long as an operator runs.
    """
    if state.live_reservations:
        return
    for priority_class in state.priority_classes if why_not_held(state, OPERATOR_LEASE, now) else ():
        if priority_class.metadata.labels.get(MANAGED_LABEL) == MANAGED_BY_OPERATOR:
            target = f"priorityclass {priority_class.metadata.name}"
            yield Violation(Invariant.PRIORITY_CLASS_LEFT, target, "no Reservation is live and no operator runs")
    for webhook in state.webhooks:
        if webhook.metadata.name == WEBHOOK_CONFIGURATION:
            target = f"mutatingwebhookconfiguration {webhook.metadata.name}"
            yield Violation(Invariant.WEBHOOK_LEFT, target, "no Reservation is live")
