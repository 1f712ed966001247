"""What a reason names in words it also names for programs: the constraint, the resource, the pod in the way."""

from dataclasses import dataclass
from typing import Any

import pytest

from berth_core import Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.planner import Plan, PlannerSettings, explain_kept_pods, plan
from berth_descheduler.report.documents import describe_plan
from builders import bare_pod, node, owner, pod
from planner.clusters import ZONE, apart, consolidating, making_room, selector, settings, term

WEB = {"app": "web"}
TEN = (node("a", cpu="10"), node("b", cpu="10"))
ZONED = tuple(node(name, cpu="10", labels={ZONE: zone}) for name, zone in (("a", "x"), ("b", "y"), ("c", "y")))
OF_WEB = apart(term(select=selector(app="web")))
IN_ZONE = apart(term(ZONE, select=selector(app="web")))


@dataclass(frozen=True)
class Named:
    """What a refusal names for programs."""

    reason: Reason
    constraint: Reason | str = ""
    resource: str = ""
    blocking_pod: str = ""


@dataclass(frozen=True)
class Case:
    """A cluster and what the refusals of node `a`, and of the pod `p` on it, name; None: the pod is not named."""

    pods: tuple[Pod, ...]
    want_node: Named
    want_pod: Named | None = None
    nodes: tuple[Node, ...] = TEN
    how: PlannerSettings = consolidating()  # noqa: RUF009 - it is frozen


def p(cpu: str = "2", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod("p", **{"node": "a", "cpu": cpu, "memory": None, "controller": owner(name="p"), **rest})


def fixed(cpu: str = "1", *, on: str = "b", **rest: Any) -> Pod:  # noqa: ANN401 - the same
    return bare_pod("fixed", **{"node": on, "cpu": cpu, "memory": None, **rest})


def without_target(constraint: Reason, resource: str = "", blocking_pod: str = "") -> tuple[Named, Named]:
    """What a node and its pod say when that finds no target."""
    of_node = Named(Reason.NO_TARGET, constraint, resource, "default/p")
    return of_node, Named(Reason.NO_TARGET, constraint, resource, blocking_pod)


IMMOVABLE = Named(Reason.HOLDS_IMMOVABLE_PODS, Reason.NO_CONTROLLER, "", "default/fixed")
BY_THRESHOLD = settings(low=40, defragment=60, protection=90)

TABLE = {
    "a pod that may not be moved, and why not": Case((fixed(on="a"),), IMMOVABLE),
    "the resource that other nodes lack": Case(
        (p("6"), fixed("8")), *without_target(Reason.INSUFFICIENT_RESOURCES, "cpu")
    ),
    "the first by name of several": Case(
        (p("6", memory="60Gi"), fixed("8", memory="60Gi")), *without_target(Reason.INSUFFICIENT_RESOURCES, "cpu")
    ),
    "memory where it is that": Case(
        (p("1", memory="40Gi"), fixed("1", memory="60Gi")), *without_target(Reason.INSUFFICIENT_RESOURCES, "memory")
    ),
    "pod slots": Case(
        (p(), fixed()),
        *without_target(Reason.INSUFFICIENT_RESOURCES, "pods"),
        nodes=(node("a", cpu="10"), node("b", cpu="10", pods="1")),
    ),
    "the pod that the anti-affinity shuns": Case(
        (p(affinity=OF_WEB), fixed(labels=WEB)), *without_target(Reason.POD_ANTI_AFFINITY, "", "default/fixed")
    ),
    "the pod whose anti-affinity is against it": Case(
        (p(labels=WEB), fixed(affinity=OF_WEB)), *without_target(Reason.OTHERS_ANTI_AFFINITY, "", "default/fixed")
    ),
    "a pod in the way on another node of the zone": Case(
        (p(affinity=IN_ZONE), fixed(on="c", labels=WEB), bare_pod("q", node="b", cpu="1", memory=None)),
        *without_target(Reason.POD_ANTI_AFFINITY, "", "default/fixed"),
        nodes=ZONED,
    ),
    "the pod that has the host port": Case(
        (p(host_ports=(8080,)), fixed(host_ports=(8080,))), *without_target(Reason.HOST_PORT, "", "default/fixed")
    ),
    "what most nodes say": Case(
        (p("6"), *(bare_pod(f"f{i}", node=f"n{i}", cpu="8", memory=None) for i in range(3))),
        *without_target(Reason.INSUFFICIENT_RESOURCES, "cpu"),
        nodes=(
            node("a", cpu="10"),
            node("b", cpu="10", unschedulable=True),
            *(node(f"n{i}", cpu="10") for i in range(3)),
        ),
    ),
    "that the rest is empty and stays so": Case((p(),), *without_target(Reason.ALREADY_EMPTY)),
    "nothing where there is no other node": Case(
        (p(),), Named(Reason.NO_TARGET, "", "", "default/p"), Named(Reason.NO_TARGET), nodes=TEN[:1]
    ),
    "the scarcest resource where pods do not fit together": Case(
        (
            *(pod(f"p{i}", node="a", cpu="3", memory=None, controller=owner(name="p")) for i in range(2)),
            *(bare_pod(f"f-{name}", node=name, cpu="5", memory=None) for name in ("b", "c")),
            fixed("3", on="c"),
        ),
        Named(Reason.NO_ROOM_TOGETHER, "", "cpu"),
        nodes=(*TEN, node("c", cpu="10")),
    ),
    "a pod that is about to come": Case(
        (p(), pod("new", node="", phase="Pending", nominated_node="a", cpu="1", memory=None)),
        Named(Reason.EXPECTS_PODS, "", "", "default/new"),
    ),
    "a pod that cannot be read": Case(
        (p(requests={"cpu": "lots"}), fixed()), Named(Reason.NODE_DATA_ODD, Reason.POD_DATA_ODD, "", "default/p")
    ),
    "what a node does not say": Case(
        (fixed(),), Named(Reason.NODE_DATA_MISSING, "", "pods"), nodes=(node("a", cpu="10", pods=None), TEN[1])
    ),
    "the resource that is not low": Case((p("5"), fixed("8")), Named(Reason.NOT_LOW, "", "cpu"), how=BY_THRESHOLD),
    "the resource that a node has not": Case(
        (fixed("8"),),
        Named(Reason.RESOURCE_MISSING, "", "cpu"),
        nodes=(node("a", cpu="0"), TEN[1]),
        how=BY_THRESHOLD,
    ),
    "the threshold that protects the target": Case(
        (p("2"), fixed("8")), *without_target(Reason.ABOVE_PROTECTION), how=BY_THRESHOLD
    ),
    "the resource that the target lacks": Case(
        (p("3"), fixed("8")), *without_target(Reason.INSUFFICIENT_RESOURCES, "cpu"), how=BY_THRESHOLD
    ),
    "what a node is too small for": Case(
        (p(), fixed()), Named(Reason.INSUFFICIENT_RESOURCES, "", "cpu"), how=making_room(shapes=["cpu=11,count=1"])
    ),
    "what is missing beside a pod that may not be moved": Case(
        (fixed("5", on="a"), bare_pod("g", node="b", cpu="5", memory=None)),
        Named(Reason.HOLDS_IMMOVABLE_PODS, Reason.NO_CONTROLLER, "cpu", "default/fixed"),
        how=making_room(shapes=["cpu=8,count=1"]),
    ),
    "the pod that keeps one that waits away": Case(
        (
            fixed(on="a", labels=WEB),
            bare_pod("g", node="b", cpu="1", memory=None, labels=WEB),
            pod("waits", node="", phase="Pending", cpu="1", memory=None, affinity=OF_WEB),
        ),
        Named(Reason.POD_ANTI_AFFINITY, "", "", "default/fixed"),
        how=making_room(pods=["default/waits"]),
    ),
}


def named(made: Plan, kind: RefusedKind, name: str) -> Named | None:
    found = [one for one in made.refused if (one.kind, one.name) == (kind, name)]
    return Named(found[0].reason, found[0].constraint, found[0].resource, found[0].blocking_pod) if found else None


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_reason_names(case: Case) -> None:
    made = plan(Snapshot(nodes=case.nodes, pods=case.pods), case.how)

    assert named(made, RefusedKind.NODE, "a") == case.want_node
    if case.want_pod is not None:
        assert named(made, RefusedKind.POD, "p") == case.want_pod


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_is_named_for_programs_is_named_in_words(case: Case) -> None:
    made = plan(Snapshot(nodes=case.nodes, pods=case.pods), case.how)

    about_pods = {f"{one.namespace}/{one.name}": one.message for one in made.refused if one.kind is RefusedKind.POD}
    for one in made.refused:
        words = (one.message + about_pods.get(one.blocking_pod, "")).replace("pod slots", "pods")
        assert one.resource in words
        assert one.constraint != one.reason


def test_the_document_says_all_and_has_an_empty_text_for_what_does_not_apply() -> None:
    made = plan(Snapshot(nodes=TEN, pods=(p("6"), fixed("8"))), consolidating())

    found = {(one.kind, one.pod or one.node): one for one in describe_plan(made).refused}
    about_a, about_p, about_b = found["Node", "a"], found["Pod", "p"], found["Node", "b"]
    assert (about_a.constraint, about_a.resource, about_a.blocking_pod) == ("InsufficientResources", "cpu", "default/p")
    assert (about_p.namespace, about_p.blocking_pod) == ("default", "")
    assert (about_b.namespace, about_b.pod, about_b.resource, about_b.also) == ("", "", "", ())
    assert about_b.constraint


def test_a_pod_that_stays_with_its_node_names_what_the_node_names() -> None:
    others = (pod("small", node="a", cpu="1", memory=None, controller=owner(name="s")),)
    snapshot = Snapshot(nodes=TEN, pods=(p("6"), fixed("8"), *others))

    (small,) = [one for one in explain_kept_pods(snapshot, plan(snapshot, consolidating())) if one.name == "small"]

    assert (small.reason, small.constraint, small.resource) == (Reason.NO_TARGET, Reason.INSUFFICIENT_RESOURCES, "cpu")
    assert small.blocking_pod == "default/p"
