"""What schedulers say of pods, and how a pod is led to its node."""

from berth_operator.schedulers.interface import Scheduler
from berth_operator.schedulers.kube_scheduler import KubeScheduler

SCHEDULER: Scheduler = KubeScheduler()
"""The one whose words all schedulers use that Berth knows: Volcano reports on pods as kube-scheduler does."""

__all__ = ["SCHEDULER", "KubeScheduler", "Scheduler"]
