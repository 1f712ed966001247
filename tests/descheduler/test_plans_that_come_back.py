"""A plan that comes back from a backup, or is replaced by force, is not carried out again."""

from datetime import timedelta
from typing import Any, Final

import pytest

from berth_core.clock import SystemClock, format_timestamp, parse_timestamp
from berth_core.labels import PLAN_UID_ANNOTATION
from berth_core.migration_plans import MigrationPlan, PlanPhase, RunMode
from berth_descheduler.controller.decisions import choose_task, plans_to_end
from berth_descheduler.migration.plans.recovery import RecoveryAction, choose_recovery
from berth_kube.resources import MIGRATION_PLANS
from descheduler.fake_cluster import FakeCluster, fragmented_cluster
from descheduler.test_plan_setbacks import OTHER, add
from descheduler.test_policy_service import LONG, ask, is_in, plans, put, serving
from waiting import eventually

NOW: Final = parse_timestamp("2026-06-01T12:00:00Z")
LATER, EARLIER = (format_timestamp(NOW + timedelta(hours=hours)) for hours in (1, -1))
MOVE: Final = {"namespace": "shop", "pod": "web-1", "source": "a", "target": "b"}


def plan(
    *,
    noted: str | None = "uid",
    phase: str = "",
    filled: bool = True,
    approved: bool = True,
    **spec: Any,  # noqa: ANN401 - fields of the spec
) -> MigrationPlan:
    """Return an Auto plan of the uid `uid`, with what a backup keeps of it, and its phase if it keeps that."""
    parts = {"predicted": {"nodes": 2, "moves": 1, "waves": 1}, "moves": [MOVE]} if filled else {}
    body = {"policy": "", "mode": "Auto", "approved": approved, **parts, **spec}
    notes = {} if noted is None else {PLAN_UID_ANNOTATION: noted}
    metadata = {"name": "plan", "uid": "uid", "annotations": notes, "creationTimestamp": format_timestamp(NOW)}
    return MigrationPlan.from_api({"metadata": metadata, "spec": body, "status": {"phase": phase} if phase else {}})


CAME_BACK: Final = {
    "one that was published, without its status": plan(noted="before"),
    "one that ran, with its status": plan(noted="before", phase="Running"),
    "one that was approved, with its status": plan(noted="before", phase="Approved", mode="Approve"),
    "one of an older release, without its status": plan(noted=None),
    "one that waited for its approval": plan(noted="before", approved=False, mode="Approve"),
    "a request that was ended": plan(noted="before", filled=False, approved=False),
}
AS_IT_WAS: Final = {
    "one that is about to begin": plan(phase="Approved"),
    "one whose status was not written": plan(),
    "one of an older release": plan(noted=None, phase="Approved"),
    "one that is written by hand": plan(noted=None, predicted=None),
}


@pytest.mark.parametrize("restored", CAME_BACK.values(), ids=CAME_BACK)
def test_a_plan_that_came_back_is_ended_and_not_begun(restored: MigrationPlan) -> None:
    assert choose_task({}, [restored], NOW) is None
    (ending,) = plans_to_end({}, [restored], NOW)
    assert (ending.plan, ending.phase) == (restored, PlanPhase.ABORTED)
    assert "it came back from a backup or was replaced" in ending.message


@pytest.mark.parametrize("as_it_was", AS_IT_WAS.values(), ids=AS_IT_WAS)
def test_a_plan_that_is_the_object_that_it_was_begins(as_it_was: MigrationPlan) -> None:
    assert choose_task({}, [as_it_was], NOW) is not None


def test_a_run_by_hand_continues_no_plan_that_came_back() -> None:
    for restored in (plan(noted="before", phase="Running"), plan(noted="before", mode=None)):
        assert choose_recovery(restored, NOW, 3600) is RecoveryAction.ABORT_AS_COME_BACK
    over = plan(noted="before", phase="Succeeded")
    assert choose_recovery(over, NOW, 3600) is RecoveryAction.LEAVE
    assert plans_to_end({}, [over], NOW) == ()


LATE: Final = {
    "approved": plan(phase="Approved", approveBefore=EARLIER, mode="Approve"),
    "of the mode Auto": plan(phase="Approved", approveBefore=EARLIER),
    "asked for": plan(noted=None, filled=False, approved=False, approveBefore=EARLIER),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_plan_does_not_begin_after_its_time(late: MigrationPlan) -> None:
    assert choose_task({}, [late], NOW) is None
    (ending,) = plans_to_end({}, [late], NOW)
    assert ending.message == "aborted: it did not begin in time"


def test_a_plan_that_is_only_shown_stays() -> None:
    shown = plan(phase="Proposed", mode="Plan", approved=False, approveBefore=EARLIER)
    assert plans_to_end({}, [shown], NOW) == ()


# --- what the service does --------------------------------------------------------------------------------------------


def restored(stored: dict[str, Any]) -> dict[str, Any]:
    """Return what `kubectl get` and `kubectl replace --force` make of a plan."""
    kept = {key: value for key, value in stored["metadata"].items() if key in {"name", "labels", "annotations"}}
    return {"metadata": {**kept, "uid": "uid-anew"}, "spec": stored["spec"], "status": {}}


def carried_out(cluster: FakeCluster, name: str) -> dict[str, Any]:
    """Carry out a plan that is written by hand; return it as it is stored then."""
    add(cluster, name, OTHER)
    with serving(cluster):
        eventually("it is carried out", is_in(cluster, name, PlanPhase.SUCCEEDED), seconds=LONG)
    return next(body for body in cluster.raw(MIGRATION_PLANS) if body["metadata"]["name"] == name)


def test_a_plan_that_was_carried_out_and_comes_back_is_ended_by_the_service() -> None:
    before = fragmented_cluster()
    put(before)
    stored = carried_out(before, "again")
    assert stored["metadata"]["annotations"][PLAN_UID_ANNOTATION] == stored["metadata"]["uid"]

    after = fragmented_cluster()
    put(after)
    after.add(MIGRATION_PLANS, restored(stored))
    with serving(after):
        eventually("it is ended", is_in(after, "again", PlanPhase.ABORTED), seconds=LONG)
    assert after.reservations() == []
    (ended,) = plans(after)
    assert ended.status.message.startswith("aborted: it came back from a backup")


def test_a_request_does_not_count_for_ever() -> None:
    cluster = fragmented_cluster()
    put(cluster)
    ask(cluster, RunMode.AUTO)
    (requested,) = plans(cluster)
    assert requested.spec.approve_before is not None
    left = parse_timestamp(requested.spec.approve_before) - SystemClock().now()
    assert timedelta(hours=23) < left <= timedelta(hours=24)
