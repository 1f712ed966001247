"""Controllers and their pods, as the tests of owners need them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from berth_core import (
    Container,
    Namespace,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
    PodTemplate,
    ResourceRequirements,
)
from berth_core.snapshot import Snapshot
from berth_core.workloads import ControllerRevision, Workload, WorkloadSpec, WorkloadStatus
from berth_descheduler.framework.refusals import Refusal
from berth_descheduler.planner.evictability import Evictability
from builders import NOON, pod

API_VERSIONS = {
    "Job": "batch/v1",
    "ReplicationController": "v1",
    "Pod": "v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}


def reference(kind: str, name: str, *, uid: str | None = None, api_version: str = "") -> OwnerReference:
    uid = f"uid-{kind.lower()}-{name}" if uid is None else uid
    api_version = api_version or API_VERSIONS.get(kind, "apps/v1")
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=uid, controller=True)


def controller(
    kind: str,
    name: str,
    *,
    above: OwnerReference | None = None,
    deleted: str | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,  # noqa: ANN401 - fields of the spec
) -> Workload:
    return Workload(
        api_version=API_VERSIONS.get(kind, "apps/v1"),
        kind=kind,
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{kind.lower()}-{name}",
            owner_references=(above,) if above else (),
            deletion_timestamp=deleted,
        ),
        spec=WorkloadSpec(**spec),
        status=WorkloadStatus(**(status or {})),
    )


def pod_of(workload: Workload, name: str, *, finalizers: Sequence[str] = (), **rest: Any) -> Pod:  # noqa: ANN401 - as for `pod`
    owner = reference(workload.kind, workload.metadata.name)
    made = pod(name, **{"node": "node-a", "controller": owner, "termination_grace_period_seconds": 30, **rest})
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, finalizers=tuple(finalizers)))


def with_condition(placed: Pod, type_: str, *, since: str | None = None, reason: str = "") -> Pod:
    condition = PodCondition(type=type_, status="True", reason=reason, last_transition_time=since)
    others = tuple(other for other in placed.status.conditions if other.type != type_)
    return msgspec.structs.replace(
        placed, status=msgspec.structs.replace(placed.status, conditions=(*others, condition))
    )


def revision_of(stateful_set: Workload, name: str, kept: PodTemplate, *, uid: str | None = None) -> ControllerRevision:
    """Return what a StatefulSet's ControllerRevision keeps of a template."""
    uid = stateful_set.metadata.uid if uid is None else uid
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name=stateful_set.metadata.name, uid=uid)
    meta = ObjectMeta(name=name, namespace=stateful_set.metadata.namespace, owner_references=(owner,))
    body = {**msgspec.to_builtins(kept), "$patch": "replace"}
    return ControllerRevision(metadata=meta, revision=1, data={"spec": {"template": body}})


def container(name: str = "app", **amounts: str) -> Container:
    return Container(name=name, resources=ResourceRequirements(requests=amounts))


def template(*containers: Container, **spec: Any) -> PodTemplate:  # noqa: ANN401 - fields of the spec
    return PodTemplate(spec=PodSpec(containers=containers, **spec))


def with_spec(placed: Pod, **spec: Any) -> Pod:  # noqa: ANN401 - fields of the spec
    return msgspec.structs.replace(placed, spec=msgspec.structs.replace(placed.spec, **spec))


def refusals_of(
    asked: Pod,
    *workloads: Workload,
    others: Sequence[Pod] = (),
    namespaces: Sequence[Namespace] = (),
    now: datetime | None = NOON,
    **more: Any,  # noqa: ANN401 - fields of the snapshot
) -> tuple[Refusal, ...]:
    """What keeps a pod in a cluster of these objects."""
    snapshot = Snapshot(pods=(asked, *others), workloads=workloads, namespaces=tuple(namespaces), **more)
    return Evictability(snapshot, now=now).refusals(asked)
