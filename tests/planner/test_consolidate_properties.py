"""What holds of every plan of `Consolidate`, with chains of ejections and without, with the solver and without."""

import random

import msgspec
from hypothesis import strategies as st

from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.report.documents import describe_plan
from planner.clusters import api_items, consolidating, moves_of, wrongly_moved
from planner.random_clusters import clusters, in_another_order
from planner.replay import replay_steps, replay_waves
from properties import holds_for

ways = st.builds(
    consolidating,
    protection=st.sampled_from((80, 100, 100)),
    max_moves=st.sampled_from((None, None, 3, 8)),
    per_controller=st.integers(1, 3),
    per_wave=st.integers(1, 5),
    exact=st.booleans(),
)


@holds_for(clusters(), ways)
def test_every_step_and_every_wave_is_feasible(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


@holds_for(clusters(), ways)
def test_nodes_are_emptied_whole_and_the_plan_holds_on_its_own_snapshot(
    snapshot: Snapshot, how: PlannerSettings
) -> None:
    made = plan(snapshot, how)

    awaited = {one.status.nominated_node_name for one in snapshot.pods} | {
        name for one in snapshot.reservations for task in one.spec.tasks for name in task.reservation_node_names
    }
    assert set(made.after.empty_nodes) >= set(made.freed_nodes) | (set(made.before.empty_nodes) - awaited)
    assert set(made.freed_nodes).isdisjoint(move.target for move in made.moves)
    assert revalidate(snapshot, made.moves, how, emptied=made.freed_nodes) == {}


@holds_for(clusters(), ways)
def test_only_pods_that_may_move_do_and_no_more_than_allowed(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert wrongly_moved(snapshot, made) == []
    assert how.limits.max_moves is None or len(made.moves) <= how.limits.max_moves


@holds_for(clusters(), ways)
def test_what_it_says_of_itself_is_true(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert made.quality is not None
    assert made.quality.reached == len(made.freed_nodes) <= made.quality.upper_bound
    assert made.quality.fewest_moves <= made.quality.moves == len(made.moves)
    assert bool(made.moves) == bool(made.freed_nodes)
    reasons = {one.node for one in made.refused if one.kind is RefusedKind.NODE}
    assert reasons == {node.metadata.name for node in snapshot.nodes} - set(made.freed_nodes)


@holds_for(clusters(), st.sampled_from((None, 3, 8)))
def test_the_solver_frees_no_less_and_no_bound_is_below_what_it_frees(snapshot: Snapshot, budget: int | None) -> None:
    without = plan(snapshot, consolidating(max_moves=budget, exact=False)).quality
    solved = plan(snapshot, consolidating(max_moves=budget, exact=True)).quality

    assert without is not None
    assert solved is not None
    assert (solved.reached, -solved.moves) >= (without.reached, -without.moves)
    assert solved.upper_bound <= without.upper_bound
    assert solved.reached <= without.upper_bound


@holds_for(clusters(), ways, st.randoms(use_true_random=False))
def test_the_same_cluster_in_another_order_gives_the_same_bytes(
    snapshot: Snapshot, how: PlannerSettings, chance: random.Random
) -> None:
    assert msgspec.json.encode(describe_plan(plan(in_another_order(snapshot, chance), how))) == msgspec.json.encode(
        describe_plan(plan(snapshot, how))
    )
