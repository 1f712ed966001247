"""kube-scheduler: its conditions on pods, and the node that it tries first.

It tries `status.nominatedNodeName` before all other nodes (KEP-1923), whoever wrote the field (`findNodesThatFitPod` in
`pkg/scheduler/schedule_one.go`).
"""

from typing import Any, Final

from berth_core import Pod
from berth_operator.schedulers.interface import Scheduler

_SCHEDULED: Final = "PodScheduled"
_GATED_REASON: Final = "SchedulingGated"
"""The reason of PodScheduled on a pod that was created with a gate. The API server writes it (KEP-3521), and it stays
when the gate is removed, until the scheduler has tried the pod."""
_PREEMPTED_REASON: Final = "PreemptionByScheduler"
"""The reason of DisruptionTarget on a pod that has to go for one of higher priority (KEP-3329)."""


class KubeScheduler:
    """Reads the conditions that kube-scheduler writes."""

    def is_untried(self, pod: Pod) -> bool:
        # A pod without a gate from its creation on has no such condition before its first scheduling cycle.
        reason = next((condition.reason for condition in pod.status.conditions if condition.type == _SCHEDULED), "")
        return not pod.spec.scheduling_gates and not pod.spec.node_name and reason in {"", _GATED_REASON}

    def is_refused(self, pod: Pod) -> bool:
        return pod.condition(_SCHEDULED) == "False"

    def why_refused(self, pod: Pod) -> str:
        return next(
            (
                condition.message
                for condition in pod.status.conditions
                if condition.type == _SCHEDULED and condition.message
            ),
            "",
        )

    def was_preempted(self, pod: Pod) -> bool:
        return pod.disruption is not None and pod.disruption.reason == _PREEMPTED_REASON

    def bound_at(self, pod: Pod) -> str | None:
        bound_times = (
            condition.last_transition_time
            for condition in pod.status.conditions
            if condition.type == _SCHEDULED and condition.status == "True"
        )
        return next(bound_times, None)

    def steer(self, node: str | None) -> dict[str, Any]:
        # A null takes the field away, in a merge patch as in a strategic one.
        return {"nominatedNodeName": node}

    def steered_to(self, pod: Pod) -> str:
        return pod.status.nominated_node_name


SCHEDULER: Final[Scheduler] = KubeScheduler()
"""Used for every scheduler that Berth knows: Volcano writes the same conditions, and honours the nomination, too."""
