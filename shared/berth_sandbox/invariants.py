"""Owns the check of what must be true of a cluster whenever Berth is at rest.

It does not own mending: the operator and the descheduler do that in every pass.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from berth_core.labels import (
    DRAINING_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
)
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.names import WEBHOOK_CONFIGURATION
from berth_core.objects import Node, ObjectMeta, Pod
from berth_core.pod_requests import effective_requests
from berth_core.reservations import Reservation
from berth_core.resources import ResourceAmounts
from berth_kube.client import KubeClient
from berth_kube.decoding import T
from berth_kube.errors import NotFoundError
from berth_kube.resources import (
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATIONS,
    Resource,
)


class Invariant(StrEnum):
    """What must be true, named by what is found when it is not."""

    GATE_LEFT = "GateLeft"
    """A pod keeps Berth's scheduling gate though no live Reservation accounts for it."""
    LABEL_LEFT = "LabelLeft"
    """A pod keeps the label of a hand-over though its Reservation is over."""
    PLACEHOLDER_LEFT = "PlaceholderLeft"
    """A placeholder holds capacity for no live Reservation."""
    GUARD_LEFT = "GuardLeft"
    """A node keeps the hand-over taint past its deadline, or without a live Reservation with a slot there."""
    DRAINING_LEFT = "DrainingLeft"
    """A node keeps the draining taint of a plan that is not running."""
    PRIORITY_CLASS_LEFT = "PriorityClassLeft"
    """A PriorityClass of the operator's stands though no Reservation is live."""
    WEBHOOK_LEFT = "WebhookLeft"
    """The webhook stands in the way of pods though no Reservation is live."""
    POD_PENDING = "PodPending"
    """A pod waits for a place."""
    NODE_OVERBOOKED = "NodeOverbooked"
    """The pods of a node request more than it has."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One thing that is not as it must be; `target` is `kind namespace/name`."""

    invariant: Invariant
    target: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.target}: {self.detail}"


class NamedObject(msgspec.Struct, frozen=True):
    """An object of which only the name and the labels matter."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Everything that the invariants speak about."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    plans: tuple[MigrationPlan, ...] = ()
    priority_classes: tuple[NamedObject, ...] = ()
    webhooks: tuple[NamedObject, ...] = ()

    @property
    def live_reservations(self) -> tuple[Reservation, ...]:
        """Return the Reservations that are neither finished nor being deleted."""
        return tuple(r for r in self.reservations if not r.phase.terminal and not r.metadata.deletion_timestamp)


def check(client: KubeClient, *, now: datetime) -> tuple[Violation, ...]:
    """Return what is not as it must be in a live cluster, in a fixed order; empty means all is well.

    The kinds are read one after the other, so a cluster in motion may show what was never true at any one time.
    """
    return find_violations(read_state(client), now=now)


def read_state(client: KubeClient) -> ClusterState:
    """Read a live cluster; Berth's own kinds may be missing from it."""
    return ClusterState(
        pods=_list(client, PODS, Pod),
        nodes=_list(client, NODES, Node),
        reservations=_list(client, RESERVATIONS, Reservation),
        plans=_list(client, MIGRATION_PLANS, MigrationPlan),
        priority_classes=_list(client, PRIORITY_CLASSES, NamedObject),
        webhooks=_list(client, MUTATING_WEBHOOKS, NamedObject),
    )


def find_violations(state: ClusterState, *, now: datetime) -> tuple[Violation, ...]:
    """Return what is not as it must be, in a fixed order."""
    return tuple(
        sorted(
            {
                *_pods_left_behind(state),
                *_guards_left_behind(state, now),
                *_taints_of_plans_left_behind(state),
                *_cluster_objects_left_behind(state),
                *_pending_pods(state),
                *_overbooked_nodes(state),
            }
        )
    )


def _list(client: KubeClient, resource: Resource, type_: type[T]) -> tuple[T, ...]:
    """Return all objects of a kind, none where the cluster does not know the kind."""
    try:
        return client.list(resource, type=type_).items
    except NotFoundError:
        return ()


def _pods_left_behind(state: ClusterState) -> Iterator[Violation]:
    """Yield the pods that carry a gate, a label or the role of a placeholder for a Reservation that is not live."""
    live = {reservation.metadata.uid for reservation in state.live_reservations}
    for pod in state.pods:
        uid = pod.metadata.labels.get(RESERVATION_LABEL, "")
        gated = any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)
        placeholder = PLACEHOLDER_LABEL in pod.metadata.labels
        if uid in live or not (gated or placeholder or uid):
            continue
        detail = f"Reservation {uid or '(none named)'} is not live"
        if gated:
            yield Violation(Invariant.GATE_LEFT, f"pod {pod.key}", detail)
        elif placeholder:
            yield Violation(Invariant.PLACEHOLDER_LEFT, f"pod {pod.key}", detail)
        else:
            yield Violation(Invariant.LABEL_LEFT, f"pod {pod.key}", detail)


def _guards_left_behind(state: ClusterState, now: datetime) -> Iterator[Violation]:
    """Yield the nodes that are guarded past the deadline or for nobody; the taint's value is the deadline."""
    expected = {slot.node for reservation in state.live_reservations for slot in reservation.status.slots}
    for node in state.nodes:
        for taint in node.spec.taints:
            if taint.key != HANDOVER_TAINT:
                continue
            target = f"node {node.metadata.name}"
            if not taint.value.isdecimal() or int(taint.value) < now.timestamp():
                yield Violation(Invariant.GUARD_LEFT, target, f"its deadline {taint.value!r} has passed")
            elif node.metadata.name not in expected:
                yield Violation(Invariant.GUARD_LEFT, target, "no live Reservation has a slot there")


def _taints_of_plans_left_behind(state: ClusterState) -> Iterator[Violation]:
    """Yield the nodes that are drained for a plan that is not running."""
    running = {plan.metadata.name for plan in state.plans if plan.phase is PlanPhase.RUNNING}
    for node in state.nodes:
        for taint in node.spec.taints:
            if taint.key == DRAINING_TAINT and taint.value not in running:
                detail = f"plan {taint.value!r} is not running"
                yield Violation(Invariant.DRAINING_LEFT, f"node {node.metadata.name}", detail)


def _cluster_objects_left_behind(state: ClusterState) -> Iterator[Violation]:
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


def _pending_pods(state: ClusterState) -> Iterator[Violation]:
    """Yield the pods that do not run yet, placeholders aside."""
    for pod in state.pods:
        if pod.status.phase == "Pending" and PLACEHOLDER_LABEL not in pod.metadata.labels:
            where = f"on {pod.spec.node_name}" if pod.spec.node_name else "without a node"
            yield Violation(Invariant.POD_PENDING, f"pod {pod.key}", f"pending {where}")


def _overbooked_nodes(state: ClusterState) -> Iterator[Violation]:
    """Yield the nodes whose pods request more than the node has, one slot per pod included."""
    requested: defaultdict[str, list[ResourceAmounts]] = defaultdict(list)
    for pod in state.pods:
        if pod.spec.node_name and not pod.is_terminal:
            requested[pod.spec.node_name].append(effective_requests(pod.spec).plus(ResourceAmounts({"pods": 1})))
    for node in state.nodes:
        total = ResourceAmounts.total(requested[node.metadata.name])
        lacking = total.lacking(ResourceAmounts.from_quantities(node.status.allocatable))
        if lacking:
            detail = f"its pods request too much {', '.join(lacking)}"
            yield Violation(Invariant.NODE_OVERBOOKED, f"node {node.metadata.name}", detail)
