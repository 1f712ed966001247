"""Keeps a plan within its limits per node and namespace: a strategy is asked again until its proposal keeps them.

Strategies do not know these limits. Where one proposes too much, the pods beyond a limit become immovable, and it is
asked again. So every plan keeps the limits, but it is not proven best within them: the order of the moves decides
which pods stay.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner.problem import Problem, Proposal
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State, Step
from berth_descheduler.planner.wishes import Propose

_GENTLE_ROUNDS: Final = 8
"""After this many rounds, all pods of a namespace over its limit stay, except accepted ones."""


def propose_within(problem: Problem, propose: Propose) -> tuple[Problem, State, Proposal]:
    """Return a proposal within the limits, with its problem and state."""
    proposal, state = propose(problem)
    first_quality = proposal.quality
    rounds = 0
    while surplus := _find_surplus(problem, proposal, thorough=rounds >= _GENTLE_ROUNDS):
        problem = problem.keeping(surplus)
        proposal, state = propose(problem)
        rounds += 1
    if rounds and first_quality is not None and proposal.quality is not None:
        quality = proposal.quality.bounded_by(first_quality, fewest_moves=min(1, proposal.quality.moves))
        proposal = replace(proposal, quality=quality)
    return problem, state, proposal


@dataclass(slots=True)
class _Accepted:
    """The moves accepted within the limits so far."""

    settings: PlannerSettings
    of_namespace: Counter[str] = field(default_factory=Counter)
    of_node: Counter[NodeIndex] = field(default_factory=Counter)
    pods: set[PodIndex] = field(default_factory=set)

    def over(self, of_namespace: Mapping[str, int]) -> set[str]:
        """Return the namespaces that these further moves would take over their limit."""
        max_moves = self.settings.limits.max_moves_per_namespace
        if max_moves is None:
            return set()
        return {name for name, count in of_namespace.items() if self.of_namespace[name] + count > max_moves}


def _find_surplus(problem: Problem, proposal: Proposal, *, thorough: bool) -> dict[PodIndex, Refusal]:
    """Return the pods that must stay to keep the limits, each with the reason."""
    settings = problem.settings
    if settings.limits.max_moves_per_node is None and settings.limits.max_moves_per_namespace is None:
        return {}
    groups: defaultdict[NodeIndex, list[Step]] = defaultdict(list)
    for step in (*proposal.steps, *proposal.evictions):
        groups[step.source].append(step)
    accepted = _Accepted(settings)
    accepted.of_namespace.update(move.namespace for move in settings.run.begun)
    accepted.of_node.update(
        problem.cluster.node_numbers[move.source]
        for move in settings.run.begun
        if move.source in problem.cluster.node_numbers
    )
    surplus: dict[PodIndex, Refusal] = {}
    for source, group in groups.items():
        stands_alone = any(step.pod in proposal.reasons for step in group)
        # A node that is emptied keeps all of its pods or none: a part of its moves would cost evictions and free
        # nothing.
        together = not stands_alone and {step.pod for step in group}.issuperset(problem.pods_to_move(source))
        for judged_steps in [group] if together else [[step] for step in group]:
            surplus |= _judge(problem, accepted, judged_steps)
    if thorough and surplus:
        surplus = _all_but_accepted(problem, surplus, accepted)
    return surplus


def _judge(problem: Problem, accepted: _Accepted, steps: Sequence[Step]) -> dict[PodIndex, Refusal]:
    """Accept moves that only make sense together, or none of them.

    Returns the pods that have to stay, each with the reason; empty if the moves are accepted.
    """
    namespaces = Counter(_namespace(problem, step.pod) for step in steps)
    source, max_moves = steps[0].source, accepted.settings.limits.max_moves_per_node
    full_namespaces = accepted.over(namespaces)
    if full_namespaces:
        refusals = {name: _namespace_refusal(problem, name) for name in full_namespaces}
        pods = ((step.pod, _namespace(problem, step.pod)) for step in steps)
        return {pod: refusals[name] for pod, name in pods if name in full_namespaces}
    if max_moves is not None and accepted.of_node[source] + len(steps) > max_moves:
        text = f"{max_moves} pods are moved off {problem.cluster.node_name(source)}, and no more may be"
        return {step.pod: Refusal(RefusalReason.NODE_LIMIT, text) for step in steps}
    accepted.of_namespace.update(namespaces)
    accepted.of_node[source] += len(steps)
    accepted.pods |= {step.pod for step in steps}
    return {}


def _all_but_accepted(
    problem: Problem, surplus: Mapping[PodIndex, Refusal], accepted: _Accepted
) -> dict[PodIndex, Refusal]:
    """Return all pods that share a namespace or node with the surplus.

    Accepted pods are among them only if there are no others.
    """
    namespaces = {_namespace(problem, pod) for pod in surplus}
    nodes = {problem.cluster.pods[pod].node for pod in surplus}
    refusals_alike = {
        PodIndex(index): _namespace_refusal(problem, placed_pod.pod.metadata.namespace)
        for index, placed_pod in enumerate(problem.cluster.pods)
        if (placed_pod.pod.metadata.namespace in namespaces or placed_pod.node in nodes)
        and index not in problem.pod_refusals
    }
    not_accepted = {pod: refusal for pod, refusal in refusals_alike.items() if pod not in accepted.pods}
    return {**(not_accepted or refusals_alike), **surplus}


def _namespace_refusal(problem: Problem, name: str) -> Refusal:
    max_moves = problem.settings.limits.max_moves_per_namespace
    text = f"at most {max_moves} pods of the namespace {name} may be moved, and this one would be one more"
    return Refusal(RefusalReason.NAMESPACE_LIMIT, text)


def _namespace(problem: Problem, pod: PodIndex) -> str:
    return problem.cluster.pods[pod].pod.metadata.namespace
