"""Which pods a drain tries again once it has begun."""

from dataclasses import replace
from typing import Final

import pytest

from berth_core.migration_plans import MoveReason, MoveState, MoveStatus, PlanPhase
from berth_descheduler.capabilities.drain.cli.retries import find_given_up, find_retried_pods
from berth_descheduler.framework import RefusalReason
from berth_descheduler.framework.refusals import may_pass
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from builders import pod

WEB: Final = pod("web", node="low")
DONE: Final = Outcome(Verdict.CARRIED_OUT, plan=PlanOutcome("plan-1", PlanPhase.PARTIAL))


def given_up(state: MoveState, reason: MoveReason) -> bool:
    status = MoveStatus(namespace="default", pod="web", state=state, reason=reason)
    return bool(find_given_up([status]))


@pytest.mark.parametrize(
    ("state", "reason", "want"),
    [
        (MoveState.FAILED, MoveReason.EVICTION_BLOCKED, False),
        (MoveState.FAILED, MoveReason.RESERVATION_TIMEOUT, False),
        (MoveState.FAILED, MoveReason.NODE_NOT_READY, False),
        (MoveState.SKIPPED, MoveReason.PLAN_STOPPED, False),
        (MoveState.SKIPPED, MoveReason.SIBLING_NOT_READY, False),
        (MoveState.SKIPPED, MoveReason.TAKEN_BACK, False),
        (MoveState.FAILED, MoveReason.TAKEN_BACK, True),
        (MoveState.FAILED, MoveReason.CRASH_LOOP_BACK_OFF, True),
        (MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, True),
        (MoveState.SKIPPED, MoveReason.ABORTED, True),
    ],
)
def test_a_pod_is_given_up_where_its_move_would_fail_again(state: MoveState, reason: MoveReason, *, want: bool) -> None:
    assert given_up(state, reason) is want


def test_what_is_left_is_tried_again_but_for_what_is_given_up_or_on_its_way_out() -> None:
    leaving = pod("leaving", node="low", deleted="2026-11-21T12:00:00Z")
    hopeless = pod("hopeless", node="low")
    remaining = (WEB, leaving, hopeless)
    assert find_retried_pods(DONE, None, ["default/hopeless"], remaining, ["low"]) == (WEB.key,)


@pytest.mark.parametrize(
    "outcome",
    [
        replace(DONE, plan=PlanOutcome("plan-1", PlanPhase.ABORTED)),
        Outcome(Verdict.NO_OPERATOR),
        Outcome(Verdict.NOT_CORDONED),
        Outcome(Verdict.STOPPED),
        Outcome(Verdict.PLAN_DELETED),
    ],
    ids=lambda outcome: outcome.verdict.value,
)
def test_nothing_is_tried_again_after_people_or_an_absent_operator_ended_it(outcome: Outcome) -> None:
    assert find_retried_pods(outcome, None, (), (WEB,), ["low"]) == ()


def test_which_refusals_may_pass() -> None:
    passing = {"BudgetExhausted", "NotRunning", "HandingOver", "TooFewReady", "LowerOrdinalNotReady"}
    assert {reason.value for reason in RefusalReason if may_pass(reason)} == passing
