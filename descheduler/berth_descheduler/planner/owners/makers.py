"""The controllers that make evicted pods again, and the pods that each has.

A snapshot without any object of a kind was made without that kind, unless it says otherwise and has other controllers.
Controllers of a kind that the snapshot lacks keep no pod by being unknown, except Jobs.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from berth_core import OwnerReference, Pod, Snapshot, SnapshotKind, Workload, count
from berth_core.workloads import (
    DAEMON_SET_KIND,
    DEPLOYMENT_KIND,
    JOB_KIND,
    REPLICA_SET_KIND,
    REPLICATION_CONTROLLER_KIND,
    STATEFUL_SET_KIND,
)
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.gangs import VOLCANO_JOB_KIND

GroupKind: TypeAlias = tuple[str, str]
"""API group and kind; the core group is ""."""

MAKERS: Final = frozenset(
    {REPLICA_SET_KIND, STATEFUL_SET_KIND, REPLICATION_CONTROLLER_KIND, JOB_KIND, VOLCANO_JOB_KIND}
)

_KINDS: Final[Mapping[SnapshotKind, GroupKind]] = {
    SnapshotKind.REPLICA_SETS: REPLICA_SET_KIND,
    SnapshotKind.STATEFUL_SETS: STATEFUL_SET_KIND,
    SnapshotKind.DAEMON_SETS: DAEMON_SET_KIND,
    SnapshotKind.REPLICATION_CONTROLLERS: REPLICATION_CONTROLLER_KIND,
    SnapshotKind.DEPLOYMENTS: DEPLOYMENT_KIND,
    SnapshotKind.JOBS: JOB_KIND,
}
"""The controllers among the kinds that a caller may state."""


class Makers:
    """The controllers of one snapshot, which may say that it was made with a kind although it has none of it."""

    def __init__(self, snapshot: Snapshot, known_kinds: Collection[GroupKind] = ()) -> None:
        self._pods = snapshot.pods
        self._active: dict[tuple[str, str, str], int] = {}
        """Numbers of active pods, by controllers that were asked about."""

        self._workloads = {
            (*workload.group_kind, workload.metadata.namespace, workload.metadata.name): workload
            for workload in snapshot.workloads
        }
        self._known_kinds = {*known_kinds, *((group, kind) for group, kind, _, _ in self._workloads)}
        if self._known_kinds:  # instances without controllers are planned as clusters that have all kinds, too
            self._known_kinds.update(_KINDS[kind] for kind in snapshot.stated & _KINDS.keys())

    def maker(self, pod: Pod) -> Workload | None:
        """Return a pod's controller, None where the snapshot lacks it or has another one under its name."""
        return None if (owner := pod.controller) is None else self.referred(pod.metadata.namespace, owner)

    def referred(self, namespace: str, owner: OwnerReference) -> Workload | None:
        """Return the workload that a reference means, None where the snapshot lacks it."""
        workload = self._workloads.get((*owner.group_kind, namespace, owner.name))
        if workload is None or (owner.uid and workload.metadata.uid and workload.metadata.uid != owner.uid):
            return None
        return workload

    def knows(self, kind: GroupKind) -> bool:
        """Return whether the snapshot was made with a kind."""
        return kind in self._known_kinds

    def pods_of(self, pod: Pod) -> Sequence[Pod]:
        """Return all pods of a pod's controller, whatever their state, the pod among them."""
        return self._pods_by_maker.get(_maker_key(pod), ())

    def active_pods(self, pod: Pod) -> int:
        """Return how many pods of a pod's controller have neither ended nor begun to be deleted."""
        key = _maker_key(pod)
        if key not in self._active:
            siblings = self._pods_by_maker.get(key, ())
            self._active[key] = sum(not sibling.is_terminal and not sibling.is_terminating for sibling in siblings)
        return self._active[key]

    @cached_property
    def _pods_by_maker(self) -> Mapping[tuple[str, str, str], Sequence[Pod]]:
        pods_by_maker: defaultdict[tuple[str, str, str], list[Pod]] = defaultdict(list)
        for pod in self._pods:
            if (owner := pod.controller) is not None:
                pods_by_maker[_key(pod, owner)].append(pod)
        return pods_by_maker


def unmade_refusal(pod: Pod) -> Refusal | None:
    """Return why no controller of a known kind would make a pod again."""
    owner = pod.controller
    if owner is None:
        return Refusal(RefusalReason.NO_CONTROLLER, "no controller would make the pod again")
    if owner.group_kind in MAKERS:
        return None
    text = f"a {owner.kind} of {owner.api_version} is not known to make its pods again"
    return Refusal(RefusalReason.UNKNOWN_CONTROLLER, text)


def shrinking_refusal(pod: Pod, workload: Workload, active_pods: int) -> Refusal | None:
    """Return why a controller makes no pod for one that goes: it ends, or has more pods than it wants."""
    name = f"{workload.kind} {workload.metadata.name}"
    if workload.metadata.deletion_timestamp is not None or workload.spec.suspend:
        return Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, f"its {name} is being deleted or is suspended")
    wanted = workload.spec.replicas
    if pod.is_daemon:  # a surge of its own may have more than it wants
        wanted = 0 if workload.status.desired_number_scheduled == 0 else None
    if workload.group_kind == STATEFUL_SET_KIND:  # its ordinals decide which pods it wants
        wanted = None
    if wanted is not None and wanted < active_pods:
        text = f"its {name} wants {count(wanted, 'pod')} and has {active_pods}, so it would not make the pod again"
        return Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, text)
    return None


def missing_refusal(owner: OwnerReference) -> Refusal:
    return Refusal(RefusalReason.UNKNOWN_CONTROLLER, f"its {owner.kind} {owner.name} is not in the snapshot")


def _maker_key(pod: Pod) -> tuple[str, str, str]:
    owner = pod.controller
    return _key(pod, owner) if owner else ("", "", "")


def _key(pod: Pod, owner: OwnerReference) -> tuple[str, str, str]:
    return pod.metadata.namespace, owner.kind, owner.uid or owner.name
