"""Moves of single pods that deschedule plugins name: where to, which not and why, and beside the rest of a plan."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from rich.console import Console

from berth_core import LabelSelector, Pod
from berth_core.migration_plans import MoveReason
from berth_core.selector_texts import parse_selector
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from berth_descheduler.plugins.defragmentation import NoBalance
from berth_descheduler.report.documents import describe_plan
from berth_descheduler.report.summary import summarise_plan
from berth_descheduler.report.tables import render_plan
from builders import NOON, bare_pod, node, owner, pod
from planner.clusters import api_items, consolidating, moves_of, settings, wrongly_moved
from planner.random_clusters import clusters, tight_clusters
from planner.replay import forbidden_moves, replay_steps, replay_waves
from planner_settings import planner_settings, with_plugins, with_settings
from properties import holds_for


@dataclass(frozen=True)
class Naming:
    """Names the pods that it was given."""

    named: Sequence[Candidate]

    def deschedule(self, _view: ClusterView) -> Iterable[Candidate]:
        return self.named


def want(name: str, *, nodes: Sequence[str] | None = None, namespace: str = "default") -> Candidate:
    return Candidate(namespace, name, "it is asked for", None if nodes is None else frozenset(nodes))


def moving(*named: Candidate, how: PlannerSettings | None = None, **rest: Any) -> PlannerSettings:  # noqa: ANN401
    """Settings by which pods are moved that are named, and what else `how` says."""
    deschedule = (Enabled("Naming", Naming(named)),)
    if how is not None:
        return with_settings(with_plugins(how, deschedule=deschedule), **rest)
    balance = Enabled("", NoBalance(("Naming",)))
    return with_settings(with_plugins(planner_settings(), deschedule=deschedule, balance=balance), **rest)


def web(name: str, on: str, **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, node=on, **{"cpu": "1", "memory": None, "controller": owner(name=f"rs-{name}"), **rest})


def three_nodes(*more: Pod, **labels: dict[str, str]) -> Snapshot:
    """A node that is used by half, one by a quarter, and one with two small pods."""
    nodes = tuple(node(name, cpu="8", labels=labels.get(name, {})) for name in ("half", "quarter", "small"))
    pods = (web("base", "half", cpu="4"), web("next", "quarter", cpu="2"), web("a", "small"), web("b", "small"))
    return Snapshot(nodes=nodes, pods=(*pods, *more))


def moves(found: Plan) -> list[tuple[str, str, str]]:
    return [(move.pod, move.source, move.target) for move in found.moves]


def why(found: Plan, name: str) -> tuple[Reason, str]:
    (one,) = [one for one in found.refused if one.kind is RefusedKind.POD and one.name == name]
    return one.reason, one.message


def test_a_pod_that_is_named_goes_to_the_fullest_node_that_takes_it() -> None:
    found = plan(three_nodes(), moving(want("a")))

    assert moves(found) == [("a", "small", "half")]
    assert found.moves[0].reason == "Naming: it is asked for"
    assert found.moves[0].stands_alone
    assert (found.objective.plugin, found.objective.strategy) == ("Naming", "SinglePods")


def test_the_fullest_node_counts_and_not_the_first_by_name() -> None:
    nodes = tuple(node(name, cpu="8") for name in ("a-idle", "b-used", "c-source"))
    cluster = Snapshot(nodes=nodes, pods=(web("base", "b-used", cpu="4"), web("a", "c-source")))
    assert moves(plan(cluster, moving(want("a")))) == [("a", "c-source", "b-used")]


def test_a_plugin_may_say_which_nodes_would_do() -> None:
    assert moves(plan(three_nodes(), moving(want("a", nodes=["quarter", "small"])))) == [("a", "small", "quarter")]

    found = plan(three_nodes(), moving(want("a", nodes=["small"])))
    assert moves(found) == []
    reason, message = why(found, "a")
    assert reason is Reason.NO_TARGET
    assert message == (
        "Naming wants it elsewhere (it is asked for); "
        "no other node takes it: 2 x is none of the nodes that the plugin names; 1 x the pod is there already"
    )


def test_a_pod_that_fits_nowhere_else_stays() -> None:
    found = plan(three_nodes(web("large", "small", cpu="6500m")), moving(want("large")))

    assert moves(found) == []
    assert why(found, "large")[0] is Reason.NO_TARGET
    assert why(found, "large")[1].endswith("no other node takes it: 2 x not enough cpu; 1 x the pod is there already")


def test_the_pods_are_moved_in_the_order_in_which_they_are_named() -> None:
    crowded = three_nodes(web("c", "quarter", cpu="4"), web("d", "small", cpu="4"))
    c_first = plan(crowded, moving(want("c"), want("d")))
    assert moves(c_first) == [("c", "quarter", "half"), ("d", "small", "quarter")]
    d_first = plan(crowded, moving(want("d"), want("c")))
    assert moves(d_first) == [("d", "small", "half"), ("c", "quarter", "small")]


def test_what_may_not_be_moved_stays_with_all_its_reasons() -> None:
    lonely = bare_pod("lonely", node="small", cpu="1", memory=None, priority=2_000_000_000)
    found = plan(three_nodes(lonely), moving(want("lonely")))

    (one,) = [one for one in found.refused if one.name == "lonely"]
    assert one.reason is Reason.SYSTEM_CRITICAL
    assert [other.reason for other in one.also] == [Reason.NO_CONTROLLER]
    assert one.message.startswith("Naming wants it elsewhere (it is asked for); it is critical to the system")


def test_a_pod_that_there_is_not_is_said_not_to_be_there() -> None:
    found = plan(three_nodes(), moving(want("nobody")))
    assert why(found, "nobody") == (
        Reason.PLUGIN_FAILED,
        "Naming wants it elsewhere (it is asked for); Naming names it, and no such pod is on a node",
    )


def test_no_more_single_pods_are_moved_than_moves_are_allowed() -> None:
    found = plan(three_nodes(), moving(want("a"), want("b"), max_moves=1))
    assert moves(found) == [("a", "small", "half")]
    assert why(found, "b")[0] is Reason.MOVE_LIMIT


def test_limits_per_node_hold_for_single_pods_as_well() -> None:
    found = plan(three_nodes(web("c", "small")), moving(want("a"), want("b"), max_moves_per_node=1))
    assert len(found.moves) == 1


def test_what_is_planned_for_the_whole_goes_on_from_there() -> None:
    how = settings(low=40, defragment=45, protection=100)
    before = plan(three_nodes(), how)
    found = plan(three_nodes(), moving(want("a", nodes=["quarter"]), how=how))

    assert before.freed_nodes == ("quarter", "small")
    assert moves(found) == [("a", "small", "quarter"), ("b", "small", "half")]
    assert [move.stands_alone for move in found.moves] == [True, False]
    assert found.freed_nodes == ("small",)
    (left,) = [one for one in found.refused if one.kind is RefusedKind.NODE and one.node == "quarter"]
    assert (left.reason, left.constraint) == (Reason.HOLDS_IMMOVABLE_PODS, Reason.MOVED_ALREADY)


def test_the_protection_threshold_holds_for_single_pods_that_no_plugin_names() -> None:
    how = settings(low=40, defragment=45, protection=63, wholeNodes=False)
    by_threshold = plan(three_nodes(), how).moves
    by_plugin = plan(three_nodes(), moving(want("a"), how=how)).moves[:1]
    strict = moving(how=settings(low=40, defragment=45, protection=60, wholeNodes=False))

    assert [(move.pod, move.target) for move in (*by_threshold, *by_plugin)] == [("a", "half"), ("a", "half")]
    fallen = revalidate(three_nodes(), by_threshold, strict, emptied=())
    assert [one.reason for one in fallen.values()] == [MoveReason.ABOVE_PROTECTION]
    assert revalidate(three_nodes(), by_plugin, strict, emptied=()) == {}


def test_the_namespaces_of_the_balance_plugin_are_its_own() -> None:
    how = settings(low=40, defragment=45, protection=100, evictableNamespaces={"exclude": ["default"]})
    found = plan(three_nodes(), moving(want("a"), how=how))

    assert moves(found) == [("a", "small", "half")]
    assert revalidate(three_nodes(), found.moves, found.settings, emptied=found.freed_nodes) == {}


def test_nodes_that_are_not_selected_neither_give_nor_take() -> None:
    batch = {"pool": "batch"}
    cluster = three_nodes(quarter=batch, small=batch)
    selector: LabelSelector = parse_selector("pool=batch")
    chosen = moving(want("a"), want("base"), node_selector=selector)

    found = plan(cluster, chosen)
    assert moves(found) == [("a", "small", "quarter")]
    assert why(found, "base")[0] is Reason.NODE_NOT_SELECTED
    whole = plan(cluster, with_settings(consolidating(), node_selector=selector))
    assert {move.source for move in whole.moves} | {move.target for move in whole.moves} <= {"quarter", "small"}
    assert next(one.reason for one in whole.refused if one.node == "half") is Reason.NODE_NOT_SELECTED


def test_the_evictors_nodes_count_like_the_policys() -> None:
    cluster = three_nodes(quarter={"pool": "batch"}, small={"pool": "batch", "spot": ""})
    evictor = DefaultEvictor.parse({"nodeSelector": "pool=batch"})
    filters = (Enabled("DefaultEvictor", evictor),)
    how = with_plugins(consolidating(), filters=filters, node_selector=evictor.args.node_selector)

    assert plan(cluster, how).freed_nodes
    assert not plan(cluster, with_settings(how, node_selector=parse_selector("spot"))).moves


def test_a_filter_keeps_a_node_from_being_emptied() -> None:
    evictor = DefaultEvictor.parse({"labelSelector": {"matchLabels": {"app": "web"}}})
    how = with_plugins(consolidating(), filters=(Enabled("DefaultEvictor", evictor),))
    found = plan(three_nodes(), how)

    assert not found.moves
    kept = [one for one in found.refused if one.kind is RefusedKind.NODE and one.node == "small"]
    assert [(one.reason, one.constraint) for one in kept] == [(Reason.HOLDS_IMMOVABLE_PODS, Reason.LABELS_NOT_SELECTED)]


def test_a_single_pod_that_stays_takes_no_other_down_with_it() -> None:
    cluster = three_nodes()
    found = plan(cluster, moving(want("a"), want("b")))
    others = tuple(one for one in cluster.pods if one.metadata.name != "a")
    later = Snapshot(nodes=cluster.nodes, pods=(*others, web("a", "small", priority=2_000_000_000)))

    invalid = revalidate(later, found.moves, found.settings, emptied=found.freed_nodes)

    assert found.freed_nodes == ("small",)
    assert {index: one.reason for index, one in invalid.items()} == {0: MoveReason.POD_CHANGED}


def test_people_are_told_why_single_pods_are_moved() -> None:
    found = plan(three_nodes(bare_pod("lonely", node="small")), moving(want("a"), want("lonely")))

    assert summarise_plan(found) == "1 move for pods that Naming names. 1 pod stays that could not be moved."
    described = describe_plan(found)
    assert described.objective.strategy == "SinglePods"
    assert described.settings["plugins"]["deschedule"] == ["Naming"]
    assert described.moves[0].why == "Naming: it is asked for"
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render_plan(found))
    assert "Naming: it is asked for" in shown.get()


def test_nobody_named_is_nothing_to_move() -> None:
    assert summarise_plan(plan(three_nodes(), moving())) == "Nothing to move: Naming names no pod."
    refused = plan(three_nodes(), moving(want("a", nodes=[])))
    assert summarise_plan(refused) == (
        "Nothing to move: Naming could move no pod. 1 pod stays that could not be moved."
    )


ways = st.one_of(
    st.none(),
    st.builds(settings, low=st.sampled_from((40, 60)), defragment=st.just(60), protection=st.sampled_from((80, 100))),
    st.builds(consolidating, max_moves=st.sampled_from((None, 4))),
)


@holds_for(st.one_of(clusters(), tight_clusters()), ways, st.data())
def test_single_pods_and_the_rest_of_a_plan_are_feasible_together(
    snapshot: Snapshot, how: PlannerSettings | None, data: st.DataObject
) -> None:
    keys = sorted((one.metadata.namespace, one.metadata.name) for one in snapshot.pods)
    asked = data.draw(st.lists(st.sampled_from(keys), max_size=6, unique=True))
    limit = data.draw(st.sampled_from((None, 2)))
    named = [want(name, namespace=namespace) for namespace, name in asked]
    chosen = with_settings(moving(*named, how=how), now=NOON)
    made = plan(snapshot, chosen if limit is None else with_settings(chosen, max_moves=limit))

    items, steps = api_items(snapshot), moves_of(made)
    assert replay_steps(items, steps) == []
    assert replay_waves(items, steps) == []
    assert forbidden_moves(items, steps) == []
    assert wrongly_moved(snapshot, made) == []
    assert limit is None or len(made.moves) <= limit
    alone = {(move.namespace, move.pod) for move in made.moves if move.stands_alone}
    assert alone <= set(asked)
    assert all(
        count == 1 for key, count in Counter((one.namespace, one.pod) for one in made.moves).items() if key in alone
    )
    stay = {(one.namespace, one.name) for one in made.refused if one.kind is RefusedKind.POD}
    assert set(asked) - alone <= stay | {(move.namespace, move.pod) for move in made.moves}
    assert revalidate(snapshot, made.moves, made.settings, emptied=made.freed_nodes) == {}
    assert how is not None or len(made.moves) == len(alone)
