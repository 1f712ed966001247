"""What the planner is measured on is what it says, and the same every time."""

import json
from pathlib import Path

import pytest

from benchmarks.instances import (
    MissingDataError,
    Recipe,
    generate,
    lay_out,
    load_kwok_placements,
    load_snapshot,
)
from benchmarks.virtual_machines import virtual_machines

SPREAD = Recipe(nodes=200, requested=0.89)
SCALED_DOWN = Recipe(nodes=200, requested=0.6, scaled_down=True)


@pytest.mark.parametrize("recipe", [SPREAD, SCALED_DOWN], ids=["spread", "scaled down"])
def test_a_generated_cluster_is_requested_as_asked(recipe: Recipe) -> None:
    assert recipe.requested - 1.5 / recipe.nodes < lay_out(recipe).requested <= recipe.requested


def test_the_same_seed_gives_the_same_cluster_and_another_seed_another() -> None:
    assert generate(SPREAD) == generate(SPREAD)
    assert lay_out(SPREAD) != lay_out(Recipe(nodes=200, requested=0.89, seed=1))


def test_no_generated_node_is_overfull() -> None:
    snapshot = generate(SPREAD)
    snapshot.check()
    for node in snapshot.nodes:
        used = [snapshot.requests[pod.key] for pod in snapshot.pods_on(node.metadata.name)]
        free = snapshot.allocatable[node.metadata.name]
        for amounts in used:
            free = free.minus(amounts)
        assert free.get("cpu") >= 0
        assert free.get("memory") >= 0


def test_every_generated_pod_has_a_controller_that_wants_it() -> None:
    snapshot = generate(SCALED_DOWN)
    assert sum(workload.spec.replicas or 0 for workload in snapshot.workloads) == len(snapshot.pods)


def test_generated_machines_fit_their_hosts_and_leave_as_much_as_those_of_the_study() -> None:
    snapshot = virtual_machines(0, hosts=200, machines=773)
    snapshot.check()
    assert snapshot == virtual_machines(0, hosts=200, machines=773)
    cores = {host.metadata.name: snapshot.allocatable[host.metadata.name].get("cpu") for host in snapshot.nodes}
    for machine in snapshot.pods:
        cores[machine.spec.node_name or ""] -= snapshot.requests[machine.key].get("cpu")
    free = list(cores.values())
    assert len(snapshot.pods) == 773
    assert min(free) >= 0
    assert 0.05 < sum(free) / (200 * 88_000) < 0.13
    assert 0.25 < sum(amount % 16_000 for amount in free) / sum(free) < 0.45


@pytest.mark.parametrize(("folder", "nodes", "pods"), [("vmr_m", 279, 2089), ("spread60", 60, 495)])
def test_the_public_snapshots_are_whole(folder: str, nodes: int, pods: int) -> None:
    snapshot = load_snapshot(folder)
    assert (len(snapshot.nodes), len(snapshot.pods)) == (nodes, pods)


def test_a_placement_that_is_no_snapshot_is_read_with_its_pending_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"name": "one", "cap_cpu_m": 1000, "cap_mem_bytes": 2**30}]
    pods = [
        {"name": name, "rs": "web", "cpu_m": 400, "mem_b": 2**20, "priority": 1, "node": node}
        for name, node in (("web-0", "one"), ("web-1", ""))
    ]
    file = tmp_path / "kwok_placements" / "instances_n4_p16_u095.json"
    file.parent.mkdir()
    file.write_text(json.dumps([{"seed": "7", "nodes": nodes, "pods": pods}]), encoding="utf-8")
    monkeypatch.setattr("benchmarks.instances.FOLDERS", (tmp_path,))

    snapshot = load_kwok_placements()["7"]

    assert [(pod.metadata.name, pod.spec.node_name) for pod in snapshot.pods] == [("web-0", "one"), ("web-1", "")]
    assert snapshot.allocatable["one"].get("cpu") == 1000
    assert snapshot.requests["kwok/web-1"].get("memory") == 2**20


def test_data_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingDataError, match="nowhere/snapshot"):
        load_snapshot("nowhere")
