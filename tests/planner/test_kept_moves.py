"""A plan keeps to the one before it where that frees as much."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.families import family
from berth_core import PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.quality import Prover
from builders import node, owner, pod
from planner.clusters import api_items, carried_out, consolidating, moves_of, without_pod
from planner.replay import replay_steps, replay_waves

Key = tuple[str, str, str]


def like(settings: PlannerSettings, earlier: Sequence[PlannedMove]) -> PlannerSettings:
    return replace(settings, run=replace(settings.run, earlier=tuple(earlier)))


def keys(moves: Sequence[PlannedMove]) -> list[Key]:
    return [(move.pod, move.source, move.target) for move in moves]


def move(name: str, source: str, target: str) -> PlannedMove:
    return PlannedMove(namespace="default", pod=name, source=source, target=target)


def alike(number: int = 4) -> Snapshot:
    """Nodes of four cores with one pod of a core each: three of four can be emptied, whichever they are."""
    return Snapshot(
        nodes=tuple(node(f"n{index}", cpu="4") for index in range(number)),
        pods=tuple(
            pod(f"p{index}", node=f"n{index}", cpu="1", memory=None, controller=owner(name=f"p{index}"))
            for index in range(number)
        ),
    )


def assert_feasible(snapshot: Snapshot, made: Plan) -> None:
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


@pytest.mark.parametrize("kept", range(4))
def test_of_plans_that_free_as_much_that_before_is_made_again(kept: int) -> None:
    earlier = [move(f"p{index}", f"n{index}", f"n{kept}") for index in (3, 2, 1, 0) if index != kept]

    made = plan(alike(), like(consolidating(), earlier))

    assert sorted(keys(made.moves)) == sorted(keys(earlier))
    assert made.quality is not None
    assert (made.quality.reached, made.quality.proven_optimal, made.quality.prover) == (3, True, Prover.BOUND)


@pytest.mark.parametrize(
    ("earlier", "want_freed"),
    [
        ([move("gone", "n0", "n3")], 3),
        ([move("p0", "n0", "nowhere")], 3),
        ([move("p0", "n2", "n3")], 3),
        ([move("p0", "n0", "n3"), move("p0", "n3", "n1")], 3),
        ([move("p0", "n0", "n1")], 3),
        ([move("p0", "n0", "")], 3),
    ],
    ids=["no such pod", "no such node", "it is elsewhere", "by a detour", "a part of a plan", "an eviction"],
)
def test_no_fewer_nodes_are_freed_for_the_sake_of_an_earlier_plan(earlier: list[PlannedMove], want_freed: int) -> None:
    made = plan(alike(), like(consolidating(), earlier))

    assert len(made.freed_nodes) == want_freed
    assert_feasible(alike(), made)


def test_a_pod_that_came_meanwhile_goes_along() -> None:
    earlier = [move(f"p{index}", f"n{index}", "n3") for index in (0, 1)]
    newcomer = pod("new", node="n0", cpu="1", memory=None, controller=owner(name="new"))
    snapshot = replace(alike(3), nodes=alike().nodes, pods=(*alike(3).pods[:2], *alike().pods[3:], newcomer))

    made = plan(snapshot, like(consolidating(), earlier))

    assert set(made.freed_nodes) == {"n0", "n1"}
    assert set(keys(earlier)) < set(keys(made.moves))
    assert_feasible(snapshot, made)


def test_the_limit_on_moves_is_kept() -> None:
    earlier = [move(f"p{index}", f"n{index}", "n3") for index in (0, 1, 2)]

    made = plan(alike(), like(consolidating(max_moves=2), earlier))

    assert keys(made.moves) == keys(earlier[:2])


def test_each_node_is_freed_or_has_a_reason() -> None:
    earlier = [move(f"p{index}", f"n{index}", "n3") for index in (0, 1, 2)]

    made = plan(alike(), like(consolidating(), earlier))

    left = {refusal.node for refusal in made.refused}
    assert left == {"n3"}


@pytest.mark.parametrize(("kind", "seed"), [("gpus", 0), ("gpus", 1), ("resources", 0)])
def test_with_one_pod_fewer_more_moves_are_the_same_and_no_fewer_nodes_are_freed(kind: str, seed: int) -> None:
    snapshot, settings = family(kind, 16, seed), consolidating(exact=False)
    before = plan(snapshot, settings)
    same_with, same_without = 0, 0
    for gone in (old_pod.metadata.name for old_pod in snapshot.pods[::24]):
        changed = without_pod(snapshot, gone)
        without, made = plan(changed, settings), plan(changed, like(settings, before.moves))
        assert len(made.freed_nodes) >= len(without.freed_nodes)
        same_without += len(set(keys(without.moves)) & set(keys(before.moves)))
        same_with += len(set(keys(made.moves)) & set(keys(before.moves)))

    assert same_with > same_without


def test_a_plan_is_kept_to_where_one_pod_fewer_would_save_a_few_of_its_moves() -> None:
    snapshot, settings = family("resources", 24, 3), consolidating(exact=False)
    before = plan(snapshot, settings)
    changed = without_pod(snapshot, "d00025-00000")
    without, made = plan(changed, settings), plan(changed, like(settings, before.moves))

    assert len(without.freed_nodes) == len(before.freed_nodes) == len(made.freed_nodes)
    assert len(without.moves) < len(before.moves) <= len(without.moves) * 4 // 3
    assert keys(made.moves) == keys(before.moves)


@pytest.mark.parametrize("kind", ["gpus", "resources", "mixed"])
def test_after_a_part_is_carried_out_no_pod_is_sent_where_pods_were_leaving(kind: str) -> None:
    snapshot, settings = family(kind, 12, 1), consolidating(exact=False)
    before = plan(snapshot, settings)
    cluster = carried_out(snapshot, [early for early in before.moves if early.wave <= before.waves // 2])

    made = plan(cluster, like(settings, before.moves))

    assert set(before.freed_nodes) <= set(made.after.empty_nodes)
    assert not {later.target for later in made.moves} & set(before.freed_nodes)
    assert_feasible(cluster, made)


def test_no_circle_of_moves_is_made_again() -> None:
    full = Snapshot(
        nodes=tuple(node(name, cpu="4") for name in ("n1", "n2")),
        pods=tuple(
            pod(name, node=at, cpu="2", memory=None, controller=owner(name=name))
            for name, at in (("a", "n1"), ("c", "n1"), ("b", "n2"))
        ),
    )
    swap = [move("a", "n1", "n2"), move("b", "n2", "n1")]
    assert plan(full, like(consolidating(), swap)).moves == ()

    third = Snapshot(
        nodes=tuple(node(name, cpu="4") for name in ("n1", "n2", "n3")),
        pods=tuple(
            pod(name, node=at, cpu=cpu, memory=None, controller=owner(name=name))
            for name, at, cpu in (
                ("a", "n1", "2"),
                ("d", "n1", "1"),
                ("b", "n2", "2"),
                ("e", "n2", "1"),
                ("c", "n3", "1"),
            )
        ),
    )
    earlier = [move("a", "n1", "n3"), move("b", "n2", "n1"), move("a", "n3", "n2"), move("c", "n3", "n1")]
    plain, made = plan(third, consolidating()), plan(third, like(consolidating(), earlier))
    assert made.freed_nodes == plain.freed_nodes == ("n3",)
    assert len(made.moves) == len(plain.moves) == 1


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_pods_that_step_aside_for_others_are_kept_to(seed: int) -> None:
    """Some moves of these plans make room on nodes that keep their pods."""
    snapshot = family("pools", 24, seed)
    first = plan(snapshot, consolidating())
    freed = set(first.freed_nodes)
    assert any(move.source not in freed for move in first.moves)
    rest = carried_out(snapshot, first.moves[: len(first.moves) // 2])

    again = plan(rest, like(consolidating(), first.moves))

    assert set(again.freed_nodes) <= freed
    assert freed.isdisjoint(move.target for move in again.moves)
    assert_feasible(rest, again)
    assert keys(plan(snapshot, like(consolidating(), first.moves)).moves) == keys(first.moves)
