"""Why a new plan does not begin: it gains too little, or a drain would leave pods."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core import MigrationPlan, RunMode, Snapshot, count, first_few, format_duration
from berth_descheduler.framework import RefusalReason
from berth_descheduler.migration.plans.history import find_refilled
from berth_descheduler.outcome import Verdict
from berth_descheduler.planner import Plan
from berth_descheduler.plugins import drain_of, goal_of
from berth_descheduler.settings import CycleSettings

_NAMES_SHOWN: Final = 5
_STAYING_SHOWN: Final = 20


FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Why a plan is not begun."""

    verdict: Verdict
    sentence: str
    passes: bool = True
    """Whether the reason may pass by itself."""


def names_of(pods: Iterable[str]) -> str:
    """Return the first few of the pods' names, for a sentence."""
    return first_few(sorted(pods), _NAMES_SHOWN)


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


_PASSING: Final = frozenset(
    {
        RefusalReason.BUDGET_EXHAUSTED,
        RefusalReason.TOO_FEW_READY,
        RefusalReason.LOWER_ORDINAL_NOT_READY,
        RefusalReason.NOT_RUNNING,
        RefusalReason.HANDING_OVER,
    }
)
"""Why pods stay for now: a moment later they may be able to leave."""


def may_pass(reason: RefusalReason) -> bool:
    """Return whether a pod that stays for this reason may be able to leave a moment later."""
    return reason in _PASSING


def drain_not_begun_reason(plan: Plan, snapshot: Snapshot, mode: RunMode | None) -> NotBegun | None:
    """Return why a drain does not begin: not every pod can leave as it has to, or its nodes still take pods.

    None if it begins, if it is only to look at, and for other plans.
    """
    drain = drain_of(plan.objective)
    if drain is None:
        return None
    nodes = (node for node in snapshot.nodes if node.metadata.name in drain.nodes)
    uncordoned_nodes = [node.metadata.name for node in nodes if not node.spec.unschedulable]
    if uncordoned_nodes and mode is not RunMode.PLAN:
        text = f"Not begun: not cordoned: {names_of(uncordoned_nodes)}."
        return NotBegun(Verdict.NOT_CORDONED, text, passes=False)
    staying_pods = () if drain.skip_refused else plan.pods_staying_on(drain.nodes)
    if not staying_pods:
        return None
    pods_in_words = sorted(f"{refused.namespace}/{refused.name} ({refused.reason})" for refused in staying_pods)
    text = f"Not begun: {count(len(staying_pods), 'pod')} cannot leave: {first_few(pods_in_words, _STAYING_SHOWN)}."
    return NotBegun(Verdict.PODS_STAY, text, passes=all(may_pass(refused.reason) for refused in staying_pods))
