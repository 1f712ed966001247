"""Owns the limits of a plan per node and namespace: a strategy is asked again until what it proposes keeps them.

It does not own the limit on all moves, which the strategies keep themselves, nor those of waves (`waves`).

A strategy knows nothing of these limits. Where it proposes too much, the pods beyond a limit become pods that may not
be moved, and it is asked what it makes of the rest. So every plan keeps the limits; that none within them is better is
not said then, for what stays is chosen in the order of the moves.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.problems import Problem, Proposal
from berth_descheduler.planner.quality import Quality
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.state import State, Step
from berth_descheduler.refusals import Refusal, RefusalReason

_GENTLE_ROUNDS: Final = 8
"""After so many questions all pods of a namespace that is over its limit stay, but for those that were accepted."""

Propose = Callable[[Problem], tuple[Proposal, State]]


def propose_within(problem: Problem, propose: Propose) -> tuple[Problem, State, Proposal]:
    """Return a proposal that keeps the limits, with the problem and the state that it belongs to."""
    proposal, state = propose(problem)
    first = proposal.quality
    rounds = 0
    while surplus := _find_surplus(problem, proposal, thorough=rounds >= _GENTLE_ROUNDS):
        problem = problem.keeping(surplus)
        proposal, state = propose(problem)
        rounds += 1
    if rounds and first is not None and proposal.quality is not None:
        proposal = replace(proposal, quality=_as_far_as_known(proposal.quality, first))
    return problem, state, proposal


def _as_far_as_known(found: Quality, first: Quality) -> Quality:
    """Return the quality of what was found at last; what is proven of all plans was proven by the first question."""
    out_of_time = found.out_of_time or first.out_of_time
    known = replace(found, upper_bound=first.upper_bound, prover=first.prover, out_of_time=out_of_time)
    return replace(known, fewest_moves=min(1, found.moves))


@dataclass(slots=True)
class _Accepted:
    """The moves that keep the limits so far."""

    settings: PlannerSettings
    of_namespace: Counter[str] = field(default_factory=Counter)
    of_node: Counter[NodeIndex] = field(default_factory=Counter)
    pods: set[PodIndex] = field(default_factory=set)

    def over(self, of_namespace: Mapping[str, int]) -> set[str]:
        """Return the namespaces that would go over their limit with so many moves more."""
        most = self.settings.max_moves_per_namespace
        if most is None:
            return set()
        return {name for name, count in of_namespace.items() if self.of_namespace[name] + count > most}


def _find_surplus(problem: Problem, proposal: Proposal, *, thorough: bool) -> dict[PodIndex, Refusal]:
    """Return the pods that have to stay so that the limits are kept, each with the reason; nothing if they are."""
    settings = problem.settings
    if settings.max_moves_per_node is None and settings.max_moves_per_namespace is None:
        return {}
    groups: defaultdict[NodeIndex, list[Step]] = defaultdict(list)
    for step in proposal.steps:
        groups[step.source].append(step)
    accepted = _Accepted(settings)
    surplus: dict[PodIndex, Refusal] = {}
    for source, group in groups.items():
        alone = any(step.pod in proposal.reasons for step in group)
        together = not alone and {step.pod for step in group}.issuperset(problem.pods_to_move(source))
        for several in [group] if together else [[step] for step in group]:
            surplus |= _judge(problem, accepted, several)
    if thorough and surplus:
        surplus = _all_but_accepted(problem, surplus, accepted)
    return surplus


def _judge(problem: Problem, accepted: _Accepted, several: Sequence[Step]) -> dict[PodIndex, Refusal]:
    """Accept moves that are of use together only, or return those of their pods that have to stay."""
    namespaces = Counter(_namespace(problem, step.pod) for step in several)
    source, most = several[0].source, accepted.settings.max_moves_per_node
    over = accepted.over(namespaces)
    if over:
        refusals = {name: _namespace_refusal(problem, name) for name in over}
        pods = ((step.pod, _namespace(problem, step.pod)) for step in several)
        return {pod: refusals[name] for pod, name in pods if name in over}
    if most is not None and accepted.of_node[source] + len(several) > most:
        text = f"{most} pods are moved off {problem.cluster.node_name(source)}, and no more may be"
        return {step.pod: Refusal(RefusalReason.NODE_LIMIT, text) for step in several}
    accepted.of_namespace.update(namespaces)
    accepted.of_node[source] += len(several)
    accepted.pods |= {step.pod for step in several}
    return {}


def _all_but_accepted(
    problem: Problem, surplus: Mapping[PodIndex, Refusal], accepted: _Accepted
) -> dict[PodIndex, Refusal]:
    """Return every pod alike in namespace or node to one that has to stay; those accepted only if they are all."""
    namespaces = {_namespace(problem, pod) for pod in surplus}
    nodes = {problem.cluster.pods[pod].node for pod in surplus}
    alike = {
        PodIndex(index): _namespace_refusal(problem, placed.pod.metadata.namespace)
        for index, placed in enumerate(problem.cluster.pods)
        if (placed.pod.metadata.namespace in namespaces or placed.node in nodes) and index not in problem.pod_refusals
    }
    others = {pod: refusal for pod, refusal in alike.items() if pod not in accepted.pods}
    return {**(others or alike), **surplus}


def _namespace_refusal(problem: Problem, name: str) -> Refusal:
    most = problem.settings.max_moves_per_namespace
    text = f"at most {most} pods of the namespace {name} may be moved, and others of them are"
    return Refusal(RefusalReason.NAMESPACE_LIMIT, text)


def _namespace(problem: Problem, pod: PodIndex) -> str:
    return problem.cluster.pods[pod].pod.metadata.namespace
