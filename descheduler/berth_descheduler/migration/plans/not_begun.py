"""Why a new plan does not begin: it gains too little."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from berth_core import MigrationPlan, count, format_duration
from berth_descheduler.migration.plans.history import find_refilled
from berth_descheduler.outcome import NotBegun, Verdict, names_of
from berth_descheduler.planner import Plan
from berth_descheduler.plugins import goal_of
from berth_descheduler.settings import CycleSettings

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0


def too_little_gain_reason(
    plan: Plan, history: Iterable[MigrationPlan], settings: CycleSettings, now: datetime
) -> NotBegun | None:
    """Return why a plan frees too few nodes to begin, None if it frees enough.

    A node that a plan freed within the pods' cool-down and that was filled again is no gain: it would be filled once
    more.
    """
    stands_alone = any(move.stands_alone for move in plan.moves)
    if stands_alone or not goal_of(plan.objective).heeds_min_freed_nodes or not plan.freed_nodes:
        return None
    refilled_nodes = find_refilled(history, plan.freed_nodes, now, settings.pod_cool_down)
    lasting_nodes, least_nodes = len(plan.freed_nodes) - len(refilled_nodes), max(1, settings.min_freed_nodes)
    if lasting_nodes >= least_nodes:
        return None
    if not refilled_nodes:
        gain = f"{count(lasting_nodes, 'node')} would be freed with {count(len(plan.moves), 'move')}"
        text = f"Not begun: {gain}, at least {least_nodes} are asked for."
        return NotBegun(Verdict.TOO_LITTLE_GAIN, text)
    plan_names = names_of(set(refilled_nodes.values()))
    text = (
        f"Not begun: {names_of(refilled_nodes)} would be freed once more, but {plan_names} did so less than "
        f"{format_duration(settings.pod_cool_down)} ago and pods have come back since."
    )
    return NotBegun(Verdict.GAIN_UNDONE, text)
