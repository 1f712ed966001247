"""Finds what to move where: pure, without clock and I/O; the same snapshot and settings give the same plan."""

from berth_descheduler.planner.deadlines import ClockDeadline
from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage
from berth_descheduler.planner.planning import Plan, measure_cluster, plan
from berth_descheduler.planner.quality import Quality, RoomMade
from berth_descheduler.planner.revalidation import Invalid, revalidate
from berth_descheduler.planner.settings import PlannerSettings, WaveLimits
from berth_descheduler.planner.why_pods_stay import why_pods_stay

__all__ = [
    "ClockDeadline",
    "Fragmentation",
    "Invalid",
    "NodeUsage",
    "Plan",
    "PlannerSettings",
    "Quality",
    "RoomMade",
    "WaveLimits",
    "measure_cluster",
    "plan",
    "revalidate",
    "why_pods_stay",
]
