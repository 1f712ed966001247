"""The cluster as the planner simulates it, with the scheduler's rules."""

from berth_descheduler.planner.simulation.cluster import (
    Cluster,
    KeptReadings,
    NodeIndex,
    PlacedPod,
    PodIndex,
    PodPresence,
)
from berth_descheduler.planner.simulation.domain_counts import Domain, DomainCounts
from berth_descheduler.planner.simulation.node_fit import NodeTies, node_part, node_refusal
from berth_descheduler.planner.simulation.pod_classes import ClassIndex, PodClass, PodClasses, odd_requests
from berth_descheduler.planner.simulation.protection import protected_amounts
from berth_descheduler.planner.simulation.state import State, Step
from berth_descheduler.planner.simulation.volumes import VolumeIndex

__all__ = [
    "ClassIndex",
    "Cluster",
    "Domain",
    "DomainCounts",
    "KeptReadings",
    "NodeIndex",
    "NodeTies",
    "PlacedPod",
    "PodClass",
    "PodClasses",
    "PodIndex",
    "PodPresence",
    "State",
    "Step",
    "VolumeIndex",
    "node_part",
    "node_refusal",
    "odd_requests",
    "protected_amounts",
]
