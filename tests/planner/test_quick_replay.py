"""The replay for large clusters says what the plain one says, of plans and of moves that no scheduler would make."""

import random
from typing import Any

from hypothesis import strategies as st

from benchmarks.constrained_instances import generate_constrained
from benchmarks.instances import Recipe
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import PlannerSettings, plan
from planner import quick_replay
from planner.clusters import api_items, moves_of, settings
from planner.random_clusters import clusters, tight_clusters
from planner.replay import World, claims, replay_steps
from properties import holds_for

Moves = list[dict[str, Any]]

generous = settings(low=60, defragment=60, protection=100, per_controller=4)


def arbitrary_moves(snapshot: Snapshot, chance: random.Random, count: int) -> Moves:
    """Return moves of any pods to any nodes, each from where the pod is by then or, seldom, from elsewhere.

    A pod whose claim is not known stays: the plain replay cannot say where it may be.
    """
    world = World(api_items(snapshot))
    movable = [key for key, pod in sorted(world.pods.items()) if claims(pod) <= world.claims.keys()]
    where = {key: world.pods[key]["spec"].get("nodeName", "") for key in movable}
    moves = []
    for _ in range(count if where else 0):
        (namespace, name), target = chance.choice(movable), chance.choice(sorted(world.nodes))
        source = chance.choice(sorted(world.nodes)) if chance.random() < 0.1 else where[namespace, name]
        moves.append({"namespace": namespace, "pod": name, "source": source, "target": target})
        where[namespace, name] = target
    return moves


def changed(moves: Moves, snapshot: Snapshot, chance: random.Random) -> Moves:
    """Return a plan's moves in another order, with other targets, or without some of them."""
    names = [node.metadata.name for node in snapshot.nodes]
    kept = [move for move in moves if chance.random() < 0.8]
    other = [{**move, "target": chance.choice(names)} if chance.random() < 0.3 else move for move in kept]
    return chance.sample(other, len(other))


@holds_for(st.one_of(clusters(), tight_clusters()), st.sampled_from([generous]), st.integers(0, 999))
def test_it_says_the_same_of_plans_and_of_what_they_are_changed_to(
    snapshot: Snapshot, how: PlannerSettings, seed: int
) -> None:
    items, made = api_items(snapshot), moves_of(plan(snapshot, how))

    assert quick_replay.replay_steps(items, made) == replay_steps(items, made) == []
    wrong = changed(made, snapshot, random.Random(seed))  # noqa: S311 - chooses changes
    assert quick_replay.replay_steps(items, wrong) == replay_steps(items, wrong)


@holds_for(st.one_of(clusters(), tight_clusters()), st.integers(0, 999))
def test_it_says_the_same_of_arbitrary_moves(snapshot: Snapshot, seed: int) -> None:
    items, wrong = api_items(snapshot), arbitrary_moves(snapshot, random.Random(seed), 12)  # noqa: S311 - chooses moves

    assert quick_replay.replay_steps(items, wrong) == replay_steps(items, wrong)


def test_it_refuses_what_the_plain_one_refuses_on_a_tied_cluster() -> None:
    snapshot = generate_constrained(Recipe(20, 0.7, node_millis=8_000, node_mib=32 * 1024))
    items, wrong = api_items(snapshot), arbitrary_moves(snapshot, random.Random(0), 40)  # noqa: S311 - chooses moves

    sentences = quick_replay.replay_steps(items, wrong)

    assert sentences == replay_steps(items, wrong)
    filters = {"taints", "node affinity", "room", "anti-affinity", "spread"}
    assert filters <= {sentence.partition(": ")[2].partition(" (")[0] for sentence in sentences}
    assert any(" is not on " in sentence for sentence in sentences)
