"""Reads what decides whether a pod's controller makes it again, right before the pod is evicted.

Each eviction takes a few small requests: for the controller, the Deployment behind it, the pods that the last of these
selects, the namespace, and for the LeaderWorkerSet that a pod names, or the revision from which a StatefulSet makes it.
What the account may not read counts as unknown, as in a snapshot without it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from berth_core import Clock, Namespace, Pod, Snapshot, VolcanoJob, Workload, format_selector
from berth_core.labels import LEADER_WORKER_SET_LABEL
from berth_descheduler.migration.validation.live_reads import read_if_allowed
from berth_descheduler.planner import Owners
from berth_descheduler.planner.owners import GroupKind
from berth_descheduler.snapshots import read_revisions
from berth_kube import (
    DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
    ForbiddenError,
    ListSource,
    NotFoundError,
    ReadCache,
    Resource,
)

MAKERS: Final[Mapping[GroupKind, Resource]] = {
    (resource.group, resource.kind): resource
    for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS, REPLICATION_CONTROLLERS)
}
"""The controllers of Kubernetes that make their pods again, and are read for it."""

_DEPLOYMENT: Final[GroupKind] = (DEPLOYMENTS.group, DEPLOYMENTS.kind)


def read_owners(reads: ReadCache, clock: Clock, pod: Pod) -> Owners:
    """Return the answers about one pod, by the objects as they are now; raises `KubeError`."""
    namespace, owner = pod.metadata.namespace, pod.controller
    fields: dict[str, Any] = {"namespaces": tuple(read_if_allowed(reads, NAMESPACES, namespace, type_=Namespace))}
    kind = owner.group_kind if owner is not None else ("", "")
    resource = MAKERS.get(kind)
    if owner is None or resource is None:
        if owner is not None and kind == (VOLCANO_JOBS.group, VOLCANO_JOBS.kind):
            jobs = read_if_allowed(reads, VOLCANO_JOBS, owner.name, namespace=namespace, type_=VolcanoJob)
            fields["volcano_jobs"] = tuple(jobs)
        return Owners(Snapshot(pods=(pod,), **fields), clock.now())
    try:
        maker = _read_workload(reads, resource, owner.name, namespace)
    except NotFoundError:
        # Its kind is known, so that an owner which is missing counts as gone and not as one that could not be read.
        return Owners(Snapshot(pods=(pod,), **fields), clock.now(), known_kinds=(kind,))
    except ForbiddenError:
        return Owners(Snapshot(pods=(pod,), **fields), clock.now())
    fields["controller_revisions"] = tuple(read_revisions(reads, (maker,)))
    controllers, known_kinds = [maker], []
    with suppress(ForbiddenError):
        controllers += _read_above(reads, maker)
        known_kinds.append(_DEPLOYMENT)  # one that is missing is gone
    workloads = (*controllers, *_leader_worker_set(reads, pod))
    snapshot = Snapshot(pods=_pods_of(reads, controllers[-1]), workloads=workloads, **fields)
    return Owners(snapshot, clock.now(), known_kinds=known_kinds)


def read_siblings(reads: ReadCache, pod: Pod) -> Snapshot:
    """Return a pod's controller, the Deployment behind it, and the pods that the last of these selects.

    Without a known controller that says how many pods it wants, the snapshot has the pod alone. Raises a `KubeError`.
    """
    owner = pod.controller
    resource = MAKERS.get(owner.group_kind) if owner is not None else None
    if owner is None or resource is None:
        return Snapshot(pods=(pod,))
    try:
        maker = _read_workload(reads, resource, owner.name, pod.metadata.namespace)
    except NotFoundError:
        return Snapshot(pods=(pod,))
    controllers = (maker, *_read_above(reads, maker))
    return Snapshot(pods=_pods_of(reads, controllers[-1]), workloads=controllers)


def _read_workload(source: ListSource, resource: Resource, name: str, namespace: str) -> Workload:
    """Return a workload with its kind, whether the answer says it or not."""
    workload = source.get(resource, name, namespace=namespace, type=Workload)
    return msgspec.structs.replace(workload, api_version=resource.api_version, kind=resource.kind)


def _read_above(source: ListSource, maker: Workload) -> tuple[Workload, ...]:
    """Return the Deployment of a ReplicaSet; () where it has none or that is gone."""
    above = maker.controller
    if above is None or above.group_kind != _DEPLOYMENT:
        return ()
    try:
        return (_read_workload(source, DEPLOYMENTS, above.name, maker.metadata.namespace),)
    except NotFoundError:
        return ()


def _leader_worker_set(source: ListSource, pod: Pod) -> Iterator[Workload]:
    name = pod.metadata.labels.get(LEADER_WORKER_SET_LABEL)
    if name:
        with suppress(NotFoundError, ForbiddenError):
            yield _read_workload(source, LEADER_WORKER_SETS, name, pod.metadata.namespace)


def _pods_of(reads: ReadCache, controller: Workload) -> tuple[Pod, ...]:
    """Return the pods that a controller may have, by its selector; a pod that it has let go is not among them.

    A ReplicationController's selector is decoded as one that selects every pod; the owner's uid sorts these out, as it
    does where all pods of the namespace have been read already.
    """
    namespace, selector = controller.metadata.namespace, controller.spec.selector
    if selector is None or reads.has_all(PODS, namespace=namespace, type=Pod):
        return reads.list(PODS, namespace=namespace, type=Pod).items
    return reads.list(PODS, namespace=namespace, label_selector=format_selector(selector), type=Pod).items
