"""JSON patches of owner pods during a hand-over.

Other writers change the same pods, so each patch tests that it meets the right pod, and only adds to a map or list or
removes an entry of ours. If it has to create the map or list, it tests that the pod is as it was read. After a failed
test the pod is read and the patch is built again.
"""

from collections.abc import Mapping
from typing import Any

from berth_core import (
    HANDOVER_GATE,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    Pod,
    Reservation,
    Toleration,
)
from berth_core.decoding import convert
from berth_core.labels import HANDOVER_LABEL
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.manifests import handover_toleration, room_tolerations

Operations = list[dict[str, Any]]


def _pointer(*parts: str) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _is_pod(pod: Pod) -> Operations:
    # A pod that was created again under its name has another uid. A failed test is answered 422 and changes nothing.
    return [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]


def _is_as_read(pod: Pod) -> Operations:
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version}]


def build_assignment(
    pod: Pod, assignment: Assignment, reservation: Reservation, labels: Mapping[str, str] = {}
) -> Operations:
    """Return the patch that notes a slot, and adds needed tolerations and the label by which fences admit the pod.

    Rules add `labels`. A pod that was not gated for the Reservation also gets its label.
    """
    meta, reservation_uid = pod.metadata, reservation.metadata.uid
    is_sent = meta.labels.get(RESERVATION_LABEL) == reservation_uid
    added = [handover_toleration(), *room_tolerations(reservation, [assignment.node])]
    missing_tolerations = [
        toleration for toleration in added if convert(toleration, Toleration) not in pod.spec.tolerations
    ]
    operations = _is_pod(pod)
    if not (is_sent and meta.annotations and pod.spec.tolerations):
        # A pod without our gate may be bound by now, or have another slot; and a map or list that is created here would
        # replace one that another writer has created meanwhile.
        operations += _is_as_read(pod)
    # A label of a rule that the pod has already stays as it is.
    by_rules = {label: value for label, value in labels.items() if label not in meta.labels}
    ours = {RESERVATION_LABEL: reservation_uid, HANDOVER_LABEL: "true"}
    operations += _adding("labels", meta.labels, ours | by_rules)
    operations += _adding("annotations", meta.annotations, {SLOT_ANNOTATION: assignment.to_annotation()})
    # The API server lets a pod's tolerations be added to, never removed from (`ValidatePodUpdate`), so they stay on a
    # pod that is released later.
    if pod.spec.tolerations:
        operations += [
            {"op": "add", "path": "/spec/tolerations/-", "value": toleration} for toleration in missing_tolerations
        ]
    else:
        operations.append({"op": "add", "path": "/spec/tolerations", "value": added})
    return operations


def build_extension(pod: Pod, assignment: Assignment) -> Operations:
    """Return the patch that notes a later deadline, or the slot that a pod took, and has fences admit the pod."""
    path = _pointer("metadata", "annotations", SLOT_ANNOTATION)
    test = {"op": "test", "path": path, "value": pod.metadata.annotations.get(SLOT_ANNOTATION, "")}
    note = {"op": "add", "path": path, "value": assignment.to_annotation()}
    admitted = {"op": "add", "path": _pointer("metadata", "labels", HANDOVER_LABEL), "value": "true"}
    return [*_is_pod(pod), test, note, admitted]


def build_move(pod: Pod, reservation_uid: str) -> Operations:
    """Return the patch that sends a gated pod to another Reservation."""
    path = _pointer("metadata", "labels", RESERVATION_LABEL)
    test = {"op": "test", "path": path, "value": pod.metadata.labels.get(RESERVATION_LABEL, "")}
    return [*_is_pod(pod), test, {"op": "add", "path": path, "value": reservation_uid}]


def _adding(field: str, there: Mapping[str, str], entries: Mapping[str, str]) -> Operations:
    """Return the operations that add entries to a metadata map, or the one that creates it with them."""
    if not there:
        return [{"op": "add", "path": _pointer("metadata", field), "value": dict(entries)}]
    return [
        {"op": "add", "path": _pointer("metadata", field, key), "value": value}
        for key, value in entries.items()
        if there.get(key) != value
    ]


def build_shortening(placeholder: Pod, seconds: int) -> Operations:
    """Return the patch that ends a placeholder earlier."""
    # One of the few fields of a pod's spec that may change later, and only to a smaller value (`ValidatePodUpdate`).
    return [*_is_pod(placeholder), {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": seconds}]


def build_ungating(pod: Pod) -> Operations:
    """Return the patch that removes only our gate; it is empty if there is none."""
    # JSON patch removes list items by their index, which shifts when another controller takes its gate off: so the name
    # at the index is tested first.
    for index, gate in enumerate(pod.spec.scheduling_gates):
        if gate.name == HANDOVER_GATE:
            path = _pointer("spec", "schedulingGates", str(index))
            test = {"op": "test", "path": f"{path}/name", "value": HANDOVER_GATE}
            return [*_is_pod(pod), test, {"op": "remove", "path": path}]
    return []


def build_unlabelling(pod: Pod) -> Operations:
    """Return the patch that removes our note and labels, but a placeholder's own; empty if there are none."""
    labels = {HANDOVER_LABEL} if PLACEHOLDER_LABEL in pod.metadata.labels else {HANDOVER_LABEL, RESERVATION_LABEL}
    operations: Operations = [
        {"op": "remove", "path": _pointer("metadata", "labels", label)}
        for label in sorted(labels & pod.metadata.labels.keys())
    ]
    if SLOT_ANNOTATION in pod.metadata.annotations:
        operations.append({"op": "remove", "path": _pointer("metadata", "annotations", SLOT_ANNOTATION)})
    return [*_is_pod(pod), *operations] if operations else []


def build_release(pod: Pod) -> Operations:
    """Return the patch that removes gate, label and note in one step."""
    unlabelling = build_unlabelling(pod)
    ungating = build_ungating(pod)
    return [*ungating, *(unlabelling[1:] if ungating else unlabelling)]
