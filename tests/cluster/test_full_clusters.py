"""On full clusters a pod moves aside so that another fits: such plans, too, are carried out move by move."""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from benchmarks.instances import Recipe, lay_out
from berth_core import Node, Pod
from berth_core.labels import DRAINING_TAINT, PREFIX
from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, REPLICA_SETS, RESERVATIONS
from berth_kube.watch_items import Changed
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace, overbooked_nodes
from placed_pods import PlacedPod, count_ready, place_pods
from reservation_stage import delete_all, delete_if_there
from service_processes import OperatorProcess, script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NAMESPACE = "shop"
TRIPLES = 2
FULL = 7
OVER = "example.com/over"
"""The label by which a watch of nodes is at its end."""


@pytest.fixture
def client(cluster: Sandbox, serving_operator: OperatorProcess) -> Iterator[KubeClient]:
    """Yield a client of a cluster without nodes; what the test makes is taken away afterwards."""
    assert serving_operator.exit_code is None
    with cluster.connect() as admin:
        with suppress(AlreadyExistsError):
            make_namespace(admin, NAMESPACE)
        try:
            yield admin
        finally:
            clear(admin)


def clear(client: KubeClient) -> None:
    for resource in (REPLICA_SETS, RESERVATIONS, PODS):
        delete_all(client, resource, NAMESPACE)
    delete_all(client, PODS, DEFAULT_NAMESPACE)
    eventually("all pods are gone", lambda: not client.list(PODS).items, seconds=120)
    for resource in (MIGRATION_PLANS, NODES):
        for one in client.list(resource).items:
            delete_if_there(client, resource, one["metadata"]["name"])


def fill(cluster: Sandbox, client: KubeClient, nodes: int, placed: Sequence[PlacedPod]) -> None:
    place_pods(client, NAMESPACE, placed, cluster.add_nodes(nodes, prefix="full-"))


def tight_pods() -> list[PlacedPod]:
    """Full nodes, and triples: the large pod of the third node fits if a small one of the first goes to the second."""
    placed = [PlacedPod(node, "16") for node in range(FULL)]
    for first in range(FULL, FULL + 3 * TRIPLES, 3):
        placed += [PlacedPod(first, "10"), PlacedPod(first, "2", app="small")]
        placed += [PlacedPod(first + 1, "14"), PlacedPod(first + 2, "6", app="large")]
    return placed


def generated_pods(recipe: Recipe) -> list[PlacedPod]:
    layout = lay_out(recipe)
    return [
        PlacedPod(node, f"{layout.millis[app]}m", app=f"app-{app:03d}", memory=f"{layout.mib[app]}Mi")
        for app, node in zip(layout.deployment_of, layout.node_of, strict=True)
    ]


def run_berth(sandbox: Sandbox, *options: str) -> dict[str, Any]:
    """Run `berth run` under the descheduler's own account and return what it says."""
    kubeconfig = sandbox.service_account_kubeconfig("berth-descheduler")
    fixed = ("--yes", "--output=json", "--no-taint-freed")
    command = [script("berth"), "run", f"--kubeconfig={kubeconfig}", *fixed, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def the_plan(client: KubeClient) -> MigrationPlan:
    (plan,) = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    return plan


def assert_all_landed(client: KubeClient, pods: int) -> None:
    plan = the_plan(client)
    assert plan.phase is PlanPhase.SUCCEEDED, plan.status.message
    for move, status in zip(plan.spec.moves, plan.status.moves, strict=True):
        assert (status.state, status.node) == (MoveState.LANDED, move.target), status
    eventually("every pod is Ready", lambda: count_ready(client, NAMESPACE) == pods, seconds=60)
    assert overbooked_nodes(client) == []
    eventually("no taint of ours is left", lambda: not taints(client, PREFIX), seconds=60)


def taints(client: KubeClient, prefix: str) -> set[str]:
    nodes = client.list(NODES, type=Node).items
    return {node.metadata.name for node in nodes for taint in node.spec.taints if taint.key.startswith(prefix)}


@contextmanager
def watched_taints(client: KubeClient) -> Iterator[set[str]]:
    """Yield the nodes that have the draining taint at any time, however short; complete when the block is over."""
    seen: set[str] = set()
    stop = threading.Event()
    items = client.watch(NODES, stop=stop, type=Node)
    next(items)  # the list of all, before the block begins
    last = client.list(NODES, type=Node).items[0].metadata.name

    def follow() -> None:
        for item in items:
            if isinstance(item, Changed):
                node = item.item
                if any(taint.key == DRAINING_TAINT for taint in node.spec.taints):
                    seen.add(node.metadata.name)
                if OVER in node.metadata.labels:
                    return

    watcher = threading.Thread(target=follow)
    watcher.start()
    try:
        yield seen
        client.merge_patch(NODES, last, {"metadata": {"labels": {OVER: "true"}}})
        watcher.join(120)
    finally:
        stop.set()
        watcher.join()


def assert_room_is_made_before_it_is_used(plan: MigrationPlan, kept: set[str]) -> None:
    for aside in plan.spec.moves:
        if aside.source in kept:
            later = [move.wave for move in plan.spec.moves if move.target == aside.source]
            assert later
            assert max(later) > aside.wave


def test_where_a_pod_has_to_move_aside_it_does_so_first_and_its_node_is_not_closed(
    cluster: Sandbox, client: KubeClient
) -> None:
    placed = tight_pods()
    fill(cluster, client, FULL + 3 * TRIPLES, placed)
    with watched_taints(client) as drained:
        found = run_berth(cluster, "--strategy=consolidate")

    plan = the_plan(client)
    kept = {move.source for move in plan.spec.moves} - set(found["achieved"]["freedNodes"])
    assert len(found["achieved"]["freedNodes"]) == TRIPLES
    assert len(kept) == TRIPLES
    assert drained == set(found["achieved"]["freedNodes"])
    assert_room_is_made_before_it_is_used(plan, kept)
    assert_all_landed(client, len(placed))


def test_a_plan_for_a_cluster_that_is_nine_tenths_full_is_carried_out_to_the_last_move(
    cluster: Sandbox, client: KubeClient
) -> None:
    recipe = Recipe(nodes=20, requested=0.93, seed=2)
    placed = generated_pods(recipe)
    fill(cluster, client, recipe.nodes, placed)
    found = run_berth(cluster, "--strategy=consolidate", "--per-controller=3")

    plan = the_plan(client)
    assert plan.spec.predicted is not None
    assert found["achieved"]["freedNodes"] == list(plan.spec.predicted.freed_nodes)
    assert {move.source for move in plan.spec.moves} > set(found["achieved"]["freedNodes"])
    assert_all_landed(client, len(placed))


def test_room_is_made_for_a_pod_that_waits_and_it_gets_it(cluster: Sandbox, client: KubeClient) -> None:
    placed = tight_pods()
    fill(cluster, client, FULL + 3 * TRIPLES, placed)
    place_waiting_pod(client, cpu="12")
    found = run_berth(cluster, "--strategy=make-room", f"--pod={NAMESPACE}/waiting")

    assert found["achieved"]["landedOnTarget"] == found["achieved"]["moves"] > 0
    assert "Room for shop/waiting: taken by waiting on full-" in found["message"]
    assert_all_landed(client, len(placed) + 1)
    waiting = client.get(PODS, "waiting", namespace=NAMESPACE, type=Pod)
    assert waiting.spec.node_name


def place_waiting_pod(client: KubeClient, *, cpu: str) -> None:
    """Create a pod that fits nowhere and wait until the scheduler has said so."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waiting"}, "spec": {"containers": [container]}}
    client.create(PODS, body, namespace=NAMESPACE)

    def is_unschedulable() -> bool:
        found = client.get(PODS, "waiting", namespace=NAMESPACE, type=Pod)
        return any(condition.reason == "Unschedulable" for condition in found.status.conditions)

    eventually("the pod waits", is_unschedulable, seconds=60)
