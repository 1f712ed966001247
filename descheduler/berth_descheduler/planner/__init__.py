"""Plans moves from a snapshot and settings: deterministic, without clock and I/O."""

from berth_descheduler.planner.capacity_shapes import CapacityShape, read_shape, write_shape
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets, with_surges
from berth_descheduler.planner.disruption_cost import DISRUPTION_WEIGHTS
from berth_descheduler.planner.evictability import EVICT_ANNOTATION, NO_EVICTION_ANNOTATION
from berth_descheduler.planner.fragmentation import Fragmentation, NodeUsage, requested_share
from berth_descheduler.planner.gangs import Gangs, gangs_of
from berth_descheduler.planner.kept_pods import explain_kept_pods
from berth_descheduler.planner.owners import EVERY_OWNER, Owners, OwnersOfOwners
from berth_descheduler.planner.pending_pods import is_pending, nodes_for_waiting_pods, pods_losing_room
from berth_descheduler.planner.planning import (
    MoveWay,
    Plan,
    measure_cluster,
    plan,
    plan_surges,
    with_evictions_first,
    with_ways,
    without_surges,
)
from berth_descheduler.planner.problem import Problem, Proposal, Strategy, known_namespaces
from berth_descheduler.planner.quality import FragmentationChange, Prover, Quality
from berth_descheduler.planner.recorded_nodes import matches_record, read_record, record_nodes, resource_type_of
from berth_descheduler.planner.rooms import RoomMade
from berth_descheduler.planner.settings import (
    EvictableNamespaces,
    PlanLimits,
    PlannerSettings,
    PlanScope,
    RunSoFar,
    SearchSettings,
    Thresholds,
    WaveLimits,
    parse_percentage,
    plain_percentage,
)
from berth_descheduler.planner.simulation.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.simulation.pod_classes import odd_requests
from berth_descheduler.planner.simulation.state import State, Step
from berth_descheduler.planner.stranded_capacity import (
    CapacityReport,
    ResourceState,
    ShapeFit,
    StrandedPart,
    measure_nodes,
    report_capacity,
)
from berth_descheduler.planner.unreadable_objects import unreadable_of
from berth_descheduler.planner.workload_mix import WorkloadFit

__all__ = [
    "DISRUPTION_WEIGHTS",
    "EVERY_OWNER",
    "EVICT_ANNOTATION",
    "NO_EVICTION_ANNOTATION",
    "CapacityReport",
    "CapacityShape",
    "DisruptionBudgets",
    "EvictableNamespaces",
    "Fragmentation",
    "FragmentationChange",
    "Gangs",
    "MoveWay",
    "NodeIndex",
    "NodeUsage",
    "Owners",
    "OwnersOfOwners",
    "Plan",
    "PlanLimits",
    "PlanScope",
    "PlannerSettings",
    "PodIndex",
    "Problem",
    "Proposal",
    "Prover",
    "Quality",
    "ResourceState",
    "RoomMade",
    "RunSoFar",
    "SearchSettings",
    "ShapeFit",
    "State",
    "Step",
    "StrandedPart",
    "Strategy",
    "Thresholds",
    "WaveLimits",
    "WorkloadFit",
    "explain_kept_pods",
    "gangs_of",
    "is_pending",
    "known_namespaces",
    "matches_record",
    "measure_cluster",
    "measure_nodes",
    "nodes_for_waiting_pods",
    "odd_requests",
    "parse_percentage",
    "plain_percentage",
    "plan",
    "plan_surges",
    "pods_losing_room",
    "read_record",
    "read_shape",
    "record_nodes",
    "report_capacity",
    "requested_share",
    "resource_type_of",
    "unreadable_of",
    "with_evictions_first",
    "with_surges",
    "with_ways",
    "without_surges",
    "write_shape",
]
