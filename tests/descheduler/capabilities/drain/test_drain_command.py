"""`berth drain` as people call it, on an API server in memory: what is moved, refused, and taken back."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from berth_core import ObjectMeta
from berth_core.labels import DRAINING_TAINT
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, Objective
from berth_core.snapshot import Snapshot
from berth_descheduler import cycle
from berth_descheduler.capabilities.drain.cli import command as commands
from berth_descheduler.capabilities.drain.cli.options import settings_to_drain
from berth_descheduler.capabilities.drain.plugin import NODE_DRAIN, NodeDrain
from berth_descheduler.cli.main import run
from berth_descheduler.framework import ClusterView
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import WaveLimits, disruption_budgets
from berth_descheduler.policy import without_policy_limits
from berth_descheduler.registry import on_demand
from berth_kube.errors import ForbiddenError
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, NODES, PDBS, PODS, REPLICA_SETS
from builders import node as built_node
from builders import pod as built_pod
from descheduler.fake_cluster import FakeCluster, Raw, blocked, call, evicted, failure, fragmented_cluster, pod
from descheduler.test_surge_of_a_cycle import Surging
from planner_settings import planner_settings

Captured = pytest.CaptureFixture[str]

ALLOWS_NOTHING = {
    "metadata": {"name": "web", "namespace": "shop", "generation": 1},
    "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2},
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Two nodes with room for all, `high-1` and `high-2`, and two with three pods to drain."""
    made = fragmented_cluster()
    monkeypatch.setattr(commands, "connect", lambda **_: made)
    monkeypatch.setattr(commands, "configure_logs", lambda *_, **__: None)
    return made


@pytest.fixture
def surging(monkeypatch: pytest.MonkeyPatch) -> Surging:
    """Return the same cluster with Deployments, and a budget that allows nothing for one of them."""
    made = Surging()
    made.cluster.add(PDBS, ALLOWS_NOTHING)
    monkeypatch.setattr(commands, "connect", lambda **_: made.cluster)
    monkeypatch.setattr(commands, "configure_logs", lambda *_, **__: None)
    # Its ReplicaSets have the names of their Deployments.
    monkeypatch.setattr(disruption_budgets, "deployment_name", lambda _kind, name, _labels: name)
    return made


def drain_json(capsys: Captured, *arguments: str, want: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["drain", *arguments, "--output", "json"]) == want
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def closed(cluster: FakeCluster) -> list[str]:
    return sorted(one["metadata"]["name"] for one in cluster.raw(NODES) if one["spec"].get("unschedulable"))


def close(cluster: FakeCluster, name: str) -> None:
    cluster.merge_patch(NODES, name, {"spec": {"unschedulable": True}})


def bare(name: str, node_name: str) -> Raw:
    made = pod(name, "nobody", node_name, cpu="100m")
    del made["metadata"]["ownerReferences"]
    return made


def of_daemon_set(name: str, node_name: str) -> Raw:
    made = pod(name, "logs", node_name, cpu="100m")
    made["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return made


def mirror(name: str, node_name: str) -> Raw:
    made = bare(name, node_name)
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    return made


def ended(name: str, node_name: str) -> Raw:
    made = bare(name, node_name)
    made["status"]["phase"] = "Succeeded"
    return made


# --- what is moved


def test_every_pod_goes_to_the_node_that_was_planned_and_the_nodes_stay_closed(
    cluster: FakeCluster, capsys: Captured
) -> None:
    done = drain_json(capsys, "low-1", "low-2")

    assert done["complete"]
    assert (cluster.pods_on("low-1"), cluster.pods_on("low-2")) == ([], [])
    assert evicted(cluster) == ["api-1", "web-1", "web-2"]
    targets = {move["target"] for move in done["plan"]["moves"]}
    assert targets <= {"high-1", "high-2"}
    assert done["runs"][-1]["achieved"]["landedOnTarget"] == 3
    assert (done["nodes"], done["cordoned"], done["uncordoned"]) == (["low-1", "low-2"], ["low-1", "low-2"], [])
    assert closed(cluster) == ["low-1", "low-2"]
    assert DRAINING_TAINT not in str(cluster.taints())


def test_pods_of_other_nodes_stay_where_they_are(cluster: FakeCluster, capsys: Captured) -> None:
    drain_json(capsys, "low-1")

    assert evicted(cluster) == ["api-1", "web-1"]
    assert closed(cluster) == ["low-1"]


@pytest.mark.usefixtures("cluster")
def test_a_node_that_is_drained_takes_no_pod_of_another(capsys: Captured) -> None:
    found = drain_json(capsys, "low-1", "low-2", "high-1", "--dry-run", want=1)

    assert {move["target"] for move in found["plan"]["moves"]} == {"high-2"}
    assert [one["pod"] for one in found["plan"]["refused"]] == ["big-1", "web-2"]


def test_what_belongs_to_a_node_or_has_ended_is_left(cluster: FakeCluster, capsys: Captured) -> None:
    for made in (of_daemon_set("logs", "low-2"), mirror("etcd", "low-2"), ended("over", "low-2")):
        cluster.add(PODS, made)

    done = drain_json(capsys, "low-2")

    assert done["complete"]
    assert cluster.pods_on("low-2") == ["etcd", "logs", "over"]


def test_a_drain_that_is_made_again_finds_nothing_to_do(cluster: FakeCluster, capsys: Captured) -> None:
    drain_json(capsys, "low-1")
    cluster.calls.clear()

    again = drain_json(capsys, "low-1")

    assert (again["complete"], again["runs"][-1]["verdict"], again["cordoned"]) == (True, "NothingToMove", [])
    assert evicted(cluster) == []


def test_more_pods_than_one_plan_takes_go_by_several(
    cluster: FakeCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "MOST_MOVES", 2)

    done = drain_json(capsys, "low-1", "low-2")

    assert done["complete"]
    assert [one["achieved"]["landedOnTarget"] for one in done["runs"]] == [2, 1]
    assert len(cluster.raw(MIGRATION_PLANS)) == 2


def test_another_run_is_waited_for(cluster: FakeCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    class Beside(cycle.Cycle):
        """A cycle beside another run, which holds the lease the first two times."""

        def run(self, request: MigrationPlan | None = None) -> Outcome:
            tries.append(request)
            return Outcome(Verdict.LEASE_HELD) if len(tries) < 3 else super().run(request)

    monkeypatch.setattr(commands, "Cycle", Beside)

    done = drain_json(capsys, "low-1")

    assert (len(tries), done["complete"], evicted(cluster)) == (3, True, ["api-1", "web-1"])
    assert [one["verdict"] for one in done["runs"]] == ["CarriedOut"]


def test_the_largest_pods_are_placed_first() -> None:
    nodes = (built_node("one", cpu="10"), built_node("two", cpu="10"))
    small, large = built_pod("a-small", node="one", cpu="1"), built_pod("large", node="one", cpu="4")
    view = ClusterView.of(Snapshot(nodes=nodes, pods=(small, large)))

    assert [one.name for one in NodeDrain(nodes=frozenset({"one"})).deschedule(view)] == ["large", "a-small"]


# --- what is said before anything is evicted


def test_a_pod_that_nothing_would_make_again_keeps_all_others(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(PODS, bare("alone", "low-2"))

    done = drain_json(capsys, "low-1", "low-2", want=1)

    assert (done["runs"][-1]["verdict"], evicted(cluster)) == ("PodsStay", [])
    assert [(one["pod"], one["reason"]) for one in done["plan"]["refused"]] == [("alone", "NoController")]
    assert cluster.raw(MIGRATION_PLANS) == []
    assert closed(cluster) == ["low-1", "low-2"]


def test_it_is_said_which_pod_cannot_go_and_why(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(PODS, bare("alone", "low-2"))

    assert run(["drain", "low-2"]) == 1
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "1 pod cannot go" in said
    assert "shop/alone low-2 NoController" in said
    assert "not drained: 2 pods left: shop/alone on low-2, shop/web-2 on low-2" in said


def test_the_others_are_moved_where_that_is_asked_for(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(PODS, bare("alone", "low-2"))

    done = drain_json(capsys, "low-1", "low-2", "--skip-refused", want=1)

    assert evicted(cluster) == ["api-1", "web-1", "web-2"]
    assert [one["verdict"] for one in done["runs"]] == ["CarriedOut"]
    assert done["remaining"] == [{"namespace": "shop", "name": "alone", "node": "low-2"}]


def test_pods_with_data_on_the_node_go_only_if_that_may_be_lost(cluster: FakeCluster, capsys: Captured) -> None:
    made = pod("web-3", "web", "low-2", cpu="100m")
    made["spec"]["volumes"] = [{"name": "cache", "emptyDir": {}}]
    cluster.add(PODS, made)
    cluster.merge_patch(REPLICA_SETS, "web", {"spec": {"replicas": 3}}, namespace="shop")

    refused = drain_json(capsys, "low-2", "--dry-run", want=1)
    assert [(one["pod"], one["reason"]) for one in refused["plan"]["refused"]] == [("web-3", "LocalStorage")]

    assert drain_json(capsys, "low-2", "--delete-emptydir-data")["complete"]
    assert "web-3" in evicted(cluster)


def test_a_pod_for_which_no_other_node_has_room_is_refused(cluster: FakeCluster, capsys: Captured) -> None:
    done = drain_json(capsys, "high-1", "low-1", "low-2", want=1)

    assert (done["runs"][-1]["verdict"], evicted(cluster)) == ("PodsStay", [])
    refused = done["plan"]["refused"][0]
    assert refused["pod"] == "big-1"
    assert "no other node takes it" in refused["message"]


def test_a_budget_that_allows_nothing_refuses_its_pods(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(PDBS, ALLOWS_NOTHING)

    done = drain_json(capsys, "low-2", "--pending-wait=0s", want=1)

    assert [(one["pod"], one["reason"]) for one in done["plan"]["refused"]] == [("web-2", "BudgetExhausted")]
    assert evicted(cluster) == []


def test_a_budget_is_waited_for(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(PDBS, ALLOWS_NOTHING)
    cluster.before = after(2, "list", "poddisruptionbudgets", lambda: allow_one(cluster))

    assert drain_json(capsys, "low-2")["complete"]


def test_a_deployments_pod_leaves_once_its_replacement_serves(surging: Surging, capsys: Captured) -> None:
    assert drain_json(capsys, "low-2", "--dry-run")["plan"]["refused"] == []
    evicting = drain_json(capsys, "low-2", "--moves=Evict", "--pending-wait=0s", want=1)
    assert [one["reason"] for one in evicting["plan"]["refused"]] == ["BudgetExhausted"]
    done = drain_json(capsys, "low-2")

    assert (done["complete"], surging.cluster.pods_on("low-2")) == (True, [])
    assert [(one["state"], one["method"]) for one in surging.moves()] == [("Landed", "Surge")]


def test_no_pod_leaves_before_the_places_of_its_siblings_are_held(surging: Surging, capsys: Captured) -> None:
    cluster = surging.cluster
    held: list[int] = []

    def before(called: str, kind: str, _name: str) -> None:
        if called == "evict" and kind == PODS.plural:
            held.append(len(cluster.reservations()))

    cluster.before = before
    done = drain_json(capsys, "low-1", "low-2")

    assert (done["complete"], done["runs"][-1]["achieved"]["landedOnTarget"]) == (True, 3)
    assert held == [3, 3, 3]
    assert len(done["runs"]) == 1


def test_without_an_operator_nothing_is_cordoned(surging: Surging, capsys: Captured) -> None:
    cluster = surging.cluster
    del cluster.objects["leases"]["berth-system", "berth-operator"]
    done = drain_json(capsys, "low-1", want=1)
    assert (done["complete"], done["cordoned"], [one["verdict"] for one in done["runs"]]) == (False, [], ["NoOperator"])
    assert done["runs"][0]["message"].startswith("Not begun, and nothing was cordoned: no operator has ever run")
    assert not cluster.objects["nodes"]["", "low-1"]["spec"].get("unschedulable")


@pytest.mark.parametrize("moves", ["Surge", "Evict"])
def test_a_place_that_a_quota_refuses_ahead_is_held_in_its_turn(surging: Surging, capsys: Captured, moves: str) -> None:
    cluster = surging.cluster
    allow_one(cluster)
    hold = cluster.hold
    refused: list[str] = []

    def hold_one_of_web(reservation: Raw) -> None:
        """Hold the place of web-2, which has to wait for web-1, only once that has left."""
        is_of_web_2 = "web" in str(reservation["spec"]["owners"]) and "high-2" in str(reservation["spec"]["tasks"])
        if is_of_web_2 and "web-1" in cluster.pods_on("low-1"):
            cluster.set_reservation(reservation, "Failed")
            refused.append(reservation["metadata"]["name"])
        else:
            hold(reservation)

    cluster.hold = hold_one_of_web
    done = drain_json(capsys, "low-1", "low-2", f"--moves={moves}")

    assert refused
    assert (done["complete"], done["runs"][-1]["achieved"]["landedOnTarget"], len(done["runs"])) == (True, 3, 1)


def test_a_pod_that_neither_its_budget_lets_go_nor_can_surge_is_refused_with_both_reasons(
    surging: Surging, capsys: Captured
) -> None:
    recreate = {"spec": {"strategy": {"type": "Recreate"}}}
    surging.cluster.merge_patch(DEPLOYMENTS, "web", recreate, namespace="shop")

    done = drain_json(capsys, "low-2", "--pending-wait=0s", want=1)

    (refused,) = done["plan"]["refused"]
    assert (refused["pod"], refused["reason"]) == ("web-2", "BudgetExhausted")
    assert (
        "allows no disruption now, and it cannot surge: its Deployment has the strategy Recreate"
        in (refused["message"])
    )
    assert (done["runs"][-1]["verdict"], evicted(surging.cluster)) == ("PodsStay", [])


def after(looks: int, verb: str, plural: str, act: Callable[[], None]) -> Callable[[str, str, str], None]:
    """Return what acts at some look of a kind."""
    seen = iter(range(1, 1_000_000))

    def before(called: str, kind: str, _name: str) -> None:
        if (called, kind) == (verb, plural) and next(seen) == looks:
            act()

    return before


def allow_one(cluster: FakeCluster) -> None:
    cluster.merge_patch(PDBS, "web", {"status": {"disruptionsAllowed": 1}}, namespace="shop", subresource="status")


def test_a_pod_that_its_budget_kept_goes_once_that_allows_it(
    cluster: FakeCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "FIRST_PAUSE_SECONDS", 0.01)
    cluster.add(PDBS, ALLOWS_NOTHING)
    planned_again = iter(range(1, 1_000_000))

    def allow_later(called: str, kind: str, _name: str) -> None:
        has_moved = any(plan.get("status", {}).get("phase") == "Succeeded" for plan in cluster.raw(MIGRATION_PLANS))
        if (called, kind) == ("list", PDBS.plural) and has_moved and next(planned_again) == 3:
            allow_one(cluster)

    cluster.before = allow_later
    done = drain_json(capsys, "low-1", "low-2", "--skip-refused", "--moves=Evict")

    assert done["complete"]
    assert evicted(cluster) == ["api-1", "web-1", "web-2"]
    assert [one["verdict"] for one in done["runs"]] == ["CarriedOut"] * len(done["runs"])


def test_an_eviction_that_was_refused_until_its_deadline_is_made_by_another_plan(
    cluster: FakeCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "FIRST_PAUSE_SECONDS", 0.01)

    def refuse(called: str, kind: str, name: str) -> None:
        if (called, kind) == ("evict", PODS.plural) and len(cluster.raw(MIGRATION_PLANS)) == 1:
            raise blocked(name)

    cluster.before = refuse
    done = drain_json(capsys, "low-2", "--moves=Evict", "--evict-timeout=1s")

    assert done["complete"]
    assert [one["achieved"]["landedOnTarget"] for one in done["runs"]] == [0, 1]


def test_a_replacement_that_cannot_start_is_not_tried_again(surging: Surging, capsys: Captured) -> None:
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}
    stuck = {"containerStatuses": [{"name": "app", "restartCount": 0, "state": waiting}]}
    surging.is_ready = False
    surging.starts = lambda made: surging.set_status(made, **stuck)
    done = drain_json(capsys, "low-2", want=1)

    assert len(done["runs"]) == 1
    assert [(one["state"], one["reason"]) for one in surging.moves()] == [("Failed", "ErrImageNeverPull")]


def test_a_dry_run_writes_nothing(cluster: FakeCluster, capsys: Captured) -> None:
    assert run(["drain", "low-1", "low-2", "--dry-run"]) == 0

    said = capsys.readouterr().out
    assert said.startswith("3 moves in ")
    assert "shop/web-2" in said
    assert {call.verb for call in cluster.calls} <= {"get", "list"}


# --- what is taken back


def test_on_failure_only_nodes_that_were_open_before_are_opened_again(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(PODS, bare("alone", "low-2"))
    close(cluster, "low-1")

    done = drain_json(capsys, "low-1", "low-2", "--uncordon-on-failure", want=1)

    assert (done["cordoned"], done["uncordoned"]) == ([], ["low-2"])
    assert closed(cluster) == ["low-1"]


def test_after_an_error_the_nodes_are_opened_again(cluster: FakeCluster) -> None:
    def refuse() -> None:
        raise ForbiddenError(call("patch", NODES, "low-2"), failure(403, "no"))

    cluster.before = after(2, "patch", "nodes", refuse)

    assert run(["drain", "low-1", "low-2", "--uncordon-on-failure"]) == 2
    assert closed(cluster) == []


def test_a_drain_that_succeeds_leaves_the_nodes_closed(cluster: FakeCluster, capsys: Captured) -> None:
    done = drain_json(capsys, "low-1", "--uncordon-on-failure")

    assert (done["complete"], done["uncordoned"], closed(cluster)) == (True, [], ["low-1"])


# --- which nodes


def label(cluster: FakeCluster, name: str, **labels: str) -> None:
    cluster.merge_patch(NODES, name, {"metadata": {"labels": {key.replace("__", "/"): v for key, v in labels.items()}}})


def test_nodes_are_chosen_by_their_labels(cluster: FakeCluster, capsys: Captured) -> None:
    label(cluster, "low-1", rack="7")
    label(cluster, "low-2", rack="8")

    assert drain_json(capsys, "--selector", "rack in (7,9)", "--dry-run")["nodes"] == ["low-1"]


@pytest.mark.parametrize("key", ["pool", "karpenter.sh/nodepool", "cloud.google.com/gke-nodepool"])
def test_nodes_are_chosen_by_their_pool(cluster: FakeCluster, capsys: Captured, key: str) -> None:
    label(cluster, "low-1", rack="7", **{key: "old"})
    label(cluster, "low-2", **{key: "old"})

    assert drain_json(capsys, "--pool", "old", "--dry-run")["nodes"] == ["low-1", "low-2"]
    assert drain_json(capsys, "--pool", "old", "--selector=rack=7", "--dry-run")["nodes"] == ["low-1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone"], "NODE is 'gone'; expected a node of the cluster, such as high-1, high-2, low-1, low-2"),
        ([], "NODE is missing; expected the name of a node, --selector or --pool"),
        (["low-1", "low-2", "low-1"], "NODE is 'low-1'; expected each node once"),
        (["low-1", "--selector=a=b"], "--selector is 'a=b'; expected no names of nodes beside it"),
        (["low-1", "--pool=old"], "--pool is 'old'; expected no names of nodes beside it"),
        (["--selector=rack=7"], "--selector is 'rack=7'; expected labels that a node has"),
        (["--pool=old"], "--pool is 'old'; expected a pool that a node names in one of pool, "),
        (["high-1", "high-2", "low-1", "low-2"], "expected at least one node fewer: these are all there are"),
        (["--selector", "kubernetes.io/hostname"], "expected at least one node fewer: these are all there are"),
        (["low-1", "--timeout=soon"], "--timeout is 'soon'; expected a duration above zero"),
        (["low-1", "--per-wave=0"], "--per-wave is 0; expected a whole number from 1 on"),
    ],
)
def test_an_error_names_what_was_typed_and_what_would_be_right(
    cluster: FakeCluster, capsys: Captured, arguments: list[str], said: str
) -> None:
    assert run(["drain", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert closed(cluster) == []


@pytest.mark.usefixtures("cluster")
def test_an_unreadable_selector_is_named_with_its_option(capsys: Captured) -> None:
    assert run(["drain", "--selector", "rack in 7"]) == 2
    assert "--selector is 'rack in 7'; expected" in capsys.readouterr().err


# --- a drain that another run continues


def test_a_plan_records_what_it_drains() -> None:
    drain = NodeDrain(nodes=frozenset({"b", "a"}), delete_empty_dirs=True, skip_refused=True)

    assert on_demand(drain.objective) == drain
    assert on_demand(Objective()) is None


def test_a_run_that_continues_a_drain_goes_by_what_was_asked_of_that() -> None:
    drain = NodeDrain(nodes=frozenset({"low-1"}), delete_empty_dirs=True)
    left = MigrationPlan(metadata=ObjectMeta(name="left"), spec=MigrationPlanSpec(objective=drain.objective))

    found = without_policy_limits(left, planner_settings(waves=WaveLimits(per_controller=1)))

    assert [one.name for one in found.plugins.deschedule] == [NODE_DRAIN]
    (evictor,) = found.plugins.pre_eviction_filters
    with_data = built_pod("web", node="low-1", volumes=[{"name": "cache", "emptyDir": {}}])
    assert not list(evictor.plugin.pre_eviction_filter(ClusterView.of(Snapshot()))(with_data))


def test_replacements_have_their_deployments_deadline_unless_a_time_is_given() -> None:
    for options, want in (((), (120, True)), (("--ready-timeout=20s",), (20, False))):
        with commands.drain_command.make_context("berth drain", ["node-1", *options]) as context:
            waits = settings_to_drain(context.params, dry_run=False).cycle.execution.timeouts
        assert (waits.ready_seconds, waits.heeds_progress_deadlines) == want
