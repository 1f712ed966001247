"""Owns the picture of a cluster that the invariants speak about, and reading it.

It does not judge it.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from berth_core.clock import parse_timestamp
from berth_core.errors import InputError
from berth_core.expiry import expires_at
from berth_core.migration_plans import MigrationPlan
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.objects import Node, ObjectMeta, Pod
from berth_core.pod_requests import effective_requests
from berth_core.reservations import Reservation, ReservationSpec
from berth_core.workloads import Workload
from berth_kube.client import KubeClient
from berth_kube.decoding import T
from berth_kube.errors import NotFoundError
from berth_kube.leases import Lease
from berth_kube.resources import (
    JOBS,
    LEASES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    Resource,
)


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
    workloads: tuple[Workload, ...] = ()
    """ReplicaSets, StatefulSets and Jobs, each with its kind."""
    leases: tuple[Lease, ...] = ()
    """Those of Berth's own namespace."""
    own_namespace: str = DEFAULT_NAMESPACE

    @property
    def live_reservations(self) -> tuple[Reservation, ...]:
        """Return the Reservations that are neither finished nor being deleted."""
        return tuple(r for r in self.reservations if r.is_live)


def read_state(client: KubeClient, *, own_namespace: str = DEFAULT_NAMESPACE) -> ClusterState:
    """Read a live cluster; Berth's own kinds may be missing from it.

    Reservations are read first: what is there for one that ends meanwhile is not blamed on an older picture of it.
    """
    reservations = tuple(_reservation(body) for body in _list(client, RESERVATIONS, dict))
    return ClusterState(
        reservations=reservations,
        pods=_list(client, PODS, Pod),
        nodes=_list(client, NODES, Node),
        plans=_list(client, MIGRATION_PLANS, MigrationPlan),
        priority_classes=_list(client, PRIORITY_CLASSES, NamedObject),
        webhooks=_list(client, MUTATING_WEBHOOKS, NamedObject),
        workloads=_workloads(client) if reservations else (),
        leases=client.list(LEASES, namespace=own_namespace, type=Lease).items,
        own_namespace=own_namespace,
    )


def _list(client: KubeClient, resource: Resource, type_: type[T]) -> tuple[T, ...]:
    """Return all objects of a kind, none where the cluster does not know the kind."""
    try:
        return client.list(resource, type=type_).items
    except NotFoundError:
        return ()


def _workloads(client: KubeClient) -> tuple[Workload, ...]:
    """Return the workloads of all namespaces; the items of a list do not name their kind."""
    return tuple(
        msgspec.structs.replace(item, kind=resource.kind, api_version=resource.api_version)
        for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS)
        for item in _list(client, resource, Workload)
    )


def _reservation(body: dict[str, Any]) -> Reservation:
    """Decode a Reservation; one that cannot be read has no tasks, and no status if that is what does not fit."""
    found = Reservation.read(body)
    try:
        expires_at(found.spec, parse_timestamp(found.metadata.creation_timestamp or ""))
        for task in found.spec.tasks:
            effective_requests(task.template.spec)
    except InputError:
        return msgspec.structs.replace(found, spec=ReservationSpec(tasks=()))
    return found
