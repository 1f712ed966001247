"""Where the pods of a plan's moves are at its end, beside what the state of each move says."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from berth_core import MoveState, Pod
from berth_descheduler.migration.moves.memory import MoveMemory, OwnerKey
from berth_descheduler.migration.plans.watch import ObservedPlan, owner_key
from berth_descheduler.outcome import Whereabouts


def find_unplaced(
    moves: Sequence[MoveMemory], observed: ObservedPlan, *, since: str, moved_again: Collection[int] = ()
) -> Mapping[int, Whereabouts]:
    """Return the positions of moves whose pods have left and do not run now: in their stead one is pending, or none is.

    Pods that controllers have made `since` (RFC 3339) and that no move names stand for those that landed nowhere. Of
    moves whose pods the plan has `moved_again`, only the later one counts.
    """
    pods_by_name = {(pod.metadata.namespace, pod.metadata.name): pod for pod in observed.pods.values()}
    named = {(memory.move.namespace, memory.status.replacement) for memory in moves}
    planned_uids = {memory.move.pod_uid for memory in moves}
    unnamed_pods: defaultdict[OwnerKey, list[Pod]] = defaultdict(list)
    for pod in observed.pods.values():
        is_new = pod.metadata.uid not in planned_uids and (pod.metadata.creation_timestamp or "") >= since
        if is_new and _is_there(pod) and (pod.metadata.namespace, pod.metadata.name) not in named:
            unnamed_pods[owner_key(pod)].append(pod)
    for pods in unnamed_pods.values():  # the last is taken first: one with a node
        pods.sort(key=lambda pod: (bool(pod.spec.node_name), pod.key))
    unplaced: dict[int, Whereabouts] = {}
    for memory in moves:
        if memory.move.is_eviction or memory.index in moved_again or not _has_left(memory, observed):
            continue
        replacement = pods_by_name.get((memory.move.namespace, memory.status.replacement))
        if replacement is None or not _is_there(replacement):
            unnamed = unnamed_pods[memory.replicas]
            replacement = unnamed.pop() if unnamed else None
        if replacement is None:
            unplaced[memory.index] = Whereabouts.GONE
        elif not replacement.spec.node_name:
            unplaced[memory.index] = Whereabouts.PENDING
    return unplaced


def _has_left(memory: MoveMemory, observed: ObservedPlan) -> bool:
    """Return whether the pod of a move is gone, by the plan or while it was let go."""
    if memory.status.state in {MoveState.LANDED, MoveState.ELSEWHERE}:
        return bool(memory.status.replacement)
    pod = observed.pods.get(memory.move.pod_uid)
    is_on_source = pod is not None and not pod.is_terminal
    # A skipped move's pod may have left as well, but others did that, and their pods are none of the plan's.
    was_begun = memory.status.state is MoveState.FAILED or memory.surge.is_let_go
    return was_begun and not is_on_source


def _is_there(pod: Pod) -> bool:
    """Return whether a pod runs, may run yet, or has done what it was for."""
    return not pod.is_terminating and pod.status.phase != "Failed"
