"""Objects that cannot be read: what depends on one stays where it is, and nothing else.

A budget keeps the pods of its namespace, for its selector may be what cannot be read; a controller, a claim, a class or
a group keeps its own pods, a namespace those within. A node of which a CSINode or an attachment cannot be read takes no
pods. An object without a readable name keeps all pods that it may be about.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from berth_core import (
    CSINode,
    Namespace,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodGroupWorkload,
    PriorityClass,
    Snapshot,
    StorageClass,
    VolcanoJob,
    VolumeAttachment,
    Workload,
    api_group,
    describe_unreadable,
    kind_of,
    volcano_group_of,
)
from berth_descheduler.framework import Refusal, RefusalReason

_Check: TypeAlias = Callable[[Pod], bool]
"""Whether an object decides about a pod."""


def unreadable_of(snapshot: Snapshot, type_: type[PriorityClass | StorageClass | Namespace], name: str) -> str:
    """Return why nothing is known of an object that policies name, "" if it is not one that cannot be read."""
    of_type = (item for item in snapshot.unreadable if isinstance(item, type_))
    return next((describe_unreadable(item) for item in of_type if item.metadata.name in {"", name}), "")


class UnreadableObjects:
    """Answers for the pods and nodes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._reader = _UnreadableObjects(snapshot) if snapshot.unreadable else None

    def refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return which unreadable objects keep a pod."""
        return () if self._reader is None else tuple(self._reader.refusals(pod))

    def why_no_target(self, node: Node) -> str:
        """Return which unreadable object keeps pods off a node, "" if none does."""
        return "" if self._reader is None else self._reader.why_no_target(node)


class _UnreadableObjects:
    """Answers for a snapshot with unreadable objects."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._claims = {
            (claim.metadata.namespace, claim.metadata.name): claim for claim in snapshot.persistent_volume_claims
        }
        self._behind = {
            (_group_and_kind(workload), workload.metadata.namespace, workload.metadata.name): reference
            for workload in snapshot.workloads
            for reference in workload.metadata.owner_references
            if reference.controller
        }
        self._keeping: list[tuple[_Check, Refusal]] = []
        self._closing: dict[str, str] = {}
        """By the node's name, "" for every node."""
        for unreadable in snapshot.unreadable:
            text = describe_unreadable(unreadable)
            if isinstance(unreadable, CSINode):
                self._closing[unreadable.metadata.name] = text
            elif isinstance(unreadable, VolumeAttachment) and unreadable.spec.node_name:
                self._closing[unreadable.spec.node_name] = text
            elif (check := self._check_of(unreadable)) is not None:
                self._keeping.append((check, Refusal(RefusalReason.UNREADABLE_OBJECT, text)))

    def refusals(self, pod: Pod) -> Iterator[Refusal]:
        return (refusal for decides, refusal in self._keeping if decides(pod))

    def why_no_target(self, node: Node) -> str:
        return self._closing.get(node.metadata.name) or self._closing.get("", "")

    def _check_of(self, unreadable: object) -> _Check | None:  # noqa: PLR0911 - one return for each kind
        """Return about which pods an object decides, None if about none that are moved."""
        match unreadable:
            case PodDisruptionBudget(metadata=meta):
                return lambda pod: _is_within(meta.namespace, pod)
            case Namespace(metadata=meta):
                return lambda pod: _is_within(meta.name, pod)
            case Workload(metadata=meta) | VolcanoJob(metadata=meta):
                return lambda pod: self._is_controlled(pod, _group_and_kind(unreadable), meta)
            case PodGroup(metadata=meta) | PodGroupWorkload(metadata=meta):
                return lambda pod: _is_of_group(pod, meta)
            case PersistentVolumeClaim(metadata=meta):
                return lambda pod: _is_within(meta.namespace, pod) and _is_any(meta.name, pod.claim_names)
            case PersistentVolume(metadata=meta):
                return lambda pod: _is_any(meta.name, (claim.spec.volume_name for claim in self._claims_of(pod)))
            case StorageClass(metadata=meta):
                return lambda pod: _is_any(meta.name, (claim.spec.storage_class_name for claim in self._claims_of(pod)))
            case VolumeAttachment():
                return lambda pod: any(pod.claim_names)
            case PriorityClass(metadata=meta):
                return lambda pod: _is_any(meta.name, (pod.spec.priority_class_name,))
            case _:
                return None

    def _is_controlled(self, pod: Pod, kind: tuple[str, str], meta: ObjectMeta) -> bool:
        """Return whether an object controls a pod, or the controller of its controller."""
        owner, namespace = pod.controller, pod.metadata.namespace
        above = None if owner is None else self._behind.get((owner.group_kind, namespace, owner.name))
        owner_names = [maker.name for maker in (owner, above) if maker is not None and maker.group_kind == kind]
        return _is_within(meta.namespace, pod) and _is_any(meta.name, owner_names)

    def _claims_of(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        claims = (self._claims.get((pod.metadata.namespace, name)) for name in pod.claim_names)
        return (claim for claim in claims if claim is not None)


def _group_and_kind(workload: Workload | VolcanoJob) -> tuple[str, str]:
    api_version, kind = kind_of(workload)
    return api_group(api_version), kind


def _is_within(namespace: str, pod: Pod) -> bool:
    """Return whether a pod is in a namespace; any may be in one that cannot be read."""
    return namespace in {"", pod.metadata.namespace}


def _is_any(name: str, named: Iterable[str]) -> bool:
    """Return whether a name is among others; one that cannot be read may be any of them."""
    return any(other_name and name in {"", other_name} for other_name in named)


def _is_of_group(pod: Pod, meta: ObjectMeta) -> bool:
    """Return whether a pod names a group."""
    spec = pod.spec
    group_names = (
        volcano_group_of(pod),
        spec.scheduling_group.pod_group_name if spec.scheduling_group else "",
        spec.workload_ref.name if spec.workload_ref else "",
    )
    return _is_within(meta.namespace, pod) and _is_any(meta.name, group_names)
