"""Which pods a drain tries again: those that may leave later, as a budget lets one go or a pod becomes Ready."""

from collections.abc import Iterable
from typing import Final

from berth_core import MoveReason, MoveState, MoveStatus, Outlook, PlanPhase, Pod
from berth_descheduler.framework.refusals import may_pass
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Plan

_MAY_CHANGE: Final = frozenset({Verdict.CARRIED_OUT, Verdict.NOTHING_TO_MOVE, Verdict.PODS_WAIT, Verdict.PODS_STAY})
"""The verdicts of a begun drain's cycle after which the next one may move more pods."""
_PASSING: Final = frozenset(reason for reason in MoveReason if reason.outlook is not Outlook.LASTS)


def find_retried_pods(
    outcome: Outcome, plan: Plan | None, given_up: Iterable[str], remaining: Iterable[Pod], nodes: Iterable[str]
) -> tuple[str, ...]:
    """Return which remaining pods the next cycle may move, as `namespace/name`.

    `plan` is that of the last cycle; the moves of `given_up` pods would fail again.
    """
    was_aborted = outcome.plan is not None and outcome.plan.phase is PlanPhase.ABORTED
    if outcome.verdict not in _MAY_CHANGE or was_aborted:
        return ()
    staying_pods = plan.pods_staying_on(frozenset(nodes)) if plan is not None else ()
    lasting = {f"{refused.namespace}/{refused.name}" for refused in staying_pods if not may_pass(refused.reason)}
    # Without this a move that fails for a lasting reason, such as an image that does not exist, would be tried until
    # the timeout, each time with an eviction.
    lasting.update(given_up)
    return tuple(pod.key for pod in remaining if pod.key not in lasting and not pod.is_terminating)


def find_given_up(statuses: Iterable[MoveStatus]) -> frozenset[str]:
    """Return the pods, as `namespace/name`, whose moves would fail again."""
    return frozenset(f"{status.namespace}/{status.pod}" for status in statuses if not _may_go_later(status))


def _may_go_later(status: MoveStatus) -> bool:
    """Return whether a move that failed may succeed later."""
    if status.reason == MoveReason.TAKEN_BACK:
        return status.state is MoveState.SKIPPED  # for what others changed, and not for its replacement
    return status.reason in _PASSING  # a reason of another version says nothing of what may become of the move
