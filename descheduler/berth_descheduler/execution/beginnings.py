"""Owns whether a plan that was found is begun: whether it is worth its moves, and whether other pods come first.

It does not own the same question once a plan is published (`wave_gate`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core.durations import format_duration
from berth_core.migration_plans import MigrationPlan
from berth_core.snapshot import Snapshot
from berth_descheduler.execution.plan_review import names_of, served_pods, who_waits
from berth_descheduler.outcome import Verdict
from berth_descheduler.plan_history import find_refilled
from berth_descheduler.planner import Plan
from berth_descheduler.planner.waiting_pods import starved_pods
from berth_descheduler.plugins.defragmentation import StrategyName
from berth_descheduler.settings import CycleSettings
from berth_descheduler.wording import count

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Why a plan is not begun."""

    verdict: Verdict
    sentence: str


def why_not_worth_it(
    found: Plan, history: Iterable[MigrationPlan], settings: CycleSettings, now: datetime
) -> NotBegun | None:
    """Return why a plan that is to free nodes does not bring enough to begin it, None if it does.

    A node that a plan freed within the cool-down of pods and that has been filled again is no gain: what filled it
    would fill it once more.
    """
    alone = any(move.stands_alone for move in found.moves)
    if alone or found.settings.args.strategy is StrategyName.MAKE_ROOM or not found.freed_nodes:
        return None
    refilled = find_refilled(history, found.freed_nodes, now, settings.pod_cool_down)
    lasting, least = len(found.freed_nodes) - len(refilled), max(1, settings.min_freed_nodes)
    if lasting >= least:
        return None
    if not refilled:
        what = f"{count(lasting, 'node')} would be freed with {count(len(found.moves), 'move')}"
        text = f"Not begun: {what}, at least {least} are asked for."
        return NotBegun(Verdict.TOO_LITTLE_GAIN, text)
    plans = names_of(set(refilled.values()))
    text = (
        f"Not begun: {names_of(refilled)} would be freed once more, but {plans} did so less than "
        f"{format_duration(settings.pod_cool_down)} ago and pods have come back since."
    )
    return NotBegun(Verdict.GAIN_UNDONE, text)


def why_others_come_first(found: Plan, snapshot: Snapshot, waited_seconds: float) -> NotBegun | None:
    """Return why a plan has to wait for pods that wait themselves, None if it takes no room from any."""
    served = served_pods(found.rooms)
    starved = [pod.key for pod in starved_pods(snapshot, found.moves) if pod.metadata.uid not in served]
    if not starved:
        return None
    what = f"{who_waits(starved)} for room that the moves would take"
    text = f"Not begun: {what}, {waited_seconds:.0f} s by now: {names_of(starved)}."
    return NotBegun(Verdict.PODS_WAIT, text)
