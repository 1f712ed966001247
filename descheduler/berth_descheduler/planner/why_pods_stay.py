"""Owns the reason of every single pod that a plan leaves where it is.

It does not own the reasons that the plan itself carries: those of nodes, and of the pods that keep them so.

A plan names a pod only where that says more than the reason of its node, as there may be hundreds of thousands. Here
each of them gets one: its own where it may not be moved or found no target, else that of its node.
"""

from collections.abc import Iterator, Mapping

from berth_core.snapshot import Snapshot
from berth_descheduler.planner.cluster import PodIndex
from berth_descheduler.planner.planning import Plan
from berth_descheduler.planner.problems import Problem
from berth_descheduler.refusals import Refusal, RefusalReason, Refused, RefusedKind

_NOT_NEEDED = Refusal(RefusalReason.NOT_NEEDED, "nothing that the plan is for is in need of its place")


def why_pods_stay(snapshot: Snapshot, plan: Plan) -> tuple[Refused, ...]:
    """Return for each pod that holds a place and is not moved why it stays; `plan` was made from the snapshot."""
    problem = Problem.from_snapshot(snapshot, plan.settings)
    named = {(one.namespace, one.name): one for one in plan.refused if one.kind is RefusedKind.POD and one.node}
    of_nodes = {one.node: one for one in plan.refused if one.kind is RefusedKind.NODE}
    moved = {(move.namespace, move.pod) for move in plan.moves}
    return tuple(sorted(_reasons(problem, moved, named, of_nodes)))


def _reasons(
    problem: Problem,
    moved: set[tuple[str, str]],
    named: Mapping[tuple[str, str], Refused],
    of_nodes: Mapping[str, Refused],
) -> Iterator[Refused]:
    in_snapshot = {pod.key for pod in problem.cluster.snapshot.pods}
    for index, placed in enumerate(problem.cluster.pods):
        meta, node = placed.pod.metadata, problem.cluster.node_name(placed.node)
        key = meta.namespace, meta.name
        if key in moved or placed.pod.key not in in_snapshot:
            continue
        own = problem.pod_refusals.get(PodIndex(index))
        if key in named and own is None:
            yield named[key]
        else:
            yield Refused.of_pod(node, *key, own or _with_its_node(of_nodes.get(node)))
    yield from (named[pod.metadata.namespace, pod.metadata.name] for pod in problem.cluster.strays)


def _with_its_node(why: Refused | None) -> Refusal:
    if why is None:
        return _NOT_NEEDED
    return Refusal(
        why.reason,
        f"{why.node} is not emptied: {why.message}",
        constraint=why.constraint,
        resource=why.resource,
        blocking_pod=why.blocking_pod,
    )
