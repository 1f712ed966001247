"""Sentences and figures about plans that several goals have in common."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from berth_core import PlannedMove, agreeing, count
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.planner.planning import Plan
from berth_descheduler.planner.quality import Prover, Quality
from berth_descheduler.planner.weights import format_weight

_PROVERS: Final = {Prover.BOUND: "by a bound", Prover.EXACT: "by the exact solver"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number for the head of a report."""

    label: str
    value: str
    note: str = ""


def count_moves(plan: Plan) -> str:
    """Return how many moves a plan has, and in how many waves where some have to wait for others."""
    return f"{PlannedMove.count_all(plan.moves)}{in_waves(plan)}"


def in_waves(plan: Plan) -> str:
    """Return in how many waves a plan moves, with a space before it; "" where no move waits for another."""
    return f" in {count(plan.waves, 'wave')}" if plan.has_order else ""


def describe_named_pods(plan: Plan) -> str:
    """Return what happens to the pods that plugins name, in a sentence."""
    stay = sum(refused.kind is RefusedKind.POD for refused in plan.refused)
    staying = f" {count(stay, 'pod')} {agreeing(stay, 'stay')} that could not be moved." if stay else ""
    if not plan.moves:
        return f"Nothing to move: {plan.objective.plugin} {'could move no pod' if stay else 'names no pod'}.{staying}"
    return f"{count_moves(plan)} for pods that {plan.objective.plugin} names.{staying}"


def instead_of(more: int, less: int, noun: str) -> str:
    """Return a number beside the smaller one that a plan has, which is left out if it is 0."""
    return f"{more} instead of {count(less, noun)}" if less else count(more, noun)


def pods_moved_instead(better: Plan, plan: Plan) -> str:
    return f"{instead_of(len(better.moves), len(plan.moves), 'pod')} could be moved"


def judge(quality: Quality, *, counted: str) -> str:
    """Return how good a plan is; `counted` is what it counts."""
    if quality.is_snapshot_incomplete:
        return "How far it is from the best is not known: the snapshot lacks kinds of objects."
    by = "the exact solver" if quality.prover is Prover.EXACT else "a bound that holds for any plan"
    bound, gap = bound_and_gap(quality)
    upper_bound = f"{bound} {counted}" if quality.weight is None else f"{bound} an hour"
    if quality.proven_optimal and quality.proven_fewest_moves:
        text = f"Proven optimal: no plan reaches more than {upper_bound}, nor this with fewer moves ({by})."
    elif quality.proven_optimal:
        need_phrase = "this many need" if quality.weight is None else "this much needs"
        moves_phrase = f"{need_phrase} at least {count(quality.fewest_moves, 'move')}"
        text = f"Proven optimal: no plan reaches more than {upper_bound} ({by}); {moves_phrase}."
    else:
        text = f"No plan{quality.bounded_plans} reaches more than {upper_bound} ({by})"
        text += "." if quality.reaches_bound else f": at most {gap} more than this one."
    return f"{text} The time limit ended the search." if quality.out_of_time else text


def bound_and_gap(quality: Quality) -> tuple[str, str]:
    """Return the upper bound of what counts, and how much more than the plan it is, in weight where nodes have one."""
    if (weight := quality.weight) is None:
        return str(quality.upper_bound), str(quality.gap)
    return format_weight(weight.upper_bound), format_weight(weight.upper_bound - weight.reached)


def bound_figures(quality: Quality, counted: str) -> Iterator[Figure]:
    """Yield what any plan could reach, and how far this one is from it; `counted` is what it counts."""
    bound, gap = bound_and_gap(quality)
    unit_phrase = counted if quality.weight is None else "freed an hour"
    plans = "any plan that leaves empty nodes empty" if quality.leaves_empty_nodes else "any plan"
    yield Figure("upper bound", bound, f"{unit_phrase}, for {plans}")
    proof = "proven optimal" if quality.proven_optimal else "not proven optimal"
    yield Figure("gap to the bound", gap, f"{proof} ({_PROVERS[quality.prover]})")
