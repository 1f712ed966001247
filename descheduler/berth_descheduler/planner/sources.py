"""Owns which nodes a plan may empty and from which it may take single pods, and why not the others.

It does not own the rules of one strategy: thresholds are `threshold`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from berth_core.clock import parse_timestamp
from berth_core.errors import InputError
from berth_core.labels import CRITICAL_NODE_LABEL, LAST_DEFRAGMENTED_ANNOTATION
from berth_core.objects import Node
from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.placements import node_refusal
from berth_descheduler.planner.problems import Problem
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.refusals import Refusal, RefusalReason


@dataclass(frozen=True)
class Sources:
    """The nodes that may be emptied, those from which pods may be taken, and why the others are left alone."""

    to_empty: tuple[NodeIndex, ...]
    pods_of: Mapping[NodeIndex, tuple[PodIndex, ...]]
    """The pods that have to leave each node that may be emptied."""

    to_take_from: tuple[NodeIndex, ...]
    """Nodes that may give single pods; those that may be emptied are among them."""

    empty: tuple[NodeIndex, ...]
    """Usable nodes with no pods but DaemonSet and mirror pods."""

    refusals: Mapping[NodeIndex, Refusal]


def find_sources(problem: Problem) -> Sources:
    """Return what may be emptied in a problem, and why not the rest."""
    refusals: dict[NodeIndex, Refusal] = {}
    pods_of: dict[NodeIndex, tuple[PodIndex, ...]] = {}
    to_take_from, empty = [], []
    for index, node in enumerate(problem.cluster.nodes):
        number = NodeIndex(index)
        unusable = node_refusal(problem.cluster, number)
        resting = unusable or resting_refusal(node, problem.settings)
        pods = problem.pods_to_move(number)
        if resting is None:
            to_take_from.append(number)
        if not pods and unusable is None:
            empty.append(number)
        refusal = resting or _why_not_emptied(problem, number, pods)
        if refusal is None:
            pods_of[number] = pods
        else:
            refusals[number] = refusal
    return Sources(tuple(pods_of), pods_of, tuple(to_take_from), tuple(empty), refusals)


def resting_refusal(node: Node, settings: PlannerSettings) -> Refusal | None:
    """Return why no pod is moved off a node that is well: it is critical, or was drained not long ago."""
    if node.metadata.labels.get(CRITICAL_NODE_LABEL) == "true":
        return Refusal(RefusalReason.CRITICAL_NODE, f"the node is labelled {CRITICAL_NODE_LABEL}=true")
    return cooling_refusal(node, settings)


def cooling_refusal(node: Node, settings: PlannerSettings) -> Refusal | None:
    """Return why a node is no source for some time after pods were moved off it."""
    now, cool_down = settings.now, settings.args.cool_down
    last = node.metadata.annotations.get(LAST_DEFRAGMENTED_ANNOTATION)
    if now is None or last is None or cool_down <= timedelta(0):
        return None
    try:
        over = now - parse_timestamp(last) >= cool_down  # this way round no time is too late to be added to
    except InputError:
        return Refusal(RefusalReason.COOLING_DOWN, f"{LAST_DEFRAGMENTED_ANNOTATION} is {last!r}, which is no time")
    return None if over else Refusal(RefusalReason.COOLING_DOWN, f"pods were moved off the node at {last}")


def _why_not_emptied(problem: Problem, node: NodeIndex, pods: tuple[PodIndex, ...]) -> Refusal | None:
    if not pods:
        return Refusal(RefusalReason.ALREADY_EMPTY, "nothing on the node has to be moved")
    return problem.drain_refusal(node)
