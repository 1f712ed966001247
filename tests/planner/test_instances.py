"""What the planner is measured on is what it says, and the same every time."""

import pytest

from benchmarks.instances import (
    MissingDataError,
    Recipe,
    data_file,
    generate,
    lay_out,
    load_kwok_placements,
    load_snapshot,
)

SPREAD = Recipe(nodes=200, requested=0.89)
SCALED_DOWN = Recipe(nodes=200, requested=0.6, scaled_down=True)


def needs(*parts: str) -> None:
    try:
        data_file(*parts)
    except MissingDataError as error:
        pytest.skip(str(error))


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


@pytest.mark.parametrize(("folder", "nodes", "pods"), [("vmr_m", 279, 2089), ("spread60", 60, 495)])
def test_the_public_snapshots_are_whole(folder: str, nodes: int, pods: int) -> None:
    needs(folder, "snapshot.json.gz")
    snapshot = load_snapshot(folder)
    assert (len(snapshot.nodes), len(snapshot.pods)) == (nodes, pods)


def test_the_small_placements_have_pending_pods() -> None:
    needs("kwok_placements", "instances_n4_p16_u095.json")
    pending = {
        seed[:4]: sum(not pod.spec.node_name for pod in one.pods) for seed, one in load_kwok_placements().items()
    }
    assert pending == {"4848": 2, "4219": 2, "7309": 2}
