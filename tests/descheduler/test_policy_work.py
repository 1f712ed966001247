"""What the service does next and beside it, decided on policies and plans as they were seen."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from berth_core.clock import format_timestamp
from berth_core.migration_plans import MigrationPlan, RunMode
from berth_core.names import scheduled_plan_name
from berth_core.policies import EFFECTIVE, SCHEDULED, VALID, DeschedulerPolicy
from berth_descheduler.controller.decisions import (
    ComputePlan,
    ParsedPolicy,
    ResumePlan,
    RunPolicy,
    choose_task,
    pause_until,
    plans_to_end,
    read_due,
    was_made,
)
from berth_descheduler.controller.plan_retention import expired_plans, plans_over_history_limit
from berth_descheduler.controller.policy_status import build_observed_patch, observed_status
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.parsing import PolicyError, RunDefaults, read_policy

NOW: Final = datetime(2026, 6, 1, 10, 0, tzinfo=UTC)
PROFILE: Final = {"name": "default", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}
NIGHTLY: Final = {"trigger": {"cron": "0 2 * * *"}}
HOURLY: Final = {"trigger": {"interval": "1h"}}


def at(hours: float) -> str:
    """Return a time so many hours before now."""
    return format_timestamp(NOW - timedelta(hours=hours))


def known(
    name: str = "p", spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, *, age_hours: float = 100
) -> ParsedPolicy:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 3, "creationTimestamp": at(age_hours)}
    body = {"metadata": metadata, "spec": {"profiles": [PROFILE], **(spec or {})}, "status": status or {}}
    policy = DeschedulerPolicy.from_api(body)
    try:
        return ParsedPolicy(policy, read_policy(policy, RunDefaults(), installed_plugins()))
    except PolicyError as error:
        return ParsedPolicy(policy, error)


def noted(one: ParsedPolicy, *, hours: float) -> dict[str, Any]:
    """Return a status that has noted the policy's schedule so many hours ago."""
    assert one.schedule is not None
    condition = {
        "type": SCHEDULED,
        "status": "True",
        "reason": one.schedule.reason.value,
        "message": one.schedule.text,
        "lastTransitionTime": at(hours),
    }
    return {"conditions": [condition]}


def plan(name: str = "x", phase: str = "", *, hours: float = 1, **spec: Any) -> MigrationPlan:  # noqa: ANN401 - fields
    moves = {} if phase == "Requested" else {"predicted": {"nodes": 3, "moves": 1, "waves": 1}}
    body = {"policy": "p", "mode": "Auto", **moves, **spec}
    status = {"phase": phase} if phase else {}
    metadata = {"name": name, "uid": name, "creationTimestamp": at(hours)}
    return MigrationPlan.from_api({"metadata": metadata, "spec": body, "status": status})


def being_deleted(stored_plan: MigrationPlan) -> MigrationPlan:
    """Return a plan whose deletion waits for a finalizer, such as that of a deletion in the foreground."""
    return replace(stored_plan, metadata=replace(stored_plan.metadata, deletion_timestamp=at(0)))


def choose(policies: Sequence[ParsedPolicy], *plans: MigrationPlan) -> object:
    return choose_task({one.name: one for one in policies}, plans, NOW)


# --- what is due ------------------------------------------------------------------------------------------------------


def due(one: ParsedPolicy, *plans: MigrationPlan) -> tuple[str | None, str | None]:
    timing = read_due(one, plans, NOW)
    if timing is None:
        return None, None
    return None if timing.due is None else format_timestamp(timing.due), format_timestamp(timing.next_run)


CRON: Final = known(spec=NIGHTLY)
DUE: Final = {
    "on request only": (known(), None, None),
    "suspended": (known(spec={**NIGHTLY, "suspend": True}), None, None),
    "not valid": (known(spec={**NIGHTLY, "nodeSelector": "a b"}), None, None),
    "a new interval is due when its policy was made": (known(spec=HOURLY, age_hours=0.1), at(0.1), at(0.1)),
    "an interval is due after the last run": (
        known(spec=HOURLY, status={"lastScheduledTime": at(1.5)}),
        at(0.5),
        at(0.5),
    ),
    "an interval is not due before": (known(spec=HOURLY, status={"lastScheduledTime": at(0.5)}), None, at(-0.5)),
    "an interval that was missed is due once": (
        known(spec=HOURLY, status={"lastScheduledTime": at(50.5)}),
        at(0.5),
        at(0.5),
    ),
    "times count from the making of a policy nobody has seen": (known(spec=NIGHTLY, age_hours=20), at(8), at(8)),
    "times before the making do not count": (known(spec=NIGHTLY, age_hours=7), None, at(-16)),
    "times that were missed are due once": (
        known(spec=NIGHTLY, status=noted(CRON, hours=90) | {"lastScheduledTime": at(80)}),
        at(8),
        at(8),
    ),
    "times that were missed for longer than the deadline are left out": (
        known(spec={**NIGHTLY, "startingDeadlineSeconds": 7 * 3600}, status=noted(CRON, hours=90)),
        None,
        at(-16),
    ),
    "times that were missed for less than the deadline are due": (
        known(spec={**NIGHTLY, "startingDeadlineSeconds": 9 * 3600}, status=noted(CRON, hours=90)),
        at(8),
        at(8),
    ),
    "an interval that was missed goes on with its next time": (
        known(
            spec={**HOURLY, "startingDeadlineSeconds": 60},
            status={"lastScheduledTime": at(50.5)},
        ),
        None,
        at(-0.5),
    ),
    "times that were run are over": (
        known(spec=NIGHTLY, status=noted(CRON, hours=90) | {"lastScheduledTime": at(8)}),
        None,
        at(-16),
    ),
    "times before the present schedule do not count": (
        known(spec={"trigger": {"cron": "0 3 * * *"}}, status=noted(CRON, hours=90)),
        None,
        at(-17),
    ),
    "times before the end of a suspension do not count": (
        known(spec=NIGHTLY, status=noted(CRON, hours=1) | {"lastScheduledTime": at(80)}),
        None,
        at(-16),
    ),
}


@pytest.mark.parametrize(("one", "want_due", "want_next"), DUE.values(), ids=DUE)
def test_when_a_policy_is_due(one: ParsedPolicy, want_due: str | None, want_next: str | None) -> None:
    assert due(one) == (want_due, want_next)


def to_be_deleted(one: ParsedPolicy) -> ParsedPolicy:
    """Return a policy whose deletion waits for a finalizer."""
    return ParsedPolicy(replace(one.policy, metadata=replace(one.policy.metadata, deletion_timestamp=at(0))), one.run)


def test_nothing_is_due_of_a_policy_that_is_being_deleted() -> None:
    assert due(to_be_deleted(known(spec=HOURLY))) == (None, None)


@pytest.mark.parametrize("phase", ["Requested", "Proposed", "Approved"])
def test_an_unbegun_plan_of_a_policy_that_is_being_deleted_is_ended(phase: str) -> None:
    (ending,) = plans_to_end({"p": to_be_deleted(known())}, [plan(phase=phase, mode="Approve")], NOW)
    assert ending.message == "aborted: the policy p is being deleted"


@pytest.mark.parametrize("phase", ["Requested", "Approved", "Running"])
def test_nothing_is_due_while_a_plan_is_open(phase: str) -> None:
    assert due(known(spec=HOURLY), plan(phase=phase))[0] is None


def test_nothing_is_due_while_a_plan_waits_for_its_approval() -> None:
    assert due(known(spec=HOURLY), plan(phase="Proposed", mode="Approve"))[0] is None


@pytest.mark.parametrize("open_plan", [plan(phase="Proposed", mode="Plan"), plan(phase="Failed"), plan(policy="q")])
def test_plans_that_are_over_or_anothers_hold_nothing_up(open_plan: MigrationPlan) -> None:
    assert due(known(spec=HOURLY), open_plan)[0] is not None


def test_a_run_that_could_not_be_noted_is_known_by_its_plan() -> None:
    one, scheduled = known(spec=HOURLY), NOW - timedelta(hours=1)
    made = plan(scheduled_plan_name("20260601-090000", "uid-p", format_timestamp(scheduled)))
    assert was_made(one.policy, scheduled, [made])
    assert not was_made(one.policy, scheduled + timedelta(hours=1), [made])
    assert not was_made(known("q", HOURLY).policy, scheduled, [made])


# --- what comes next --------------------------------------------------------------------------------------------------

RUNNING: Final = plan("running", "Running", hours=1)
APPROVED: Final = plan("approved", "Proposed", hours=3, mode="Approve", approved=True)
ASKED: Final = plan("asked", "Requested", hours=4)
ASKED_LATER: Final = plan("later", "Requested", hours=2)


def test_what_was_begun_comes_first_then_what_was_approved_then_what_was_asked_for_then_what_is_due() -> None:
    policies = [known(spec=HOURLY), known("q", HOURLY)]
    assert choose(policies, ASKED_LATER, ASKED, APPROVED, RUNNING) == ResumePlan(RUNNING)
    assert choose(policies, ASKED_LATER, ASKED, APPROVED) == ResumePlan(APPROVED)
    assert choose(policies, ASKED_LATER, ASKED) == ComputePlan(ASKED)
    assert isinstance(choose(policies), RunPolicy)


def test_of_two_policies_the_one_that_waits_longer_runs_first() -> None:
    late = known("late", HOURLY, {"lastScheduledTime": at(1.9)})
    soon = known("soon", HOURLY, {"lastScheduledTime": at(1.1)})
    assert choose([soon, late]) == RunPolicy("late", NOW - timedelta(hours=0.9))


def test_nothing_is_to_be_done_on_a_quiet_cluster() -> None:
    assert choose([known(), known("q", HOURLY, {"lastScheduledTime": at(0.5)})], plan(phase="Succeeded")) is None


NOT_BEGUN: Final = {
    "not approved": plan(phase="Proposed", mode="Approve"),
    "aborted": plan(phase="Proposed", mode="Approve", approved=True, aborted=True),
    "asked for and aborted": plan(phase="Requested", aborted=True),
    "being deleted": being_deleted(plan(phase="Proposed", mode="Approve", approved=True)),
    "asked for and being deleted": being_deleted(plan(phase="Requested")),
    "of a run by hand": plan(phase="Approved", mode=None, approved=True),
}


@pytest.mark.parametrize("one", NOT_BEGUN.values(), ids=NOT_BEGUN)
def test_a_plan_that_is_not_the_services_turn_is_not_begun(one: MigrationPlan) -> None:
    assert choose([known()], one) is None


# --- what is done beside it -------------------------------------------------------------------------------------------

VALID_ONE: Final = {"p": known()}
ENDED: Final = {
    "aborted before it began": (plan(phase="Proposed", aborted=True), "an abort was requested"),
    "asked for and aborted": (plan(phase="Requested", aborted=True), "an abort was requested"),
    "being deleted": (being_deleted(plan(phase="Proposed")), "an abort was requested"),
    "not approved in time": (plan(phase="Proposed", mode="Approve", approveBefore=at(0)), "not approved in time"),
    "approved, and not begun in time": (
        plan(phase="Approved", mode="Approve", approveBefore=at(0), approved=True),
        "it did not begin in time",
    ),
    "of a policy that is gone": (plan(phase="Requested", policy="gone"), "there is no policy gone"),
    "of a policy that cannot be run": (plan(phase="Requested", policy="bad"), "policy bad cannot be run: spec.nodeSel"),
}
LEFT: Final = {
    "still to be approved": plan(phase="Proposed", mode="Approve", approveBefore=at(-1)),
    "approved in the last minute": plan(phase="Proposed", mode="Approve", approveBefore=at(-0.01), approved=True),
    "being carried out": plan(phase="Running", aborted=True),
    "over": plan(phase="Succeeded", aborted=True),
    "only shown, of a policy that is gone": plan(phase="Proposed", mode="Plan", policy="gone"),
    "of a run by hand": plan(phase="Proposed", mode=None, aborted=True),
}


@pytest.mark.parametrize(("one", "want"), ENDED.values(), ids=ENDED)
def test_a_plan_of_which_nothing_will_become_is_ended(one: MigrationPlan, want: str) -> None:
    policies = VALID_ONE | {"bad": known("bad", {"nodeSelector": "a b"})}
    (ending,) = plans_to_end(policies, [one], NOW)
    assert ending.message.startswith("aborted: ")
    assert want in ending.message


@pytest.mark.parametrize("one", LEFT.values(), ids=LEFT)
def test_other_plans_are_left_alone(one: MigrationPlan) -> None:
    assert plans_to_end(VALID_ONE, [one], NOW) == ()


def test_no_plan_ends_for_want_of_a_policy_that_may_only_not_be_known_yet() -> None:
    gone, aborted = plan(phase="Requested", policy="gone"), plan(phase="Proposed", policy="gone", aborted=True)
    assert plans_to_end(VALID_ONE, [gone], NOW, all_known=False) == ()
    for ended in (aborted, plan(phase="Requested", aborted=True)):
        assert len(plans_to_end(VALID_ONE, [ended], NOW, all_known=False)) == 1
    bad = {"bad": known("bad", {"nodeSelector": "a b"})}
    assert len(plans_to_end(bad, [plan(phase="Requested", policy="bad")], NOW, all_known=False)) == 1


def test_the_oldest_plans_go_that_are_over_and_long_past() -> None:
    keeper = {"p": known(spec={"plansKept": 2, "limits": {"podCoolDown": "5h"}})}
    over = [plan(f"plan-{hours}", "Succeeded", hours=hours) for hours in (1, 2, 3, 6, 7)]
    open_plans = [plan("running", "Running", hours=90), plan("waits", "Proposed", mode="Approve", hours=80)]
    others = [plan("q", "Succeeded", policy="q", hours=99)]
    surplus = plans_over_history_limit(keeper, [*over, *open_plans, *others], NOW)
    assert [one.metadata.name for one in surplus] == ["plan-6", "plan-7"]


def test_plans_that_are_being_deleted_neither_count_nor_are_deleted_again() -> None:
    keeper = {"p": known(spec={"plansKept": 2})}
    plans = [plan(f"plan-{hours}", "Succeeded", hours=hours) for hours in (10, 20, 30, 40)]
    plans[0], plans[3] = being_deleted(plans[0]), being_deleted(plans[3])
    assert plans_over_history_limit(keeper, plans, NOW) == ()
    assert [one.metadata.name for one in expired_plans({}, plans, NOW, timedelta(hours=15))] == ["plan-20", "plan-30"]


def test_the_plans_of_a_policy_that_cannot_be_run_are_kept() -> None:
    bad = {"p": known(spec={"nodeSelector": "a b", "plansKept": 1})}
    assert plans_over_history_limit(bad, [plan(f"plan-{n}", "Succeeded", hours=n) for n in range(9)], NOW) == ()


def forgotten(retention: timedelta | None, *policies: ParsedPolicy) -> list[str]:
    old, new = {"hours": 30}, {"hours": 10}
    plans = [
        plan("of-p", "Succeeded", **old),
        plan("of-one-that-is-gone", "Succeeded", policy="gone", **old),
        plan("by-hand", "Failed", policy="", mode=None, **old),
        plan("shown-for-one-that-is-gone", "Proposed", policy="gone", mode="Plan", **old),
        plan("by-hand-lately", "Succeeded", policy="", mode=None, **new),
        plan("by-hand-and-running", "Running", policy="", mode=None, **old),
        plan("by-hand-and-to-be-begun", "Proposed", policy="", mode=None, **old),
    ]
    return [one.metadata.name for one in expired_plans({one.name: one for one in policies}, plans, NOW, retention)]


def test_plans_of_no_policy_go_when_they_were_over_for_long_enough() -> None:
    gone = ["of-one-that-is-gone", "by-hand", "shown-for-one-that-is-gone"]
    assert forgotten(timedelta(hours=20), known()) == gone
    assert forgotten(timedelta(hours=40), known()) == []
    assert forgotten(None, known()) == []


def test_plans_of_no_policy_stay_while_a_cool_down_counts_from_them() -> None:
    assert forgotten(timedelta(hours=20), known(spec={"limits": {"podCoolDown": "40h"}})) == []


def test_the_plans_of_a_policy_that_cannot_be_run_are_not_forgotten() -> None:
    assert "of-p" not in forgotten(timedelta(hours=1), known(spec={"nodeSelector": "a b"}))
    assert "of-p" in forgotten(timedelta(hours=1))


def test_the_service_pauses_until_the_next_time() -> None:
    soon = known(spec=HOURLY, status={"lastScheduledTime": at(1 - 5 / 3600)})
    assert pause_until([soon], [], NOW, 10) == pytest.approx(5)
    waiting = plan(phase="Proposed", mode="Approve", approveBefore=at(-2 / 3600))
    assert pause_until([soon], [waiting], NOW, 10) == pytest.approx(2)
    assert pause_until([], [], NOW, 10) == 10


# --- what is written on a policy --------------------------------------------------------------------------------------


def conditions(one: ParsedPolicy) -> dict[str, tuple[str, str, str, str]]:
    status = observed_status(one, (), NOW)
    return {
        found.type: (found.status, found.reason, found.message, found.last_transition_time)
        for found in status.conditions
    }


def test_a_good_policy_says_when_it_runs() -> None:
    one = known(spec=NIGHTLY, age_hours=3)
    assert conditions(one) == {
        VALID: ("True", "Accepted", "the policy can be run", at(0)),
        SCHEDULED: ("True", "Cron", "cron 0 2 * * * in UTC", at(3)),
    }
    status = observed_status(one, (), NOW)
    assert (status.next_run_time, status.observed_generation) == (at(-16), 3)


WRITTEN: Final = {
    "a bad one says what is wrong": (
        {"nodeSelector": "a b"},
        ("False", "InvalidField", "spec.nodeSelector is 'a b'; expected a label selector such as"),
        ("False", "NotValid", "the policy cannot be run"),
    ),
    "a suspended one says so": (
        {**NIGHTLY, "suspend": True},
        ("True", "Accepted", ""),
        ("False", "Suspended", "requests are served"),
    ),
    "one without trigger says so": ({}, ("True", "Accepted", ""), ("False", "OnRequest", "on request only")),
    "an interval says it": (HOURLY, ("True", "Accepted", ""), ("True", "Interval", "every 1h0m0s")),
}


@pytest.mark.parametrize(("spec", "want_valid", "want_scheduled"), WRITTEN.values(), ids=WRITTEN)
def test_the_conditions_of_a_policy(
    spec: dict[str, Any], want_valid: tuple[str, str, str], want_scheduled: tuple[str, str, str]
) -> None:
    found = conditions(known(spec=spec))
    for type_, want in ((VALID, want_valid), (SCHEDULED, want_scheduled)):
        assert found[type_][:2] == want[:2]
        assert want[2] in found[type_][2]


def test_a_condition_that_says_the_same_keeps_its_time() -> None:
    first = known(spec=NIGHTLY, age_hours=3)
    status = build_observed_patch(observed_status(first, (), NOW - timedelta(hours=2)))["status"]
    kept = {name: value for name, value in status.items() if value is not None}
    again = known(spec=NIGHTLY, status=kept, age_hours=3)
    assert conditions(again)[VALID][3] == at(2)
    assert observed_status(again, (), NOW) == again.policy.status


def test_another_schedule_counts_from_now() -> None:
    status = noted(CRON, hours=50)
    assert conditions(known(spec={"trigger": {"cron": "0 3 * * *"}}, status=status))[SCHEDULED][3] == at(0)


def test_what_will_not_work_well_is_written_on_the_policy() -> None:
    status = observed_status(known(spec={**HOURLY, "mode": RunMode.AUTO.value}), (), NOW)
    assert [warning.partition(":")[0] for warning in status.warnings] == [
        "spec.mode",
        "spec.profiles[0].pluginConfig.Defragmentation.args.coolDownTime",
    ]


def test_what_a_run_wrote_is_left_alone() -> None:
    ran = {"lastVerdict": "Planned", "lastOutcome": "o", "lastPlan": "x", "lastRunTime": at(1)}
    patch = build_observed_patch(observed_status(known(status=ran), (), NOW))["status"]
    assert set(patch) == {"observedGeneration", "nextRunTime", "warnings", "conditions"}
    assert patch["nextRunTime"] is None


def restriction(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "fields": ["maxMoves"], "message": message}


BINDS: Final = restriction("LimitBinds", "3 nodes could be freed without maxMoves: 1.")
IDLE: Final = restriction(
    "SelectsNothing", "nodeSelector pool=none selects no node of the cluster: nothing can be moved."
)
TYPO: Final = restriction("UnknownName", "evictableNamespaces.exclude names shpo; there is none.")
UNHINDERED: Final = ("True", "Unhindered")
LAST_RUNS: Final = {
    "it moved pods, and a limit bounded that": ("CarriedOut", [BINDS], UNHINDERED, "no limit and no name"),
    "there was nothing to move, whatever the limits": ("NothingToMove", [], UNHINDERED, "no limit and no name"),
    "a name that changes nothing": ("NothingToMove", [TYPO], UNHINDERED, "no limit and no name"),
    "a limit kept it from moving anything": ("NothingToMove", [TYPO, BINDS], ("False", "LimitBinds"), BINDS["message"]),
    "what it names is not there": ("NothingToMove", [IDLE], ("False", "SelectsNothing"), IDLE["message"]),
    "it failed": ("Failed", [], ("Unknown", "RunFailed"), "the last run failed"),
}


@pytest.mark.parametrize(("verdict", "restrictions", "want", "message"), LAST_RUNS.values(), ids=LAST_RUNS)
def test_a_policy_says_whether_its_last_run_was_kept_from_moving_anything(
    verdict: str, restrictions: list[dict[str, Any]], want: tuple[str, str], message: str
) -> None:
    ran = {"lastRunTime": at(1), "lastVerdict": verdict, "restrictions": restrictions}
    status, reason, said, _ = conditions(known(spec=NIGHTLY, status=ran))[EFFECTIVE]
    assert (status, reason) == want
    assert said.startswith(message)


def test_before_its_first_run_a_policy_says_nothing_of_that() -> None:
    assert EFFECTIVE not in conditions(known(spec=NIGHTLY))
