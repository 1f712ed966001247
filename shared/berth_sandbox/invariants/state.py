"""State of a cluster for the invariants, read from the API."""

from dataclasses import dataclass
from typing import Any

import msgspec

from berth_core import (
    DEFAULT_NAMESPACE,
    QUEUE_GATE,
    GatedQueue,
    InputError,
    MigrationPlan,
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    Reservation,
    ReservationSpec,
    Workload,
    effective_requests,
    expires_at,
)
from berth_kube import (
    JOBS,
    LEASES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    KubeClient,
    Lease,
    NotFoundError,
    Resource,
    T,
)


class NamedObject(msgspec.Struct, frozen=True):
    """An object of which only the metadata matters."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The objects that invariants are about."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    plans: tuple[MigrationPlan, ...] = ()
    priority_classes: tuple[NamedObject, ...] = ()
    webhooks: tuple[NamedObject, ...] = ()
    queues: tuple[GatedQueue, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    """Read only where a pod has the gate of queues."""
    workloads: tuple[Workload, ...] = ()
    """ReplicaSets, StatefulSets and Jobs, each with its kind."""
    leases: tuple[Lease, ...] = ()
    """The Leases in Berth's own namespace."""
    own_namespace: str = DEFAULT_NAMESPACE

    @property
    def active_queues(self) -> tuple[GatedQueue, ...]:
        """Return the queues that are not switched off."""
        return tuple(queue for queue in self.queues if not queue.spec.suspend)

    @property
    def live_reservations(self) -> tuple[Reservation, ...]:
        """Return the Reservations that are neither finished nor being deleted."""
        return tuple(reservation for reservation in self.reservations if reservation.is_live)


def read_state(client: KubeClient, *, own_namespace: str = DEFAULT_NAMESPACE) -> ClusterState:
    """Read a live cluster; Berth's own kinds may be missing.

    Reservations are read first, so that an older version is not blamed for objects of one that ends meanwhile.
    """
    reservations = tuple(_reservation(body) for body in _list(client, RESERVATIONS, dict))
    queues = tuple(GatedQueue.read(body) for body in _list(client, QUEUES, dict))
    pods = _list(client, PODS, Pod)
    return ClusterState(
        reservations=reservations,
        queues=queues,
        namespaces=_list(client, NAMESPACES, Namespace) if any(map(is_queued, pods)) else (),
        pods=pods,
        nodes=_list(client, NODES, Node),
        plans=_list(client, MIGRATION_PLANS, MigrationPlan),
        priority_classes=_list(client, PRIORITY_CLASSES, NamedObject),
        webhooks=_list(client, MUTATING_WEBHOOKS, NamedObject),
        workloads=_workloads(client) if reservations else (),
        leases=client.list(LEASES, namespace=own_namespace, type=Lease).items,
        own_namespace=own_namespace,
    )


def is_queued(pod: Pod) -> bool:
    """Return whether a pod has the gate of queues."""
    return any(gate.name == QUEUE_GATE for gate in pod.spec.scheduling_gates)


def _list(client: KubeClient, resource: Resource, type_: type[T]) -> tuple[T, ...]:
    """Return all objects of a kind, none if the cluster does not know the kind."""
    try:
        return client.list(resource, type=type_).items
    except NotFoundError:
        return ()


def _workloads(client: KubeClient) -> tuple[Workload, ...]:
    """Return the workloads of all namespaces, with the kind that items of a list lack."""
    return tuple(
        msgspec.structs.replace(item, kind=resource.kind, api_version=resource.api_version)
        for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS)
        for item in _list(client, resource, Workload)
    )


def _reservation(body: dict[str, Any]) -> Reservation:
    """Decode a Reservation; an unreadable one loses its tasks, and its status if that is the fault."""
    reservation = Reservation.read(body)
    try:
        expires_at(reservation)
        for task in reservation.spec.tasks:
            effective_requests(task.template.spec)
    except InputError:
        return msgspec.structs.replace(reservation, spec=ReservationSpec(tasks=()))
    return reservation
