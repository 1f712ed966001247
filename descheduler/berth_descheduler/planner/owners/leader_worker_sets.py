"""Groups of a LeaderWorkerSet, which start again as a whole when one of their pods goes.

Its StatefulSet makes the leaders, and each leader owns a StatefulSet of its workers
(sigs.k8s.io/lws, pkg/controllers/pod_controller.go, `handleRestartPolicy`). A worker that goes takes its leader along,
unless the restart policy is None; a leader that goes takes its workers along whatever the policy, for these belong to
it and are collected.
"""

from typing import Final

from berth_core import Pod, Snapshot, Workload
from berth_core.labels import LEADER_WORKER_SET_LABEL
from berth_descheduler.framework import Refusal, RefusalReason

LEADER_WORKER_SET: Final = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
_POD: Final = ("", "Pod")
_WORKER_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"
_LEADER: Final = "0"
_ALONE: Final = "1"
_SPARING: Final = frozenset({"None", "Default"})
"""Restart policies that do not restart the group; Default is the older name of None."""


class LeaderWorkerSets:
    """Answers for the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._policies = {
            (workload.metadata.namespace, workload.metadata.name): _policy_of(workload)
            for workload in snapshot.workloads
            if workload.group_kind == LEADER_WORKER_SET
        }

    def refusal(self, pod: Pod, maker: Workload | None) -> Refusal | None:
        """Return why evicting a pod would restart its group; `maker` is its StatefulSet, if that is known."""
        above = maker.controller if maker is not None else None
        is_worker = above is not None and above.group_kind == _POD
        name = pod.metadata.labels.get(LEADER_WORKER_SET_LABEL, "")
        if above is not None and above.group_kind == LEADER_WORKER_SET:
            name = above.name
        if not (name or is_worker) or pod.metadata.annotations.get(_SIZE_ANNOTATION) == _ALONE:
            return None
        title = f"LeaderWorkerSet {name}" if name else f"group of the pod {above.name if above else ''}"
        if not is_worker and pod.metadata.labels.get(_WORKER_LABEL, _LEADER) == _LEADER:
            text = f"it leads a group of its {title}, whose workers belong to it and go with it"
            return Refusal(RefusalReason.GANG_WOULD_RESTART, text)
        policy = self._policies.get((pod.metadata.namespace, name))
        if policy in _SPARING:
            return None
        known = f"by its restartPolicy {policy}" if policy else "unless its restartPolicy is None, which is not known"
        return Refusal(RefusalReason.GANG_WOULD_RESTART, f"its {title} restarts the whole group {known}")


def _policy_of(leader_worker_set: Workload) -> str:
    """Return the restart policy, by default RecreateGroupOnPodRestart."""
    template = leader_worker_set.spec.leader_worker_template
    return (template.restart_policy if template else "") or "RecreateGroupOnPodRestart"
