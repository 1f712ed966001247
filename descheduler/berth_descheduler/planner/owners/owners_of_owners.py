"""Whether the owner of a pod's controller leaves the pod alone when it is evicted.

A Deployment does. Of an operator's own kind that is not known: it may restart all pods of its database, or move a
primary that was just handed over. Known harmless kinds are listed here; a policy names others.
"""

import re
from typing import Final

from berth_core import InputError, OwnerReference, Pod, Snapshot
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.owners.leader_worker_sets import LEADER_WORKER_SET
from berth_descheduler.planner.owners.makers import GroupKind, Makers

EVERY_OWNER: Final = "*"
"""The name that stands for all kinds."""

_KIND_AND_GROUP: Final = re.compile(r"[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")

HARMLESS_OWNERS: Final = frozenset(
    {
        "Deployment.apps",
        "CronJob.batch",
        "DeploymentConfig.apps.openshift.io",  # over ReplicationControllers, as a Deployment is over ReplicaSets
        "Rollout.argoproj.io",  # its own restart evicts pods, "allowing the ReplicaSet to replace the pod"
        "JobSet.jobset.x-k8s.io",  # its failure policy counts failed Jobs, not pods
        "ScaledJob.keda.sh",  # it makes Jobs, and leaves their pods to these
    }
)

_ANSWERED_ELSEWHERE: Final[frozenset[GroupKind]] = frozenset({LEADER_WORKER_SET, ("", "Pod")})
"""Groups of a LeaderWorkerSet have rules of their own."""


def read_owner_kinds(name: str, raw: object) -> frozenset[str]:
    """Return the kinds that stand above controllers, from a field of this name.

    Raises `InputError`, also for a kind without its group, which would never match.
    """
    values = [] if raw is None else raw
    if not isinstance(values, list | tuple):
        raise InputError(name, raw, "a list")
    for index, value in enumerate(values):
        if not isinstance(value, str) or not (value == EVERY_OWNER or _KIND_AND_GROUP.fullmatch(value)):
            expected = f"a kind with its API group, as Prometheus.monitoring.coreos.com, or {EVERY_OWNER}"
            raise InputError(f"{name}[{index}]", value, expected)
    return frozenset(values)


class OwnersOfOwners:
    """Answers for the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot, harmless: frozenset[str]) -> None:
        """`harmless` are further kinds, as `Kind.group`."""
        self._makers = Makers(snapshot)
        self._harmless = HARMLESS_OWNERS | harmless

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why a pod stays whose controller belongs to an object of an unknown kind."""
        maker = self._makers.maker(pod)
        above = maker.controller if maker is not None else None
        if maker is None or above is None or EVERY_OWNER in self._harmless:
            return None
        if _name_of_kind(above) in self._harmless or above.group_kind in _ANSWERED_ELSEWHERE:
            return None
        text = (
            f"its {maker.kind} {maker.metadata.name} belongs to the {above.kind} {above.name} of {above.api_version}, "
            f"and it is not known what that does when a pod is evicted"
        )
        return Refusal(RefusalReason.UNKNOWN_OWNER, text)


def _name_of_kind(owner: OwnerReference) -> str:
    group, kind = owner.group_kind
    return f"{kind}.{group}" if group else kind
