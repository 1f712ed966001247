"""Drains that were asked for and that the service carries out."""

import pytest

from berth_core.clock import SystemClock
from berth_core.migration_plans import MoveMethod, PlanPhase, RunMode
from berth_descheduler.capabilities.drain.plugin import NodeDrain
from berth_descheduler.controller.decisions import plans_to_end
from berth_descheduler.migration.plans import requests as plan_requests
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS
from descheduler.fake_cluster import FakeCluster, evicted, fragmented_cluster, pod
from descheduler.test_policy_service import LONG, approve, is_in, plans, put, serving
from descheduler.test_policy_work import NOW
from descheduler.test_policy_work import plan as stored_plan
from waiting import eventually


@pytest.fixture
def cluster() -> FakeCluster:
    return fragmented_cluster()


def ask_for_drain(cluster: FakeCluster, mode: RunMode, *nodes: str, closed: bool = True) -> str:
    for name in nodes:
        cluster.merge_patch(NODES, name, {"spec": {"unschedulable": closed or None}})
    objective = NodeDrain(nodes=frozenset(nodes)).objective
    return plan_requests.request_drain(cluster, SystemClock(), objective, mode=mode).metadata.name  # type: ignore[arg-type]


def message(cluster: FakeCluster, plan: str) -> str:
    (found,) = (one for one in plans(cluster) if one.metadata.name == plan)
    return found.status.message


def test_a_drain_that_was_asked_for_is_carried_out_by_no_policys_rules(cluster: FakeCluster) -> None:
    put(cluster, limits={"maxMoves": 1, "podCoolDown": "10h"})
    with serving(cluster) as replica:
        name = ask_for_drain(cluster, RunMode.AUTO, "low-1", "low-2")
        eventually("it is over", is_in(cluster, name, PlanPhase.SUCCEEDED), seconds=LONG)
        ran = {"policy": "", "verdict": "CarriedOut"}
        eventually("the run is counted", lambda: replica.sample("berth_policy_runs_total", **ran) == 1, seconds=LONG)
    assert (cluster.pods_on("low-1"), cluster.pods_on("low-2")) == ([], [])
    (plan,) = plans(cluster)
    assert (plan.spec.trigger, plan.spec.objective.plugin) == ("Request", "NodeDrain")
    assert {move.method for move in plan.spec.moves} == {MoveMethod.SURGE}


def test_a_drain_waits_for_its_approval(cluster: FakeCluster) -> None:
    with serving(cluster):
        name = ask_for_drain(cluster, RunMode.APPROVE, "low-1")
        eventually("it is proposed", is_in(cluster, name, PlanPhase.PROPOSED), seconds=LONG)
        assert not evicted(cluster)
        approve(cluster, name)
        eventually("it is over", is_in(cluster, name, PlanPhase.SUCCEEDED), seconds=LONG)
    assert cluster.pods_on("low-1") == []


def test_a_drain_for_looking_at_names_the_pods_that_cannot_go(cluster: FakeCluster) -> None:
    bare = pod("alone", "nobody", "low-2", cpu="100m")
    del bare["metadata"]["ownerReferences"]
    cluster.add(PODS, bare)
    with serving(cluster):
        good = ask_for_drain(cluster, RunMode.PLAN, "low-1", closed=False)
        eventually("its plan is shown", is_in(cluster, good, PlanPhase.PROPOSED), seconds=LONG)
        bad = ask_for_drain(cluster, RunMode.PLAN, "low-2", closed=False)
        eventually("it is aborted", is_in(cluster, bad, PlanPhase.ABORTED), seconds=LONG)
    assert message(cluster, bad) == "Not begun: 1 pod cannot leave: shop/alone (NoController)."
    assert not evicted(cluster)


def test_a_drain_of_nodes_that_take_pods_is_not_begun(cluster: FakeCluster) -> None:
    with serving(cluster):
        name = ask_for_drain(cluster, RunMode.AUTO, "low-1", "low-2", closed=False)
        eventually("it is aborted", is_in(cluster, name, PlanPhase.ABORTED), seconds=LONG)
    assert message(cluster, name) == "Not begun: not cordoned: low-1, low-2."
    assert not evicted(cluster)


def test_a_plan_of_no_policy_drains_only_the_nodes_that_it_names(cluster: FakeCluster) -> None:
    """Else anybody's moves would be carried out, by no policy's limits."""
    with serving(cluster):
        name = ask_for_drain(cluster, RunMode.APPROVE, "low-1")
        eventually("it is proposed", is_in(cluster, name, PlanPhase.PROPOSED), seconds=LONG)
        (plan,) = cluster.raw(MIGRATION_PLANS)
        plan["spec"]["objective"]["args"]["nodes"] = ["low-2"]
        cluster.merge_patch(MIGRATION_PLANS, name, {"spec": plan["spec"]})
        approve(cluster, name)
        eventually("nothing of it is done", is_in(cluster, name, PlanPhase.FAILED), seconds=LONG)
    (found,) = plans(cluster)
    assert {move.reason for move in found.status.moves} == {"PolicyMissing"}
    assert {move.message for move in found.status.moves} == {"it moves pods off other nodes than those that it drains"}
    assert not evicted(cluster)


def test_a_requested_drain_is_no_plan_of_a_policy_that_is_gone() -> None:
    asked = stored_plan(phase="Requested", policy="", objective={"plugin": "NodeDrain", "args": {"nodes": ["n1"]}})

    assert plans_to_end({}, [asked], NOW) == ()


def test_a_requested_drain_that_says_no_nodes_is_ended() -> None:
    (ending,) = plans_to_end({}, [stored_plan(policy="", objective={"plugin": "NodeDrain"})], NOW)

    assert ending.message.startswith("aborted: ")
    assert "spec.objective.args.nodes" in ending.message
