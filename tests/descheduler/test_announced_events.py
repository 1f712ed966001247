"""The claims about the events on plans and policies: what each says, and about which object."""

import threading
from dataclasses import dataclass

import msgspec
import pytest

from berth_core import ObjectMeta
from berth_core.migration_plans import MigrationPlan, PlannedMove
from berth_core.policies import DeschedulerPolicy, DeschedulerPolicySpec
from berth_core.reservations import ObjectReference
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.event_reasons import EventReason, PolicyEventReason
from berth_descheduler.migration.plans.events import announce, announce_eviction
from berth_descheduler.observers import CycleObserver
from berth_kube.errors import ForbiddenError
from berth_kube.resources import EVENTS, PODS
from builders import NOON_TEXT, FakeClock
from descheduler.cycle_settings import PLANNER, BriskClock, impatient
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster

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
    cluster.faults["create events"] = [ForbiddenError(call("create", EVENTS, ""), failure(403, "not you"))]

    announce(cluster, FakeClock(), PLAN, EventReason.FINISHED, "so it was")  # type: ignore[arg-type]

    assert not cluster.raw(EVENTS)


MOVE = PlannedMove(
    namespace="shop",
    pod="web-1",
    pod_uid="uid-of-pod",
    owner=ObjectReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-of-web"),
    source="node-a",
    target="node-b",
)


def told(cluster: FakeCluster) -> dict[tuple[str, str], str]:
    """Return the message of each event by kind and UID of its object."""
    found = cluster.raw(EVENTS)
    assert {one["reason"] for one in found} == {"EvictedByPlan"}
    assert {(one["metadata"]["namespace"], one["involvedObject"]["namespace"]) for one in found} == {("shop", "shop")}
    return {(one["involvedObject"]["kind"], one["involvedObject"]["uid"]): one["message"] for one in found}


def test_an_evicted_pod_and_its_controller_are_told_from_where_to_where_and_why() -> None:
    cluster = FakeCluster()
    announce_eviction(cluster, FakeClock(), "plan-1", MOVE)  # type: ignore[arg-type]

    rest = "from node-a by the plan plan-1; its replacement has a place on node-b"
    assert told(cluster) == {
        ("Pod", "uid-of-pod"): f"evicted {rest}",
        ("ReplicaSet", "uid-of-web"): f"pod web-1 was evicted {rest}",
    }


def test_a_pod_that_is_evicted_without_a_target_is_told_why() -> None:
    cluster = FakeCluster()
    why = "LentNodes: the lent node node-a is due to be empty; no other node is tried"
    move = msgspec.structs.replace(MOVE, owner=None, target="", reason=why)
    announce_eviction(cluster, FakeClock(), "plan-1", move)  # type: ignore[arg-type]
    (said,) = told(cluster).values()
    assert said == f"evicted from node-a by the plan plan-1; it has no place elsewhere: {why}"


def test_a_pod_whose_controller_is_not_known_is_told_alone() -> None:
    cluster = FakeCluster()
    announce_eviction(cluster, FakeClock(), "plan-1", msgspec.structs.replace(MOVE, owner=None))  # type: ignore[arg-type]
    assert list(told(cluster)) == [("Pod", "uid-of-pod")]


def test_every_eviction_of_a_run_is_told_and_none_that_was_refused() -> None:
    cluster = fragmented_cluster()

    def refuse(verb: str, _plural: str, name: str) -> None:
        if (verb, name) == ("evict", "api-1"):
            raise ForbiddenError(call("evict", PODS, name), failure(403, "no"))

    cluster.before = refuse
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    Cycle(around, impatient("gap_seconds"), PLANNER).run()

    evicted = {("Pod", call.name) for call in cluster.calls if call.verb == "evict"}
    about = [one["involvedObject"] for one in cluster.raw(EVENTS) if one["reason"] == "EvictedByPlan"]
    assert ("Pod", "web-2") in evicted
    assert {(one["kind"], one["name"]) for one in about} == evicted | {("ReplicaSet", "web")}
