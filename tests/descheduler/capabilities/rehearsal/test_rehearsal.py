"""The twin that a plan is rehearsed on, and what a rehearsal says of a plan."""

import io
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from berth_core import Pod, PriorityClass
from berth_core.migration_plans import MoveState, MoveStatus, PlanPhase
from berth_core.reservations import ObjectReference
from berth_core.snapshot import Snapshot
from berth_core.workloads import Workload
from berth_descheduler.capabilities.rehearsal.cli.rehearsal import Rehearsal, compare
from berth_descheduler.capabilities.rehearsal.cli.twin import OWNER_LABEL, OwnerKey, Twin, build_twin
from berth_descheduler.capabilities.rehearsal.cli.twin_sandbox import in_twin
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.planner import Plan, plan
from builders import bare_pod, container, disruption_budget, node, owner, pod, volcano_pod, workload
from planner_settings import planner_settings

DEPLOYMENT = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"replicas": 9, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": "web"}}},
}


def twin(
    *pods: Pod,
    workloads: tuple[Workload, ...] = (),
    deployments: tuple[dict[str, Any], ...] = (),
    **rest: Any,  # noqa: ANN401 - fields of the snapshot
) -> Twin:
    return build_twin(Snapshot(nodes=(node("a"), node("b")), pods=pods, workloads=workloads, **rest), deployments)


def only(twin: Twin) -> dict[str, Any]:
    (one,) = twin.owners.values()
    return one.body


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_an_owner_makes_as_many_pods_as_it_has_like_its_first(kind: str) -> None:
    pods = [
        pod(f"db-{number}", node="a", cpu="2", labels={"app": "db"}, controller=owner(kind, "db")) for number in (0, 1)
    ]
    made = twin(*pods)
    spec = only(made)["spec"]
    assert spec["replicas"] == 2
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["template"]["metadata"]["labels"]["app"] == "db"
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert "nodeName" not in spec["template"]["spec"]
    assert [one.body["spec"]["nodeName"] for one in made.pods] == ["a", "a"]
    assert {one.owner for one in made.pods} == {OwnerKey(kind, "default", "db")}


def test_pods_of_two_owners_with_the_same_labels_stay_apart() -> None:
    made = twin(
        pod("x-0", node="a", labels={"app": "x"}, controller=owner(name="x")),
        pod("y-0", node="a", labels={"app": "x"}, controller=owner(name="y")),
    )
    selectors = [one.body["spec"]["selector"]["matchLabels"] for one in made.owners.values()]
    assert selectors[0] != selectors[1]
    assert [one.body["metadata"]["labels"][OWNER_LABEL] for one in made.pods] == [one[OWNER_LABEL] for one in selectors]


def test_pods_of_a_deployment_can_surge_in_the_twin() -> None:
    behind = owner("Deployment", "web")
    made = twin(
        pod("web-0", node="a", controller=owner(name="web-5f")),
        workloads=(workload(name="web-5f", controller=behind),),
        deployments=(DEPLOYMENT,),
    )
    deployment, replica_set = (
        made.owners[OwnerKey("Deployment", "default", "web")],
        made.owners[OwnerKey("ReplicaSet", "default", "web-5f")],
    )
    assert deployment.body["spec"]["strategy"] == {"type": "Recreate"}
    assert deployment.body["spec"]["replicas"] == 1
    assert replica_set.owner == OwnerKey("Deployment", "default", "web")
    hashed = replica_set.body["spec"]["template"]["metadata"]["labels"]
    plain = deployment.body["spec"]["template"]["metadata"]["labels"]
    assert hashed == {**plain, "pod-template-hash": "5f"}
    assert made.pods[0].body["metadata"]["labels"] == hashed


def test_a_deployment_in_the_middle_of_a_roll_out_is_left_out() -> None:
    behind = owner("Deployment", "web")
    made = twin(
        pod("web-0", node="a", controller=owner(name="web-5f")),
        pod("web-1", node="a", controller=owner(name="web-6a")),
        workloads=(workload(name="web-5f", controller=behind), workload(name="web-6a", controller=behind)),
        deployments=(DEPLOYMENT,),
    )
    assert {key.kind for key in made.owners} == {"ReplicaSet"}


def test_owners_that_the_twin_cannot_have_are_played_and_named() -> None:
    made = twin(volcano_pod("train-worker-0", node="a"))
    (key,) = made.owners
    assert key.kind == "ReplicaSet"
    assert "1 pod of Job objects made again by ReplicaSets" in made.left_out


def test_a_daemon_set_of_the_twin_has_pods_where_it_had_some_and_nowhere_else() -> None:
    made = twin(pod("log-x", node="b", controller=owner("DaemonSet", "log")))
    selector = only(made)["spec"]["template"]["spec"]["nodeSelector"]
    on = {one["metadata"]["name"]: selector.items() <= one["metadata"]["labels"].items() for one in made.nodes}
    assert on == {"a": False, "b": True}


def test_pods_that_have_ended_or_are_ending_are_not_made() -> None:
    made = twin(pod("over", phase="Succeeded"), pod("going", node="a", deleted="2026-01-01T00:00:00Z"))
    assert made.pods == ()
    assert made.owners == {}


def test_pods_of_berth_itself_only_keep_their_room() -> None:
    made = twin(bare_pod("operator", namespace="berth-system", node="a", labels={"app": "berth"}))
    (one,) = made.pods
    assert one.body["metadata"] == {"name": "operator", "namespace": "rehearsal-room"}
    assert [space["metadata"]["name"] for space in made.namespaces] == ["rehearsal-room"]


@pytest.mark.parametrize(
    ("spec", "want_name"),
    [
        ({"priority": 7}, "rehearsal-7"),
        ({"priority": -7}, "rehearsal-minus-7"),
        ({"priority": 7, "priority_class_name": "gone"}, "gone"),
        ({"priority": 0}, None),
    ],
)
def test_each_pod_keeps_its_priority(spec: dict[str, Any], want_name: str | None) -> None:
    made = twin(pod("web-0", node="a", **spec))
    assert made.pods[0].body["spec"].get("priorityClassName") == want_name
    want = [] if want_name is None else [(want_name, spec["priority"])]
    assert [(one["metadata"]["name"], one["value"]) for one in made.priority_classes] == want


def test_devices_have_the_limits_that_the_api_server_asks_for() -> None:
    made = twin(pod("gpu-0", node="a", containers=[container(requests={"cpu": "1", "example.com/gpu": "2"})]))
    resources = made.pods[0].body["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"example.com/gpu": "2"}


def test_a_node_that_is_not_ready_takes_no_pods_in_the_twin() -> None:
    made = build_twin(Snapshot(nodes=(node("down", ready=False), node("up"))))
    closed = {one["metadata"]["name"]: one["spec"]["unschedulable"] for one in made.nodes}
    assert closed == {"down": True, "up": False}


def test_a_budget_is_made_as_it_is_without_its_status() -> None:
    made = twin(disruption_budgets=(disruption_budget(min_available="50%", match_labels={"app": "web"}),))
    (budget,) = made.budgets
    assert budget["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    assert "status" not in budget


def test_what_the_twin_lacks_is_said() -> None:
    made = twin(pod("a-0", node="a", scheduler_name="volcano"))
    assert "1 pod of other schedulers placed by kube-scheduler" in made.left_out
    assert any(line.startswith("not rehearsed: admission webhooks") for line in made.left_out)


# --- comparison ------------------------------------------------------------------------------------------------------

NODES = (node("high", cpu="10"), node("low", cpu="10"))
PODS = (
    pod("big", node="high", cpu="8", controller=owner(name="big")),
    pod("web-0", node="low", cpu="1"),
    pod("web-1", node="low", cpu="500m"),
)
SNAPSHOT = Snapshot(nodes=NODES, pods=PODS, workloads=(workload(replicas=2), workload(name="big")))


@pytest.fixture(scope="module")
def planned() -> Plan:
    found = plan(SNAPSHOT, planner_settings())
    assert len(found.moves) == 2
    return found


def rehearsed(planned: Plan, *states: MoveState, freed: tuple[str, ...] = ("low",), note: str = "") -> Rehearsal:
    pairs = zip(planned.moves, states, strict=True)
    statuses = tuple(MoveStatus(namespace=move.namespace, pod=move.pod, state=state) for move, state in pairs)
    done = PlanOutcome(
        plan="p", phase=PlanPhase.SUCCEEDED, statuses=statuses, freed_nodes=freed, seconds=41.2, note=note
    )
    return compare(planned.moves, planned, Outcome(Verdict.CARRIED_OUT, done))


def test_a_rehearsal_in_which_all_pods_land_says_so(planned: Plan) -> None:
    done = rehearsed(planned, MoveState.LANDED, MoveState.LANDED)
    assert done.as_predicted
    assert done.sentence == "rehearsed: 2 of 2 moves as predicted; 1 of 1 node freed; 41 s"


@pytest.mark.parametrize("state", [MoveState.ELSEWHERE, MoveState.FAILED, MoveState.SKIPPED, MoveState.REMOVED])
def test_a_pod_that_did_not_land_as_planned_is_a_difference(planned: Plan, state: MoveState) -> None:
    done = rehearsed(planned, MoveState.LANDED, state, freed=())
    assert not done.as_predicted
    document = msgspec.to_builtins(done.describe())
    assert (document["movesAsPredicted"], document["nodesNotFreed"]) == (1, ("low",))
    assert [(one["index"], one["state"]) for one in document["differences"]] == [(1, state.value)]


def test_a_plan_that_was_stopped_differs(planned: Plan) -> None:
    done = rehearsed(planned, MoveState.LANDED, MoveState.LANDED, note="the operator is gone")
    assert not done.as_predicted
    assert done.sentence.endswith(". Stopped: the operator is gone")


def test_moves_of_a_plan_that_did_not_begin_are_not_as_predicted(planned: Plan) -> None:
    done = compare(planned.moves, planned, Outcome(Verdict.LEASE_HELD))
    assert [one.as_predicted for one in done.moves] == [False, False]
    assert not done.as_predicted


def test_people_see_each_pod_that_differed_with_the_reason(planned: Plan) -> None:
    done = rehearsed(planned, MoveState.LANDED, MoveState.FAILED)
    status = msgspec.structs.replace(done.moves[1].status, reason="EvictionBlocked", message="a budget forbids it")
    done = replace(done, moves=(done.moves[0], replace(done.moves[1], status=status)), left_out=("no volumes",))
    text = io.StringIO()
    done.print_on(Console(file=text, width=160))
    lines = text.getvalue()
    assert "1 of 2 moves as predicted" in lines
    assert f"default/{planned.moves[1].pod}" in lines
    assert "EvictionBlocked: a budget forbids it" in lines
    assert lines.rstrip().endswith("no volumes")


def test_a_move_names_the_pod_and_the_owner_of_the_twin(planned: Plan) -> None:
    move = planned.moves[0]
    key = OwnerKey("ReplicaSet", "default", "web")
    found = in_twin(move, SNAPSHOT, {key: "new-owner"}, {f"default/{move.pod}": "new-pod"})
    assert (found.pod_uid, found.source, found.target) == ("new-pod", move.source, move.target)
    assert found.owner == ObjectReference(
        api_version="apps/v1", kind="ReplicaSet", namespace="default", name="web", uid="new-owner"
    )


def test_classes_of_the_snapshot_are_made_but_for_those_that_every_cluster_has() -> None:
    classes = tuple(
        PriorityClass(metadata=msgspec.structs.replace(PODS[0].metadata, name=name, namespace=""), value=value)
        for name, value in (("gold", 100), ("system-node-critical", 2_000_001_000))
    )
    made = twin(priority_classes=classes)
    assert [(one["metadata"], one["value"]) for one in made.priority_classes] == [({"name": "gold"}, 100)]
