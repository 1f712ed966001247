"""Which limits hold a plan back: found by planning again, named with what lifting them would give, and no others."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from berth_core import NoDeadline, Pod, Restriction, RestrictionReason, Snapshot
from berth_core.clock import ClockDeadline
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.planner import EvictableNamespaces, Plan, PlannerSettings, WaveLimits, plan
from berth_descheduler.planner.cool_downs import NodeCoolDown, PodCoolDown
from berth_descheduler.plugins import DefaultEvictor
from berth_descheduler.policy import PlanInput, find_restrictions
from berth_descheduler.report import summarise_plan
from builders import NOON, FakeClock, bare_pod, disruption_budget, node, owner, pod
from planner.clusters import consolidating, making_room, minimizing, settings
from planner_settings import with_plugins, with_settings
from small_cluster import small_cluster

LATELY = "2026-11-21T11:59:00Z"


def web(name: str, on: str, *, cpu: str = "1", namespace: str = "shop", **rest: Any) -> Pod:  # noqa: ANN401 - fields of the pod
    return pod(name, node=on, cpu=cpu, memory=None, namespace=namespace, controller=owner(name=name), **rest)


def three_nodes(**labels: str) -> Snapshot:
    """A node with one pod, one with two, and one with room for all of them."""
    nodes = tuple(node(name, cpu="16", labels=labels) for name in ("full", "one", "two"))
    base = bare_pod("base", node="full", cpu="12", memory=None)
    return Snapshot(nodes=nodes, pods=(base, web("one-0", "one"), web("two-0", "two"), web("two-1", "two")))


def planned(snapshot: Snapshot, how: PlannerSettings) -> Plan:
    def make(given: PlanInput) -> Plan:
        return plan(given.snapshot, given.settings)

    given = PlanInput(snapshot, how)
    found = make(given)
    return replace(found, restrictions=find_restrictions(given, found, make, NoDeadline()))


def binding(found: Plan) -> list[tuple[tuple[str, ...], str]]:
    wanted = (one for one in found.restrictions if one.reason is RestrictionReason.LIMIT_BINDS)
    return [(one.fields, one.message) for one in wanted]


def evicting(how: PlannerSettings, **args: Any) -> PlannerSettings:  # noqa: ANN401 - arguments of the plugin
    evictor = (Enabled("DefaultEvictor", DefaultEvictor.parse(args)),)
    evicted = with_plugins(how, filters=evictor, pre_eviction_filters=evictor)
    return replace(evicted, scope=how.scope, protection=how.protection)


def test_the_limit_that_keeps_every_node_is_named_and_not_another() -> None:
    how = with_settings(consolidating(max_moves=10), max_moves_per_namespace=2)
    found = planned(small_cluster(), how)
    assert found.moves == ()
    assert summarise_plan(found) == (
        "Nothing to move: none of the 20 nodes can be emptied by these rules. "
        "3 nodes could be freed without maxMovesPerNamespace: 2."
    )
    assert found.predicted.restrictions == (
        Restriction(
            reason=RestrictionReason.LIMIT_BINDS,
            fields=("maxMovesPerNamespace",),
            message="3 nodes could be freed without maxMovesPerNamespace: 2.",
        ),
    )


def marked(snapshot: Snapshot, **annotations: str) -> Snapshot:
    marks = {f"berth.volcano.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    sources = tuple(
        node(one.metadata.name, cpu="16", annotations={} if one.metadata.name == "full" else marks)
        for one in snapshot.nodes
    )
    return replace(snapshot, nodes=sources)


def threshold(**args: Any) -> PlannerSettings:  # noqa: ANN401 - arguments of the plugin
    return settings(low=60, defragment=60, protection=100, **args)


def under_a_budget() -> Snapshot:
    base, *movable = three_nodes().pods
    pods = tuple(web(one.metadata.name, one.spec.node_name, labels={"app": "web"}) for one in movable)
    budget = disruption_budget("web", namespace="shop", match_labels={"app": "web"}, allowed=0)
    return replace(three_nodes(), pods=(base, *pods), disruption_budgets=(budget,))


def waiting() -> Snapshot:
    """Two nodes with small pods, and a large pod that waits for one of them to be emptied."""
    pods = (web("a-0", "a"), web("a-1", "a"), bare_pod("fixed", node="b", cpu="2", memory=None))
    large = pod("large", cpu="4", memory=None, controller=owner(name="large"))
    return Snapshot(nodes=(node("a", cpu="4"), node("b", cpu="4")), pods=(*pods, large))


def scattered() -> Snapshot:
    """Two halves of two nodes that a pod of four cpu cannot use, and none in the way of joining them."""
    pods = (web("small-a", "a", cpu="2"), web("small-b", "b", cpu="2"), web("large", "c", cpu="4"))
    return Snapshot(nodes=tuple(node(name, cpu="4") for name in "abc"), pods=pods)


@dataclass(frozen=True)
class Case:
    """A cluster, settings with limits, and what is said of them."""

    snapshot: Snapshot
    how: PlannerSettings
    want: Mapping[tuple[str, ...], str] = field(default_factory=dict)


CASES = {
    "Consolidate, of all nodes none has few enough pods": Case(
        small_cluster(), consolidating(max_moves=2), {("maxMoves",): "10 nodes could be freed without maxMoves: 2."}
    ),
    "Consolidate, the limit by node": Case(
        small_cluster(),
        with_settings(consolidating(max_moves=10), max_moves_per_node=2),
        {("maxMovesPerNode",): "3 nodes could be freed without maxMovesPerNode: 2."},
    ),
    "Consolidate, two limits neither of which is enough to lift": Case(
        small_cluster(),
        with_settings(consolidating(max_moves=2), max_moves_per_namespace=2),
        {
            ("maxMoves", "maxMovesPerNamespace"): "10 nodes could be freed without maxMoves: 2 and "
            "without maxMovesPerNamespace: 2; one of them alone changes nothing."
        },
    ),
    "Consolidate, three limits of which two bind together": Case(
        small_cluster(),
        with_settings(consolidating(max_moves=10), max_moves_per_namespace=2, max_moves_per_node=2),
        {
            ("maxMovesPerNode", "maxMovesPerNamespace"): "3 nodes could be freed without maxMovesPerNode: 2 and "
            "without maxMovesPerNamespace: 2; one of them alone changes nothing."
        },
    ),
    "Consolidate, limits that are no reason where there is no room": Case(
        Snapshot(nodes=(node("a", cpu="2"), node("b", cpu="2")), pods=(web("a", "a", cpu="2"), web("b", "b", cpu="2"))),
        with_settings(consolidating(max_moves=1), max_moves_per_namespace=1, max_moves_per_node=1),
    ),
    "Consolidate, waves say how fast and not which": Case(
        replace(three_nodes(), pods=(*three_nodes().pods, bare_pod("b", node="one", cpu="1", memory=None))),
        with_settings(consolidating(max_moves=1), waves=WaveLimits(per_controller=1, per_wave=1)),
        {("maxMoves",): "1 node could be freed without maxMoves: 1."},
    ),
    "Consolidate, a plan that could do more": Case(
        three_nodes(),
        consolidating(max_moves=1),
        {("maxMoves",): "2 instead of 1 node could be freed without maxMoves: 1."},
    ),
    "Consolidate, a plan that could not": Case(three_nodes(), consolidating(max_moves=3)),
    "namespaces that are left out": Case(
        three_nodes(),
        consolidating(evictableNamespaces={"exclude": ["shop"]}),
        {
            ("evictableNamespaces",): "2 nodes could be freed without evictableNamespaces: {exclude: [shop]}.",
        },
    ),
    "namespaces that the evictor leaves out": Case(
        three_nodes(),
        evicting(consolidating(), namespaces={"exclude": ["shop"]}),
        {
            ("DefaultEvictor.namespaces",): "2 nodes could be freed without namespaces: {exclude: [shop]} of "
            "DefaultEvictor.",
        },
    ),
    "replicas that the evictor asks for": Case(
        three_nodes(),
        evicting(consolidating(), minReplicas=2),
        {("DefaultEvictor.minReplicas",): "2 nodes could be freed without minReplicas: 2 of DefaultEvictor."},
    ),
    "nodes that the evictor leaves out": Case(
        three_nodes(),
        evicting(consolidating(), nodeSelector="pool=batch"),
        {
            (
                "DefaultEvictor.nodeSelector",
            ): "2 nodes could be freed without nodeSelector: pool in (batch) of DefaultEvictor."
        },
    ),
    "a cool-down of nodes": Case(
        marked(three_nodes(), last_moved=LATELY),
        consolidating(now=NOON).with_rule(NodeCoolDown(timedelta(hours=1))),
        {("nodeCoolDown",): "2 nodes could be freed without nodeCoolDown: 1h0m0s."},
    ),
    "a cool-down of sources": Case(
        marked(three_nodes(), last_defragmented=LATELY),
        consolidating(now=NOON, coolDownTime="1h"),
        {("coolDownTime",): "2 nodes could be freed without coolDownTime: 1h0m0s."},
    ),
    "a cool-down of pods": Case(
        three_nodes(),
        consolidating(now=NOON).with_rule(PodCoolDown({("shop", name): NOON for name in ("one-0", "two-0", "two-1")})),
        {("podCoolDown",): "2 nodes could be freed without podCoolDown, in which 3 pods rest."},
    ),
    "a grace period": Case(
        replace(
            three_nodes(), pods=(*three_nodes().pods[:1], web("one-0", "one", termination_grace_period_seconds=7200))
        ),
        consolidating(),
        {("maxGracePeriod",): "1 node could be freed without maxGracePeriod: 10m0s."},
    ),
    "a budget": Case(
        under_a_budget(),
        consolidating(),
        {("PodDisruptionBudget",): "2 nodes could be freed if every disruption budget allowed it."},
    ),
    "savings": Case(
        three_nodes(),
        consolidating(nodePrice={"default": "1"}, minSavingsPerMove="2"),
        {("minSavingsPerMove",): "2 nodes could be freed without minSavingsPerMove: 2."},
    ),
    "Threshold, the number of low nodes": Case(
        three_nodes(),
        threshold(numberOfNodes=5),
        {("numberOfNodes",): "2 nodes could be freed without numberOfNodes: 5."},
    ),
    "Threshold, no node is used enough to be a target": Case(
        three_nodes(),
        settings(low=60, defragment=90, protection=100),
        {
            ("defragmentThresholds",): "2 nodes could be freed without defragmentThresholds: {cpu: 90}.",
        },
    ),
    "Threshold, no node is low": Case(
        three_nodes(),
        settings(low=1, defragment=60, protection=100),
        {
            ("lowThresholds",): "2 nodes could be freed with lowThresholds: {cpu: 60} instead of {cpu: 1}.",
        },
    ),
    "Threshold, no target may be filled so far": Case(
        three_nodes(),
        settings(low=60, defragment=60, protection=76),
        {("protectionThresholds",): "2 nodes could be freed without protectionThresholds: {cpu: 76}."},
    ),
    "Threshold, single pods": Case(
        three_nodes(),
        with_settings(threshold(wholeNodes=False), max_moves_per_namespace=1),
        {("maxMovesPerNamespace",): "3 instead of 1 pod could be moved without maxMovesPerNamespace: 1."},
    ),
    "MakeRoom": Case(
        waiting(),
        with_settings(making_room(shapes=("cpu=4,count=1",)), max_moves_per_namespace=1),
        {("maxMovesPerNamespace",): "1 pod would have room without maxMovesPerNamespace: 1."},
    ),
    "MinimizeFragmentation": Case(
        scattered(),
        with_settings(minimizing(max_moves=10), evictable_namespaces=EvictableNamespaces(exclude=frozenset({"shop"}))),
        {("evictableNamespaces",): "without evictableNamespaces: {exclude: [shop]}."},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_binds_is_named_and_nothing_else(case: Case) -> None:
    found = planned(case.snapshot, case.how)
    said = dict(binding(found))
    assert said.keys() == case.want.keys()
    for fields, message in case.want.items():
        assert said[fields].endswith(message)
    assert found.moves == plan(case.snapshot, case.how).moves


def test_nothing_is_said_of_limits_where_there_was_no_time_to_ask() -> None:
    how, clock = with_settings(consolidating(max_moves=10), max_moves_per_namespace=2), FakeClock()
    given, deadline = PlanInput(small_cluster(), how), ClockDeadline(clock, 5)
    found = plan(given.snapshot, given.settings)
    clock.advance(5)
    assert find_restrictions(given, found, lambda again: plan(again.snapshot, again.settings), deadline) == ()


def test_the_rest_of_a_run_blames_no_limit_that_its_own_moves_have_used_up() -> None:
    how = with_settings(consolidating(max_moves=10), max_moves_per_namespace=2)
    begun = plan(three_nodes(), consolidating()).moves
    assert planned(small_cluster(), with_settings(how, begun=begun)).restrictions == ()
