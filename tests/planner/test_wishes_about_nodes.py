"""Rules may wish that nodes are filled before others: these are emptied last, and no plan brings less for it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import strategies as st

from berth_core import Node
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.rules import Rule
from berth_descheduler.goals import goal_named
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins.defragmentation import NoBalance
from builders import bare_pod, node, owner, pod
from demo_snapshot import NAMESPACE, make_demo_snapshot
from planner.clusters import consolidating, making_room, minimizing, settings
from planner.random_clusters import clusters, tight_clusters
from planner_settings import Toy, planner_settings, ruled, with_plugins
from properties import holds_for


class FirstByLabel(Rule):
    """Wishes pods on nodes whose label `first` is lower; nodes without it come last."""

    def target_rank(self, node: Node) -> int:
        return int(node.metadata.labels.get("first", 9))


@dataclass(frozen=True)
class Naming:
    """Names pods that should run elsewhere."""

    names: tuple[str, ...]

    def deschedule(self, view: ClusterView) -> Iterable[Candidate]:
        del view
        return (Candidate(NAMESPACE, name, "it is asked for") for name in self.names)


def wishing(how: PlannerSettings, rule: Rule | None = None) -> PlannerSettings:
    return ruled(how, rule or FirstByLabel())


# --- sixty nodes ----------------------------------------------------------------------------------------------------


class EveryFourth(Rule):
    """Wishes pods on every fourth node of the bundled snapshot."""

    def target_rank(self, node: Node) -> int:
        return int(not is_fourth(node.metadata.name))


def is_fourth(name: str) -> bool:
    return int(name.removeprefix("node-")) % 4 == 0


@dataclass(frozen=True)
class Tally:
    """What a plan for the bundled snapshot does with the fifteen nodes that pods are wished on."""

    freed: int
    freed_wished: int
    moves: int
    moves_to_wished: int

    @classmethod
    def of(cls, made: Plan) -> "Tally":
        return cls(
            len(made.freed_nodes),
            sum(map(is_fourth, made.freed_nodes)),
            len(made.moves),
            sum(is_fourth(move.target) for move in made.moves),
        )


def naming(*names: str) -> PlannerSettings:
    """Settings by which the named pods move, and no others."""
    named = (Enabled("Naming", Naming(names)),)
    return with_plugins(planner_settings(), balance=Enabled("", NoBalance(("Naming",))), deschedule=named)


SIXTY = make_demo_snapshot()
NAMED = tuple(pod.metadata.name for pod in SIXTY.pods[:40])


@pytest.mark.parametrize(
    ("how", "want", "want_wishing"),
    [
        pytest.param(consolidating(exact=True), Tally(27, 4, 112, 36), Tally(27, 0, 118, 49), id="consolidate, exact"),
        pytest.param(consolidating(), Tally(27, 4, 112, 36), Tally(27, 0, 118, 49), id="consolidate"),
        pytest.param(consolidating(max_moves=40), Tally(12, 2, 38, 10), Tally(12, 0, 38, 38), id="consolidate, 40"),
        pytest.param(settings(60, 60, 100), Tally(21, 1, 88, 27), Tally(21, 0, 89, 35), id="threshold"),
        pytest.param(
            settings(60, 60, 100, wholeNodes=False), Tally(21, 1, 91, 27), Tally(21, 1, 91, 36), id="single pods"
        ),
        pytest.param(
            making_room(shapes=("cpu=8,memory=16Gi",), max_moves=10), Tally(1, 0, 10, 0), Tally(1, 0, 10, 10), id="room"
        ),
        pytest.param(minimizing(max_moves=20), Tally(0, 0, 2, 2), Tally(0, 0, 2, 2), id="fragmentation"),
        pytest.param(naming(*NAMED), Tally(0, 0, 40, 12), Tally(0, 0, 40, 40), id="named pods"),
    ],
)
def test_on_sixty_nodes_pods_go_where_they_are_wished_and_no_less_is_freed(
    how: PlannerSettings, want: Tally, want_wishing: Tally
) -> None:
    assert Tally.of(plan(SIXTY, how)) == want
    assert Tally.of(plan(SIXTY, wishing(how, EveryFourth()))) == want_wishing


# --- small clusters -------------------------------------------------------------------------------------------------


def cluster(**firsts: int) -> Snapshot:
    """Nodes of 8 cpu, each with the rank that is given, and a pod of 3 cpu on each."""
    nodes = tuple(node(name, cpu="8", labels={"first": str(first)}) for name, first in firsts.items())
    pods = tuple(pod(f"on-{name}", node=name, cpu="3", memory=None, controller=owner(name=name)) for name in firsts)
    return Snapshot(nodes=nodes, pods=pods)


WAYS = {
    "threshold": settings(60, 60, 100, wholeNodes=True),
    "consolidate": consolidating(),
    "consolidate, exact": consolidating(exact=True),
}


@pytest.mark.parametrize("how", [consolidating(), consolidating(exact=True)], ids=["search", "exact"])
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_of_two_nodes_the_wished_one_is_filled_and_the_other_emptied(
    how: PlannerSettings, names: tuple[str, str]
) -> None:
    first, last = names

    made = plan(cluster(**{first: 1, last: 2}), wishing(how))

    assert [(move.source, move.target) for move in made.moves] == [(last, first)]
    assert made.quality is not None
    assert made.quality.proven_optimal


def test_a_node_is_emptied_though_pods_are_wished_there_where_less_would_be_freed_without_it() -> None:
    snapshot = cluster(a=1, b=2)
    stays = bare_pod("stays", node="b", cpu="1", memory=None)

    made = plan(replace(snapshot, pods=(*snapshot.pods, stays)), wishing(consolidating()))

    assert made.freed_nodes == ("a",)


def test_a_wish_costs_few_moves_only() -> None:
    """The wished node has one pod, the other one six: five moves more are too many."""
    nodes = (node("a", cpu="16", labels={"first": "1"}), node("b", cpu="16"))
    pods = tuple(pod(f"b-{n}", node="b", cpu="1", memory=None, controller=owner(name="b")) for n in range(6))
    alone = pod("alone", node="a", cpu="1", memory=None, controller=owner(name="a"))

    assert plan(Snapshot(nodes=nodes, pods=(alone, *pods)), wishing(consolidating())).freed_nodes == ("a",)
    assert plan(Snapshot(nodes=nodes, pods=(alone, *pods[:4])), wishing(consolidating())).freed_nodes == ("b",)


def test_room_is_made_elsewhere_and_what_stood_there_goes_to_the_wished_node() -> None:
    waits = pod("waits", node="", phase="Pending", cpu="8", memory=None, controller=owner(name="waits"))
    snapshot = cluster(a=2, b=1, c=2)

    made = plan(replace(snapshot, pods=(*snapshot.pods, waits)), wishing(making_room(pods=("default/waits",))))

    assert [(move.source, move.target) for move in made.moves] == [(made.room[0].nodes[0], "b")]


def test_ranks_of_several_rules_are_added_up() -> None:
    class LastByName(Rule):
        def target_rank(self, node: Node) -> int:
            return 5 if node.metadata.name == "a" else 0

    how = wishing(consolidating())
    both = with_plugins(how, filters=(*how.plugins.filters, Enabled("Other", Toy((LastByName(),)))))

    assert plan(cluster(a=1, b=2), how).freed_nodes == ("b",)
    assert plan(cluster(a=1, b=2), both).freed_nodes == ("a",)


@pytest.mark.parametrize("firsts", [{"y": 1, "z": 2}, {"y": 2, "z": 1}])
def test_of_two_nodes_on_which_a_pod_lowers_the_fragmentation_as_much_the_wished_one_is_filled(
    firsts: dict[str, int],
) -> None:
    """On each node stand 6 of 8 cpu: the 2 of the pod that leaves `x` make place for one of 4 there."""
    nodes = [node("x", cpu="8"), *(node(name, cpu="8", labels={"first": str(firsts[name])}) for name in "yz")]
    large = owner(name="large")
    pods = [pod(f"large-{name}", node=name, cpu="4", memory=None, controller=large) for name in "xyz"]
    pods += [bare_pod(f"small-{name}", node=name, cpu="2", memory=None) for name in "yz"]
    pods.append(pod("small-x", node="x", cpu="2", memory=None, controller=owner(name="small")))

    made = plan(Snapshot(nodes=tuple(nodes), pods=tuple(pods)), wishing(minimizing(max_moves=1)))

    assert [(move.source, move.target) for move in made.moves] == [("x", min(firsts, key=lambda name: firsts[name]))]


def test_a_spared_node_says_why_it_keeps_its_pods() -> None:
    made = plan(cluster(a=1, b=2), wishing(consolidating()))

    (kept,) = [refused for refused in made.refused if refused.node == "a"]
    assert (kept.reason, kept.message) == (
        Reason.NOT_NEEDED,
        "the policy wishes pods to come to the node, and the plan brings as much without it",
    )


class Random(Rule):
    """Gives nodes ranks that follow from their names."""

    def target_rank(self, node: Node) -> int:
        return sum(map(ord, node.metadata.name)) * 7 % 5


@holds_for(
    st.one_of(clusters(), tight_clusters()),
    st.sampled_from(
        (
            consolidating(),
            consolidating(max_moves=3),
            settings(60, 60, 100),
            minimizing(),
            making_room(shapes=("cpu=5",)),
        )
    ),
)
def test_no_plan_brings_less_for_a_wish(snapshot: Snapshot, how: PlannerSettings) -> None:
    plain, made = plan(snapshot, how), plan(snapshot, wishing(how, Random()))

    goal = goal_named(made.objective.strategy)
    assert goal is not None
    assert len(made.freed_nodes) >= len(plain.freed_nodes)
    assert goal.worth(made) >= goal.worth(plain)
    assert len(made.moves) <= len(plain.moves) + max(3, len(plain.moves) // 4)


def test_a_wished_node_that_no_plan_empties_says_why_and_not_that_it_is_wished() -> None:
    large = pod("large", node="first", cpu="5", memory=None, controller=owner(name="large"))
    full = bare_pod("full", node="last", cpu="7", memory=None)
    nodes = (node("first", cpu="8", labels={"first": "1"}), node("last", cpu="8"))

    made = plan(Snapshot(nodes=nodes, pods=(large, full)), wishing(consolidating()))

    assert made == replace(plan(Snapshot(nodes=nodes, pods=(large, full)), consolidating()), settings=made.settings)
    assert {refused.reason for refused in made.refused if refused.node == "first"} == {Reason.NO_TARGET}
