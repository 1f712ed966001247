"""How far a pod has come, by what the API server holds of it."""

from berth_core import (
    AWAITS_CAPACITY_LABEL,
    CHOSEN_NODE_ANNOTATION,
    HANDOVER_GATE,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    Pod,
)


def awaited_node(pod: Pod) -> str:
    """Return the chosen node that a placeholder is not on yet, or ""."""
    if pod.spec.node_name or AWAITS_CAPACITY_LABEL not in pod.metadata.labels:
        return ""
    return pod.metadata.annotations.get(CHOSEN_NODE_ANNOTATION, "")


def holds_our_gate(pod: Pod) -> bool:
    """Return whether the pod has our scheduling gate."""
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def has_started(pod: Pod) -> bool:
    """Return whether the pod's containers run or have run."""
    if not pod.spec.node_name:
        return False
    # A pod that the kubelet refused at admission (OutOfcpu, NodeAffinity, …) is Failed, and has no container statuses
    # (`pkg/kubelet/lifecycle/predicate.go`).
    return pod.status.phase in {"Running", "Succeeded"} or (
        pod.status.phase == "Failed" and bool(pod.status.container_statuses)
    )


def is_on_its_way(pod: Pod) -> bool:
    """Return whether the pod runs, or still can."""
    return not pod.is_terminating and (has_started(pod) or not pod.is_terminal)


def holds_other_gates(pod: Pod) -> bool:
    """Return whether the pod has another scheduling gate than ours."""
    return any(gate.name != HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def is_at_same_step(known: Pod, changed: Pod) -> bool:
    """Return whether a changed pod is at the same hand-over step."""
    return _step(known) == _step(changed)


def _step(pod: Pod) -> tuple[object, ...]:
    meta = pod.metadata
    notes = meta.labels.get(RESERVATION_LABEL), meta.annotations.get(SLOT_ANNOTATION)
    return meta.uid, *notes, holds_our_gate(pod), pod.spec.node_name, pod.is_terminating, pod.is_terminal
