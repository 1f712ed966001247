"""Makes room for pods that are not preemptable by moving preemptable pods, to open lent nodes where possible."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from berth_core import LENT_NODES, RESERVATION_LABEL, Pod, Snapshot, closed_lent_nodes, group_key, is_preemptable
from berth_descheduler.capabilities.lent_nodes.jobs import (
    JobOnLentNodes,
    groups_by_key,
    jobs_on_lent_nodes,
    preemptable_groups_in,
)
from berth_descheduler.capabilities.lent_nodes.room_by_eviction import with_evictions
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner import (
    EvictableNamespaces,
    NodeIndex,
    PodIndex,
    Problem,
    Proposal,
    State,
    Step,
    Strategy,
    is_pending,
    odd_requests,
)

_NOT_PREEMPTABLE: Final = Refusal(RefusalReason.REFUSED_BY_PLUGIN, f"{LENT_NODES}: the pod is not preemptable")
_LENT_ALREADY: Final = Refusal(RefusalReason.REFUSED_BY_PLUGIN, f"{LENT_NODES}: the pod is on a lent node")


@dataclass(frozen=True, slots=True)
class RoomForOthers:
    """A strategy that lets `MakeRoom` move preemptable pods only."""

    make_room: Strategy
    namespaces: EvictableNamespaces
    evicts: bool = False
    """Whether preemptable pods are evicted without a target where no moves make room for others."""

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the unschedulable pods, except preemptable ones: those may use lent nodes themselves."""
        groups = preemptable_groups_in(snapshot)
        return tuple(
            pod
            for pod in snapshot.pods
            if is_pending(pod)
            # A pod that no scheduler has tried yet may fit without any move.
            and pod.is_unschedulable
            and not (pod.status.nominated_node_name or RESERVATION_LABEL in pod.metadata.labels)
            and self.namespaces.allows(pod.metadata.namespace)
            and not is_preemptable(pod, groups)
            and not odd_requests(pod)
        )

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be moved."""
        lent = problem.cluster.lent
        # Pods on lent nodes are where they do not stand in the way of others; when they have to leave is up to
        # `deschedule`.
        return tuple(node for node in self.make_room.possible_sources(problem) if node not in lent)

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the fewest moves that make room, with targets on open lent nodes where those admit the pods."""
        if problem.cluster.waiting_node is None:
            return Proposal((), ())
        groups = preemptable_groups_in(problem.cluster.snapshot)
        staying_pods = {
            PodIndex(index): _LENT_ALREADY if placed.node in problem.cluster.lent else _NOT_PREEMPTABLE
            for index, placed in enumerate(problem.cluster.pods)
            if placed.node in problem.cluster.lent or not is_preemptable(placed.pod, groups)
            if placed.node != problem.cluster.waiting_node
        }
        before = state.mark()
        problem = problem.keeping(staying_pods)
        room_proposal = self.make_room.propose(problem, state)
        # `MakeRoom` left its steps in the state; they are made again, where possible with lent nodes as targets.
        state.undo_to(before)
        moves_only = replace(room_proposal, steps=_to_lent_nodes(state, room_proposal.steps))
        if not self.evicts:
            return moves_only
        return with_evictions(problem, state, moves_only, _spare_by_job(problem))


def _spare_by_job(problem: Problem) -> dict[str, int]:
    """Return how many pods may leave now, by job."""
    snapshot, settings = problem.cluster.snapshot, problem.settings
    closed = closed_lent_nodes(snapshot.nodes, snapshot.pods, settings.scope.own_namespace)
    groups = groups_by_key(snapshot)
    return {
        job: JobOnLentNodes(members, groups.get(group_key(members[0])), closed, settings.run.now).spare()
        for job, members in jobs_on_lent_nodes(snapshot).items()
    }


def _to_lent_nodes(state: State, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Make the steps in the state, each to a lent node if one admits the pod, and return them.

    If a later step becomes impossible, all steps are made with their original targets.
    """
    lent = [node for node, is_open in state.cluster.lent.items() if is_open]
    moves = Counter(step.pod for step in steps)
    steps_before = state.mark()
    for step in steps:
        # A pod that moves more than once keeps its targets: later steps start from them.
        open_nodes = lent if moves[step.pod] == 1 else []
        target = next(
            (target_node for target_node in (*open_nodes, step.target) if state.refusal(step.pod, target_node) is None),
            None,
        )
        if target is None:
            state.undo_to(steps_before)
            for planned_step in steps:
                state.move(planned_step.pod, planned_step.target)
            break
        state.move(step.pod, target)
    return state.steps[steps_before:]
