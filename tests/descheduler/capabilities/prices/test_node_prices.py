"""With `nodePrice` the objective of `Consolidate` is money; compared with every end that tiny clusters can have."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from berth_core import Affinity, LabelSelector, Node, PodAffinity, PodAffinityTerm
from berth_core.migration_plans import PlanPhase
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.prices.node_prices import NodePrices
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.metrics import CycleMetrics
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.solver.bounds import _MOST_CHOICES, least_cost, most_worth
from berth_descheduler.report.documents import describe_plan
from berth_descheduler.report.prices import unpriced_in_words
from berth_descheduler.report.stakes import stakes_in_words
from berth_descheduler.report.summary import judge_plan, summarise_plan
from builders import FakeClock, node, owner, pod
from planner.clusters import api_items, consolidating, moves_of
from planner.random_clusters import clusters
from planner.replay import replay_steps, replay_waves
from planner.test_bounds import closed_nodes, every_end, tiny_clusters
from planner_settings import args_of, with_args
from properties import holds_for

TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
PRICES = {"small": 100_000, "medium": 250_000, "middle": 300_000, "large": 700_000}
"""Two that are cheaper than a third may cost more together."""

BY_TYPE = {"instanceTypes": {"small": 0.1, "medium": 0.25, "middle": 0.3, "large": "0.7"}}


def typed(snapshot: Snapshot, types: list[str]) -> Snapshot:
    """The snapshot with an instance type for each node, over and over."""
    return replace(
        snapshot,
        nodes=tuple(labelled(one, types[index % len(types)]) for index, one in enumerate(snapshot.nodes)),
    )


def labelled(one: Node, kind: str) -> Node:
    labels = {**one.metadata.labels, TYPE: kind}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))


def price(one: Node) -> int:
    return PRICES[one.metadata.labels[TYPE]]


def best_end(snapshot: Snapshot, budget: int | None, *, may_fill: bool) -> tuple[int, int]:
    """The most money that an end saves, less what the empty nodes cost that it fills; its fewest moves, negative."""
    homes = {int(pod.spec.node_name[1:]) for pod in snapshot.pods}
    usable = set(range(len(snapshot.nodes))) - closed_nodes(snapshot)
    prices = [price(node) for node in snapshot.nodes]
    best = 0, 0
    for end in every_end(snapshot):
        filled = set(end.on) - homes
        if (budget is None or end.moves <= budget) and (may_fill or not filled):
            freed = sum(prices[index] for index in (usable & homes) - set(end.on))
            best = max(best, (freed - sum(prices[index] for index in filled), -end.moves))
    return best


def money(made: Plan) -> int:
    assert made.quality is not None
    assert made.quality.weight is not None
    return made.quality.weight.reached


def money_of(snapshot: Snapshot, names: tuple[str, ...]) -> int:
    return sum(price(node) for node in snapshot.nodes if node.metadata.name in names)


three_types = st.lists(st.sampled_from(tuple(PRICES)), min_size=3, max_size=3)
ways = st.builds(
    consolidating,
    max_moves=st.sampled_from((None, 1, 2, 3, 8)),
    per_controller=st.just(9),
    exact=st.booleans(),
    nodePrice=st.just(BY_TYPE),
    minSavingsPerMove=st.sampled_from((0, 0, 0.05, 0.2)),
)


@holds_for(tiny_clusters(), three_types, ways)
def test_no_end_frees_more_money_than_the_bound_and_what_is_proven_is_best(
    snapshot: Snapshot, types: list[str], how: PlannerSettings
) -> None:
    assume(not args_of(how).own)
    snapshot = typed(snapshot, types)

    made = plan(snapshot, how)

    assert made.quality is not None
    assert made.quality.weight is not None
    best, moves = best_end(snapshot, how.limits.max_moves, may_fill=not made.quality.leaves_empty_nodes)
    of_all, _ = best_end(snapshot, how.limits.max_moves, may_fill=True)
    assert money(made) <= best <= made.quality.weight.upper_bound
    assert money(made) == money_of(snapshot, made.freed_nodes) - money_of(snapshot, made.filled_nodes)
    assert not made.quality.proven_optimal or money(made) == of_all
    if money(made) == best:
        assert made.quality.fewest_moves <= -moves


@pytest.mark.parametrize(
    ("empty", "exact", "want_proven", "want_sentence"),
    {
        "as dear a one": ("large", True, True, "Proven optimal: no plan reaches more than 0 an hour"),
        "one without price": ("unknown", True, False, "No plan that leaves the empty nodes empty reaches more than 0"),
        "one without price, no solver": (
            "unknown",
            False,
            False,
            "No plan that leaves the empty nodes empty reaches more than 0",
        ),
    }.values(),
    ids=str,
)
def test_only_an_empty_node_without_a_price_keeps_a_plan_from_being_called_the_best(
    *, empty: str, exact: bool, want_proven: bool, want_sentence: str
) -> None:
    nodes = (labelled(node("dear"), "large"), labelled(node("empty"), empty))
    made = plan(
        Snapshot(nodes=nodes, pods=(pod("web", node="dear", controller=owner()),)),
        consolidating(exact=exact, nodePrice=BY_TYPE),
    )

    assert made.quality is not None
    assert made.quality.proven_optimal is want_proven
    assert want_sentence in judge_plan(made)
    assert not made.moves


@pytest.mark.parametrize("exact", [True, False])
def test_one_node_that_no_other_can_take_from_is_emptied_into_a_cheaper_empty_one(*, exact: bool) -> None:
    nodes = (labelled(node("dear"), "large"), labelled(node("empty"), "small"))
    snapshot = Snapshot(nodes=nodes, pods=(pod("web", node="dear", controller=owner()),))

    made = plan(snapshot, consolidating(max_moves=1, exact=exact, nodePrice=BY_TYPE))

    assert (made.freed_nodes, made.filled_nodes) == (("dear",), ("empty",))
    assert judge_plan(made).startswith("Proven optimal")


def dear_beside_empty(empty: tuple[str, ...]) -> Snapshot:
    """Two dear nodes that are half full of one pod each, and empty ones that hold two such pods."""
    dear = [labelled(node(f"dear-{number}", cpu="4"), "large") for number in range(2)]
    cheap = [labelled(node(f"empty-{number}", cpu="4"), kind) for number, kind in enumerate(empty)]
    pods = [pod(f"web-{number}", node=f"dear-{number}", cpu="2", controller=owner()) for number in range(2)]
    return Snapshot(nodes=(*dear, *cheap), pods=tuple(pods))


@pytest.mark.parametrize(
    ("empty", "how", "want_filled", "want_saved"),
    {
        "one holds the pods of two": (("small",), {}, ("empty-0",), "1.3"),
        "the cheaper of two": (("medium", "small"), {}, ("empty-1",), "1.3"),
        "none where one move brings more": (("small",), {"max_moves": 1}, (), "0.7"),
        "none where each move then saves too little": (("small",), {"minSavingsPerMove": "0.66"}, (), "0.7"),
    }.values(),
    ids=str,
)
def test_a_cheap_empty_node_is_filled_where_that_frees_dear_ones(
    empty: tuple[str, ...], how: dict[str, Any], want_filled: tuple[str, ...], want_saved: str
) -> None:
    snapshot = dear_beside_empty(empty)

    made = plan(snapshot, consolidating(exact=True, nodePrice=BY_TYPE, **how))

    assert made.filled_nodes == want_filled
    assert made.predicted.freed_price_per_hour == want_saved
    assert not want_filled or "and fill 1 empty one" in summarise_plan(made)
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


def test_a_cheap_empty_node_is_filled_though_no_two_pods_may_share_a_zone() -> None:
    web = LabelSelector(match_labels={"app": "web"})
    terms = (PodAffinityTerm(topology_key=ZONE, label_selector=web),)
    apart = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))
    pods = tuple(
        pod(f"web-{number}", node=f"dear-{number}", cpu="2", controller=owner(), labels={"app": "web"}, affinity=apart)
        for number in range(2)
    )
    nodes = (
        node("dear-0", cpu="4", labels={ZONE: "a", TYPE: "large"}),
        node("dear-1", cpu="4", labels={ZONE: "b", TYPE: "large"}),
        *(node(f"empty-{number}", cpu="4", labels={ZONE: "c", TYPE: "small"}) for number in range(2)),
    )
    snapshot = Snapshot(nodes=nodes, pods=pods)

    made = plan(snapshot, consolidating(exact=True, nodePrice=BY_TYPE))

    assert len(made.filled_nodes) == 1
    assert made.predicted.freed_price_per_hour == "0.6"
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


def shunning(app: str, key: str) -> Affinity:
    """The pods of an app are not wanted in the same domain."""
    term = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels={"app": app}))
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


def saved_by(made: Plan, nodes: tuple[Node, ...], prices: dict[str, int]) -> int:
    """What the freed nodes cost less what the filled ones do, in millionths."""
    price_of = {
        priced_node.metadata.name: 1_000_000 * prices[priced_node.metadata.labels[TYPE]] for priced_node in nodes
    }
    return sum(price_of[name] for name in made.freed_nodes) - sum(price_of[name] for name in made.filled_nodes)


def test_moves_that_would_fill_a_dearer_node_than_they_free_are_not_made() -> None:
    """The integer program's answer has no order, and what the search finds beside the filled node costs money."""
    prices = {"one": 1, "two": 2, "three": 3, "four": 4}
    nodes = tuple(
        node(name, cpu=cpu, labels={ZONE: zone, TYPE: kind, "pool": pool})
        for name, cpu, zone, kind, pool in (
            ("n0", "7", "z3", "two", "b"),
            ("n2", "9", "z2", "one", "a"),
            ("n3", "7", "z3", "three", "a"),
            ("n4", "10", "z4", "four", "b"),
        )
    )
    pods = tuple(
        pod(
            f"{app}-{number}",
            node=on,
            cpu=cpu,
            memory=None,
            labels={"app": app},
            controller=owner(name=app),
            affinity=shunning("data", ZONE) if app == "data" else None,
            node_selector={"pool": "b"} if app == "data" else {},
        )
        for number, (app, on, cpu) in enumerate(
            (("web", "n3", "4"), ("data", "n2", "4"), ("data", "n0", "4"), ("web", "n2", "4"), ("data", "n3", "0"))
        )
    )

    made = plan(Snapshot(nodes=nodes, pods=pods), consolidating(exact=True, nodePrice={"instanceTypes": prices}))

    assert money(made) == saved_by(made, nodes, prices)
    assert bool(made.moves) is (money(made) > 0)


def test_cheap_empty_nodes_are_filled_by_pods_that_shun_one_another_in_the_way_that_leaves_them_apart() -> None:
    """The integer program knows no anti-affinity to another app: its answer has no order, another of the same has."""
    gpu, hostname = "example.com/gpu", "kubernetes.io/hostname"
    prices = {"two": 2, "four": 4, "five": 5, "seven": 7}
    nodes = tuple(
        node(name, cpu=cpu, memory=memory, allocatable={gpu: gpus}, labels={hostname: name, TYPE: kind})
        for name, cpu, memory, gpus, kind in (
            ("n0", "7", "5Gi", "8", "five"),
            ("n1", "7", "2Gi", "8", "seven"),
            ("n2", "7", "8Gi", "8", "seven"),
            ("n3", "7", "8Gi", "8", "four"),
            ("n4", "6", "5Gi", "8", "two"),
            ("n5", "7", "7Gi", "5", "five"),
        )
    )
    apps = (("web", 0), ("web", 3), ("data", 2), ("web", 0), ("data", 1), ("batch", 1), ("web", 3))
    pods = tuple(
        pod(
            f"{app}-{number}",
            node=f"n{on}",
            cpu="4" if on == 2 else "2",
            memory="3Gi" if on == 2 else "1Gi",
            requests={gpu: "2" if on == 2 else "3"},
            labels={"app": app},
            controller=owner(name=app),
            affinity=None if app == "batch" else shunning("data", hostname),
        )
        for number, (app, on) in enumerate(apps)
    )
    snapshot = Snapshot(nodes=nodes, pods=pods)

    made = plan(snapshot, consolidating(exact=True, nodePrice={"instanceTypes": prices}))

    assert (made.freed_nodes, made.filled_nodes) == (("n1", "n2"), ("n4", "n5"))
    assert money(made) == saved_by(made, nodes, prices) == 7_000_000
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


FULL_BESIDE_EMPTY = {"instanceTypes": {"small": 0.3, "medium": 0.4, "large": 0.5}}


def full_beside_empty(*, left: str, right: str, cpu: str = "8") -> Snapshot:
    """Two full nodes, and an empty one that costs more than each of them, and holds the pods of both by its cpu."""
    full = [labelled(node(name, cpu="4"), kind) for name, kind in (("left", left), ("right", right))]
    pods = [
        pod(f"{name}-{number}", node=name, cpu="2", controller=owner())
        for name in ("left", "right")
        for number in (0, 1)
    ]
    return Snapshot(nodes=(*full, labelled(node("empty", cpu=cpu), "large")), pods=tuple(pods))


@pytest.mark.parametrize(("left", "saved"), [("small", "0.1"), ("medium", "0.3"), ("large", "0.4")])
def test_a_dear_empty_node_is_filled_where_that_frees_two_that_cost_more_together(left: str, saved: str) -> None:
    snapshot = full_beside_empty(left=left, right="small" if left == "small" else "medium")

    made = plan(snapshot, consolidating(exact=True, nodePrice=FULL_BESIDE_EMPTY))

    assert (made.freed_nodes, made.filled_nodes) == (("left", "right"), ("empty",))
    assert made.predicted.freed_price_per_hour == saved
    assert judge_plan(made).startswith(f"Proven optimal: no plan reaches more than {saved} an hour")


@pytest.mark.parametrize(("empty", "want_filled"), [("7", ()), ("8", ("empty",))])
def test_without_the_solver_the_search_fills_an_empty_node_where_that_frees_two_that_cost_more_together(
    *, empty: str, want_filled: tuple[str, ...]
) -> None:
    snapshot = full_beside_empty(left="small", right="medium", cpu=empty)

    made = plan(snapshot, consolidating(exact=False, nodePrice=FULL_BESIDE_EMPTY))

    assert made.filled_nodes == want_filled
    assert made.freed_nodes == (("left", "right") if want_filled else ())
    assert made.quality is not None
    assert made.quality.proven_optimal


@holds_for(clusters(), three_types, ways)
def test_every_step_is_feasible_and_every_plan_is_worth_its_moves(
    snapshot: Snapshot, types: list[str], how: PlannerSettings
) -> None:
    snapshot = typed(snapshot, types)

    made = plan(snapshot, how)

    assert replay_steps(api_items(snapshot), moves_of(made)) == []
    assert replay_waves(api_items(snapshot), moves_of(made)) == []
    assert made.quality is not None
    assert made.quality.weight is not None
    assert made.quality.weight.reached <= made.quality.weight.upper_bound
    assert money(made) >= args_of(how).own * len(made.moves)
    assert how.limits.max_moves is None or len(made.moves) <= how.limits.max_moves


@holds_for(clusters(), ways)
def test_equal_prices_give_the_plan_without_prices(snapshot: Snapshot, how: PlannerSettings) -> None:
    without = plan(snapshot, with_args(how, own=0, further={}))
    (prices,) = args_of(how).further
    priced = plan(snapshot, with_args(how, own=0, further={prices: NodePrices(default=250_000)}))

    assert priced.moves == without.moves
    assert priced.freed_nodes == without.freed_nodes
    assert priced.quality is not None
    assert replace(priced.quality, weight=None) == without.quality
    assert money(priced) == 250_000 * len(priced.freed_nodes)


@holds_for(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=8),
    st.integers(0, 120),
    st.sampled_from((0, _MOST_CHOICES)),
)
def test_the_worth_of_the_best_choice_is_never_above_its_bound(
    items: list[tuple[int, int]], limit: int, most_choices: int
) -> None:
    worth, cost = (np.array([one[part] for one in items], dtype=np.int64) for part in (0, 1))
    sums = [(0, 0)]
    for value, paid in items:
        sums += [(value + one, paid + other) for one, other in sums]
    with pytest.MonkeyPatch.context() as patched:  # with 0 as where nodes have too many prices to list the choices
        patched.setattr("berth_descheduler.planner.solver.bounds._MOST_CHOICES", most_choices)
        most, least = most_worth(worth, cost, limit), least_cost(worth, cost, limit)

    best = max(value for value, paid in sums if paid <= limit)
    cheapest = min((paid for value, paid in sums if value >= limit), default=None)
    assert best <= most
    assert cheapest is None or least <= cheapest
    if most_choices:
        assert best == most
        assert cheapest is None or least == cheapest


# --- where a price comes from -----------------------------------------------------------------------------------------

SOURCES = NodePrices.parse(
    {"annotation": "a/price", "label": "l/price", "instanceTypes": {"m5.large": "0.096"}, "default": 1}
)
NODES: dict[str, tuple[dict[str, Any], int | None]] = {
    "an annotation comes before all else": ({"annotations": {"a/price": "2.5"}, "labels": {"l/price": "3"}}, 2_500_000),
    "then a label": ({"labels": {"l/price": "3", TYPE: "m5.large"}}, 3_000_000),
    "then the instance type": ({"labels": {TYPE: "m5.large"}}, 96_000),
    "then the default": ({"labels": {TYPE: "m5.metal"}}, 1_000_000),
    "what cannot be read is no price, and no other source hides that": ({"annotations": {"a/price": "cheap"}}, None),
}


@pytest.mark.parametrize(("traits", "want_micro"), NODES.values(), ids=NODES.keys())
def test_the_first_source_that_says_a_price_counts(traits: dict[str, Any], want_micro: int | None) -> None:
    assert SOURCES.node_weight(node("n", **traits)) == want_micro
    assert NodePrices.parse(SOURCES.to_mapping()) == SOURCES


# --- one plan ---------------------------------------------------------------------------------------------------------


def dear_and_cheap() -> Snapshot:
    """A dear node with two pods, two cheap ones with one each, one without a price, and room for two pods in all."""
    nodes = (
        node("dear", cpu="8", labels={TYPE: "large"}),
        *(node(f"cheap-{i}", cpu="8", labels={TYPE: "small"}) for i in range(2)),
        node("unknown", cpu="8"),
        node("full", cpu="8", unschedulable=False, labels={TYPE: "medium"}),
    )
    pods = [
        *(pod(f"d{i}", node="dear", cpu="4", controller=owner(name="d")) for i in range(2)),
        *(pod(f"c{i}", node=f"cheap-{i}", cpu="6", controller=owner(name="c")) for i in range(2)),
        pod("u", node="unknown", cpu="4", controller=owner(name="u")),
        pod("f", node="full", cpu="4", controller=owner(name="f")),
    ]
    return Snapshot(nodes=nodes, pods=tuple(pods))


def test_the_dear_node_is_freed_where_most_nodes_would_take_fewer_moves() -> None:
    without = plan(dear_and_cheap(), consolidating(max_moves=2))
    made = plan(dear_and_cheap(), consolidating(max_moves=2, nodePrice=BY_TYPE))

    assert "dear" not in without.freed_nodes
    assert made.freed_nodes == ("dear",)
    assert made.predicted.freed_price_per_hour == "0.7"


def test_a_plan_says_its_money() -> None:
    made = plan(dear_and_cheap(), consolidating(max_moves=2, nodePrice=BY_TYPE))
    document = describe_plan(made)

    assert "free 1 of 5 nodes, 0.7 an hour" in summarise_plan(made)
    assert "worth 0.7 an hour, 511 a month" in stakes_in_words(made.predicted)[0]
    assert judge_plan(made).startswith("Proven optimal: no plan reaches more than 0.7 an hour")
    assert unpriced_in_words(made) == ("nodePrice says no price that can be read of 1 node, counted 0: unknown.",)
    assert document.upper_bound_price_per_hour == "0.7"
    assert document.unpriced_nodes == ("unknown",)
    assert document.proven_optimal


def test_a_plan_without_prices_says_no_money() -> None:
    made = plan(dear_and_cheap(), consolidating(max_moves=2))
    document = describe_plan(made)

    assert made.predicted.freed_price_per_hour == document.upper_bound_price_per_hour == ""
    assert document.unpriced_nodes == ()
    assert "an hour" not in summarise_plan(made) + judge_plan(made)


@pytest.mark.parametrize(
    ("least", "want_freed", "want_message"),
    [
        ("0.35", ("dear",), "the node has no price, so that freeing it saves nothing"),
        (
            "0.36",
            (),
            "the node costs 0.7 an hour, which is 0.35 for each of 2 moves; minSavingsPerMove is 0.36",
        ),
    ],
)
def test_a_node_is_left_whose_moves_save_too_little(least: str, want_freed: tuple[str, ...], want_message: str) -> None:
    made = plan(dear_and_cheap(), consolidating(nodePrice=BY_TYPE, minSavingsPerMove=least))

    assert made.freed_nodes == want_freed
    assert want_message in {one.message for one in made.refused if one.reason is RefusalReason.SAVES_TOO_LITTLE}


def test_ejections_count_for_what_a_move_saves() -> None:
    """The large pod of the dear node has room only where two small ones step aside: three moves for 0.7."""
    nodes = (
        node("dear", cpu="8", labels={TYPE: "large"}),
        node("left", cpu="8", labels={TYPE: "small"}),
        node("right", cpu="8", labels={TYPE: "small"}),
    )
    pods = (
        pod("big", node="dear", cpu="6", controller=owner(name="big")),
        *(pod(f"s{i}", node="left", cpu="2", controller=owner(name="s")) for i in range(2)),
        pod("stays", node="left", cpu="2", priority=2_000_000_000),
        *(pod(f"fixed-{i}", node="right", cpu="2", priority=2_000_000_000) for i in range(2)),
    )
    snapshot = Snapshot(nodes=nodes, pods=pods)

    affordable = plan(snapshot, consolidating(nodePrice=BY_TYPE, minSavingsPerMove="0.2"))
    too_dear = plan(snapshot, consolidating(nodePrice=BY_TYPE, minSavingsPerMove="0.25"))

    assert (affordable.freed_nodes, len(affordable.moves)) == (("dear",), 3)
    assert too_dear.moves == ()


def test_metrics_say_what_the_last_plan_with_prices_frees_and_what_was_freed() -> None:
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry, FakeClock())

    for how in (consolidating(max_moves=2, nodePrice=BY_TYPE), consolidating(max_moves=2)):
        made = plan(dear_and_cheap(), how)
        metrics.planned(made)
        done = PlanOutcome(plan="p", phase=PlanPhase.SUCCEEDED, statuses=(), freed_nodes=made.freed_nodes)
        metrics.cycle_ended(Outcome(Verdict.CARRIED_OUT, plan=done))
        assert registry.get_sample_value("berth_plan_freed_price_per_hour") == 0.7
        assert registry.get_sample_value("berth_freed_price_per_hour_total") == 0.7


def test_a_node_that_is_freed_late_counts_what_its_own_plan_saves_by_it() -> None:
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry, FakeClock())
    snapshot = dear_beside_empty(("small",))
    both = plan(snapshot, consolidating(exact=True, nodePrice=BY_TYPE))
    single = plan(snapshot, consolidating(exact=True, max_moves=1, nodePrice=BY_TYPE))
    assert (len(both.freed_nodes), len(single.freed_nodes)) == (2, 1)

    metrics.planned(both)
    metrics.planned(single)
    metrics.nodes_freed(both.freed_nodes)

    # 0.7 for the node of the later plan, which fills no empty node; half of 2 * 0.7 - 0.1 for the other.
    assert registry.get_sample_value("berth_freed_price_per_hour_total") == pytest.approx(0.7 + 0.65)


BOUGHT = NodePrices.parse(
    {"instanceTypes": {"m5": 0.4, "m5/spot": 0.1, "m5/reserved": 0, "c5/spot": 0.2}, "default": 1}
)


@pytest.mark.parametrize(
    ("kind", "labels", "want"),
    [
        ("m5", {}, 400_000),
        ("m5", {"karpenter.sh/capacity-type": "spot"}, 100_000),
        ("m5", {"karpenter.sh/capacity-type": "on-demand"}, 400_000),
        ("m5", {"karpenter.sh/capacity-type": "reserved"}, 0),
        ("m5", {"eks.amazonaws.com/capacityType": "SPOT"}, 100_000),
        ("m5", {"eks.amazonaws.com/capacityType": "ON_DEMAND"}, 400_000),
        ("m5", {"cloud.google.com/gke-spot": "true"}, 100_000),
        ("m5", {"cloud.google.com/gke-spot": "false"}, 400_000),
        ("m5", {"cloud.google.com/gke-preemptible": "true"}, 100_000),
        ("m5", {"kubernetes.azure.com/scalesetpriority": "spot"}, 100_000),
        ("m5", {"kubernetes.azure.com/scalesetpriority": "regular"}, 400_000),
        ("m5", {"karpenter.sh/capacity-type": "odd", "cloud.google.com/gke-spot": "true"}, 100_000),
        ("c5", {"karpenter.sh/capacity-type": "spot"}, 200_000),
        ("c5", {"karpenter.sh/capacity-type": "on-demand"}, 1_000_000),
        ("c5", {}, 1_000_000),
    ],
)
def test_a_node_costs_what_its_type_costs_as_it_is_bought(kind: str, labels: dict[str, str], want: int) -> None:
    one = labelled(node("a"), kind)
    metadata = msgspec.structs.replace(one.metadata, labels={**one.metadata.labels, **labels})
    assert BOUGHT.node_weight(msgspec.structs.replace(one, metadata=metadata)) == want


def test_prices_as_bought_are_read_again_as_they_were_written() -> None:
    assert NodePrices.parse(BOUGHT.to_mapping()) == BOUGHT
