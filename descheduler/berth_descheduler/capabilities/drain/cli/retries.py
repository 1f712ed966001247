"""Which pods a drain tries again: those that may leave later, as a budget lets one go or a pod becomes Ready."""

from collections.abc import Iterable
from typing import Final, assert_never

from berth_core import MoveReason, MoveState, MoveStatus, PlanPhase, Pod
from berth_descheduler.framework.refusals import may_pass
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Plan

_MAY_CHANGE: Final = frozenset({Verdict.CARRIED_OUT, Verdict.NOTHING_TO_MOVE, Verdict.PODS_WAIT, Verdict.PODS_STAY})
"""The verdicts of a begun drain's cycle after which the next one may move more pods."""


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
    try:
        reason = MoveReason(status.reason)
    except ValueError:
        return False  # another version ended it: nothing here says that it would go better
    match reason:
        case (
            MoveReason.NONE
            | MoveReason.POLICY_MISSING
            | MoveReason.NAMESPACE_NOT_EVICTABLE
            | MoveReason.NODE_NOT_SELECTED
            | MoveReason.CRITICAL_NODE
            | MoveReason.ABOVE_PROTECTION
            | MoveReason.POD_COOLING_DOWN
            | MoveReason.NODE_COOLING_DOWN
            | MoveReason.MOVE_LIMIT
            | MoveReason.NODE_LIMIT
            | MoveReason.NAMESPACE_LIMIT
            | MoveReason.WAVE_LIMIT
            | MoveReason.CONTROLLER_LIMIT
            | MoveReason.POD_GONE
            | MoveReason.POD_CHANGED
            | MoveReason.TARGET_UNFIT
            | MoveReason.SOURCE_NOT_EMPTIABLE
            | MoveReason.ROOM_NOT_MADE
            | MoveReason.ROOM_NOT_NEEDED
            | MoveReason.RESERVATION_FAILED
            | MoveReason.RESERVATION_TIMEOUT
            | MoveReason.HANDOVER_NOT_READY
            | MoveReason.EVICTION_BLOCKED
            | MoveReason.EVICTION_INTERCEPTED
            | MoveReason.REPLACEMENT_GONE
            | MoveReason.NODE_NOT_READY
            | MoveReason.NODE_NOT_CLOSED
            | MoveReason.SIBLING_NOT_READY
            | MoveReason.PODS_WAITING
            | MoveReason.PLAN_STOPPED
            | MoveReason.OUTDATED
        ):
            return True
        case MoveReason.TAKEN_BACK:
            return status.state is MoveState.SKIPPED  # for what others changed, and not for its replacement
        case (
            MoveReason.INVALID_NAME
            | MoveReason.FILTERED
            | MoveReason.EVICTION_FORBIDDEN
            | MoveReason.REPLACEMENT_REFUSED
            | MoveReason.REPLACEMENT_DIFFERS
            | MoveReason.REPLACEMENT_TIMEOUT
            | MoveReason.CRASH_LOOP_BACK_OFF
            | MoveReason.IMAGE_PULL_BACK_OFF
            | MoveReason.ERR_IMAGE_NEVER_PULL
            | MoveReason.INVALID_IMAGE_NAME
            | MoveReason.CREATE_CONTAINER_CONFIG_ERROR
            | MoveReason.CREATE_CONTAINER_ERROR
            | MoveReason.RUN_CONTAINER_ERROR
            | MoveReason.REFUSED_BY_KUBELET
            | MoveReason.EVICTED_BY_KUBELET
            | MoveReason.REPLACEMENT_FAILED
            | MoveReason.POD_STAYS
            | MoveReason.ABORTED
            | MoveReason.INTERRUPTED
        ):
            return False
        case _:
            assert_never(reason)
