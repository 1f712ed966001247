"""What schedulers say of pods, and how a pod is led to its node."""

from berth_operator.schedulers.interface import Scheduler
from berth_operator.schedulers.kube_scheduler import KubeScheduler
from berth_operator.schedulers.volcano import (
    LOOSENED,
    POD_GROUPS,
    build_pod_group,
    is_gang,
    join_pod_group,
    pod_group_name,
    scheduler_of,
)

SCHEDULER: Scheduler = KubeScheduler()
"""The one whose words all schedulers use that Berth knows: Volcano reports on pods as kube-scheduler does."""

__all__ = [
    "LOOSENED",
    "POD_GROUPS",
    "SCHEDULER",
    "KubeScheduler",
    "Scheduler",
    "build_pod_group",
    "is_gang",
    "join_pod_group",
    "pod_group_name",
    "scheduler_of",
]
