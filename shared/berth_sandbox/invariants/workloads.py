"""Invariants about users' pods: workloads are complete, no pod waits, no node is over-booked."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from berth_core import (
    FENCE_LABEL,
    PLACEHOLDER_LABEL,
    ObjectReference,
    Pod,
    ReservationOwner,
    ResourceAmounts,
    Workload,
    effective_requests,
    matches_labels,
)
from berth_sandbox.invariants.state import ClusterState
from berth_sandbox.invariants.violations import Invariant, Violation


def pending_pods(state: ClusterState) -> Iterator[Violation]:
    """Yield the pods that do not run yet, except Berth's own."""
    for pod in state.pods:
        if pod.status.phase == "Pending" and not {PLACEHOLDER_LABEL, FENCE_LABEL} & pod.metadata.labels.keys():
            where = f"on {pod.spec.node_name}" if pod.spec.node_name else "without a node"
            yield Violation(Invariant.POD_PENDING, f"pod {pod.key}", f"pending {where}")


def overbooked_nodes(state: ClusterState) -> Iterator[Violation]:
    """Yield the nodes whose pods request more than is allocatable; the number of pods counts as a resource."""
    requested: defaultdict[str, list[ResourceAmounts]] = defaultdict(list)
    for pod in state.pods:
        if pod.spec.node_name and not pod.is_terminal:
            requested[pod.spec.node_name].append(effective_requests(pod.spec).plus(ResourceAmounts({"pods": 1})))
    for node in state.nodes:
        total = ResourceAmounts.total(requested[node.metadata.name])
        short_resources = total.lacking(ResourceAmounts.from_quantities(node.status.allocatable))
        if short_resources:
            detail = f"its pods request too much {', '.join(short_resources)}"
            yield Violation(Invariant.NODE_OVERBOOKED, f"node {node.metadata.name}", detail)


def short_workloads(state: ClusterState) -> Iterator[Violation]:
    """Yield the workloads of Reservations with fewer running pods than they want."""
    counted: Counter[str] = Counter()
    for pod in state.pods:
        if pod.controller is not None and _counts(pod):
            counted[pod.controller.uid] += 1
    concerned_controllers = _controllers_of_owner_pods(state)
    for workload in state.workloads:
        replicas, running = _wanted(workload), counted[workload.metadata.uid]
        if running < replicas and (workload.metadata.uid in concerned_controllers or _is_named(workload, state)):
            kind = workload.kind.lower()
            target = f"{kind} {workload.metadata.namespace}/{workload.metadata.name}"
            yield Violation(Invariant.WORKLOAD_SHORT, target, f"{running} of its {replicas} pods run")


def _counts(pod: Pod) -> bool:
    """Return whether a pod does its workload's work, or has done it."""
    return pod.status.phase == "Succeeded" or (pod.status.phase == "Running" and not pod.is_terminating)


def _wanted(workload: Workload) -> int:
    """Return how many pods should run: none of a Job that is over, waits or is being deleted."""
    spec = workload.spec
    if workload.metadata.deletion_timestamp:
        return 0
    if workload.kind != "Job":
        return 1 if spec.replicas is None else spec.replicas
    if spec.suspend or not workload.status.active:
        return 0
    at_once = 1 if spec.parallelism is None else spec.parallelism
    return at_once if spec.completions is None else min(at_once, spec.completions)


def _controllers_of_owner_pods(state: ClusterState) -> set[str]:
    """Return the uids of the controllers of owner pods that took a slot or are on the way."""
    taking = {
        slot.owner.uid
        for reservation in state.reservations
        for slot in reservation.status.slots
        if slot.owner is not None
    }
    return {pod.controller.uid for pod in state.pods if pod.controller is not None and pod.metadata.uid in taking}


def _is_named(workload: Workload, state: ClusterState) -> bool:
    """Return whether a Reservation of its namespace names or selects a workload."""
    return any(
        reservation.metadata.namespace == workload.metadata.namespace
        and any(_names(owner, workload) for owner in reservation.spec.owners)
        for reservation in state.reservations
    )


def _names(owner: ReservationOwner, workload: Workload) -> bool:
    labels = workload.spec.selector.match_labels if workload.spec.selector else {}
    return (owner.object is not None and _refers_to(owner.object, workload)) or (
        owner.label_selector is not None and bool(labels) and matches_labels(owner.label_selector, labels)
    )


def _refers_to(reference: ObjectReference, workload: Workload) -> bool:
    if reference.uid:
        return reference.uid == workload.metadata.uid
    return (reference.kind, reference.name) == (workload.kind, workload.metadata.name)
