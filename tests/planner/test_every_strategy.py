"""What holds of the plans of all strategies, over clusters in which every constraint may occur."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import strategies as st

from berth_core import Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.planner import PlannerSettings, explain_kept_pods, plan
from builders import NOON, bare_pod, node, owner, pod
from planner.clusters import (
    apart,
    api_items,
    consolidating,
    making_room,
    minimizing,
    moves_of,
    selector,
    settings,
    term,
)
from planner.random_clusters import clusters, in_another_order, tight_clusters
from planner.replay import filled_above, forbidden_moves, replay_steps, replay_waves
from planner_settings import args_of, planner_settings, with_args
from properties import holds_for

HOUR_AGO = "2026-11-21T11:00:00Z"


def at_noon(how: PlannerSettings) -> PlannerSettings:
    """The same settings with a time to count the cool-down from."""
    return planner_settings(
        args=args_of(how), max_moves=how.limits.max_moves, waves=how.limits.waves, exact=how.search.exact, now=NOON
    )


by_thresholds = st.builds(
    settings,
    low=st.sampled_from((30, 50, 60)),
    defragment=st.just(60),
    protection=st.sampled_from((80, 90, 100)),
    max_moves=st.sampled_from((None, None, 3)),
    per_controller=st.integers(1, 3),
    now=st.just(NOON),
    coolDownTime=st.just("1h"),
)
single_pods = by_thresholds.map(lambda how: with_args(how, whole_nodes=False))
consolidations = st.builds(
    consolidating,
    protection=st.sampled_from((80, 90, 100, 100)),
    max_moves=st.sampled_from((None, None, 0, 3, 8)),
    per_controller=st.integers(1, 3),
    per_wave=st.integers(1, 5),
    now=st.just(NOON),
    coolDownTime=st.just("1h"),
)
rooms = st.builds(
    making_room,
    shapes=st.sampled_from((("cpu=6",), ("cpu=8,count=1",), ("cpu=5,count=3",), ("example.com/gpu=2,count=1",))),
    max_moves=st.sampled_from((None, 0, 2, 5)),
    per_controller=st.integers(1, 3),
    coolDownTime=st.just("1h"),
).map(at_noon)
lowering = st.builds(
    minimizing,
    protection=st.sampled_from((80, 90, 100)),
    max_moves=st.sampled_from((None, 0, 3)),
    per_controller=st.integers(1, 3),
    now=st.just(NOON),
    coolDownTime=st.just("1h"),
)
snapshots = st.one_of(clusters(), tight_clusters())
whole_nodes = st.one_of(by_thresholds, consolidations, rooms)
ways = st.one_of(whole_nodes, single_pods, lowering)


@holds_for(snapshots, ways)
def test_every_step_and_every_wave_is_feasible_and_allowed(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    items, moves = api_items(snapshot), moves_of(made)
    assert replay_steps(items, moves) == []
    assert replay_waves(items, moves) == []
    assert forbidden_moves(items, moves, now=HOUR_AGO) == []


@holds_for(snapshots, ways)
def test_no_more_moves_than_allowed_and_no_wave_beyond_its_limits(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert how.limits.max_moves is None or len(made.moves) <= how.limits.max_moves
    together = Counter((move.wave, move.owner.name, move.namespace) for move in made.moves if move.owner)
    assert all(count <= how.limits.waves.per_controller for count in together.values())
    assert all(count <= how.limits.waves.per_wave for count in Counter(move.wave for move in made.moves).values())


@holds_for(snapshots, ways)
def test_no_plan_leaves_less_than_there_was(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    assert made.after.requested == made.before.requested
    if args_of(how).goal.name == "MakeRoom":
        (room,) = made.room
        assert room.fits_after >= room.fitted
        assert room.wanted is None or room.fits_after >= min(room.fits_before, room.wanted)
        assert room.wanted is not None or room.fits_after >= room.fits_before
        assert made.moves == () or room.fitted > (0 if room.wanted else room.fits_before)
    elif args_of(how).goal.name == "MinimizeFragmentation":
        change = made.fragmentation
        assert change
        assert (change.fragmented_after < change.fragmented_before) == bool(made.moves)
    else:
        assert len(made.after.empty_nodes) == len(made.before.empty_nodes) + len(made.freed_nodes)
        assert bool(made.moves) == bool(made.freed_nodes) or not args_of(how).empties_whole_nodes


@holds_for(snapshots, whole_nodes)
def test_a_node_is_emptied_whole_or_gives_pods_only_to_take_others(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    taking = {move.target for move in made.moves} | {node for room in made.room for node in room.nodes}
    for source in {move.source for move in made.moves}:
        assert (source in made.freed_nodes and source not in {move.target for move in made.moves}) or source in taking
    if args_of(how).goal.name == "Threshold":
        assert {move.source for move in made.moves} == set(made.freed_nodes)


@holds_for(snapshots, ways)
def test_no_move_takes_a_node_above_its_protection_threshold(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    limit = how.protection.get("cpu") or Fraction(100)
    assert filled_above(api_items(snapshot), moves_of(made), limit) == []


@holds_for(snapshots, ways)
def test_every_node_and_every_pod_that_stays_has_a_reason(snapshot: Snapshot, how: PlannerSettings) -> None:
    made = plan(snapshot, how)

    of_nodes = Counter(one.node for one in made.refused if one.kind is RefusedKind.NODE)
    assert all(count == 1 for count in of_nodes.values())
    if args_of(how).goal.name != "MakeRoom":
        assert set(of_nodes) == {one.metadata.name for one in snapshot.nodes} - set(made.freed_nodes)
    for room in made.room:
        missing = room.wanted is None or room.fitted < room.wanted
        assert missing == any(one.kind is RefusedKind.POD and not one.node for one in made.refused)
    moved = {(move.namespace, move.pod) for move in made.moves}
    staying = [(one.namespace, one.name) for one in explain_kept_pods(snapshot, made)]
    assert sorted(staying) == sorted(key for key in placed_pods(snapshot) if key not in moved)
    assert all(one.message for one in (*made.refused, *explain_kept_pods(snapshot, made)))


def placed_pods(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for one in snapshot.pods:
        if (one.spec.node_name or one.status.nominated_node_name) and one.status.phase not in ("Succeeded", "Failed"):
            yield one.metadata.namespace, one.metadata.name


@holds_for(snapshots, ways, st.randoms(use_true_random=False), quick=4)
def test_the_order_of_the_objects_does_not_matter(
    snapshot: Snapshot, how: PlannerSettings, chance: random.Random
) -> None:
    assert plan(in_another_order(snapshot, chance), how) == plan(snapshot, how)


def test_consolidate_passes_over_the_node_whose_pods_are_shunned() -> None:
    shy = of("shy", "a", labels={"app": "web"}, affinity=apart(term(select=selector(app="db"))))
    others = (
        of("db", "b", "8", labels={"app": "db"}, priority=2_000_000_000),
        of("more", "c", "6", priority=2_000_000_000),
    )

    made = plan(Snapshot(nodes=ten("a", "b", "c"), pods=(shy, *others)), consolidating())

    assert [(move.pod, move.target) for move in made.moves] == [("shy", "c")]


# --- why a pod or a node stays, case by case ------------------------------------------------------------------------


def of(name_: str, on: str, cpu: str = "1", **rest: object) -> Pod:
    return pod(name_, **{"node": on, "cpu": cpu, "memory": None, "controller": owner(name=name_), **rest})  # type: ignore[arg-type]


def ten(*names: str, **rest: object) -> tuple[Node, ...]:
    return tuple(node(one, **{"cpu": "10", **rest}) for one in names)  # type: ignore[arg-type]


class TimeIsOver:
    """A deadline that has passed."""

    def remaining_seconds(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Case:
    """A cluster, and the reasons of some nodes and pods that stay, with words of their messages."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    how: PlannerSettings
    want: dict[str, tuple[Reason, str]]
    """By the name of the node or pod."""

    in_time: bool = True


FULL = (of("big", "b", "9", priority=2_000_000_000),)
STRICT = settings(low=40, defragment=50, protection=100)

TABLE = {
    "Threshold: a pod that finds no target names the resource": Case(
        ten("a", "b"),
        (of("p", "a", "2"), *FULL),
        STRICT,
        {
            "p": (Reason.NO_TARGET, "not enough cpu"),
            "a": (Reason.NO_TARGET, "default/p"),
            "b": (Reason.NOT_LOW, "90 %"),
        },
    ),
    "Threshold: a pod beside one that may not move stays with its node": Case(
        ten("a", "b"),
        (of("p", "a"), bare_pod("lonely", node="a"), *FULL),
        STRICT,
        {
            "p": (Reason.HOLDS_IMMOVABLE_PODS, "default/lonely"),
            "lonely": (Reason.NO_CONTROLLER, "again"),
            "a": (Reason.HOLDS_IMMOVABLE_PODS, "default/lonely"),
        },
    ),
    "Threshold: a pod of a node that is not low": Case(
        ten("a", "b"), (of("p", "a", "5"), *FULL), STRICT, {"p": (Reason.NOT_LOW, "50 % requested, not below 40 %")}
    ),
    "Threshold: a limit of moves": Case(
        ten("a", "b"),
        (of("p", "a"), of("q", "a"), of("big", "b", "6", priority=2_000_000_000)),
        settings(low=40, defragment=50, protection=100, max_moves=1),
        {"p": (Reason.MOVE_LIMIT, "2 moves are needed and 1 are left"), "a": (Reason.MOVE_LIMIT, "2 moves")},
    ),
    "Consolidate: a pod that finds no target names the resource": Case(
        ten("a", "b"),
        (of("p", "a", "2"), *FULL),
        consolidating(),
        {"p": (Reason.NO_TARGET, "not enough cpu"), "b": (Reason.HOLDS_IMMOVABLE_PODS, "default/big")},
    ),
    "Consolidate: a pod that goes to no other node names the rule": Case(
        (*ten("a", labels={"disk": "ssd"}), *ten("b")),
        (of("p", "a", "1", node_selector={"disk": "ssd"}), of("big", "b", "6", priority=2_000_000_000)),
        consolidating(),
        {"p": (Reason.NO_TARGET, "node selector"), "a": (Reason.NO_TARGET, "default/p")},
    ),
    "Consolidate: a limit of moves": Case(
        ten("a", "b"),
        (of("p", "a"), of("q", "a"), of("big", "b", "6", priority=2_000_000_000)),
        consolidating(max_moves=1),
        {"p": (Reason.MOVE_LIMIT, "2 moves are needed and 1 are left"), "a": (Reason.MOVE_LIMIT, "2 moves")},
    ),
    "Consolidate: the time is over": Case(
        ten("a", "b", "c"),
        (of("p", "a", "4"), of("q", "b", "3"), of("big", "c", "1", priority=2_000_000_000)),
        consolidating(),
        {"a": (Reason.TIME_LIMIT, "at most 1 more"), "p": (Reason.TIME_LIMIT, "the time limit")},
        in_time=False,
    ),
    "Consolidate: a critical node": Case(
        (*ten("a", labels={"critical": "true"}), *ten("b")),
        (of("p", "a"), of("big", "b", "6", priority=2_000_000_000)),
        consolidating(),
        {"p": (Reason.CRITICAL_NODE, "critical=true"), "a": (Reason.CRITICAL_NODE, "critical=true")},
    ),
    "Consolidate: a node that is empty": Case(
        ten("a", "b"), (of("p", "b"),), consolidating(), {"a": (Reason.ALREADY_EMPTY, "nothing on the node")}
    ),
    "MinimizeFragmentation: a pod that fits nowhere else": Case(
        ten("a", "b"),
        (of("p", "a", "4"), of("big", "b", "9", priority=2_000_000_000)),
        minimizing(),
        {"a": (Reason.NO_TARGET, "no other node takes"), "b": (Reason.HOLDS_IMMOVABLE_PODS, "default/big")},
    ),
    "MinimizeFragmentation: a limit of moves": Case(
        ten("a", "b", "c"),
        (of("p", "a", "6"), of("q", "b", "2"), of("r", "c", "2")),
        minimizing(max_moves=0),
        {"a": (Reason.MOVE_LIMIT, "no more than 0 moves")},
    ),
    "MinimizeFragmentation: the time is over": Case(
        ten("a", "b", "c"),
        (of("p", "a", "6"), of("q", "b", "2"), of("r", "c", "2")),
        minimizing(),
        {"a": (Reason.TIME_LIMIT, "the time limit")},
        in_time=False,
    ),
    "MinimizeFragmentation: a move that would raise it": Case(
        ten("a", "b", "c"),
        (of("p", "a", "6"), of("q", "b", "6")),
        minimizing(),
        {"a": (Reason.NOT_NEEDED, "no move of one of its pods lowers"), "c": (Reason.ALREADY_EMPTY, "nothing")},
    ),
    "MakeRoom: what is not in the way": Case(
        ten("a", "b"), (of("p", "a"),), making_room(shapes=["cpu=10,count=1"]), {"p": (Reason.NOT_NEEDED, "place")}
    ),
    "MakeRoom: what may not move": Case(
        ten("a"),
        (bare_pod("lonely", node="a"), of("p", "a")),
        making_room(shapes=["cpu=10,count=1"]),
        {
            "lonely": (Reason.NO_CONTROLLER, "again"),
            "a": (
                Reason.HOLDS_IMMOVABLE_PODS,
                "not enough cpu beside pods that may not be moved, such as default/lonely",
            ),
            "p": (Reason.HOLDS_IMMOVABLE_PODS, "default/lonely"),
            "cpu=10": (Reason.BOUND_REACHED, "1 more"),
        },
    ),
    "MakeRoom: a limit of moves": Case(
        ten("a", "b"),
        (of("p", "a"), of("q", "b", "6")),
        making_room(shapes=["cpu=10,count=1"], max_moves=0),
        {"cpu=10": (Reason.MOVE_LIMIT, "1 moves would make room and 0 are allowed")},
    ),
    "MakeRoom: the time is over": Case(
        ten("a", "b", "c"),
        (of("p", "a", "6"), of("q", "b", "6"), of("r", "c", "6")),
        making_room(shapes=["cpu=10,count=1"]),
        {"cpu=10": (Reason.TIME_LIMIT, "time limit"), "a": (Reason.INSUFFICIENT_RESOURCES, "not enough cpu")},
        in_time=False,
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_stays_says_which_rule_or_resource_or_pod_keeps_it(case: Case) -> None:
    snapshot = Snapshot(nodes=case.nodes, pods=case.pods)

    made = plan(snapshot, case.how, None if case.in_time else TimeIsOver())

    found = {one.name: one for one in (*made.refused, *explain_kept_pods(snapshot, made))}
    assert {key: found[key].reason for key in case.want} == {key: reason for key, (reason, _) in case.want.items()}
    assert [words for key, (_, words) in case.want.items() if words not in found[key].message] == []
