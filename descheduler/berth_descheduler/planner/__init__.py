"""Plans moves: pure, without clock and I/O, deterministic for a snapshot and settings."""

from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage
from berth_descheduler.planner.planning import Plan, explain_kept_pods, measure_cluster, plan
from berth_descheduler.planner.problem import Quality
from berth_descheduler.planner.revalidation import Invalid, revalidate
from berth_descheduler.planner.rooms import RoomMade
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
    "explain_kept_pods",
    "measure_cluster",
    "plan",
    "revalidate",
]
