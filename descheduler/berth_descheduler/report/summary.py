"""Owns how is shown how good a plan is, what it costs and what it brings: in JSON and in sentences.

It does not own the rest of a plan's report.
"""

from collections import Counter
from fractions import Fraction
from typing import Any, Final

from rich.table import Table

from berth_core.resources import CPU, MEMORY, ResourceAmounts
from berth_core.snapshot_kinds import kubectl_command
from berth_descheduler.planner import Plan, Quality, RoomMade
from berth_descheduler.planner.problem import Prover
from berth_descheduler.plugins.defragmentation import Goal, goal_of
from berth_descheduler.text import ALL_IN_JSON, count, first_few

_DECIMALS: Final = 4
_PARTS: Final = (1, 2, 4)
"""Shapes that people look at first: a whole node of the most frequent size, its half, its quarter."""

_LISTED_WANTS: Final = 12
_LISTED_PLACES: Final = 6


def describe_quality(plan: Plan) -> dict[str, Any]:
    """Return bound, gap and proof of a plan in builtins; null where the strategy does not say."""
    found = plan.quality
    known = None if found is None or found.is_snapshot_incomplete else found
    return {
        "reached": found.reached if found else None,
        "upper_bound": known.upper_bound if known else None,
        "gap": known.gap if known else None,
        "proven_optimal": found.proven_optimal if found else None,
        "fewest_moves": known.fewest_moves if known else None,
        "proven_fewest_moves": found.proven_fewest_moves if found else None,
        "proven_by": known.prover.value if known else None,
        "out_of_time": found.out_of_time if found else None,
    }


def describe_missing(plan: Plan) -> list[dict[str, str]]:
    """Return the kinds of objects that the snapshot lacks, and what was assumed of each."""
    return [{"kind": kind.value, "assumed": kind.assumed} for kind in plan.missing_kinds]


def missing_in_words(plan: Plan) -> tuple[str, ...]:
    """Return in lines what the snapshot lacks, what was assumed, and how to get it; nothing if it lacks nothing."""
    if not plan.missing_kinds:
        return ()
    lacking = (f"The snapshot lacks {kind.value}; assumed: {kind.assumed}." for kind in plan.missing_kinds)
    return (*lacking, f"To get all: {kubectl_command(plan.missing_kinds)}")


def describe_cost(plan: Plan) -> dict[str, Any]:
    """Return what a plan disturbs, and how many pods of some shapes fit before and after it."""
    return {
        "pods": plan.cost.pods,
        "controllers": plan.cost.controllers,
        "priorities": [{"priority": priority, "pods": pods} for priority, pods in plan.cost.priorities],
    }


def describe_shapes(plan: Plan) -> list[dict[str, Any]]:
    """Return how many pods of some shapes have room before a plan and after it."""
    return [
        {"requests": shape.to_quantities(), "before": plan.before.fits(shape), "after": plan.after.fits(shape)}
        for shape in usual_shapes(plan)
    ]


def describe_room(room: RoomMade) -> dict[str, Any]:
    """Return what became of one thing that room was to be made for."""
    return {
        "name": room.name,
        "wanted": room.wanted,
        "fitted": room.fitted,
        "nodes": _counted(room.nodes),
        "fits_before": room.fits_before,
        "fits_after": room.fits_after,
        "fragment_rate_before": {name: _rounded(share) for name, share in room.unused_before},
        "fragment_rate_after": {name: _rounded(share) for name, share in room.unused_after},
    }


def counted_by(plan: Plan) -> str:
    """Return what a plan's quality counts."""
    return "pods" if goal_of(plan.objective) is Goal.MAKE_ROOM else "freed nodes"


def choose_recovery(plan: Plan) -> str:
    """Return in a sentence how good a plan is; "" where the strategy does not say, or nothing waits for room."""
    asks_for_nothing = goal_of(plan.objective) is Goal.MAKE_ROOM and not plan.room
    return "" if plan.quality is None or asks_for_nothing else judge(plan.quality, what=counted_by(plan))


def judge(quality: Quality, *, what: str) -> str:
    """Return in a sentence how good a plan is; `what` is counted."""
    if quality.is_snapshot_incomplete:
        return "How far it is from the best is not known: the snapshot lacks kinds of objects."
    by = "the exact solver" if quality.prover is Prover.EXACT else "a bound that holds for any plan"
    if quality.proven_optimal and quality.proven_fewest_moves:
        text = (
            f"Proven optimal: no plan reaches more than {quality.upper_bound} {what}, nor this with fewer moves ({by})."
        )
    elif quality.proven_optimal:
        least = f"this many need at least {count(quality.fewest_moves, 'move')}"
        text = f"Proven optimal: no plan reaches more than {quality.upper_bound} {what} ({by}); {least}."
    else:
        text = (
            f"No plan reaches more than {quality.upper_bound} {what} ({by}): at most {quality.gap} more than this one."
        )
    return f"{text} The time limit ended the search." if quality.out_of_time else text


def cost_in_words(plan: Plan) -> str:
    """Return what a plan disturbs in a sentence."""
    cost = plan.cost
    if not cost.priorities:
        return "Nothing is disturbed."
    lowest, highest = cost.priorities[-1][0], cost.priorities[0][0]
    span = f"priority {highest}" if lowest == highest else f"priorities {lowest} to {highest}"
    pods, controllers = count(cost.pods, "pod"), count(cost.controllers, "controller")
    return f"It restarts {pods} of {controllers}, of {span}, in {count(plan.waves, 'wave')}."


def room_table(plan: Plan) -> Table:
    """Return what has room now."""
    table = Table(title="Room", title_justify="left", title_style="bold")
    table.add_column("for", overflow="fold")
    for heading in ("wanted", "fit", "alone before", "alone after"):
        table.add_column(heading, justify="right")
    table.add_column("on", overflow="fold")
    for room in plan.room[:_LISTED_WANTS]:
        wanted = "most" if room.wanted is None else str(room.wanted)
        places = [f"{name} x {n}" if n > 1 else name for name, n in _counted(room.nodes).items()]
        on = first_few(places, _LISTED_PLACES)
        table.add_row(room.name, wanted, str(room.fitted), str(room.fits_before), str(room.fits_after), on)
    if len(plan.room) > _LISTED_WANTS:
        table.caption = f"and {len(plan.room) - _LISTED_WANTS} more; {ALL_IN_JSON}"
    return table


def competing_pods_in_words(plan: Plan) -> str:
    """Return which pods may take the room of others, in a sentence."""
    named = first_few(list(plan.competing_pods), _LISTED_PLACES)
    return f"No taint keeps these waiting pods off the room while it is made, for they tolerate every one: {named}."


def usual_shapes(plan: Plan) -> tuple[ResourceAmounts, ...]:
    """Return a whole node of the most frequent size, its half and its quarter, by cores and memory."""
    sizes = Counter((node.allocatable.get(CPU), node.allocatable.get(MEMORY)) for node in plan.before.nodes)
    if not sizes:
        return ()
    cpu, memory = min(sizes, key=lambda size: (-sizes[size], size))
    return tuple(ResourceAmounts({CPU: cpu // part, MEMORY: memory // part}) for part in _PARTS)


def _counted(names: tuple[str, ...]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _rounded(share: Fraction) -> float:
    return float(round(share, _DECIMALS))
