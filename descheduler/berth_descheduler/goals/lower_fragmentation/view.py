"""What plans say that lower the fragmentation."""

from collections.abc import Iterator
from fractions import Fraction

from berth_core import percent
from berth_descheduler.planner import FragmentationChange, Plan, Quality
from berth_descheduler.planner.sentences import Figure, count_moves, describe_named_pods


def describe_fragmentation(plan: Plan) -> str:
    """Return by how much a plan lowers the fragmentation, in a sentence."""
    change = plan.fragmentation
    if change is None:
        return describe_named_pods(plan)
    of_resource = f"of the free {change.resource} is fragmented for the workload"
    if not plan.moves:
        return f"Nothing to move: {percent(change.share_before)} {of_resource}, and no move lowers that by these rules."
    return f"{count_moves(plan)}: {percent(change.share_after)} {of_resource} then, {percent(change.share_before)} now."


def judge_fragmentation(least: Fraction, quality: Quality) -> str:
    """Return how good a plan is below whose `least` share no plan comes."""
    bound = (
        f"no plan within these limits leaves less than {percent(least)} fragmented (a bound that holds for any plan)"
    )
    text = f"Proven optimal: {bound}." if quality.proven_optimal else f"{bound[0].upper()}{bound[1:]}."
    return f"{text} The time limit ended the search." if quality.out_of_time else text


def fragmentation_figures(change: FragmentationChange | None) -> Iterator[Figure]:
    """Yield the fragmented share before and after."""
    if change is not None:
        shares = f"{percent(change.share_before)} → {percent(change.share_after)}"
        yield Figure("fragmented", shares, f"of the free {change.resource}")


def fragmented_rows(change: FragmentationChange | None) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the share of what is free that is of no use to the workload, before and after."""
    if change is not None:
        texts = percent(change.share_before), percent(change.share_after)
        yield f"free {change.resource} fragmented for the workload", texts
