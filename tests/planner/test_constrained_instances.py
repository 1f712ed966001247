"""The clusters with ties that the planner is measured on are the same every time, and can be planned on."""

from benchmarks.constrained_instances import generate_constrained
from benchmarks.instances import Recipe
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import plan
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation import State
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps

SMALL = Recipe(nodes=40, requested=0.7, node_millis=8_000, node_mib=32 * 1024)


def test_the_same_seed_gives_the_same_cluster_with_ties() -> None:
    made = generate_constrained(SMALL)

    assert made == generate_constrained(SMALL) == Snapshot.from_json(made.to_json())
    assert made != generate_constrained(Recipe(40, 0.7, seed=1, node_millis=8_000, node_mib=32 * 1024))


def test_three_pods_belong_to_every_node_and_stay() -> None:
    made = generate_constrained(SMALL)

    assert sum(one.belongs_to_node for one in made.pods) == 3 * len(made.nodes)


def test_most_pods_depend_on_others() -> None:
    problem = Problem.from_snapshot(generate_constrained(SMALL), consolidating())
    state = State(problem.cluster)
    pods = [one for one in problem.cluster.pods if not one.pod.belongs_to_node]

    assert sum(not state.is_independent(one.class_index) for one in pods) > 0.6 * len(pods)


def test_a_plan_on_it_is_feasible_step_by_step() -> None:
    made = generate_constrained(SMALL)
    found = plan(made, consolidating())

    assert found.moves
    assert replay_steps(api_items(made), moves_of(found)) == []
