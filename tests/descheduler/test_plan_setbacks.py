"""One plan or policy that cannot be worked on keeps no other waiting, and a plan that never works is Failed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from berth_core.clock import SystemClock, format_timestamp
from berth_core.errors import InputError, PermanentError, RetryableError
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.policies import DeschedulerPolicy
from berth_descheduler.controller import store
from berth_descheduler.controller.decisions import ResumePlan, choose_task, pause_until, plans_to_end
from berth_descheduler.controller.failure_backoff import FailureBackoff
from berth_descheduler.migration.plans.recovery import recover_plans
from berth_descheduler.policy.parsing import PolicyRun, read_policy
from berth_kube.errors import ForbiddenError, InvalidObjectError
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS, NODES
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from descheduler.test_policy_service import LONG, is_in, plans, policy, put, serving
from waiting import eventually

NOW: Final = datetime(2026, 6, 1, 10, 0, tzinfo=UTC)
FAR: Final = "9999-12-31T23:59:59-23:59"
LONG_NAME: Final = "a-plan-" + 57 * "x"


def move(pod: str, source: str, target: str) -> dict[str, Any]:
    """Return a move as a person writes it from a look at the cluster."""
    name = pod.split("-", maxsplit=1)[0]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "namespace": "shop", "name": name, "uid": f"uid-{name}"}
    return {
        "namespace": "shop",
        "pod": pod,
        "podUID": f"uid-{pod}",
        "owner": owner,
        "source": source,
        "target": target,
    }


WEB: Final = move("web-1", "low-1", "high-1")
API: Final = move("api-1", "low-1", "high-1")
OTHER: Final = move("web-2", "low-2", "high-2")


def stored(name: str, *moves: dict[str, Any], **spec: Any) -> MigrationPlan:  # noqa: ANN401 - fields of an API object
    """Return a plan as it was stored by an older CRD that checked nothing."""
    body = {"policy": "p", "mode": "Approve", "approved": True, "moves": [*moves], **spec}
    metadata = {"name": name, "uid": name, "creationTimestamp": format_timestamp(NOW)}
    return MigrationPlan.from_api({"metadata": metadata, "spec": body})


def add(cluster: FakeCluster, name: str, *moves: dict[str, Any], **spec: Any) -> None:  # noqa: ANN401 - fields of an API object
    body = {"policy": "p", "mode": "Approve", "approved": True, "moves": [*moves], **spec}
    cluster.add(MIGRATION_PLANS, {"metadata": {"name": name}, "spec": body, "status": {}})


@pytest.fixture
def cluster() -> FakeCluster:
    return fragmented_cluster()


# --- what is decided --------------------------------------------------------------------------------------------------

FAULTS: Final = {
    "a name that is no label": (
        stored(LONG_NAME, WEB),
        "Failed: metadata.name is 64 characters long; expected up to 63",
    ),
    "a time after all years": (
        stored("x", WEB, approveBefore=FAR),
        f"Failed: spec.approveBefore is '{FAR}'; expected an RFC 3339 time",
    ),
    "a request until then": (
        stored("x", mode="Auto", approved=False, approveBefore=FAR),
        f"Failed: spec.approveBefore is '{FAR}'; expected an RFC 3339 time",
    ),
}


@pytest.mark.parametrize(("plan", "want"), FAULTS.values(), ids=FAULTS)
def test_a_plan_that_can_never_be_carried_out_is_failed_and_not_worked_on(plan: MigrationPlan, want: str) -> None:
    good = stored("good", OTHER)
    (ending, *rest) = plans_to_end({}, [plan, good], NOW)
    assert (ending.plan, ending.phase) == (plan, PlanPhase.FAILED)
    assert ending.message.startswith(want)
    assert [one.plan for one in rest] == [good]
    assert choose_task({}, [plan, good], NOW) == ResumePlan(good)
    assert pause_until([], [plan], NOW, 10.0) == 10.0


def test_what_failed_lately_waits_and_the_next_goes_first() -> None:
    first, second = stored("a", WEB), stored("b", OTHER)
    assert choose_task({}, [first, second], NOW) == ResumePlan(first)
    assert choose_task({}, [first, second], NOW, {"a"}) == ResumePlan(second)


ERRORS: Final = {
    "the same permanent error twice": ([PermanentError("no"), PermanentError("no")], True),
    "the same mistake twice": ([OverflowError("too far"), OverflowError("too far")], True),
    "the same bad input twice": ([InputError("a", "b", "c"), InputError("a", "b", "c")], True),
    "another permanent error": ([PermanentError("no"), PermanentError("nor this")], False),
    "five permanent errors": ([PermanentError(str(number)) for number in range(5)], True),
    "what passes": ([RetryableError("later")] * 20, False),
    "a right that somebody may give": (
        [ForbiddenError(call("get", NODES, "n"), failure(403, "not allowed"))] * 20,
        False,
    ),
}


@pytest.mark.parametrize(("errors", "want"), ERRORS.values(), ids=ERRORS)
def test_only_a_permanent_error_that_comes_again_is_final(errors: list[Exception], want: bool) -> None:  # noqa: FBT001 - a table's column
    setbacks = FailureBackoff()
    said = [setbacks.note("x", error, NOW) for error in errors]
    assert said == [False] * (len(errors) - 1) + [want]


def test_a_setback_waits_longer_each_time_and_is_forgotten_when_it_is_over() -> None:
    setbacks, pauses = FailureBackoff(), []
    for _ in range(12):
        setbacks.note("x", RetryableError("later"), NOW)
        pauses.append(setbacks.waiting(NOW)["x"] - NOW)
    assert pauses[:3] == [timedelta(seconds=2), timedelta(seconds=4), timedelta(seconds=8)]
    assert pauses[-1] == timedelta(minutes=5)
    assert setbacks.waiting(NOW + timedelta(minutes=5)) == {}
    setbacks.forget("x")
    setbacks.note("x", RetryableError("later"), NOW)
    assert setbacks.waiting(NOW)["x"] - NOW == timedelta(seconds=2)


# --- what the service makes of it -------------------------------------------------------------------------------------


def test_plans_that_no_crd_checked_are_ended_and_another_is_carried_out_beside_them(cluster: FakeCluster) -> None:
    put(cluster)
    add(cluster, LONG_NAME, WEB)
    add(cluster, "a-late", WEB, approveBefore=FAR)
    add(cluster, "a-traversal", {**WEB, "namespace": "../../../apis"}, {**API, "target": "../high-1"})
    add(cluster, "good", OTHER)
    with serving(cluster):
        eventually("the other is carried out", is_in(cluster, "good", PlanPhase.SUCCEEDED), seconds=LONG)
        for name in (LONG_NAME, "a-late", "a-traversal"):
            eventually(f"{name} is ended", is_in(cluster, name, PlanPhase.FAILED), seconds=LONG)
    traversal = next(one for one in plans(cluster) if one.metadata.name == "a-traversal")
    assert [(move.state.value, move.reason) for move in traversal.status.moves] == [("Skipped", "InvalidName")] * 2
    assert traversal.status.moves[0].message.startswith("namespace is '../../../apis'; expected a DNS-1123 label")
    assert "shop/web-1" not in str(cluster.reservations())


PERMANENT: Final[dict[str, Callable[[], Exception]]] = {
    "an answer of the API server": lambda: InvalidObjectError(call("patch", NODES, "low-1"), failure(422, "odd")),
    "a mistake of the program": lambda: OverflowError("date value out of range"),
}


@pytest.mark.parametrize("error", PERMANENT.values(), ids=PERMANENT)
def test_a_plan_that_fails_again_in_the_same_way_is_failed_with_the_reason(
    cluster: FakeCluster, error: Callable[[], Exception]
) -> None:
    def refuse(verb: str, plural: str, name: str) -> None:
        if (verb, plural, name) == ("patch", "nodes", "low-1"):
            raise error()

    put(cluster)
    add(cluster, "a-bad", WEB, API)
    add(cluster, "good", OTHER)
    cluster.before = refuse
    with serving(cluster):
        eventually("the other is carried out", is_in(cluster, "good", PlanPhase.SUCCEEDED), seconds=LONG)
        eventually("the bad one is ended", is_in(cluster, "a-bad", PlanPhase.FAILED), seconds=LONG)
    bad = next(one for one in plans(cluster) if one.metadata.name == "a-bad")
    assert bad.status.message.startswith("Failed: it cannot be carried out: ")
    assert str(error()) in bad.status.message
    assert {move.state.value for move in bad.status.moves} == {"Skipped"}


def test_a_policy_that_cannot_be_read_is_told_and_the_others_run(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(found: DeschedulerPolicy, *rest: Any) -> PolicyRun:  # noqa: ANN401 - passed on
        if found.metadata.name == "a-bad":
            raise RecursionError("too deep")
        return read_policy(found, *rest)

    monkeypatch.setattr(store, "read_policy", read)
    put(cluster, "a-bad", trigger={"interval": "1h"})
    put(cluster, "good", trigger={"interval": "1h"}, mode="Plan")
    far = {"conditions": [{"type": "Scheduled", "status": "True", "lastTransitionTime": FAR}], "lastRunTime": FAR}
    cluster.merge_patch(DESCHEDULER_POLICIES, "good", {"status": far}, subresource="status")
    with serving(cluster):
        eventually("the good one runs", lambda: policy(cluster, "good").status.last_verdict == "Planned", seconds=LONG)
        eventually("the other is told", lambda: policy(cluster, "a-bad").status.conditions, seconds=LONG)
    (valid, _) = policy(cluster, "a-bad").status.conditions
    assert (valid.status, valid.reason) == ("False", "InvalidField")
    assert valid.message.startswith("spec is not readable: RecursionError: too deep")


def test_a_plan_that_somebody_wrote_keeps_the_limits_of_its_policy_as_it_is_now(cluster: FakeCluster) -> None:
    put(cluster, limits={"maxMoves": 1})
    add(cluster, "mine", *({**one, "reason": "it should be elsewhere"} for one in (WEB, API, OTHER)))
    with serving(cluster):
        eventually("it is over", is_in(cluster, "mine", PlanPhase.PARTIAL), seconds=LONG)
    (mine,) = plans(cluster)
    assert [(move.state.value, move.reason) for move in mine.status.moves] == [
        ("Landed", ""),
        ("Skipped", "MoveLimit"),
        ("Skipped", "MoveLimit"),
    ]
    assert mine.status.moves[1].message == "the policy allows 1 move in all, and others come first"


def test_an_approved_plan_without_a_mode_is_not_taken_up(cluster: FakeCluster) -> None:
    put(cluster, trigger={"interval": "1h"}, mode="Plan")
    add(cluster, "mine", WEB, API, mode=None)
    with serving(cluster):
        eventually("it is ended", is_in(cluster, "mine", PlanPhase.ABORTED), seconds=LONG)
        eventually("the policy has run", lambda: policy(cluster).status.last_verdict == "Planned", seconds=LONG)
    mine = next(one for one in plans(cluster) if one.metadata.name == "mine")
    assert mine.status.message.startswith("aborted: only the berth run that makes a plan without spec.mode begins it")
    assert "evict pods web-1" not in cluster.calls


def test_what_was_begun_for_a_policy_that_is_gone_begins_nothing_more(cluster: FakeCluster) -> None:
    add(cluster, "mine", WEB, API)
    begun = {"phase": "Running", "startTime": format_timestamp(SystemClock().now())}
    cluster.merge_patch(MIGRATION_PLANS, "mine", {"status": begun}, subresource="status")
    with serving(cluster):
        eventually("it is ended", is_in(cluster, "mine", PlanPhase.FAILED), seconds=LONG)
    (mine,) = plans(cluster)
    assert {(move.state.value, move.reason) for move in mine.status.moves} == {("Skipped", "PolicyMissing")}
    assert mine.status.moves[0].message == "there is no policy p"


def test_a_plan_that_cannot_be_ended_keeps_no_other_from_it(cluster: FakeCluster) -> None:
    def refuse(verb: str, plural: str, name: str) -> None:
        if (verb, plural, name) == ("patch", "migrationplans", "a"):
            raise InvalidObjectError(call("patch", MIGRATION_PLANS, name), failure(422, "odd"))

    for name in ("a", "b"):
        cluster.add(MIGRATION_PLANS, {"metadata": {"name": name}, "spec": {"moves": [OTHER]}, "status": {}})
    cluster.before = refuse
    assert recover_plans(cluster.as_client(), SystemClock(), 1800, tuple) == ()
    assert {one.metadata.name: one.phase for one in plans(cluster)} == {
        "a": PlanPhase.PROPOSED,
        "b": PlanPhase.ABORTED,
    }
