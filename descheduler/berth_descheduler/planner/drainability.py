"""Whether a node may be drained, and why not.

A node is left alone if it gives and takes nothing (`node_refusal`), if no pod may leave it for now (`source_refusal`),
or if a pod on it has to stay (`holding_refusal`). What no plan can empty for lack of room is the solver's to prove.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from berth_core import CRITICAL_NODE_LABEL, LAST_DEFRAGMENTED_ANNOTATION, InputError, Node, parse_timestamp
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, PodPresence, node_refusal


@dataclass(frozen=True)
class Sources:
    """The nodes to drain, the nodes to take pods from, and refusals.

    The refusals are those of the nodes that may not be drained.
    """

    to_empty: tuple[NodeIndex, ...]
    pods_of: Mapping[NodeIndex, tuple[PodIndex, ...]]
    """The pods that have to leave each node that may be emptied."""

    to_take_from: tuple[NodeIndex, ...]
    """Nodes that may give single pods; those that may be emptied are among them."""

    empty: tuple[NodeIndex, ...]
    """Usable nodes with no pods but DaemonSet and mirror pods."""

    refusals: Mapping[NodeIndex, Refusal]


def find_sources(problem: Problem) -> Sources:
    """Return which nodes may be drained, and why not the others."""
    refusals: dict[NodeIndex, Refusal] = {}
    pods_of: dict[NodeIndex, tuple[PodIndex, ...]] = {}
    to_take_from, empty = [], []
    for number in map(NodeIndex, range(len(problem.cluster.nodes))):
        unusable = node_refusal(problem.cluster, number)
        untouchable = unusable or source_refusal(problem, number)
        pods = problem.pods_to_move(number)
        if untouchable is None:
            to_take_from.append(number)
        if not pods and unusable is None:
            empty.append(number)
        refusal = untouchable or _emptying_refusal(problem, number)
        if refusal is None:
            pods_of[number] = pods
        else:
            refusals[number] = refusal
    return Sources(tuple(pods_of), pods_of, tuple(to_take_from), tuple(empty), refusals)


def source_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return why no pod may leave a usable node.

    It is critical, or in its cool-down; else None.
    """
    found = problem.cluster.nodes[node]
    if found.metadata.labels.get(CRITICAL_NODE_LABEL) == "true":
        return Refusal(RefusalReason.CRITICAL_NODE, f"the node is labelled {CRITICAL_NODE_LABEL}=true")
    return _cooldown_refusal(found, problem.settings)


def drain_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return why a node cannot be drained, whatever room there is elsewhere.

    None for a usable node with no pods to move.
    """
    refusal = node_refusal(problem.cluster, node) or holding_refusal(problem, node)
    return refusal or _limit_refusal(problem, len(problem.pods_to_move(node)))


def holding_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return which pod must stay on a node or will come.

    The first one, as a refusal; None if there is none.
    """
    cluster, pods = problem.cluster, problem.pods_to_move(node)
    expected = [pod for pod in pods if cluster.pods[pod].presence is PodPresence.EXPECTED]
    if expected:
        name = cluster.pods[expected[0]].pod.key
        return Refusal(RefusalReason.EXPECTS_PODS, f"{name} is about to come to the node", blocking_pod=name)
    blocked = [pod for pod in pods if pod in problem.pod_refusals]
    if not blocked:
        return None
    first = problem.pod_refusals[blocked[0]]
    count = f"{len(blocked)} pod{'s' if len(blocked) > 1 else ''} may not be moved"
    name = cluster.pods[blocked[0]].pod.key
    return Refusal(
        RefusalReason.HOLDS_IMMOVABLE_PODS,
        f"{count}, such as {name}: {first.sentences}",
        constraint=first.reason,
        blocking_pod=name,
    )


def _emptying_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    if not problem.pods_to_move(node):
        return Refusal(RefusalReason.ALREADY_EMPTY, "nothing on the node has to be moved")
    return drain_refusal(problem, node)


def _limit_refusal(problem: Problem, pods: int) -> Refusal | None:
    most = problem.settings.max_moves_per_node
    if most is None or pods <= most:
        return None
    return Refusal(RefusalReason.NODE_LIMIT, f"{pods} moves are needed, and at most {most} are allowed off a node")


def _cooldown_refusal(node: Node, settings: PlannerSettings) -> Refusal | None:
    now, cool_down = settings.now, settings.cool_down
    last = node.metadata.annotations.get(LAST_DEFRAGMENTED_ANNOTATION)
    if now is None or last is None or cool_down <= timedelta(0):
        return None
    try:
        over = now - parse_timestamp(last) >= cool_down  # this way round no time is too late to be added to
    except InputError:
        return Refusal(RefusalReason.COOLING_DOWN, f"{LAST_DEFRAGMENTED_ANNOTATION} is {last!r}, which is no time")
    return None if over else Refusal(RefusalReason.COOLING_DOWN, f"pods were moved off the node at {last}")
