"""Finds what to move where: pure, without clock and I/O; the same snapshot and settings give the same plan."""

from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage
from berth_descheduler.planner.planning import Plan, measure_cluster, plan, why_pods_stay
from berth_descheduler.planner.problem import Quality, RoomMade
from berth_descheduler.planner.revalidation import Invalid, revalidate
from berth_descheduler.planner.settings import PlannerSettings, WaveLimits

__all__ = [
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
