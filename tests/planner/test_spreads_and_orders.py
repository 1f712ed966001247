"""The integer program knows spreads over zones, and where moves wait for one another a pod steps aside first."""

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest

from berth_core import LabelSelector, Pod, TopologySpreadConstraint
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import NodeIndex, Problem, plan
from berth_descheduler.planner.problem import find_sources
from berth_descheduler.planner.simulation import PodIndex, State
from berth_descheduler.planner.solver import Transition, apply_transition, build_packing_model, read_spreads
from builders import node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.replay import replay_steps, replay_waves

ZONE = "topology.kubernetes.io/zone"
SPREAD = "spread"


def spread_pod(name: str, *, node: str, cpu: int) -> Pod:
    """A pod of the one Deployment that is spread over zones."""
    selector = LabelSelector(match_labels={"app": SPREAD})
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=selector
    )
    controller = owner(name=SPREAD)
    return pod(
        name,
        node=node,
        cpu=str(cpu),
        memory=None,
        labels={"app": SPREAD},
        controller=controller,
        spread=(constraint,),
    )


def other_pod(name: str, *, node: str, cpu: int) -> Pod:
    """A pod that may be anywhere."""
    return pod(name, node=node, cpu=str(cpu), memory=None, controller=owner(name=name))


def zoned(zones: Mapping[str, str], *pods: Pod, cpu: int = 10) -> Snapshot:
    """Nodes with so many cores in these zones."""
    nodes = (node(name, cpu=str(cpu), labels={ZONE: zone}) for name, zone in zones.items())
    return Snapshot(nodes=tuple(nodes), pods=pods)


def test_no_more_nodes_are_promised_than_a_spread_lets_be_empty() -> None:
    """By volume one node holds everything, but each zone keeps a pod."""
    spread_pods = spread_pod("a", node="a", cpu=3), spread_pod("b", node="b", cpu=3)
    snapshot = zoned({"a": "east", "b": "west", "c": "west"}, *spread_pods, other_pod("c", node="c", cpu=3))

    made = plan(snapshot, consolidating(exact=True))

    assert made.quality is not None
    assert (made.quality.reached, made.quality.upper_bound) == (1, 1)


def test_pods_on_a_node_without_a_zone_may_all_come_to_the_zones() -> None:
    """None of them counts before it has come."""
    pods = [other_pod("a", node="a", cpu=8), other_pod("b", node="b", cpu=8)]
    pods += [spread_pod(f"outside-{number}", node="outside", cpu=1) for number in range(4)]
    zones = zoned({"a": "east", "b": "west"}, *pods)
    snapshot = Snapshot(nodes=(node("outside", cpu="10"), *zones.nodes), pods=zones.pods)

    made = plan(snapshot, consolidating(exact=True))

    assert made.quality is not None
    assert (made.quality.reached, made.quality.upper_bound) == (1, 1)
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


def uneven(seed: int) -> Snapshot:
    """Few pods in two or three zones, wherever they came to be."""
    chance = Random(f"uneven {seed}")  # noqa: S311 - an instance is no secret
    names = [f"n{index}" for index in range(chance.choice((4, 5)))]
    zones = {name: f"zone-{index % chance.choice((2, 3))}" for index, name in enumerate(names)}
    free = dict.fromkeys(names, 8)
    pods = []
    for index in range(5):
        place, is_spread = chance.choice(names), chance.random() < 0.7
        cpu = 2 if is_spread else chance.randint(1, 4)
        if free[place] >= cpu:
            free[place] -= cpu
            make = spread_pod if is_spread else other_pod
            pods.append(make(f"p{index}", node=place, cpu=cpu))
    return zoned(zones, *pods, cpu=8)


def most_that_any_moves_free(snapshot: Snapshot) -> int:
    """Try every order of moves, by the rules as kube-scheduler's documentation has them."""
    names = [host.metadata.name for host in snapshot.nodes]
    zone_of = {host.metadata.name: host.metadata.labels[ZONE] for host in snapshot.nodes}
    sizes = [int(placed_pod.spec.containers[0].resources.requests["cpu"]) for placed_pod in snapshot.pods]
    is_spread = [bool(placed_pod.spec.topology_spread_constraints) for placed_pod in snapshot.pods]
    begin = tuple(placed_pod.spec.node_name for placed_pod in snapshot.pods)
    seen, todo = {begin}, [begin]
    while todo:
        places = todo.pop()
        for number, target in ((number, name) for number in range(len(places)) for name in names):
            room = 8 - sum(size for size, place in zip(sizes, places, strict=True) if place == target)
            counts = dict.fromkeys(zone_of.values(), 0)
            for other, place in enumerate(places):
                counts[zone_of[place]] += is_spread[other] and other != number
            is_even = not is_spread[number] or counts[zone_of[target]] + 1 - min(counts.values()) <= 1
            after = (*places[:number], target, *places[number + 1 :])
            if room >= sizes[number] and is_even and after not in seen:
                seen.add(after)
                todo.append(after)
    return max(len({*begin} - {*places}) - len({*places} - {*begin}) for places in seen)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(6, 60))])
def test_whatever_a_spread_is_at_first_no_bound_is_below_what_some_moves_reach(seed: int) -> None:
    snapshot = uneven(seed)

    made = plan(snapshot, consolidating(exact=True))

    most = most_that_any_moves_free(snapshot)
    assert made.quality is not None
    assert made.quality.reached <= most <= made.quality.upper_bound
    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []


# --- orders ---------------------------------------------------------------------------------------------------------


def ordered(
    snapshot: Snapshot, emptied: Sequence[str], arrivals: Mapping[str, str], *, detours: int
) -> list[tuple[str, str]] | None:
    """Return the moves, pods and targets, by which each pod comes to its node; None if none are found."""
    problem = Problem.from_snapshot(snapshot, consolidating())
    sources = find_sources(problem)
    state = State(problem.cluster, sources.to_take_from)
    packing = build_packing_model(problem, state, sources.to_take_from)
    number = {host.metadata.name: NodeIndex(index) for index, host in enumerate(problem.cluster.nodes)}
    names = [placed.pod.metadata.name for placed in problem.cluster.pods]
    leaving: dict[NodeIndex, tuple[PodIndex, ...]] = {}
    rows = []
    for name, target in arrivals.items():
        index = PodIndex(names.index(name))
        source = state.node_of[index]
        leaving[source] = (*leaving.get(source, ()), index)
        rows.append((int(packing.pod_kind[index]), number[target], 1))
    transition = Transition(leaving, frozenset(number[name] for name in emptied), np.array(sorted(rows)))
    if not apply_transition(packing, state, transition, detours=detours, open_nodes=packing.takes):
        assert not state.steps
        return None
    return [(names[step.pod], problem.cluster.node_name(step.target)) for step in state.steps]


def test_a_pod_steps_aside_before_others_take_the_room_that_it_needs_for_that() -> None:
    """Two pods change places, for which one goes to the third node before what that is kept for comes."""
    pods = (
        other_pod("left", node="one", cpu=6),
        other_pod("right", node="two", cpu=7),
        other_pod("guest", node="leaves", cpu=5),
    )
    snapshot = zoned(dict.fromkeys(("leaves", "one", "third", "two"), "east"), *pods)
    wanted = {"left": "two", "right": "one", "guest": "third"}

    moves = ordered(snapshot, ["leaves"], wanted, detours=1)

    assert moves == [("left", "third"), ("right", "one"), ("left", "two"), ("guest", "third")]
    assert ordered(snapshot, ["leaves"], wanted, detours=0) is None


def test_a_pod_that_its_spread_held_back_comes_once_another_has_gone_to_its_zone() -> None:
    zones = {"a": "east", "b": "east", "c": "west", "d": "west", "e": "east"}
    spread_pods = (
        spread_pod("b", node="b", cpu=1),
        spread_pod("e", node="e", cpu=1),
        spread_pod("c", node="c", cpu=2),
    )
    snapshot = zoned(zones, *spread_pods, other_pod("d", node="d", cpu=1), other_pod("b-too", node="b", cpu=1))

    moves = ordered(snapshot, ["c"], {"c": "a", "b": "d"}, detours=0)

    assert moves == [("b", "d"), ("c", "a")]


def test_a_spread_of_several_classes_is_left_to_the_search() -> None:
    """Two revisions count together, so that what holds for pods of one class alone does not hold."""
    pods = [spread_pod("a", node="a", cpu=3), spread_pod("b", node="b", cpu=2)]
    snapshot = zoned({"a": "east", "b": "west"}, *pods)
    problem = Problem.from_snapshot(snapshot, consolidating())
    sources = find_sources(problem)
    state = State(problem.cluster, sources.to_take_from)

    assert len(problem.cluster.classes) == 2
    assert read_spreads(build_packing_model(problem, state, sources.to_take_from), state) == ()
