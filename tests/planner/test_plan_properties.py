"""What holds of every plan, checked by a replay that shares no code with the planner."""

import random
from fractions import Fraction

import msgspec
import pytest
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.report.documents import describe_plan
from builders import node, owner, pod
from planner.clusters import api_items, moves_of, settings, wrongly_moved
from planner.random_clusters import clusters, in_another_order
from planner.replay import filled_above, replay_steps, replay_waves, replay_window
from properties import holds_for

ways = st.builds(
    settings,
    low=st.sampled_from((30, 50, 60)),
    defragment=st.sampled_from((60, 65)),
    protection=st.sampled_from((90, 100)),
    max_moves=st.sampled_from((None, None, 3)),
    per_controller=st.integers(1, 3),
    per_wave=st.integers(1, 5),
)
generous = settings(low=60, defragment=60, protection=100, per_controller=4)


def emptying(pod: Pod) -> bool:
    """Whether a pod has to leave before its node counts as freed."""
    stays = any(one.kind in ("DaemonSet", "Node") for one in pod.metadata.owner_references)
    return not stays and pod.status.phase not in ("Succeeded", "Failed")


@holds_for(clusters(), ways)
def test_every_step_is_feasible_with_create_before_delete(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert replay_steps(api_items(snapshot), moves_of(made)) == []


@holds_for(clusters(), ways)
def test_every_wave_is_feasible_all_at_once_and_in_any_order(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert replay_waves(api_items(snapshot), moves_of(made)) == []


@holds_for(clusters(), ways, st.integers(0, 99))
def test_every_window_is_feasible_if_each_move_waits_for_those_that_it_names(
    snapshot: Snapshot, how: PlannerSettings, seed: int
) -> None:
    made = plan(snapshot, how)

    assert replay_window(api_items(snapshot), moves_of(made), seed) == []


@holds_for(clusters(), ways)
def test_a_node_is_emptied_whole_or_left_alone_and_takes_nothing_if_emptied(
    snapshot: Snapshot, how: PlannerSettings
) -> None:
    made = plan(snapshot, how)

    sources, targets = {move.source for move in made.moves}, {move.target for move in made.moves}
    moved = {(move.namespace, move.pod) for move in made.moves}
    staying = {
        one.spec.node_name
        for one in snapshot.pods
        if emptying(one) and (one.metadata.namespace, one.metadata.name) not in moved
    }
    assert sources.isdisjoint(targets)
    assert sources.isdisjoint(staying)
    assert set(made.freed_nodes) == sources
    assert len(moved) == len(made.moves)


@holds_for(clusters(), ways)
def test_only_running_pods_of_a_controller_move_and_no_more_than_allowed(
    snapshot: Snapshot, how: PlannerSettings
) -> None:
    made = plan(snapshot, how)

    assert wrongly_moved(snapshot, made) == []
    bound_to_nothing = {
        (one.metadata.namespace, one.metadata.name)
        for one in snapshot.pods
        if any(volume.name == "lost" for volume in one.spec.volumes)
    }
    assert bound_to_nothing.isdisjoint((move.namespace, move.pod) for move in made.moves)
    assert how.limits.max_moves is None or len(made.moves) <= how.limits.max_moves


@holds_for(clusters(), ways)
def test_no_target_ends_above_its_protection_threshold(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    limit = how.protection.get("cpu") or Fraction(0)
    assert filled_above(api_items(snapshot), moves_of(made), limit) == []


@holds_for(clusters(), ways, st.randoms(use_true_random=False))
def test_the_same_cluster_in_another_order_gives_the_same_bytes(
    snapshot: Snapshot, how: PlannerSettings, chance: random.Random
) -> None:
    assert msgspec.json.encode(describe_plan(plan(in_another_order(snapshot, chance), how))) == msgspec.json.encode(
        describe_plan(plan(snapshot, how))
    )


@holds_for(clusters(), ways)
def test_a_plan_holds_on_the_snapshot_that_it_was_made_from(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert revalidate(snapshot, made.moves, how) == {}


@holds_for(clusters())
def test_no_node_is_emptier_for_it_than_it_says(snapshot: Snapshot) -> None:
    made = plan(snapshot, generous)

    assert set(made.after.empty_nodes) == set(made.before.empty_nodes) | set(made.freed_nodes)
    assert made.after.requested == made.before.requested


@pytest.mark.parametrize("seed", range(3))
def test_the_replay_finds_what_is_wrong(seed: int) -> None:
    snapshot = Snapshot(
        nodes=(node("a", cpu="4"), node("b", cpu="4")),
        pods=tuple(
            pod(f"p{i}", node="a" if i < 3 else "b", cpu="1500m", controller=owner(name=f"r{i}")) for i in range(4)
        ),
    )
    moves = [{"namespace": "default", "pod": f"p{i}", "source": "a", "target": "b", "wave": 1} for i in range(2)]

    assert replay_steps(api_items(snapshot), moves)
    assert replay_waves(api_items(snapshot), moves, seed)
    assert replay_steps(api_items(snapshot), moves[:1]) == []
