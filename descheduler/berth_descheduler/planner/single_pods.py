"""The moves of single pods that deschedule plugins name: which are made, where to, and why not the others.

Each pod goes to the fullest node that takes it, by the rules by which every other move is made, in the order in which
the pods are named. It counts as moved for what is planned afterwards, and is not moved a second time by the same plan.
A pod that no node takes is evicted without a target if its plugin asks for that and a rule lets it go.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from msgspec.structs import replace as with_fields

from berth_core import Pod, Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner.explanations import Blockers, NodeRefusalSummary
from berth_descheduler.planner.problem import Problem, Proposal, Wishes, source_refusal
from berth_descheduler.planner.settings import EvictableNamespaces, PlannerSettings
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State, Step

Named = Sequence[Enabled[Candidate]]

_NOT_AMONG_THEM = Refusal(RefusalReason.NODE_NOT_SELECTED, "is none of the nodes that the plugin names")


def name_pods(snapshot: Snapshot, settings: PlannerSettings) -> Named:
    """Return the pods that plugins want elsewhere, each with its plugin; raises `PluginError`."""
    run = settings.run
    own_namespace = settings.scope.own_namespace
    return settings.plugins.candidates(
        ClusterView.of(snapshot, run.now, own_namespace, failed=run.failed, of_others=run.of_others)
    )


def propose_for_named(problem: Problem, named: Named) -> tuple[Proposal, State]:
    """Return the moves of the named pods, and the state afterwards."""
    run = _SinglePodsRun(problem, named)
    return run.propose(), run.state


def problem_after(problem: Problem, proposal: Proposal, waiting: Sequence[Pod]) -> Problem:
    """Return the problem after some moves and evictions, whose pods then stay."""
    cluster, steps = problem.cluster, proposal.steps
    moves_taken = len(steps) + len(proposal.evictions)
    targets = {cluster.pods[step.pod].pod.key: cluster.node_name(step.target) for step in steps}
    pods = tuple(_on_node(pod, targets.get(pod.key)) for pod in cluster.snapshot.pods)
    max_moves = problem.settings.limits.max_moves
    settings = problem.settings if max_moves is None else problem.settings.within(max(0, max_moves - moves_taken))
    later_problem = Problem.from_snapshot(replace(cluster.snapshot, pods=pods), settings, waiting)
    moved_already = Refusal(RefusalReason.MOVED_ALREADY, "this plan brings it to its node")
    evicted = Refusal(RefusalReason.MOVED_ALREADY, "this plan evicts it")
    kept = {**{step.pod: moved_already for step in steps}, **{step.pod: evicted for step in proposal.evictions}}
    return later_problem.keeping({**problem.kept, **kept}).wishing(problem.wishes)


def for_single_pods(problem: Problem) -> Problem:
    """Return the problem without what its balance plugin asks of namespaces."""
    scope = replace(problem.settings.scope, evictable_namespaces=EvictableNamespaces())
    settings = replace(problem.settings, scope=scope)
    problem_of_pods = Problem.from_snapshot(problem.cluster.snapshot, settings).keeping(problem.kept)
    return problem_of_pods.wishing(Wishes(problem.wishes.are_heeded))  # a pod that a plugin names leaves every node


def _on_node(pod: Pod, node: str | None) -> Pod:
    return pod if node is None else with_fields(pod, spec=with_fields(pod.spec, node_name=node))


class _SinglePodsRun:
    """One choice of targets over a state that it changes."""

    def __init__(self, problem: Problem, named: Named) -> None:
        self._problem = for_single_pods(problem)
        self._named = named
        self.state = State(self._problem.cluster)
        self._refused: list[Refused] = []
        self._evictions: list[Step] = []
        self._reasons: dict[PodIndex, str] = {}

    def propose(self) -> Proposal:
        """Return the moves, and why other named pods do not move."""
        for named_pod in self._named:
            candidate = named_pod.plugin
            pod = self._problem.cluster.pod_numbers.get((candidate.namespace, candidate.name))
            refusal = self._unknown(named_pod) if pod is None else self._refusal(pod)
            if pod is not None and refusal is None:
                refusal = self._move(pod, candidate)
                if refusal is not None and candidate.or_evict:
                    refusal = self._evict(pod, refusal)
            if refusal is None and pod is not None:
                is_tried = candidate.nodes is None and pod in {step.pod for step in self._evictions}
                no_target_note = "; no other node takes it" if is_tried else ""
                self._reasons[pod] = f"{named_pod.name}: {candidate.reason}{no_target_note}"
            elif refusal is not None:
                self._refuse(named_pod, pod, refusal)
        refusals = tuple(sorted(self._refused))
        return Proposal(self.state.steps, refusals, evictions=tuple(self._evictions), reasons=self._reasons)

    def _move(self, pod: PodIndex, candidate: Candidate) -> Refusal | None:
        """Move a pod to the fullest node that takes it; return why none does, None if it is moved."""
        refusing = NodeRefusalSummary(pod)
        is_tried = candidate.nodes is None or bool(candidate.nodes)
        for target in self._fullest_first:
            if candidate.nodes is not None and self._problem.cluster.node_name(target) not in candidate.nodes:
                refusing.count(target, _NOT_AMONG_THEM)
            elif (refusal := self.state.refusal(pod, target)) is not None:
                refusing.count(target, refusal)
            else:
                self.state.move(pod, target)
                return None
        text = f"no other node takes it: {refusing.in_words()}" if is_tried else "no other node is tried"
        return refusing.summary(text, Blockers(self.state))

    def _evict(self, pod: PodIndex, no_target: Refusal) -> Refusal | None:
        """Evict a pod that no node takes; return why it stays instead, None if it goes.

        Its replacement would take the place of a pod of the same controller that is moved: that one goes first.
        """
        cluster = self._problem.cluster
        placed_pod = cluster.pods[pod]
        if not self._problem.may_lose_its_place(pod):
            return no_target
        siblings = (cluster.pods[step.pod].pod for step in self.state.steps)
        if any(
            sibling.controller == placed_pod.pod.controller for sibling in siblings if sibling.key != placed_pod.pod.key
        ):
            return no_target
        self._evictions.append(Step(pod, placed_pod.node, placed_pod.node))
        return None

    @cached_property
    def _fullest_first(self) -> tuple[NodeIndex, ...]:
        """Return the nodes in the order in which they are tried: by rank, and of equal rank the fullest first."""
        # Best fit keeps the large free pieces whole, for pods that fit nowhere else.
        cluster, ranks = self._problem.cluster, self._problem.target_ranks
        column = cluster.column.get(self._problem.settings.resource_type)

        def unused(node: NodeIndex) -> Fraction:
            if column is None or cluster.capacity[node][column] <= 0:
                return Fraction(1)
            return 1 - Fraction(cluster.taken[node][column], cluster.capacity[node][column])

        return tuple(
            sorted(map(NodeIndex, range(len(cluster.nodes))), key=lambda node: (ranks[node], unused(node), node))
        )

    def _refusal(self, pod: PodIndex) -> Refusal | None:
        settings, placed_pod = self._problem.settings, self._problem.cluster.pods[pod]
        if (pod_refusal := self._problem.pod_refusals.get(pod)) is not None:
            return pod_refusal
        of_node = self.state.node_fit.of_node(placed_pod.node)
        held_back = self._problem.cluster.held_back.get(placed_pod.node)
        if of_node is not None and (of_node.reason is RefusalReason.NODE_NOT_SELECTED or of_node is held_back):
            return of_node
        if (untouchable := source_refusal(self._problem, placed_pod.node)) is not None:
            return untouchable
        max_moves = settings.limits.max_moves
        if max_moves is not None and self.state.mark() + len(self._evictions) >= max_moves:
            return Refusal(RefusalReason.MOVE_LIMIT, f"no more than {max_moves} moves are allowed")
        return None

    @staticmethod
    def _unknown(named_pod: Enabled[Candidate]) -> Refusal:
        return Refusal(RefusalReason.PLUGIN_FAILED, f"{named_pod.name} names it, and no such pod is on a node")

    def _refuse(self, named_pod: Enabled[Candidate], pod: PodIndex | None, refusal: Refusal) -> None:
        candidate, cluster = named_pod.plugin, self._problem.cluster
        node = "" if pod is None else cluster.node_name(cluster.pods[pod].node)
        text = f"{named_pod.name} wants it elsewhere ({candidate.reason}); {refusal.message}"
        self._refused.append(Refused.of_pod(node, candidate.namespace, candidate.name, replace(refusal, message=text)))


def joined(first: Proposal, second: Proposal) -> Proposal:
    """Return the proposals for single pods and the cluster as one."""
    refused_keys = {
        (refused_first.kind, refused_first.namespace, refused_first.name) for refused_first in first.refused
    }
    new_refusals = tuple(
        refused_second
        for refused_second in second.refused
        if (refused_second.kind, refused_second.namespace, refused_second.name) not in refused_keys
    )
    steps = (*first.steps, *second.steps)
    reasons = {**first.reasons, **second.reasons}
    refused, evictions = (*first.refused, *new_refusals), (*first.evictions, *second.evictions)
    return replace(second, steps=steps, refused=refused, evictions=evictions, reasons=reasons)
