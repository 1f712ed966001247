"""Reads what decides whether a pod's controller makes it again, right before the pod is evicted.

Three or four small requests for each eviction: the controller, the pods that its selector selects, the namespace, and
the LeaderWorkerSet of a pod that names one, or the revision from which a StatefulSet makes it. What the account may not
read is not known, as in a snapshot without it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from berth_core import (
    Clock,
    Namespace,
    Pod,
    Snapshot,
    VolcanoJob,
    Workload,
    format_selector,
)
from berth_core.labels import LEADER_WORKER_SET_LABEL
from berth_descheduler.migration.validation.live_reads import read_if_allowed
from berth_descheduler.planner import Owners
from berth_descheduler.planner.owners import GroupKind
from berth_descheduler.snapshots import read_revisions
from berth_kube import (
    JOBS,
    LEADER_WORKER_SETS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
    ForbiddenError,
    KubeClient,
    NotFoundError,
    Resource,
)

MAKERS: Final[Mapping[GroupKind, Resource]] = {
    (resource.group, resource.kind): resource
    for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS, REPLICATION_CONTROLLERS)
}
"""The controllers of Kubernetes that make their pods again, and are read for it."""


def read_owners(client: KubeClient, clock: Clock, pod: Pod) -> Owners:
    """Return the answers about one pod, by the objects as they are now; raises `KubeError`."""
    namespace, owner = pod.metadata.namespace, pod.controller
    fields: dict[str, Any] = {"namespaces": tuple(read_if_allowed(client, NAMESPACES, namespace, type_=Namespace))}
    kind = owner.group_kind if owner is not None else ("", "")
    resource = MAKERS.get(kind)
    if owner is None or resource is None:
        if owner is not None and kind == (VOLCANO_JOBS.group, VOLCANO_JOBS.kind):
            jobs = read_if_allowed(client, VOLCANO_JOBS, owner.name, namespace=namespace, type_=VolcanoJob)
            fields["volcano_jobs"] = tuple(jobs)
        return Owners(Snapshot(pods=(pod,), **fields), clock.now())
    try:
        maker = _read_workload(client, resource, owner.name, namespace)
    except NotFoundError:
        return Owners(Snapshot(pods=(pod,), **fields), clock.now(), known_kinds=(kind,))
    except ForbiddenError:
        return Owners(Snapshot(pods=(pod,), **fields), clock.now())
    fields["controller_revisions"] = tuple(read_revisions(client, (maker,)))
    workloads = (maker, *_leader_worker_set(client, pod))
    return Owners(Snapshot(pods=_pods_of(client, maker, namespace), workloads=workloads, **fields), clock.now())


def _read_workload(client: KubeClient, resource: Resource, name: str, namespace: str) -> Workload:
    """Return a workload with its kind, whether the answer says it or not."""
    workload = client.get(resource, name, namespace=namespace, type=Workload)
    return msgspec.structs.replace(workload, api_version=resource.api_version, kind=resource.kind)


def _leader_worker_set(client: KubeClient, pod: Pod) -> Iterator[Workload]:
    name = pod.metadata.labels.get(LEADER_WORKER_SET_LABEL)
    if name:
        with suppress(NotFoundError, ForbiddenError):
            yield _read_workload(client, LEADER_WORKER_SETS, name, pod.metadata.namespace)


def _pods_of(client: KubeClient, maker: Workload, namespace: str) -> tuple[Pod, ...]:
    """Return the pods that a controller may have, by its selector; a pod that it has let go counts to it no more.

    A ReplicationController's selector is read as one that selects every pod; the owner's uid sorts these out.
    """
    selector = format_selector(maker.spec.selector) if maker.spec.selector else ""
    return client.list(PODS, namespace=namespace, label_selector=selector, type=Pod).items
