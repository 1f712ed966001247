"""Lets pods that plans moved before stay where they are, unless moving them again brings something that the plan names.

Otherwise a pod could be restarted every few hours, each time for a plan that is as good without its move. So where a
proposal moves such pods, a second one is made in which all of them stay. That one is taken if it brings as much with
few moves more; else the plan says what the second moves bring.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from berth_core import Deadline, agreeing, count, is_over
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner.problem import Problem, Proposal
from berth_descheduler.planner.simulation import PodIndex, State
from berth_descheduler.planner.weights import format_weight
from berth_descheduler.planner.wishes import ProposalMerit, Propose, with_bounds_of

_STAYS: Final = Refusal(
    RefusalReason.NOT_NEEDED,
    "a plan brought it to its node within the last day, and none that leaves it there does less",
)
_BOUNDED: Final = "no plan in which pods stay that were moved before does more"
_MOST_NAMED: Final = 3


def propose_few_second_moves(problem: Problem, propose: Propose, deadline: Deadline) -> tuple[Proposal, State]:
    """Return a proposal in which pods that were moved before stay, or one that says what moving them again brings.

    Pods that a plugin names may move again. If the time limit ends before that is known, the proposal says so. The
    state is the one after its steps.
    """
    proposal, state = propose(problem)
    moved_pods = _pods_moved_before(problem)
    again = moved_pods & {step.pod for step in proposal.steps} - proposal.reasons.keys()
    if not again:
        return proposal, state
    if is_over(deadline):
        why = "the time limit ended before it was asked what that brings"
        return _with_note(problem, proposal, again, why), state
    staying, state_of_staying = propose(problem.keeping(dict.fromkeys(moved_pods - proposal.reasons.keys(), _STAYS)))
    merit, merit_of_staying = ProposalMerit.of(problem, proposal), ProposalMerit.of(problem, staying)
    if merit_of_staying.is_as_good_as(merit):
        return with_bounds_of(proposal, staying, _BOUNDED), state_of_staying
    if merit_of_staying.is_late > merit.is_late:
        why = "the time limit ended the search for a plan without that"
        return _with_note(problem, proposal, again, why), state
    gains = " and ".join(_gains(merit, merit_of_staying))
    return _with_note(problem, proposal, again, f"which {gains}"), state


def _pods_moved_before(problem: Problem) -> frozenset[PodIndex]:
    """Return the pods that plans of the last day, or the plan before, brought to their nodes."""
    numbers, run = problem.cluster.pod_numbers, problem.settings.run
    moved_pods = {numbers[name] for name in run.moved if name in numbers}
    for move in run.earlier:
        pod = numbers.get((move.namespace, move.pod))
        if pod is not None and problem.cluster.node_name(problem.cluster.pods[pod].node) == move.target:
            moved_pods.add(pod)
    return frozenset(moved_pods)


def _gains(merit: ProposalMerit, without: ProposalMerit) -> Iterator[str]:
    """Yield what a proposal brings beyond one without second moves, to follow "which"."""
    if merit.weight > without.weight:
        yield f"saves {format_weight(merit.weight)} an hour instead of {format_weight(without.weight)}"
    if merit.empty_nodes > without.empty_nodes:
        yield f"leaves {count(merit.empty_nodes, 'node')} empty instead of {without.empty_nodes}"
    if merit.fitted > without.fitted:
        yield f"makes room for {count(merit.fitted, 'pod')} instead of {without.fitted}"
    if merit.lowered > without.lowered:
        yield "leaves less of what is free of no use"
    if merit.named > without.named:
        yield f"moves {count(merit.named, 'pod')} that plugins name instead of {without.named}"
    if merit.waits > without.waits:
        yield f"waits for {count(merit.waits, 'place')} instead of {without.waits}"
    if all(own <= other for own, other in zip(merit.brings, without.brings, strict=True)):
        moves, other_moves = merit.moves + merit.evictions, without.moves + without.evictions
        yield f"takes {count(moves, 'move')} instead of {other_moves}"


def _with_note(problem: Problem, proposal: Proposal, again: Collection[PodIndex], why: str) -> Proposal:
    """Return a proposal with a note on the pods that move again; `why` ends its sentence."""
    names = sorted(problem.cluster.pods[pod].pod.key for pod in again)
    shown = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    pods, move = count(len(names), "pod"), agreeing(len(names), "move")
    place = "its node" if len(names) == 1 else "their nodes"
    note = f"{pods} that a plan brought to {place} {move} again ({shown}), {why}."
    return replace(proposal, notes=(*proposal.notes, note))
