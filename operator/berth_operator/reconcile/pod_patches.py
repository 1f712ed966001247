"""JSON patches of owner pods during a hand-over.

Each tests that it meets the right pod. Other writers change the same pods. A patch only adds to a map or list, or
removes an entry of ours; if it must create the map or list, the pod must be as it was read. After a failed test the pod
is read and the patch built again.
"""

from collections.abc import Mapping
from typing import Any

from berth_core import (
    HANDOVER_GATE,
    PLACEHOLDER_LABEL,
    PREEMPTABLE_LABEL,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    Pod,
    Reservation,
    Toleration,
    is_place_of_preemptable,
)
from berth_core.decoding import convert
from berth_operator.reconcile.manifests import handover_toleration, room_tolerations
from berth_operator.reconcile.observation import Assignment

Operations = list[dict[str, Any]]


def _pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _is_pod(pod: Pod) -> Operations:
    return [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]


def _is_as_read(pod: Pod) -> Operations:
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version}]


def build_assignment(pod: Pod, assignment: Assignment, reservation: Reservation) -> Operations:
    """Return the patch that notes a slot and adds needed tolerations.

    A preemptable pod that a plan moves gets the label by which open lent nodes let it in. A pod that was not gated for
    the Reservation also gets its label, and must be unchanged: it may be bound by now, or have another slot.
    """
    meta, reservation_uid = pod.metadata, reservation.metadata.uid
    is_sent = meta.labels.get(RESERVATION_LABEL) == reservation_uid
    added = [handover_toleration(), *room_tolerations(reservation, [assignment.node])]
    missing = [one for one in added if convert(one, Toleration) not in pod.spec.tolerations]
    operations = _is_pod(pod)
    if not (is_sent and meta.annotations and pod.spec.tolerations):
        operations += _is_as_read(pod)
    if not is_sent:
        operations += _adding("labels", meta.labels, RESERVATION_LABEL, reservation_uid)
    task = next((one for one in reservation.spec.tasks if one.name == assignment.task), None)
    if task is not None and is_place_of_preemptable(reservation, task) and PREEMPTABLE_LABEL not in meta.labels:
        operations.append({"op": "add", "path": _pointer("metadata", "labels", PREEMPTABLE_LABEL), "value": "true"})
    operations += _adding("annotations", meta.annotations, SLOT_ANNOTATION, assignment.to_annotation())
    if pod.spec.tolerations:
        operations += [{"op": "add", "path": "/spec/tolerations/-", "value": one} for one in missing]
    else:
        operations.append({"op": "add", "path": "/spec/tolerations", "value": added})
    return operations


def build_extension(pod: Pod, assignment: Assignment) -> Operations:
    """Return the patch that notes a later deadline."""
    path = _pointer("metadata", "annotations", SLOT_ANNOTATION)
    known = {"op": "test", "path": path, "value": pod.metadata.annotations.get(SLOT_ANNOTATION, "")}
    return [*_is_pod(pod), known, {"op": "add", "path": path, "value": assignment.to_annotation()}]


def build_move(pod: Pod, reservation_uid: str) -> Operations:
    """Return the patch that sends a gated pod to another Reservation."""
    path = _pointer("metadata", "labels", RESERVATION_LABEL)
    test = {"op": "test", "path": path, "value": pod.metadata.labels.get(RESERVATION_LABEL, "")}
    return [*_is_pod(pod), test, {"op": "add", "path": path, "value": reservation_uid}]


def _adding(field: str, there: Mapping[str, str], key: str, value: str) -> Operations:
    """Return the operation that adds an entry to a metadata map.

    It creates the map where there is none.
    """
    if there:
        return [{"op": "add", "path": _pointer("metadata", field, key), "value": value}]
    return [{"op": "add", "path": _pointer("metadata", field), "value": {key: value}}]


def build_shortening(placeholder: Pod, seconds: int) -> Operations:
    """Return the patch that ends a placeholder earlier."""
    return [*_is_pod(placeholder), {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": seconds}]


def build_ungating(pod: Pod) -> Operations:
    """Return the patch that removes our gate only; empty without one."""
    for index, gate in enumerate(pod.spec.scheduling_gates):
        if gate.name == HANDOVER_GATE:
            path = _pointer("spec", "schedulingGates", str(index))
            test = {"op": "test", "path": f"{path}/name", "value": HANDOVER_GATE}
            return [*_is_pod(pod), test, {"op": "remove", "path": path}]
    return []


def build_unlabelling(pod: Pod) -> Operations:
    """Return the patch that removes our label and note; empty without them.

    A placeholder keeps the label.
    """
    operations: Operations = []
    if RESERVATION_LABEL in pod.metadata.labels and PLACEHOLDER_LABEL not in pod.metadata.labels:
        operations.append({"op": "remove", "path": _pointer("metadata", "labels", RESERVATION_LABEL)})
    if SLOT_ANNOTATION in pod.metadata.annotations:
        operations.append({"op": "remove", "path": _pointer("metadata", "annotations", SLOT_ANNOTATION)})
    return [*_is_pod(pod), *operations] if operations else []


def build_release(pod: Pod) -> Operations:
    """Return the patch that removes gate, label and note in one step."""
    unlabelling = build_unlabelling(pod)
    ungating = build_ungating(pod)
    return [*ungating, *(unlabelling[1:] if ungating else unlabelling)]
