"""Why each pod that a plan does not move stays where it is.

A plan names a pod only if its reason adds to that of its node, as there may be hundreds of thousands. Here each pod
gets a reason: its own if it may not be moved or found no target, else that of its node.
"""

from collections.abc import Iterator, Mapping

from berth_core import Snapshot
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused, RefusedKind
from berth_descheduler.planner.planning import Plan
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import PodIndex

_NOT_NEEDED = Refusal(RefusalReason.NOT_NEEDED, "nothing that the plan is for is in need of its place")


def explain_kept_pods(snapshot: Snapshot, plan: Plan) -> tuple[Refused, ...]:
    """Return why each unmoved pod on a node stays; `plan` was made from the snapshot."""
    problem = Problem.from_snapshot(snapshot, plan.settings)
    pod_refusals = {
        (refused_pod.namespace, refused_pod.name): refused_pod
        for refused_pod in plan.refused
        if refused_pod.kind is RefusedKind.POD and refused_pod.node
    }
    of_nodes = {
        refused_node.node: refused_node for refused_node in plan.refused if refused_node.kind is RefusedKind.NODE
    }
    moved_keys = {(move.namespace, move.pod) for move in plan.moves}
    return tuple(sorted(_reasons(problem, moved_keys, pod_refusals, of_nodes)))


def _reasons(
    problem: Problem,
    moved: set[tuple[str, str]],
    named: Mapping[tuple[str, str], Refused],
    of_nodes: Mapping[str, Refused],
) -> Iterator[Refused]:
    in_snapshot = {pod.key for pod in problem.cluster.snapshot.pods}
    for index, placed_pod in enumerate(problem.cluster.pods):
        meta, node = placed_pod.pod.metadata, problem.cluster.node_name(placed_pod.node)
        key = meta.namespace, meta.name
        if key in moved or placed_pod.pod.key not in in_snapshot:
            continue
        pod_refusal = problem.pod_refusals.get(PodIndex(index))
        if key in named and pod_refusal is None:
            yield named[key]
        else:
            yield Refused.of_pod(node, *key, pod_refusal or _with_its_node(of_nodes.get(node)))
    yield from (named[pod.metadata.namespace, pod.metadata.name] for pod in problem.cluster.on_unknown_nodes)


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
