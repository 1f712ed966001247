"""A node or a pod that is missing something or cannot be read is left alone with the reason; the rest is planned."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest

from berth_core import LabelSelector, LabelSelectorRequirement, Node, Pod
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, PlannerSettings, explain_kept_pods, plan
from berth_descheduler.report.documents import describe_plan
from builders import bare_pod, container, node, owner, pod
from planner.clusters import HOSTNAME, claimed, consolidating, expression, making_room, settings, spread, term, tied
from planner.clusters import apart as shy

FIXED = 2_000_000_000
"""A priority that keeps a pod in place."""

WAYS = {
    "Threshold": settings(low=40, defragment=50, protection=100),
    "Consolidate": consolidating(),
    "MakeRoom": making_room(shapes=["cpu=10,count=1"]),
}


def of(name: str, on: str, cpu: str | None = "1", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on
    return pod(name, **{"node": on, "cpu": cpu, "memory": None, "controller": owner(name=name), **rest})


@dataclass(frozen=True)
class Case:
    """What is odd about a node `odd` and a pod on it, and what is said about them."""

    node: Node | None = field(default_factory=lambda: node("odd", cpu="10"))
    pods: tuple[Pod, ...] = field(default_factory=lambda: (of("p", "odd"),))
    why_node: Reason | None = None
    why_pod: Reason | None = None


def asking(name: str, on: str, **requests: str) -> Pod:
    return of(name, on, cpu=None, requests=requests)


def spoken(**allocatable: str) -> Node:
    return node("odd", cpu="10", allocatable=allocatable)


T = TypeVar("T", Node, Pod)


def unread(one: T) -> T:
    """The stand-in of an object that could not be decoded."""
    metadata = msgspec.structs.replace(one.metadata, unreadable="spec.oddity is nested too deeply")
    return msgspec.structs.replace(one, metadata=metadata)


TABLE = {
    "a node that says nothing of what it has": Case(
        node("odd", cpu=None, memory=None, pods=None), why_node=Reason.NODE_DATA_MISSING
    ),
    "a node that does not say its memory": Case(node("odd", cpu="10", memory=None), why_node=Reason.NODE_DATA_MISSING),
    "a node whose cores are no quantity": Case(spoken(cpu="many"), why_node=Reason.NODE_DATA_ODD),
    "a node with less than nothing": Case(spoken(memory="-1Gi"), why_node=Reason.NODE_DATA_ODD),
    "a node with an extended resource that is no quantity": Case(
        spoken(**{"nvidia.com/gpu": "eight"}), why_node=Reason.NODE_DATA_ODD
    ),
    "a node without conditions": Case(node("odd", cpu="10", ready=None), why_node=Reason.NODE_NOT_READY),
    "a pod whose request is no quantity": Case(
        pods=(asking("p", "odd", cpu="lots"),), why_node=Reason.NODE_DATA_ODD, why_pod=Reason.POD_DATA_ODD
    ),
    "a pod that asks for less than nothing": Case(
        pods=(asking("p", "odd", cpu="-1"),), why_node=Reason.NODE_DATA_ODD, why_pod=Reason.POD_DATA_ODD
    ),
    "a pod whose overhead is no quantity": Case(
        pods=(of("p", "odd", overhead={"cpu": "?"}),), why_node=Reason.NODE_DATA_ODD, why_pod=Reason.POD_DATA_ODD
    ),
    "a DaemonSet pod whose request is no quantity": Case(
        pods=(of("p", "odd", cpu="?", controller=owner("DaemonSet")),),
        why_node=Reason.NODE_DATA_ODD,
        why_pod=Reason.DAEMON_POD,
    ),
    "a node that cannot be read": Case(unread(node("odd", cpu="10")), why_node=Reason.NODE_DATA_ODD),
    "a node of which nothing but its name can be read": Case(
        unread(node("odd", cpu=None, memory=None, pods=None, ready=None)), why_node=Reason.NODE_DATA_ODD
    ),
    "a pod that cannot be read": Case(
        pods=(unread(of("p", "odd")),), why_node=Reason.NODE_DATA_ODD, why_pod=Reason.POD_DATA_ODD
    ),
    "a pod on a node that is not there": Case(None, why_pod=Reason.UNKNOWN_NODE),
    "a pod without a phase": Case(
        pods=(of("p", "odd", phase=""),), why_node=Reason.HOLDS_IMMOVABLE_PODS, why_pod=Reason.NOT_RUNNING
    ),
    "a pod that the node agent has lost": Case(
        pods=(of("p", "odd", phase="Unknown"),), why_node=Reason.HOLDS_IMMOVABLE_PODS, why_pod=Reason.NOT_RUNNING
    ),
    "a pod whose claim is not known": Case(
        pods=(of("p", "odd", volumes=(claimed(),)),),
        why_node=Reason.HOLDS_IMMOVABLE_PODS,
        why_pod=Reason.UNKNOWN_VOLUME,
    ),
    "a pod that nobody owns": Case(
        pods=(bare_pod("p", node="odd", cpu="1"),),
        why_node=Reason.HOLDS_IMMOVABLE_PODS,
        why_pod=Reason.NO_CONTROLLER,
    ),
}


def cluster(case: Case, *more: Pod) -> Snapshot:
    nodes = (node("low", cpu="10"), node("high", cpu="10"), *([case.node] if case.node else []))
    return Snapshot(nodes=nodes, pods=(of("q", "low"), of("big", "high", "6", priority=FIXED), *case.pods, *more))


def why(made: Plan) -> dict[tuple[str, str], Reason]:
    return {(one.kind.value, one.name): one.reason for one in made.refused}


@pytest.mark.parametrize("how", [WAYS["Threshold"], WAYS["Consolidate"]], ids=["Threshold", "Consolidate"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_is_odd_is_left_alone_with_the_reason_and_the_rest_is_planned(case: Case, how: PlannerSettings) -> None:
    snapshot = cluster(case)

    made = plan(snapshot, how)

    assert [(move.pod, move.target) for move in made.moves] == [("q", "high")]
    reasons = why(made)
    if case.node is not None and how is WAYS["Consolidate"]:
        assert reasons["Node", "odd"] is case.why_node
    staying = {one.name: one.reason for one in explain_kept_pods(snapshot, made)}
    assert staying["p"] is case.why_pod or (case.why_pod is None and staying["p"] is case.why_node)
    assert revalidate(snapshot, made.moves, how) == {}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_no_room_is_seen_on_what_is_odd(case: Case) -> None:
    made = plan(cluster(case), WAYS["MakeRoom"])

    assert all(room.nodes == ("low",) for room in made.room)
    assert [(move.pod, move.target) for move in made.moves] == [("q", "high")]
    assert msgspec.json.encode(describe_plan(made))


def test_a_low_node_with_odd_data_is_refused_for_that_and_not_for_being_used() -> None:
    made = plan(cluster(Case(pods=(asking("p", "odd", cpu="lots"),))), WAYS["Threshold"])

    (one,) = [one for one in made.refused if one.name == "odd"]
    assert one.reason is Reason.NODE_DATA_ODD
    assert one.message.startswith("it is not known what pod default/p takes of the node: spec.containers[app]")


def test_what_cannot_be_read_is_named_with_the_reason() -> None:
    by_node = plan(cluster(Case(unread(node("odd", cpu="10")))), WAYS["Consolidate"])
    by_pod = plan(cluster(Case(pods=(unread(of("p", "odd")),))), WAYS["Consolidate"])

    said = [one.message for made in (by_node, by_pod) for one in made.refused if (one.name) == "odd"]
    assert said == [
        "the node cannot be read: spec.oddity is nested too deeply",
        "it is not known what pod default/p takes of the node: spec.oddity is nested too deeply",
    ]


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS.keys())
def test_a_waiting_pod_that_cannot_be_read_is_named_and_keeps_nothing(how: PlannerSettings) -> None:
    made = plan(cluster(TABLE["a pod that nobody owns"], asking("waits", "", cpu="lots")), how)

    assert why(made)["Pod", "waits"] is Reason.POD_DATA_ODD
    assert [move.pod for move in made.moves] == ["q"]


def test_no_room_is_made_for_a_pod_that_cannot_be_read() -> None:
    snapshot = cluster(TABLE["a pod that nobody owns"], asking("waits", "", cpu="lots"))

    with pytest.raises(InputError, match="default/waits"):
        plan(snapshot, making_room(pods=["default/waits"], as_typed=True))
    assert plan(snapshot, making_room(pods=["default/waits"])).room == ()
    assert plan(snapshot, making_room()).room == ()


def test_a_gang_of_which_one_cannot_be_read_is_left_out_as_a_whole() -> None:
    gang = {"scheduling.k8s.io/group-name": "g"}
    waiting = (
        pod("g0", cpu="lots", annotations=gang),
        pod("g1", cpu="1", annotations=gang),
        pod("alone", cpu="1"),
    )
    snapshot = Snapshot(nodes=(node("a"),), pods=waiting)

    assert [room.name for room in plan(snapshot, making_room()).room] == ["default/alone"]


ODD_RULES: dict[str, Callable[[], Pod]] = {
    "an unknown operator": lambda: of("p", "odd", affinity=tied(expression("disk", "Near", "ssd"))),
    "a number that is none": lambda: of("p", "odd", affinity=tied(expression("disk", "Gt", "many"))),
    "an unknown field": lambda: of("p", "odd", affinity=tied(fields=(expression("spec.zone", "In", "a"),))),
    "a selector with an unknown operator": lambda: of(
        "p", "odd", spread=(spread(HOSTNAME, select=_unknown_selector()),), labels={"app": "web"}
    ),
    "a namespace that is not there": lambda: of("p", "odd", affinity=shy(term(namespaces=("nowhere",)))),
    "an empty topology key": lambda: of("p", "odd", affinity=shy(term("")), labels={"app": "web"}),
    "no containers": lambda: of("p", "odd", containers=()),
    "containers of one name": lambda: of("p", "odd", containers=(container("a", cpu="1"), container("a", cpu="1"))),
}


def _unknown_selector() -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="Near", values=("web",)),))


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("make", ODD_RULES.values(), ids=ODD_RULES.keys())
def test_an_odd_rule_ends_no_planning(make: Callable[[], Pod], how: PlannerSettings) -> None:
    snapshot = cluster(Case(pods=(make(),)))

    made = plan(snapshot, how)

    assert made.freed_nodes or [room.fitted for room in made.room] == [1]
    assert explain_kept_pods(snapshot, made)


def test_a_cluster_of_nothing_is_planned_to_nothing() -> None:
    for how in WAYS.values():
        assert plan(Snapshot.empty(), how).moves == ()
        assert plan(Snapshot(pods=(of("p", "gone"),)), how).moves == ()
