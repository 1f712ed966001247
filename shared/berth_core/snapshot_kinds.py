"""Kinds of objects that a snapshot needs, by their kubectl names.

A file may name the kinds it was made of (`berth snapshot` does); else the kinds of its objects count. The need depends
on the pods: claims do not matter if no pod mounts one. All other kinds are missing, and a plan states its assumptions
without them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from berth_core.errors import InputError
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.objects.metadata import api_group
from berth_core.objects.pods import Pod
from berth_core.pod_groups import volcano_group_of

EVERYTHING: Final = "all"
"""In place of a list of kinds."""


class SnapshotKind(StrEnum):
    """A kind of objects that plans depend on; the value is its name for `kubectl get`."""

    NODES = "nodes"
    PODS = "pods"
    NAMESPACES = "namespaces"
    DISRUPTION_BUDGETS = "poddisruptionbudgets.policy"
    DEPLOYMENTS = "deployments.apps"
    REPLICA_SETS = "replicasets.apps"
    STATEFUL_SETS = "statefulsets.apps"
    DAEMON_SETS = "daemonsets.apps"
    CONTROLLER_REVISIONS = "controllerrevisions.apps"
    JOBS = "jobs.batch"
    REPLICATION_CONTROLLERS = "replicationcontrollers"
    SERVICES = "services"
    AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
    QUOTAS = "resourcequotas"
    CLAIMS = "persistentvolumeclaims"
    VOLUMES = "persistentvolumes"
    STORAGE_CLASSES = "storageclasses.storage.k8s.io"
    CSI_NODES = "csinodes.storage.k8s.io"
    VOLUME_ATTACHMENTS = "volumeattachments.storage.k8s.io"
    PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
    RESERVATIONS = "reservations.batch.volcano.sh"
    VOLCANO_JOBS = "jobs.batch.volcano.sh"
    VOLCANO_POD_GROUPS = "podgroups.scheduling.volcano.sh"
    POD_GROUPS = "podgroups.scheduling.k8s.io"
    WORKLOADS = "workloads.scheduling.k8s.io"
    VOLCANO_QUEUES = "queues.scheduling.volcano.sh"
    QUEUES = "queues.berth.volcano.sh"
    KUEUE_LOCAL_QUEUES = "localqueues.kueue.x-k8s.io"

    @property
    def assumed(self) -> str:
        """Return what a plan assumes without the kind."""
        return _NEEDS[self].assumed


@dataclass(frozen=True, slots=True)
class _NeededKind:
    """The pods that need a kind, and the assumption without it."""

    group: str
    kind: str
    is_for: Callable[[Pod], bool]
    assumed: str


def _any_pod(_pod: Pod) -> bool:
    return True


def _mounts_a_claim(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)


def _made_by(kind: str, group: str) -> Callable[[Pod], bool]:
    def is_made_so(pod: Pod) -> bool:
        owner = pod.controller
        return owner is not None and owner.group_kind == (group, kind)

    return is_made_so


def _holds_a_place(pod: Pod) -> bool:
    return PLACEHOLDER_LABEL in pod.metadata.labels


def _selects_namespaces(pod: Pod) -> bool:
    terms = (*pod.spec.required_affinity, *pod.spec.required_anti_affinity)
    return any(term.namespace_selector is not None for term in terms)


def _no_pod(_pod: Pod) -> bool:
    return False


def _has_no_priority_value(pod: Pod) -> bool:
    return bool(pod.spec.priority_class_name) and pod.spec.priority is None


_WHOLE: Final = "that none of these is about to be scaled down or deleted"
_STAY: Final = "that pods with claims stay"
_GANGS: Final = "that pods of such groups stay"
_NO_SURGE: Final = "that no pod surges where a budget allows nothing"
_ATTACHED: Final = "that nodes take any number of volumes"

_NEEDS: Final[Mapping[SnapshotKind, _NeededKind]] = {
    SnapshotKind.NODES: _NeededKind("", "Node", _any_pod, "that there is no node"),
    SnapshotKind.PODS: _NeededKind("", "Pod", _any_pod, "that every node is empty"),
    SnapshotKind.NAMESPACES: _NeededKind(
        "", "Namespace", _selects_namespaces, "that a namespaceSelector may select any namespace"
    ),
    SnapshotKind.DISRUPTION_BUDGETS: _NeededKind(
        "policy", "PodDisruptionBudget", _any_pod, "that no budget forbids an eviction"
    ),
    SnapshotKind.DEPLOYMENTS: _NeededKind("apps", "Deployment", _no_pod, _NO_SURGE),
    SnapshotKind.REPLICA_SETS: _NeededKind("apps", "ReplicaSet", _made_by("ReplicaSet", "apps"), _WHOLE),
    SnapshotKind.STATEFUL_SETS: _NeededKind("apps", "StatefulSet", _made_by("StatefulSet", "apps"), _WHOLE),
    SnapshotKind.DAEMON_SETS: _NeededKind("apps", "DaemonSet", _no_pod, _NO_SURGE),
    SnapshotKind.CONTROLLER_REVISIONS: _NeededKind(
        "apps", "ControllerRevision", _no_pod, "that a StatefulSet's pods of another revision than their next stay"
    ),
    SnapshotKind.REPLICATION_CONTROLLERS: _NeededKind("", "ReplicationController", _no_pod, _NO_SURGE),
    SnapshotKind.SERVICES: _NeededKind("", "Service", _no_pod, _NO_SURGE),
    SnapshotKind.AUTOSCALERS: _NeededKind("autoscaling", "HorizontalPodAutoscaler", _no_pod, _NO_SURGE),
    SnapshotKind.QUOTAS: _NeededKind("", "ResourceQuota", _no_pod, _NO_SURGE),
    SnapshotKind.JOBS: _NeededKind("batch", "Job", _made_by("Job", "batch"), "that pods of Jobs stay"),
    SnapshotKind.CLAIMS: _NeededKind("", "PersistentVolumeClaim", _mounts_a_claim, _STAY),
    SnapshotKind.VOLUMES: _NeededKind("", "PersistentVolume", _mounts_a_claim, _STAY),
    SnapshotKind.STORAGE_CLASSES: _NeededKind("storage.k8s.io", "StorageClass", _mounts_a_claim, _ATTACHED),
    SnapshotKind.CSI_NODES: _NeededKind("storage.k8s.io", "CSINode", _mounts_a_claim, _ATTACHED),
    SnapshotKind.VOLUME_ATTACHMENTS: _NeededKind("storage.k8s.io", "VolumeAttachment", _mounts_a_claim, _ATTACHED),
    SnapshotKind.PRIORITY_CLASSES: _NeededKind(
        "scheduling.k8s.io", "PriorityClass", _has_no_priority_value, "that such pods have the priority 0"
    ),
    SnapshotKind.RESERVATIONS: _NeededKind(
        "batch.volcano.sh", "Reservation", _holds_a_place, "that places are held by placeholders alone"
    ),
    SnapshotKind.VOLCANO_JOBS: _NeededKind(
        "batch.volcano.sh", "Job", _made_by("Job", "batch.volcano.sh"), "that pods of Volcano Jobs stay"
    ),
    SnapshotKind.VOLCANO_POD_GROUPS: _NeededKind(
        "scheduling.volcano.sh", "PodGroup", lambda pod: bool(volcano_group_of(pod)), _GANGS
    ),
    SnapshotKind.POD_GROUPS: _NeededKind(
        "scheduling.k8s.io", "PodGroup", lambda pod: pod.spec.scheduling_group is not None, _GANGS
    ),
    SnapshotKind.WORKLOADS: _NeededKind(
        "scheduling.k8s.io", "Workload", lambda pod: pod.spec.workload_ref is not None, _GANGS
    ),
    SnapshotKind.VOLCANO_QUEUES: _NeededKind(
        "scheduling.volcano.sh", "Queue", _no_pod, "that no queue of Volcano has a guarantee"
    ),
    SnapshotKind.QUEUES: _NeededKind("berth.volcano.sh", "Queue", _no_pod, "that no queue of Berth has a guarantee"),
    SnapshotKind.KUEUE_LOCAL_QUEUES: _NeededKind(
        "kueue.x-k8s.io", "LocalQueue", _no_pod, "that Kueue manages no namespace"
    ),
}
_ALWAYS: Final = frozenset({SnapshotKind.NODES, SnapshotKind.PODS})
_IF_ASKED: Final = (SnapshotKind.VOLCANO_QUEUES, SnapshotKind.QUEUES)
"""Kinds that matter for questions about them, and for no other plan."""
_FOR_QUEUES: Final = (SnapshotKind.NAMESPACES, SnapshotKind.KUEUE_LOCAL_QUEUES)
"""Kinds that say which pods are in Berth's queues."""
ONLY_FOR_SURGES: Final = frozenset(
    {
        SnapshotKind.DEPLOYMENTS,
        SnapshotKind.DAEMON_SETS,
        SnapshotKind.REPLICATION_CONTROLLERS,
        SnapshotKind.SERVICES,
        SnapshotKind.AUTOSCALERS,
        SnapshotKind.QUOTAS,
    }
)
"""Kinds that say only which pods can surge."""
_FOR_SURGES: Final = ONLY_FOR_SURGES | {
    SnapshotKind.DISRUPTION_BUDGETS,
    SnapshotKind.REPLICA_SETS,
    SnapshotKind.STATEFUL_SETS,
    SnapshotKind.JOBS,
    SnapshotKind.CLAIMS,
}
_CLUSTERS_MAY_LACK: Final = frozenset(
    {
        SnapshotKind.RESERVATIONS,
        SnapshotKind.VOLCANO_JOBS,
        SnapshotKind.VOLCANO_POD_GROUPS,
        SnapshotKind.POD_GROUPS,
        SnapshotKind.WORKLOADS,
        SnapshotKind.KUEUE_LOCAL_QUEUES,
        *_IF_ASKED,
    }
)


def parse_kinds(text: str) -> frozenset[SnapshotKind]:
    """Return the kinds of a comma-separated list, or all of them for `all`; raises `InputError`."""
    if text == EVERYTHING:
        return frozenset(SnapshotKind)
    names = [name.strip() for name in text.split(",")]
    known_names = set(SnapshotKind)
    unknown = [name for name in names if name not in known_names]
    if unknown:
        raise InputError("kinds", unknown[0], f"{EVERYTHING}, or some of {', '.join(SnapshotKind)}")
    return frozenset(map(SnapshotKind, names))


def known_kinds(names: Iterable[str]) -> frozenset[SnapshotKind]:
    """Return the kinds that a file names; unknown names, as of later versions, are skipped."""
    return frozenset(map(SnapshotKind, set(SnapshotKind).intersection(names)))


def missing_kinds(
    pods: Collection[Pod], present: Collection[tuple[str, str]], stated: Collection[SnapshotKind]
) -> tuple[SnapshotKind, ...]:
    """Return the kinds that a plan for pods needs and that are neither `present` nor `stated`.

    `present` are `apiVersion` and `kind` of the existing objects.
    """
    lacking_kinds = _lacking(present, stated)
    return tuple(kind for kind in lacking_kinds if kind in _ALWAYS or any(map(_NEEDS[kind].is_for, pods)))


def unread_kinds(present: Collection[tuple[str, str]], stated: Collection[SnapshotKind]) -> tuple[SnapshotKind, ...]:
    """Return the kinds that are neither `present` nor `stated` and matter only if queues are asked about."""
    lacking_kinds = _lacking(present, stated)
    has_queues = SnapshotKind.QUEUES not in lacking_kinds
    return tuple(kind for kind in lacking_kinds if kind in _IF_ASKED or (has_queues and kind in _FOR_QUEUES))


_DECIDE_SURGES: Final = frozenset((_NEEDS[kind].group, _NEEDS[kind].kind) for kind in _FOR_SURGES)


def is_for_surges(group: str, kind: str) -> bool:
    """Return whether objects of a kind decide which pods can surge."""
    return (group, kind) in _DECIDE_SURGES


def lacking_for_surges(
    present: Collection[tuple[str, str]], stated: Collection[SnapshotKind]
) -> tuple[SnapshotKind, ...]:
    """Return the kinds without which it is not known which pods can surge."""
    return tuple(kind for kind in _lacking(present, stated) if kind in ONLY_FOR_SURGES)


def _lacking(present: Collection[tuple[str, str]], stated: Collection[SnapshotKind]) -> tuple[SnapshotKind, ...]:
    held_kinds = {(api_group(api_version), kind) for api_version, kind in present}
    return tuple(
        kind for kind, need in _NEEDS.items() if kind not in stated and (need.group, need.kind) not in held_kinds
    )


def kubectl_command(missing: Collection[SnapshotKind]) -> str:
    """Return the kubectl command for all objects that plans need, for users to copy."""
    kinds = [kind for kind in SnapshotKind if kind in missing or kind not in _CLUSTERS_MAY_LACK]
    return f"kubectl get {','.join(kinds)} -A -o json | berth plan --snapshot - --snapshot-kinds {EVERYTHING}"
