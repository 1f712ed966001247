"""A cycle with `StarvingJobs`, on an API server in memory: what it keeps waits in a Reservation of the job's own."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from berth_core import POLICY_LABEL, STARVING_JOB_LABEL, STARVING_JOBS
from berth_core.migration_plans import MigrationPlan, PlanPhase, RunMode
from berth_core.plan_rooms import RoomReason, RoomState
from berth_core.reservations import Reservation
from berth_descheduler.capabilities.starving_jobs.plugin import StarvingJobs
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.migration.manifests.room_reservations import job_reservation_name
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.plugins import default_plugins, settings_with
from berth_descheduler.settings import Approval, CycleSettings
from berth_kube.errors import ServerError
from berth_kube.resources import MIGRATION_PLANS, RESERVATIONS
from builders import NOON
from descheduler.cycle_settings import SETTINGS, BriskClock
from descheduler.fake_cluster import Raw, call, failure
from descheduler.room_cluster import LARGE, RoomCluster

OWN = replace(SETTINGS, policy="starving")


@pytest.fixture
def cluster() -> RoomCluster:
    """The nodes are full of pods that end, and `large` was refused by the scheduler an hour ago."""
    found = RoomCluster()
    for raw in found.objects["pods"].values():
        raw["spec"]["restartPolicy"] = "Never"
        raw["metadata"].pop("ownerReferences", None)
    large = found.objects["pods"]["shop", LARGE]
    large["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return found


def asking(**args: Any) -> PlannerSettings:  # noqa: ANN401 - the plugin's arguments
    plugin = StarvingJobs.parse(
        {
            "starvingJobTimeThreshold": 60,
            "reservedNodePercent": 50,
            "namespaceNodePercent": 50,
            "moves": "Never",
            **args,
        }
    )
    plugins = replace(default_plugins(), balance=Enabled(STARVING_JOBS, plugin))
    return settings_with(PlannerSettings(plugins=plugins).at(NOON + timedelta(hours=1)), plugins)


def cycle(cluster: RoomCluster, settings: CycleSettings = OWN, planner: PlannerSettings | None = None) -> Cycle:
    around = CycleContext(cluster, BriskClock(), CycleObserver(), threading.Event())  # type: ignore[arg-type]
    return Cycle(around, settings, planner or asking())


def run(cluster: RoomCluster, settings: CycleSettings = OWN, planner: PlannerSettings | None = None) -> Outcome:
    return cycle(cluster, settings, planner).run()


def reservations(cluster: RoomCluster) -> list[Raw]:
    return list(cluster.objects["reservations"].values())


def rooms(outcome: Outcome) -> list[tuple[RoomState, str]]:
    assert outcome.plan is not None
    return [(room.state, room.reason) for room in outcome.plan.rooms]


def test_the_reservation_waits_behind_a_fence_and_is_the_jobs_own(cluster: RoomCluster) -> None:
    outcome = run(cluster)
    assert (rooms(outcome), outcome.clean) == ([(RoomState.WAITING, "")], True)
    assert cluster.plan()["status"]["phase"] == PlanPhase.SUCCEEDED.value
    [found] = reservations(cluster)
    meta, spec = found["metadata"], found["spec"]
    assert meta["labels"][STARVING_JOB_LABEL] == f"uid-{LARGE}"
    assert meta["annotations"] == {POLICY_LABEL: "starving"}
    owned = {"apiVersion": "v1", "kind": "Pod", "name": LARGE, "uid": f"uid-{LARGE}", "blockOwnerDeletion": False}
    assert meta["ownerReferences"] == [owned]
    assert (spec["capacity"], spec["fence"], spec["ttl"]) == ("WhenFree", "Node", "24h0m0s")
    assert "allOrNothing" not in spec
    [task] = spec["tasks"]
    assert (task["replicas"], len(task["reservationNodeNames"])) == (1, 1)
    assert [owner["object"]["uid"] for owner in spec["owners"]] == [f"uid-{LARGE}"]
    assert "No pod had to move" in outcome.sentence
    assert (
        f"its Reservation {meta['name']} waits until pods on {task['reservationNodeNames'][0]} have ended"
        in outcome.sentence
    )


def test_nothing_is_tainted_evicted_or_left_for_the_next_run(cluster: RoomCluster) -> None:
    run(cluster)
    assert cluster.taints() == {}
    assert not [call for call in cluster.calls if call.verb == "evict"]
    assert run(cluster).verdict is Verdict.NOTHING_TO_MOVE
    assert len(reservations(cluster)) == 1


@pytest.mark.parametrize(("is_own", "want"), [(True, {"NothingReserved"}), (False, set())], ids=["its own", "another"])
def test_only_a_plan_of_its_own_says_for_which_jobs_nothing_is_reserved(
    cluster: RoomCluster, *, is_own: bool, want: set[str]
) -> None:
    cluster.objects["pods"]["shop", LARGE]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    plugins = default_plugins()
    run(cluster, OWN, asking() if is_own else settings_with(PlannerSettings(plugins=plugins), plugins))
    on_pods = [event for event in cluster.objects["events"].values() if event["involvedObject"]["kind"] == "Pod"]
    assert {event["reason"] for event in on_pods} == want


@pytest.mark.parametrize("mode", [RunMode.PLAN, RunMode.APPROVE])
def test_a_plan_only_shows_what_it_would_keep_until_it_is_approved(cluster: RoomCluster, mode: RunMode) -> None:
    outcome = run(cluster, replace(OWN, mode=mode, approval=Approval.APPROVE))
    [room] = cluster.plan()["spec"]["rooms"]
    assert (room["capacity"], room["job"]["kind"], room["ttl"]) == ("WhenFree", "Pod", "24h0m0s")
    assert f"Nodes are kept for shop/{LARGE} on" in outcome.sentence
    assert reservations(cluster) == []


def test_an_interrupted_run_is_continued_without_a_second_reservation(cluster: RoomCluster) -> None:
    run(cluster)
    plan = cluster.plan()
    plan["status"] = {"phase": "Running", "startTime": plan["status"]["startTime"]}
    outcome = run(cluster)
    [adopted] = outcome.adopted
    assert [room.state for room in adopted.rooms] == [RoomState.WAITING]
    assert len(reservations(cluster)) == 1


def approved_later(cluster: RoomCluster) -> Outcome:
    """Carry out a plan that was proposed on the cluster as it was before."""
    plan = cluster.get(MIGRATION_PLANS, cluster.plan()["metadata"]["name"], type=MigrationPlan)
    return cycle(cluster).resume(plan)


def test_a_job_that_was_placed_before_the_approval_gets_nothing(cluster: RoomCluster) -> None:
    run(cluster, replace(OWN, mode=RunMode.APPROVE, approval=Approval.APPROVE))
    cluster.objects["pods"]["shop", LARGE]["spec"]["nodeName"] = "tight"
    assert rooms(approved_later(cluster)) == [(RoomState.RELEASED, RoomReason.POD_PLACED.value)]
    assert reservations(cluster) == []


def test_no_more_nodes_are_fenced_than_allowed_when_the_approval_comes(cluster: RoomCluster) -> None:
    run(cluster, replace(OWN, mode=RunMode.APPROVE, approval=Approval.APPROVE))
    [slot] = cluster.plan()["spec"]["rooms"][0]["slots"]
    other = next(name for name in ("tight", "roomy-1", "roomy-2") if name != slot["node"])
    template = {"spec": {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1"}}}]}}
    task = {"name": "a", "template": template, "reservationNodeNames": [other]}
    fenced = {"owners": [], "tasks": [task], "capacity": "WhenFree", "fence": "Node"}
    cluster.add(RESERVATIONS, {"metadata": {"name": "other", "namespace": "shop"}, "spec": fenced})
    assert rooms(approved_later(cluster)) == [(RoomState.FAILED, RoomReason.FENCE_LIMIT.value)]
    assert [one["metadata"]["name"] for one in reservations(cluster)] == ["other"]


def test_a_reservation_that_a_tenant_labelled_in_its_own_namespace_stands_in_for_none(cluster: RoomCluster) -> None:
    forged = {"name": "forged", "namespace": "evil", "labels": {STARVING_JOB_LABEL: f"uid-{LARGE}"}}
    cluster.add(RESERVATIONS, {"metadata": forged, "spec": {"owners": [], "tasks": []}})
    assert rooms(run(cluster)) == [(RoomState.WAITING, "")]
    assert len(reservations(cluster)) == 2


def test_a_call_that_fails_is_made_again(cluster: RoomCluster) -> None:
    cluster.faults["create reservations"] = [ServerError(call("create", RESERVATIONS, "starving"), failure(500))]
    assert rooms(run(cluster)) == [(RoomState.WAITING, "")]
    assert len(reservations(cluster)) == 1


def test_the_name_is_the_jobs_and_no_plans(cluster: RoomCluster) -> None:
    run(cluster)
    [raw] = reservations(cluster)
    found = Reservation.from_api({key: raw[key] for key in ("metadata", "spec")})
    job = found.spec.owners[0].object
    assert job is not None
    assert found.metadata.name == job_reservation_name(job)
    assert found.plan == ""
