"""The classic rules, rule by rule, with a case at each edge."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from berth_core import Node, Pod, Taint
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.planner import PlannerSettings, plan
from builders import NOON, bare_pod, node, owner, pod
from planner.clusters import apart, selector, settings, term

DRAINED_AT = "berth.volcano.sh/last-defragmented"


def at(node_name: str, *cpus: str, namespace: str = "default") -> tuple[Pod, ...]:
    """Pods of one node, each of a ReplicaSet of its own."""
    return tuple(
        pod(name, namespace=namespace, node=node_name, cpu=cpu, memory=None, controller=owner(name=name))
        for name, cpu in ((f"{node_name}-{i}", cpu) for i, cpu in enumerate(cpus))
    )


def ten(*names: str) -> tuple[Node, ...]:
    """Nodes of ten cores: one core is ten percent."""
    return tuple(node(name, cpu="10") for name in names)


@dataclass(frozen=True)
class Case:
    """Nodes and pods, and what is to come of them."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    want: dict[str, str] = field(default_factory=dict)
    """Pod to target; empty: nothing moves."""

    why: dict[str, Reason] = field(default_factory=dict)
    """Some of the nodes that are not emptied, and why."""

    settings: PlannerSettings = field(default_factory=settings)


LOW_AND_HIGH = (*at("low", "1", "2"), *at("high", "8"))

TABLE = {
    "a low node is emptied onto one between the thresholds": Case(
        ten("low", "high"), (*at("low", "1"), *at("high", "8")), {"low-0": "high"}
    ),
    "just at the low threshold is not below it": Case(
        ten("low", "high"), (*at("low", "2", "2"), *at("high", "8")), why={"low": Reason.NOT_LOW}
    ),
    "a thousandth below it is": Case(
        ten("low", "high"),
        (*at("low", "1999m", "2"), *at("high", "5")),
        {"low-0": "high", "low-1": "high"},
        settings=settings(defragment=45),
    ),
    "just at the defragment threshold is no target": Case(
        ten("low", "high"), (*at("low", "1"), *at("high", "7")), why={"low": Reason.NO_TARGET}
    ),
    "a thousandth above it is one": Case(
        ten("low", "high"), (*at("low", "1"), *at("high", "7001m")), {"low-0": "high"}
    ),
    "just at the protection threshold is no target": Case(
        ten("low", "high"), (*at("low", "1m"), *at("high", "9500m")), why={"low": Reason.NO_TARGET}
    ),
    "just at it is no target even for a pod that asks for none of it": Case(
        ten("low", "high"),
        (pod("p", node="low", cpu=None, memory="1Gi", controller=owner(name="p")), *at("high", "9500m")),
        why={"low": Reason.NO_TARGET},
    ),
    "a thousandth below it is one": Case(
        ten("low", "high"), (*at("low", "1m"), *at("high", "9499m")), {"low-0": "high"}
    ),
    "a move may take a target up to its protection threshold": Case(
        ten("low", "high"), (*at("low", "1500m"), *at("high", "8")), {"low-0": "high"}
    ),
    "and not a thousandth above": Case(
        ten("low", "high"), (*at("low", "1501m"), *at("high", "8")), why={"low": Reason.NO_TARGET}
    ),
    "thresholds need not be whole": Case(
        ten("low", "high"),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
        settings=settings(low="10.1", defragment="79.9", protection="90"),
    ),
    "and are taken as they are written": Case(
        ten("low", "high"),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.NOT_LOW},
        settings=settings(low="10.0", defragment="79.9"),
    ),
    "all nodes are low: there is no target": Case(
        ten("a", "b"), (*at("a", "1"), *at("b", "2")), why={"a": Reason.NO_TARGET, "b": Reason.NO_TARGET}
    ),
    "no node is low: nothing is done": Case(
        ten("a", "b"), (*at("a", "5"), *at("b", "8")), why={"a": Reason.NOT_LOW, "b": Reason.NOT_LOW}
    ),
    "a low node is no target for another": Case(
        ten("low", "lower", "high"),
        (*at("lower", "1"), *at("low", "3"), *at("high", "9")),
        why={"lower": Reason.NO_TARGET, "low": Reason.NO_TARGET},
    ),
    "the least used is emptied first": Case(
        ten("a", "b", "high"),
        (*at("a", "2"), *at("b", "1500m"), *at("high", "7500m")),
        {"b-0": "high"},
        {"a": Reason.NO_TARGET},
    ),
    "of equals the first by name": Case(
        ten("a", "b", "high"), (*at("a", "2"), *at("b", "2"), *at("high", "7500m")), {"a-0": "high"}
    ),
    "the most used target is filled first": Case(
        ten("low", "high", "higher"),
        (*at("low", "1"), *at("high", "7500m"), *at("higher", "8")),
        {"low-0": "higher"},
    ),
    "the larger pod is placed first": Case(
        ten("low", "high", "higher"),
        (*at("low", "500m", "1500m"), *at("high", "7500m"), *at("higher", "8")),
        {"low-1": "higher", "low-0": "high"},
    ),
    "a node is emptied whole or left alone": Case(
        ten("low", "high"), (*at("low", "1", "1"), *at("high", "8")), why={"low": Reason.NO_TARGET}
    ),
    "what a node given up had taken is free for the next": Case(
        ten("a", "b", "high"),
        (
            *at("a", "1"),
            pod("tied", node="a", cpu="500m", memory=None, node_selector={"disk": "ssd"}),
            *at("b", "2"),
            *at("high", "7500m"),
        ),
        {"b-0": "high"},
        {"a": Reason.NO_TARGET},
    ),
    "a critical node is no source": Case(
        (node("low", cpu="10", labels={"critical": "true"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.CRITICAL_NODE},
    ),
    "a node labelled critical=false is one": Case(
        (node("low", cpu="10", labels={"critical": "false"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
    ),
    "a critical node may be a target": Case(
        (node("high", cpu="10", labels={"critical": "true"}), *ten("low")),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
    ),
    "a node that has cooled down for less than it should is no source": Case(
        (node("low", cpu="10", annotations={DRAINED_AT: "2026-11-21T11:30:01Z"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.COOLING_DOWN},
        settings=settings(now=NOON, coolDownTime="30m"),
    ),
    "a node that has cooled down just as long is one": Case(
        (node("low", cpu="10", annotations={DRAINED_AT: "2026-11-21T11:30:00Z"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
        settings=settings(now=NOON, coolDownTime=1800),
    ),
    "a time that cannot be read cools a node down for good": Case(
        (node("low", cpu="10", annotations={DRAINED_AT: "yesterday"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.COOLING_DOWN},
        settings=settings(now=NOON, coolDownTime="30m"),
    ),
    "without a cool-down the annotation says nothing": Case(
        (node("low", cpu="10", annotations={DRAINED_AT: "2026-11-21T11:59:59Z"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
        settings=settings(now=NOON),
    ),
    "a node without the resource is neither source nor target": Case(
        (
            node("low", cpu="10", allocatable={"nvidia.com/gpu": "10"}),
            node("plain", cpu="10"),
            node("high", cpu="10", allocatable={"nvidia.com/gpu": "0"}),
        ),
        (
            pod("a", node="low", requests={"nvidia.com/gpu": "1"}),
            pod("b", node="plain", cpu="8"),
            pod("c", node="high", cpu="8"),
        ),
        why={"low": Reason.NO_TARGET, "plain": Reason.RESOURCE_MISSING, "high": Reason.RESOURCE_MISSING},
        settings=settings(resourceType="nvidia.com/gpu"),
    ),
    "gpus are defragmented as cores are": Case(
        tuple(node(name, allocatable={"nvidia.com/gpu": "8"}) for name in ("low", "high")),
        (
            pod("a", node="low", requests={"nvidia.com/gpu": "1"}),
            pod("b", node="high", requests={"nvidia.com/gpu": "6"}),
        ),
        {"a": "high"},
        settings=settings(resourceType="nvidia.com/gpu"),
    ),
    "every low threshold has to be undercut": Case(
        (node("low", cpu="10", memory="10Gi"), *ten("high")),
        (pod("big", node="low", cpu="1", memory="5Gi"), *at("high", "8")),
        why={"low": Reason.NOT_LOW},
        settings=settings(lowThresholds={"cpu": 40, "memory": 50}),
    ),
    "every protection threshold protects": Case(
        (*ten("low"), node("high", cpu="10", memory="10Gi")),
        (pod("big", node="low", cpu="1", memory="4Gi"), pod("there", node="high", cpu="8", memory="6Gi")),
        why={"low": Reason.NO_TARGET},
        settings=settings(protectionThresholds={"cpu": 95, "memory": 90}),
    ),
    "more nodes than asked for have to be low": Case(
        ten("a", "b", "high"),
        (*at("a", "1"), *at("b", "2"), *at("high", "8")),
        why={"a": Reason.TOO_FEW_LOW_NODES, "b": Reason.TOO_FEW_LOW_NODES},
        settings=settings(numberOfNodes=2),
    ),
    "one more is enough": Case(
        ten("a", "b", "high"),
        (*at("a", "1"), *at("b", "2"), *at("high", "8")),
        {"a-0": "high"},
        settings=settings(numberOfNodes=1),
    ),
    "critical and empty nodes count among the low ones": Case(
        (*ten("a", "empty", "high"), node("b", cpu="10", labels={"critical": "true"})),
        (*at("a", "1"), *at("b", "2"), *at("high", "8")),
        {"a-0": "high"},
        {"empty": Reason.ALREADY_EMPTY, "b": Reason.CRITICAL_NODE},
        settings(numberOfNodes=2),
    ),
    "a node with a pod that may not move is left alone": Case(
        ten("low", "high"),
        (*at("low", "1"), bare_pod(node="low", cpu="1"), *at("high", "8")),
        why={"low": Reason.HOLDS_IMMOVABLE_PODS},
    ),
    "DaemonSet pods stay and count as used": Case(
        ten("low", "high"),
        (*at("low", "1"), pod("agent", node="low", cpu="1", controller=owner("DaemonSet", "agent")), *at("high", "8")),
        {"low-0": "high"},
    ),
    "a node with nothing but DaemonSet pods is empty already": Case(
        ten("low", "high"),
        (pod("agent", node="low", cpu="1", controller=owner("DaemonSet", "agent")), *at("high", "8")),
        why={"low": Reason.ALREADY_EMPTY},
    ),
    "pods that have ended neither count nor stay in the way": Case(
        ten("low", "high"),
        (*at("low", "1"), bare_pod("done", node="low", cpu="5", phase="Succeeded"), *at("high", "8")),
        {"low-0": "high"},
    ),
    "a node to which a pod is coming is left alone": Case(
        ten("low", "high"),
        (*at("low", "1"), pod("coming", nominated_node="low", cpu="1"), *at("high", "8")),
        why={"low": Reason.EXPECTS_PODS},
    ),
    "a node that is not ready is neither source nor target": Case(
        (node("low", cpu="10", ready=False), node("high", cpu="10", ready=False), *ten("other")),
        (*at("low", "1"), *at("high", "8"), *at("other", "1")),
        why={"low": Reason.NODE_NOT_READY, "high": Reason.NODE_NOT_READY, "other": Reason.NO_TARGET},
    ),
    "a cordoned node is neither source nor target": Case(
        (node("low", cpu="10", unschedulable=True), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.NODE_UNSCHEDULABLE},
    ),
    "a node is not begun that the move limit would not let finish": Case(
        ten("a", "b", "high"),
        (*at("a", "500m", "500m"), *at("b", "1500m"), *at("high", "7500m")),
        {"b-0": "high"},
        {"a": Reason.MOVE_LIMIT},
        settings(max_moves=1),
    ),
    "a move limit of none allows none": Case(
        ten("low", "high"), LOW_AND_HIGH, why={"low": Reason.MOVE_LIMIT}, settings=settings(max_moves=0)
    ),
    "ResourceType: nodes are ordered by it and not by cores": Case(
        tuple(node(name, cpu="10", memory="10Gi") for name in ("a", "b", "high")),
        (
            pod("few-cores", node="a", cpu="1", memory="3Gi", controller=owner(name="x")),
            pod("little-memory", node="b", cpu="3", memory="1Gi", controller=owner(name="y")),
            pod("there", node="high", cpu="1", memory="7Gi", controller=owner(name="z")),
        ),
        {"little-memory": "high"},
        {"a": Reason.NO_TARGET},
        settings(resourceType="memory", low=40, defragment=60, protection=90),
    ),
    "ResourceType: pods are ordered by it and not by cores": Case(
        tuple(node(name, cpu="10", memory="10Gi") for name in ("low", "high", "higher")),
        (
            pod("few-cores", node="low", cpu="1", memory="2Gi", controller=owner(name="x")),
            pod("little-memory", node="low", cpu="3", memory="1Gi", controller=owner(name="y")),
            pod("h", node="high", cpu="1", memory="7Gi", controller=owner(name="z")),
            pod("hh", node="higher", cpu="1", memory="8Gi", controller=owner(name="zz")),
        ),
        {"few-cores": "higher", "little-memory": "high"},
        settings=settings(resourceType="memory", low=40, defragment=60, protection=100),
    ),
    "lowThresholds: a threshold of nothing makes no node low, not even an empty one": Case(
        ten("low", "high"),
        at("high", "8"),
        why={"low": Reason.NOT_LOW},
        settings=settings(low=0),
    ),
    "lowThresholds: a resource that a node lacks makes it none": Case(
        (node("low", cpu="10"), node("high", cpu="10", allocatable={"nvidia.com/gpu": "4"})),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.RESOURCE_MISSING},
        settings=settings(lowThresholds={"cpu": 40, "nvidia.com/gpu": 50}),
    ),
    "defragmentThresholds: a resource that a node lacks makes it no target": Case(
        (node("low", cpu="10", allocatable={"nvidia.com/gpu": "4"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.NO_TARGET},
        settings=settings(defragmentThresholds={"cpu": 70, "nvidia.com/gpu": 10}),
    ),
    "defragmentThresholds: every one has to be exceeded": Case(
        (*ten("low"), node("high", cpu="10", memory="10Gi")),
        (*at("low", "1"), pod("there", node="high", cpu="8", memory="5Gi", controller=owner(name="t"))),
        why={"low": Reason.NO_TARGET},
        settings=settings(defragmentThresholds={"cpu": 70, "memory": 50}),
    ),
    "protectionThresholds: a resource that a node lacks makes it no target": Case(
        (node("low", cpu="10", allocatable={"nvidia.com/gpu": "4"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.NO_TARGET},
        settings=settings(protectionThresholds={"cpu": 95, "nvidia.com/gpu": 90}),
    ),
    "protectionThresholds: of the second resource, just up to it": Case(
        (*ten("low"), node("high", cpu="10", memory="10Gi")),
        (
            pod("p", node="low", cpu="1", memory="3Gi", controller=owner(name="p")),
            pod("there", node="high", cpu="8", memory="6Gi", controller=owner(name="t")),
        ),
        {"p": "high"},
        settings=settings(protectionThresholds={"cpu": 95, "memory": 90}),
    ),
    "protectionThresholds: the whole node may be used at 100": Case(
        ten("low", "high"), (*at("low", "2"), *at("high", "8")), {"low-0": "high"}, settings=settings(protection=100)
    ),
    "a target that is filled counts as it was in the order of targets": Case(
        ten("low", "high", "higher"),
        (*at("low", "500m", "400m"), *at("high", "8900m"), *at("higher", "9")),
        {"low-0": "higher", "low-1": "high"},
        settings=settings(protection=95),
    ),
    "targets of equal use are taken by name": Case(
        ten("low", "x", "y"), (*at("low", "1"), *at("y", "8"), *at("x", "8")), {"low-0": "x"}
    ),
    "a node between low and defragment is neither source nor target": Case(
        ten("low", "middle"),
        (*at("low", "1"), *at("middle", "5")),
        why={"low": Reason.NO_TARGET, "middle": Reason.NOT_LOW},
    ),
    "a node above protection is neither source nor target": Case(
        ten("low", "over"),
        (*at("low", "1m"), *at("over", "9600m")),
        why={"low": Reason.NO_TARGET, "over": Reason.NOT_LOW},
    ),
    "numberOfNodes: cordoned nodes do not count among the low ones": Case(
        (*ten("a", "high"), node("b", cpu="10", unschedulable=True)),
        (*at("a", "1"), *at("b", "1"), *at("high", "8")),
        why={"a": Reason.TOO_FEW_LOW_NODES, "b": Reason.NODE_UNSCHEDULABLE},
        settings=settings(numberOfNodes=1),
    ),
    "critical: only the value true": Case(
        (node("low", cpu="10", labels={"critical": "True"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
    ),
    "coolDownTime: a node on which nothing was done is a source": Case(
        ten("low", "high"),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
        settings=settings(now=NOON, coolDownTime="24h"),
    ),
    "coolDownTime: a cooling node may be a target": Case(
        (node("high", cpu="10", annotations={DRAINED_AT: "2026-11-21T11:59:59Z"}), *ten("low")),
        (*at("low", "1"), *at("high", "8")),
        {"low-0": "high"},
        settings=settings(now=NOON, coolDownTime="1h"),
    ),
    "coolDownTime: a time in the future cools down as well": Case(
        (node("low", cpu="10", annotations={DRAINED_AT: "2026-11-21T13:00:00Z"}), *ten("high")),
        (*at("low", "1"), *at("high", "8")),
        why={"low": Reason.COOLING_DOWN},
        settings=settings(now=NOON, coolDownTime="1m"),
    ),
    "evictableNamespaces: only those included": Case(
        ten("low", "other", "high"),
        (*at("low", "1", namespace="shop"), *at("other", "1"), *at("high", "8")),
        {"low-0": "high"},
        {"other": Reason.HOLDS_IMMOVABLE_PODS},
        settings(evictableNamespaces={"include": ["shop"]}),
    ),
    "a pod that is being deleted counts as used and keeps its node": Case(
        ten("low", "high"),
        (*at("low", "1"), pod("leaves", node="low", cpu="1", deleted="2026-11-21T12:00:00Z"), *at("high", "8")),
        why={"low": Reason.HOLDS_IMMOVABLE_PODS},
    ),
    "requests count by what a pod really takes: its start, its helpers, its overhead": Case(
        ten("low", "high"),
        (
            pod("p", node="low", cpu="1", overhead={"cpu": "3"}, controller=owner(name="p")),
            *at("high", "8"),
        ),
        why={"low": Reason.NOT_LOW},
    ),
    "a target whose taint is not tolerated is passed over": Case(
        (
            *ten("low", "high"),
            node("higher", cpu="10", taints=(Taint(key="dedicated", value="db", effect="NoSchedule"),)),
        ),
        (*at("low", "1"), *at("high", "7500m"), *at("higher", "8")),
        {"low-0": "high"},
    ),
    "a target that the pod shuns is passed over": Case(
        ten("low", "high", "higher"),
        (
            pod(
                "shy",
                node="low",
                cpu="1",
                memory=None,
                controller=owner(name="shy"),
                affinity=apart(term(select=selector(app="db"))),
            ),
            *at("high", "7500m"),
            pod("db", node="higher", cpu="8", memory=None, labels={"app": "db"}, controller=owner(name="db")),
        ),
        {"shy": "high"},
    ),
    "pods of namespaces not to be evicted stay and count": Case(
        ten("low", "high"),
        (*at("low", "1", namespace="shop"), *at("high", "8")),
        why={"low": Reason.HOLDS_IMMOVABLE_PODS},
        settings=settings(evictableNamespaces={"exclude": ["shop"]}),
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_the_classic_rules_decide(case: Case) -> None:
    made = plan(Snapshot(nodes=case.nodes, pods=case.pods), case.settings)

    assert {move.pod: move.target for move in made.moves} == case.want
    why = {one.node: one.reason for one in made.refused if one.kind is RefusedKind.NODE}
    assert {name: why.get(name) for name in case.why} == case.why


def test_every_node_is_either_freed_or_has_a_reason() -> None:
    nodes = ten("a", "b", "c", "high")
    pods = (*at("a", "1"), *at("b", "3"), *at("c", "5"), *at("high", "8"))

    made = plan(Snapshot(nodes=nodes, pods=pods), settings())

    refused = {one.node for one in made.refused if one.kind is RefusedKind.NODE}
    assert refused.isdisjoint(made.freed_nodes)
    assert refused.union(made.freed_nodes) == {"a", "b", "c", "high"}


def test_the_pod_that_finds_no_target_is_named_with_what_each_target_said() -> None:
    pods = (*at("low", "2"), *at("high", "8"), *at("higher", "9"))

    made = plan(Snapshot(nodes=ten("low", "high", "higher"), pods=pods), settings())

    (refused,) = [one for one in made.refused if one.kind is RefusedKind.POD]
    assert (refused.namespace, refused.name, refused.reason) == ("default", "low-0", Reason.NO_TARGET)
    assert refused.message == (
        "no target takes a pod of cpu 2: 1 x not enough cpu; 1 x would go above its protection threshold"
    )


def test_the_order_of_moves_is_that_in_which_they_were_found_and_waves_are_planned() -> None:
    pods = (
        *(pod(f"web-{i}", node="low", cpu="500m", memory=None, controller=owner(name="web")) for i in range(3)),
        *at("high", "7500m"),
    )

    made = plan(Snapshot(nodes=ten("low", "high"), pods=pods), settings())

    assert [(move.pod, move.wave) for move in made.moves] == [("web-0", 1), ("web-1", 2), ("web-2", 3)]
    assert (made.predicted.nodes, made.predicted.moves, made.predicted.waves) == (2, 3, 3)
    assert made.predicted.freed_nodes == ("low",)


def test_a_move_says_who_owns_the_pod_and_what_it_asks_for() -> None:
    pods = (pod("web-0", node="low", cpu="1500m", memory="2Gi"), *at("high", "8"))

    (move,) = plan(Snapshot(nodes=ten("low", "high"), pods=pods), settings()).moves

    assert move.owner is not None
    assert (move.owner.kind, move.owner.namespace, move.owner.name) == ("ReplicaSet", "default", "web")
    assert move.pod_uid == "uid-default-web-0"
    assert move.requests == {"cpu": "1500m", "memory": "2Gi"}


def test_no_clock_no_cool_down() -> None:
    nodes = (node("low", cpu="10", annotations={DRAINED_AT: "2026-11-21T11:59:59Z"}), *ten("high"))
    snapshot = Snapshot(nodes=nodes, pods=(*at("low", "1"), *at("high", "8")))

    assert not plan(snapshot, settings(now=NOON, coolDownTime="1m")).moves
    assert plan(snapshot, settings(now=NOON + timedelta(minutes=2), coolDownTime="1m")).moves
    assert plan(snapshot, settings(now=None, coolDownTime="1m")).moves
