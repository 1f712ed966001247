"""Owns the claims about the events on plans and policies: what each says, and about which object."""

from dataclasses import dataclass

import pytest

from berth_core.migration_plans import MigrationPlan
from berth_core.objects import ObjectMeta
from berth_core.policies import DeschedulerPolicy, DeschedulerPolicySpec
from berth_descheduler.event_reasons import EventReason, PolicyEventReason
from berth_descheduler.execution.announcements import announce
from berth_kube.errors import ForbiddenError
from berth_kube.resources import EVENTS
from builders import NOON_TEXT, FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure

PLAN = MigrationPlan(metadata=ObjectMeta(name="plan-1", uid="uid-of-plan"))
POLICY = DeschedulerPolicy(
    metadata=ObjectMeta(name="nightly", uid="uid-of-policy"), spec=DeschedulerPolicySpec(profiles=())
)


@dataclass(frozen=True)
class Case:
    about: MigrationPlan | DeschedulerPolicy
    reason: EventReason | PolicyEventReason
    bad: bool
    want: tuple[str, str, str, str, str]
    """Type and reason of the event; kind, name and UID of the object."""


CASES = {
    "a plan that began": Case(
        PLAN, EventReason.STARTED, bad=False, want=("Normal", "Started", "MigrationPlan", "plan-1", "uid-of-plan")
    ),
    "a plan of which a move failed": Case(
        PLAN,
        EventReason.MOVE_FAILED,
        bad=True,
        want=("Warning", "MoveFailed", "MigrationPlan", "plan-1", "uid-of-plan"),
    ),
    "a policy whose run ended": Case(
        POLICY,
        PolicyEventReason.RUN_ENDED,
        bad=False,
        want=("Normal", "RunEnded", "DeschedulerPolicy", "nightly", "uid-of-policy"),
    ),
    "a policy with a mistake": Case(
        POLICY,
        PolicyEventReason.INVALID,
        bad=True,
        want=("Warning", "InvalidPolicy", "DeschedulerPolicy", "nightly", "uid-of-policy"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_event_says_what_happened_and_to_what(case: Case) -> None:
    cluster = FakeCluster()

    announce(cluster, FakeClock(), case.about, case.reason, "so it was", bad=case.bad)  # type: ignore[arg-type]

    (event,) = cluster.raw(EVENTS)
    about = event["involvedObject"]
    assert (event["type"], event["reason"], about["kind"], about["name"], about["uid"]) == case.want
    assert about["apiVersion"] == "berth.volcano.sh/v1alpha1"
    assert (event["message"], event["firstTimestamp"]) == ("so it was", NOON_TEXT)
    assert event["reportingComponent"] == "berth-descheduler"


def test_what_cannot_be_told_hinders_nothing() -> None:
    cluster = FakeCluster()
    cluster.faults["create", "events"] = [ForbiddenError(call("create", EVENTS, ""), failure(403, "not you"))]

    announce(cluster, FakeClock(), PLAN, EventReason.FINISHED, "so it was")  # type: ignore[arg-type]

    assert not cluster.raw(EVENTS)
