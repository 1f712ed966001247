"""A pod that a plan moved before stays, unless a plan that moves it again brings more and says what."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from berth_core import NoDeadline, PlannedMove, Room
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.pods_moved_before import propose_few_second_moves
from berth_descheduler.planner.problem import Problem, Proposal
from berth_descheduler.planner.quality import Quality
from berth_descheduler.planner.simulation import NodeIndex, PodIndex, State, Step
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps

LATELY = datetime(2026, 1, 1, tzinfo=UTC)


def moved_before(settings: PlannerSettings, *names: str) -> PlannerSettings:
    moved = {("default", name): LATELY for name in names}
    return replace(settings, run=replace(settings.run, moved=moved))


def sources(made: Plan) -> set[str]:
    return {move.source for move in made.moves}


def two_alike() -> Snapshot:
    """Two nodes with a pod each, and a full one that has room for one of them."""
    nodes = tuple(node(name, cpu="8") for name in ("left", "right", "target"))
    pods = (
        pod("on-left", node="left", cpu="6", controller=owner(name="left")),
        pod("on-right", node="right", cpu="6", controller=owner(name="right")),
        pod("stays", node="target", cpu="2", priority=2_000_000_000),
    )
    return Snapshot(nodes=nodes, pods=pods)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("moved", "want_source"), [("on-left", "right"), ("on-right", "left")])
def test_of_plans_that_bring_as_much_one_is_made_that_leaves_the_pod_alone(
    *, exact: bool, moved: str, want_source: str
) -> None:
    made = plan(two_alike(), moved_before(consolidating(exact=exact), moved))

    assert sources(made) == {want_source}
    assert made.notes == ()
    assert made.quality is not None
    assert made.quality.proven_optimal


def test_a_pod_moves_again_for_a_gain_that_the_plan_names() -> None:
    snapshot = two_alike()

    made = plan(snapshot, moved_before(consolidating(), "on-left", "on-right", "gone"))

    (note,) = made.notes
    assert note == (
        "1 pod that a plan brought to its node moves again (default/on-left), which leaves 1 node empty instead of 0."
    )
    assert made.predicted.notes == (note,)
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


def test_the_gain_is_money_where_nodes_have_prices() -> None:
    prices = {"nodePrice": {"annotation": "price"}}
    snapshot = two_alike()
    nodes = tuple(
        node(priced.metadata.name, cpu="8", annotations={"price": "0.7" if priced.metadata.name == "left" else "0.2"})
        for priced in snapshot.nodes
    )

    made = plan(replace(snapshot, nodes=nodes), moved_before(consolidating(**prices), "on-left"))

    assert sources(made) == {"left"}
    assert made.notes[0].endswith("(default/on-left), which saves 0.7 an hour instead of 0.2.")


def test_a_pod_where_the_plan_before_brought_it_was_moved() -> None:
    settings = consolidating()
    earlier = (PlannedMove(namespace="default", pod="on-left", source="elsewhere", target="left"),)

    made = plan(two_alike(), replace(settings, run=replace(settings.run, earlier=earlier)))

    assert sources(made) == {"right"}


def test_fewer_moves_are_a_gain_where_they_are_many() -> None:
    """The pod that moved before leaves its node alone; six small ones leave the other."""
    nodes = tuple(node(name, cpu="8") for name in ("left", "right", "target"))
    pods = (
        pod("again", node="left", cpu="6", controller=owner(name="left")),
        *(pod(f"small-{number}", node="right", cpu="1", controller=owner(name="right")) for number in range(6)),
        pod("stays", node="target", cpu="2", priority=2_000_000_000),
    )

    made = plan(Snapshot(nodes=nodes, pods=pods), moved_before(consolidating(), "again"))

    assert sources(made) == {"left"}
    assert made.notes[0].endswith("which takes 1 move instead of 6.")


# --- what two proposals differ in -------------------------------------------------------------------------------------

LEFT, RIGHT, TARGET = map(NodeIndex, (0, 1, 2))
ON_LEFT, ON_RIGHT = map(PodIndex, (0, 1))


def proposed(first: Proposal, staying: Proposal, *moved: str) -> tuple[Proposal, list[set[PodIndex]]]:
    """Return which of two proposals of a strategy is taken, and which pods had to stay for each."""
    kept: list[set[PodIndex]] = []

    def propose(problem: Problem) -> tuple[Proposal, State]:
        kept.append(set(problem.kept))
        return (first if len(kept) == 1 else staying), State(problem.cluster, [LEFT, RIGHT])

    problem = Problem.from_snapshot(two_alike(), moved_before(consolidating(), *moved))
    taken, _ = propose_few_second_moves(problem, propose, NoDeadline())
    return taken, kept


def test_a_pod_that_a_plugin_names_may_move_again_where_others_stay() -> None:
    both = (Step(ON_LEFT, LEFT, TARGET), Step(ON_RIGHT, RIGHT, LEFT))
    first, staying = (Proposal(steps, (), reasons={ON_LEFT: "it is old"}) for steps in (both, both[:1]))

    taken, kept = proposed(first, staying, "on-left", "on-right")

    assert kept == [set(), {ON_RIGHT}]
    assert taken.notes == ()
    assert len(taken.steps) == 1


def test_no_gain_is_named_where_the_time_limit_ended_the_search_without_it() -> None:
    step = (Step(ON_LEFT, LEFT, TARGET),)
    quality = Quality(reached=1, upper_bound=1, moves=1, fewest_moves=1)

    taken, _ = proposed(
        Proposal(step, (), quality), Proposal((), (), replace(quality, reached=0, out_of_time=True)), "on-left"
    )

    assert taken.steps == step
    assert taken.notes[0].endswith("(default/on-left), the time limit ended the search for a plan without that.")


def test_what_waits_is_a_gain() -> None:
    swap = (Step(ON_LEFT, LEFT, RIGHT), Step(ON_RIGHT, RIGHT, LEFT))
    room = Room(name="default/waiting", namespace="default")

    taken, _ = proposed(Proposal(swap, (), waits=(room,)), Proposal((), ()), "on-left")

    assert taken.notes[0].endswith("which waits for 1 place instead of 0.")
