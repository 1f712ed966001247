"""Rules may count amounts of their own on targets: no plan brings a node more than is left there."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.migration_plans import MoveReason
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import Refusal
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.rules import Budget, GuardedRule, Rule
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.report.documents import describe_plan
from builders import bare_pod, node, owner, pod
from planner.clusters import consolidating, making_room, minimizing, settings
from planner.random_clusters import clusters, tight_clusters
from planner_settings import ruled
from properties import holds_for

TOO_HOT = Refusal(Reason.REFUSED_BY_PLUGIN, "Toy: it would get too hot")


def heat_of(pod: Pod) -> int:
    return int(pod.metadata.labels.get("heat", 0))


@dataclass(frozen=True)
class Heat(Rule):
    """Leaves each node so much heat to take on."""

    left: Mapping[str, int]
    demand: Callable[[Pod], Any] = heat_of
    refusal: Refusal = TOO_HOT

    def budgets(self) -> Iterator[Budget]:
        yield Budget("heat", self.refusal, self.left, self.demand)


WAYS = {
    "threshold": settings(low=60, defragment=60, protection=100, wholeNodes=True),
    "single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(),
    "consolidate, exact": consolidating(exact=True),
}


def heated(name: str, on: str, heat: int, cpu: str = "1") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, labels={"heat": str(heat)}, controller=owner(name=name))


def cluster(*, heat: int = 3) -> Snapshot:
    """Two small pods on `low` of 2 and of so much heat, and room for both on `high`."""
    small = (heated("small-0", "low", 2), heated("small-1", "low", heat))
    base = bare_pod("base", node="high", cpu="5", memory=None)
    return Snapshot(nodes=(node("low", cpu="8"), node("high", cpu="8")), pods=(*small, base))


def moved(made: Plan) -> list[str]:
    return sorted(move.pod for move in made.moves)


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_what_a_plan_brings_to_a_node_counts_together(how: PlannerSettings) -> None:
    both, alone = ruled(how, Heat({"high": 5})), ruled(how, Heat({"high": 4}))
    moves_single_pods = how is WAYS["single pods"]

    assert moved(plan(cluster(), both)) == ["small-0", "small-1"]
    assert len(moved(plan(cluster(), alone))) == int(moves_single_pods)


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_node_that_has_too_much_already_takes_nothing_but_what_takes_none(how: PlannerSettings) -> None:
    snapshot = cluster(heat=0)
    cold = replace(snapshot, pods=tuple(pod for pod in snapshot.pods if pod.metadata.name != "small-0"))

    assert moved(plan(cold, ruled(how, Heat({"high": -7})))) == ["small-1"]
    assert moved(plan(cluster(), ruled(how, Heat({"high": -7})))) == []


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_node_of_which_nothing_is_said_takes_any_number(how: PlannerSettings) -> None:
    assert moved(plan(cluster(), ruled(how, Heat({"other": 0})))) == ["small-0", "small-1"]


def test_a_pod_that_leaves_gives_back_what_it_took() -> None:
    """Room for 8 cpu: the pods of 6 and of 3 cpu change places by way of the third node, whose heat is used up."""
    snapshot = Snapshot(
        nodes=(node("a", cpu="8"), node("b", cpu="8")),
        pods=(
            heated("leaves", "a", 5, cpu="2"),
            bare_pod("base", node="a", cpu="5", memory=None),
            pod(
                "waits",
                node="",
                phase="Pending",
                cpu="3",
                memory=None,
                controller=owner(name="w"),
                labels={"heat": "5"},
            ),
            bare_pod("other", node="b", cpu="6", memory=None),
        ),
    )
    how = making_room(pods=("default/waits",))

    made = plan(snapshot, ruled(how, Heat({"a": 0, "b": 5})))

    assert [(move.pod, move.target) for move in made.moves] == [("leaves", "b")]
    assert made.room[0].nodes == ("a",)
    assert plan(snapshot, ruled(how, Heat({"a": -1, "b": 5}))).room[0].nodes == ()


def test_a_plan_says_by_which_rule_a_node_takes_no_more() -> None:
    together = plan(cluster(), ruled(consolidating(), Heat({"high": 4})))
    alone = plan(cluster(), ruled(consolidating(), Heat({"high": 2})))

    assert [(refused.reason, refused.message) for refused in together.refused if refused.node == "low"] == [
        (Reason.BOUND_REACHED, "no plan frees more than 0 nodes")
    ]
    (of_pod,) = [refused for refused in alone.refused if refused.kind == "Pod" and refused.node == "low"]
    assert (of_pod.name, of_pod.reason, of_pod.constraint) == ("small-1", Reason.NO_TARGET, TOO_HOT.reason)
    assert TOO_HOT.message in of_pod.message


def test_single_pods_are_refused_with_the_rules_own_sentence() -> None:
    made = plan(cluster(), ruled(WAYS["single pods"], Heat({"high": 1})))

    assert {refused.constraint for refused in made.refused if refused.kind == "Pod"} == {TOO_HOT.reason}
    assert all(TOO_HOT.message in refused.message for refused in made.refused if refused.kind == "Pod")


def test_no_report_takes_the_amount_for_a_resource() -> None:
    made = plan(cluster(), ruled(consolidating(), Heat({"high": 5})))

    assert "heat" not in str(describe_plan(made))


def test_it_is_asked_again_when_a_plan_is_looked_at_again() -> None:
    how = consolidating()
    moves = plan(cluster(), how).moves

    invalid = revalidate(cluster(), moves, ruled(how, Heat({"high": 4})))

    assert {why.reason for why in invalid.values()} == {MoveReason.TARGET_UNFIT, MoveReason.SOURCE_NOT_EMPTIABLE}
    assert any(why.message == TOO_HOT.message for why in invalid.values())
    assert revalidate(cluster(), moves, ruled(how, Heat({"high": 5}))) == {}


# --- rules that do not know, or fail --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("unknown", [None, -1, 1.5, "3", True, 1 << 50])
def test_a_pod_stays_of_which_it_is_not_known_what_it_takes(how: PlannerSettings, unknown: object) -> None:
    made = plan(cluster(), ruled(how, Heat({"high": 50}, lambda _: unknown)))

    assert moved(made) == []
    assert any("it is not known what the pod takes of heat" in refused.message for refused in made.refused)


@pytest.mark.parametrize("left", [{"high": "5"}, {"high": 1.5}, {"high": True}, {"high": 1 << 50}, None])
def test_a_budget_that_cannot_be_read_keeps_all_pods_and_names_the_plugin(left: Any) -> None:  # noqa: ANN401
    made = plan(cluster(), ruled(consolidating(), Heat(left)))

    assert moved(made) == []
    assert any("the plugin Toy failed" in refused.message for refused in made.refused)


def test_a_rule_whose_budgets_raise_keeps_all_pods() -> None:
    class Fails(Rule):
        def budgets(self) -> Iterator[Budget]:
            raise ValueError("no idea")

    made = plan(cluster(), ruled(consolidating(), Fails()))

    assert moved(made) == []
    assert any("the plugin Toy failed: ValueError: no idea" in refused.message for refused in made.refused)


def test_a_guarded_rule_asks_through() -> None:
    (budget,) = GuardedRule("Toy", Heat({"a": 1})).budgets()

    assert (budget.name, budget.left, budget.demand(heated("x", "a", 4))) == ("heat", {"a": 1}, 4)


# --- over clusters in which every constraint may occur ----------------------------------------------------------------


def by_name(pod: Pod) -> int:
    return sum(map(ord, pod.metadata.name)) % 3


@dataclass
class Replay:
    """Counts what each node takes on, move by move."""

    left: Mapping[str, int]
    taken: Counter[str] = field(default_factory=Counter)

    def above(self, snapshot: Snapshot, made: Plan) -> list[str]:
        """Return the targets that a move takes above what is left there."""
        demand = {pod.key: by_name(pod) for pod in snapshot.pods}
        targets_above = []
        for move in made.moves:
            amount = demand[f"{move.namespace}/{move.pod}"]
            self.taken.update({move.target: amount})
            if amount and self.taken[move.target] > self.left.get(move.target, 1 << 40):
                targets_above.append(move.target)
            self.taken.subtract({move.source: amount})
        return targets_above


@holds_for(
    st.one_of(clusters(), tight_clusters()),
    st.sampled_from((*WAYS.values(), minimizing(), making_room(shapes=("cpu=5",)))),
    st.integers(-1, 4),
    quick=4,
)
def test_no_move_of_any_strategy_goes_beyond_it(snapshot: Snapshot, how: PlannerSettings, left: int) -> None:
    names = [node.metadata.name for node in snapshot.nodes]
    limits = {name: left + number % 3 for number, name in enumerate(names) if number % 4}

    made = plan(snapshot, ruled(how, Heat(limits, by_name)))

    assert Replay(limits).above(snapshot, made) == []
