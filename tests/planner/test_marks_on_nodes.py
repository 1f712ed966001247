"""Nodes that autoscalers keep, take, have not finished or wish empty are no gain, no targets, or the last of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from berth_core import Node, NodeCondition, Pod, Taint, Toleration
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.autoscalers.marks import (
    CONDITIONS,
    DO_NOT_DISRUPT,
    KARPENTER_INITIALIZED,
    LABELS,
    NODE_MARKS,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
    TAINTS,
    AutoscalerMark,
    Meaning,
)
from builders import bare_pod, disruption_budget, node, owner, pod
from planner.clusters import consolidating, making_room, minimizing, settings

EVERYTHING = (Toleration(operator="Exists"),)
KEPT = {SCALE_DOWN_DISABLED: "true"}

FREEING = {
    "threshold": settings(low=60, defragment=60, protection=100, wholeNodes=True),
    "single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(),
    "consolidate by the solver": consolidating(exact=True),
}
every_freeing = pytest.mark.parametrize("how", FREEING.values(), ids=FREEING)


def small(name: str, on: str, cpu: str = "1", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name), tolerations=EVERYTHING, **rest)


def two_nodes(low: Node | None = None, high: Node | None = None, *more: Pod, **objects: Any) -> Snapshot:  # noqa: ANN401 - the same
    """A pod that tolerates everything on `low`, and room for it on `high`, which is well used."""
    nodes = (low or node("low", cpu="8"), high or node("high", cpu="8"))
    pods = (small("web", "low"), bare_pod("base", node="high", cpu="6", memory=None), *more)
    return Snapshot(nodes=nodes, pods=pods, **objects)


def targets(made: Plan) -> list[str]:
    return [move.target for move in made.moves]


def why_not_emptied(made: Plan, name: str) -> Reason:
    (reason,) = (refused.reason for refused in made.refused if refused.name == name)
    return reason


# --- every mark -----------------------------------------------------------------------------------------------------


def marked(name: str, mark: AutoscalerMark, **changes: str) -> Node:
    """A node with a mark, of which something may be changed."""
    key = f"{mark.key}reason" if mark.key.endswith("/") else mark.key
    value = changes.get("value", mark.value if mark.value is not None else "1")
    if mark in TAINTS:
        return node(name, cpu="8", taints=[Taint(key=key, value=value, effect=changes.get("effect", "NoSchedule"))])
    if mark in CONDITIONS:
        plain = node(name, cpu="8")
        conditions = (*plain.status.conditions, NodeCondition(type=key, status=value))
        return with_fields(plain, status=with_fields(plain.status, conditions=conditions))
    if mark.key == KARPENTER_INITIALIZED:
        return node(name, cpu="8", labels={"karpenter.sh/nodepool": "default"})
    return node(name, cpu="8", **{"labels" if mark in LABELS else "annotations": {key: value}})


def named(marks: tuple[AutoscalerMark, ...]) -> dict[str, AutoscalerMark]:
    return {f"{mark.place} {mark.key}": mark for mark in marks}


CLOSING: Mapping[Meaning, Reason] = {
    Meaning.LEAVING: Reason.NODE_LEAVING,
    Meaning.UNFINISHED: Reason.NODE_NOT_INITIALIZED,
    Meaning.ONE_POD: Reason.NODE_OF_ONE_POD,
    Meaning.CLOSED: Reason.UNTOLERATED_TAINT,
}
EVERY_MARK = named(NODE_MARKS)


@pytest.mark.parametrize("mark", EVERY_MARK.values(), ids=EVERY_MARK)
def test_each_mark_closes_a_node_as_a_target_or_leaves_it_open(mark: AutoscalerMark) -> None:
    made = plan(two_nodes(high=marked("high", mark)), consolidating())

    if mark.meaning in CLOSING:
        assert targets(made) == []
        (refused,) = (refused for refused in made.refused if refused.name == "web")
        assert refused.constraint is CLOSING[mark.meaning]
    else:
        assert targets(made) == ["high"]


@pytest.mark.parametrize("mark", EVERY_MARK.values(), ids=EVERY_MARK)
def test_each_mark_makes_it_no_gain_to_empty_a_node_or_does_not(mark: AutoscalerMark) -> None:
    made = plan(two_nodes(low=marked("low", mark)), consolidating())

    if mark.meaning in {Meaning.CLOSED, Meaning.SOFT}:
        assert made.freed_nodes == ("low",)
    else:
        assert made.freed_nodes == ()
        assert made.moves == ()
        assert why_not_emptied(made, "low") is Reason.BRINGS_NOTHING
        assert made.quality is not None
        assert made.quality.proven_optimal


SOFT = {name: mark for name, mark in EVERY_MARK.items() if mark.meaning is Meaning.SOFT}


@pytest.mark.parametrize("how", FREEING.values(), ids=FREEING)
@pytest.mark.parametrize("mark", SOFT.values(), ids=SOFT)
def test_a_node_with_a_soft_mark_takes_pods_last(mark: AutoscalerMark, how: PlannerSettings) -> None:
    effect = {"effect": "PreferNoSchedule"} if mark in TAINTS else {}
    nodes = (node("low", cpu="8"), marked("high-1", mark, **effect), node("high-2", cpu="8"))
    base = (bare_pod(f"base-{name}", node=name, cpu="6", memory=None) for name in ("high-1", "high-2"))
    one_pod = Snapshot(nodes=nodes, pods=(small("web", "low"), *base))
    base = (bare_pod(f"base-{name}", node=name, cpu="6", memory=None) for name in ("high-1", "high-2"))
    more = Snapshot(nodes=nodes, pods=(*(small(f"web-{number}", "low") for number in range(4)), *base))

    assert targets(plan(one_pod, how)) == ["high-2"]
    assert sorted(targets(plan(more, how))) == ["high-1", "high-1", "high-2", "high-2"]


@dataclass(frozen=True)
class Harmless:
    """A node as what a mark does not mean."""

    taints: tuple[Taint, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


HARMLESS = {
    "scale-down-disabled false": Harmless(annotations={SCALE_DOWN_DISABLED: "false"}),
    "do-not-disrupt of a node has no duration": Harmless(annotations={DO_NOT_DISRUPT: "15m"}),
    "safe-to-evict is of pods": Harmless(annotations={SAFE_TO_EVICT: "false"}),
    "initialized": Harmless(labels={"karpenter.sh/nodepool": "a", KARPENTER_INITIALIZED: "true"}),
    "not of Karpenter": Harmless(labels={"eks.amazonaws.com/nodegroup": "a"}),
    "a compute type that is none of Fargate": Harmless(labels={"eks.amazonaws.com/compute-type": "auto"}),
    "a taint with such a value": Harmless(
        taints=(Taint(key="eks.amazonaws.com/compute-type", value="auto", effect="NoSchedule"),)
    ),
    "a type of a node": Harmless(labels={"type": "worker"}),
    "a taint of others": Harmless(taints=(Taint(key="dedicated", value="web", effect="NoSchedule"),)),
}


@pytest.mark.parametrize("case", HARMLESS.values(), ids=HARMLESS)
def test_what_is_no_mark_changes_nothing(case: Harmless) -> None:
    def with_mark(name: str) -> Node:
        return node(name, cpu="8", taints=case.taints, labels=case.labels, annotations=case.annotations)

    assert plan(two_nodes(low=with_mark("low")), consolidating()).freed_nodes == ("low",)
    assert targets(plan(two_nodes(high=with_mark("high")), consolidating())) == ["high"]


def test_a_node_that_is_being_deleted_takes_nothing_and_is_no_gain() -> None:
    def leaving(name: str) -> Node:
        plain = node(name, cpu="8")
        return with_fields(plain, metadata=with_fields(plain.metadata, deletion_timestamp="2026-11-21T12:00:00Z"))

    assert not plan(two_nodes(high=leaving("high")), consolidating()).moves
    made = plan(two_nodes(low=leaving("low")), consolidating())
    assert not made.moves
    assert why_not_emptied(made, "low") is Reason.BRINGS_NOTHING


# --- what follows ---------------------------------------------------------------------------------------------------


@every_freeing
def test_other_sources_come_first(how: PlannerSettings) -> None:
    kept, plain = node("low-1", cpu="8", annotations=KEPT), node("low-2", cpu="8")
    base = bare_pod("base", node="high", cpu="6", memory=None)
    pods = (small("web-1", "low-1"), small("web-2", "low-2"), small("web-3", "low-2"), base)

    made = plan(Snapshot(nodes=(kept, plain, node("high", cpu="8")), pods=pods), how)

    assert {move.source for move in made.moves} == {"low-2"}
    assert made.freed_nodes == ("low-2",)
    assert why_not_emptied(made, "low-1") is Reason.BRINGS_NOTHING


@pytest.mark.parametrize("how", [consolidating(), consolidating(exact=True)], ids=["search", "solver"])
def test_an_empty_node_that_stays_anyway_takes_pods_and_the_proof_counts_it(how: PlannerSettings) -> None:
    nodes = (node("kept", cpu="8", annotations=KEPT), node("a", cpu="8"), node("b", cpu="8"))
    pods = (small("web-a", "a", cpu="5"), small("web-b", "b", cpu="5"))

    made = plan(Snapshot(nodes=nodes, pods=pods), how)

    assert len(made.freed_nodes) == 1
    assert targets(made) == ["kept"]
    assert made.quality is not None
    assert (made.quality.reached, made.quality.upper_bound) == (1, 1)
    assert made.quality.proven_optimal


def test_room_is_a_gain_on_a_node_that_stays() -> None:
    kept = node("low", cpu="8", annotations=KEPT)

    made = plan(two_nodes(low=kept), making_room(shapes=("cpu=8",)))

    assert targets(made) == ["high"]
    assert made.room[0].fitted == 1
    assert made.freed_nodes == ()


def test_no_room_is_made_on_a_node_that_goes() -> None:
    leaving = node("low", cpu="8", taints=[Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")])

    assert not plan(two_nodes(low=leaving), making_room(shapes=("cpu=8",))).moves
    assert not plan(two_nodes(low=leaving), minimizing()).moves


def test_prices_of_nodes_that_stay_are_not_saved() -> None:
    price = {"nodePrice": {"default": "1"}}
    kept = node("low", cpu="8", annotations=KEPT)

    made = plan(two_nodes(low=kept), consolidating(**price))

    assert not made.moves
    assert made.quality is not None
    assert made.quality.weight is not None
    assert made.quality.weight.upper_bound == 0


# --- taints that end pods -------------------------------------------------------------------------------------------

MAINTENANCE = Taint(key="maint", effect="NoExecute")
UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")
USUAL = Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=300)


def tolerating(taint: Taint, *seconds: int | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(key=taint.key, operator="Exists", effect="NoExecute", toleration_seconds=some) for some in seconds
    )


@pytest.mark.parametrize(
    ("tolerations", "want"),
    [
        pytest.param(tolerating(MAINTENANCE, None), True, id="for ever"),
        pytest.param(tolerating(MAINTENANCE, 60), False, id="for a minute"),
        pytest.param(tolerating(MAINTENANCE, 0), False, id="for no time"),
        pytest.param(tolerating(MAINTENANCE, -1), False, id="for less than that"),
        pytest.param(tolerating(MAINTENANCE, 1_000_000), False, id="for long"),
        pytest.param(tolerating(MAINTENANCE, 60, None), False, id="the first of two decides"),
        pytest.param(tolerating(MAINTENANCE, None, 60), True, id="whichever the first is"),
        pytest.param((*tolerating(MAINTENANCE, 60), *EVERYTHING), False, id="whatever else is tolerated"),
        pytest.param(EVERYTHING, True, id="everything"),
        pytest.param((), False, id="not at all"),
    ],
)
def test_a_node_takes_no_pod_that_its_taint_ends_after_a_while(
    tolerations: tuple[Toleration, ...], *, want: bool
) -> None:
    web = pod("web", node="low", cpu="1", memory=None, tolerations=tolerations)
    base = bare_pod("base", node="high", cpu="6", memory=None)
    nodes = (node("low", cpu="8"), node("high", cpu="8", taints=[MAINTENANCE]))

    assert bool(plan(Snapshot(nodes=nodes, pods=(web, base)), consolidating()).moves) is want


def test_the_usual_tolerations_count_only_where_a_node_has_the_taint() -> None:
    web = pod("web", node="low", cpu="1", memory=None, tolerations=(USUAL,))
    base = bare_pod("base", node="high", cpu="6", memory=None)

    def planned(*taints: Taint) -> list[str]:
        nodes = (node("low", cpu="8"), node("high", cpu="8", taints=taints))
        return targets(plan(Snapshot(nodes=nodes, pods=(web, base)), consolidating()))

    assert planned() == ["high"]
    assert planned(UNREACHABLE) == [], "the node is Ready again, and the taint not yet off"


def test_a_node_whose_taint_ends_pods_takes_those_that_may_stay_last() -> None:
    nodes = (node("low", cpu="8"), node("high-1", cpu="8", taints=[MAINTENANCE]), node("high-2", cpu="8"))
    base = tuple(bare_pod(f"base-{name}", node=name, cpu="6", memory=None) for name in ("high-1", "high-2"))

    assert targets(plan(Snapshot(nodes=nodes, pods=(small("web", "low"), *base)), consolidating())) == ["high-2"]


# --- pods for which an autoscaler keeps a node ----------------------------------------------------------------------

AGENT = {"app": "agent"}
NO_DISRUPTION = disruption_budget("agents", match_labels=AGENT, allowed=0)
MIRROR = {"kubernetes.io/config.mirror": "1"}


@dataclass(frozen=True)
class Keeper:
    """A pod that belongs to its node, and whether Karpenter keeps the node for it."""

    want: bool
    annotations: Mapping[str, str] = field(default_factory=dict)
    kind: str = "DaemonSet"
    tolerations: tuple[Toleration, ...] = ()
    phase: str = "Running"
    deleted: str | None = None
    budgets: tuple[Any, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the node."""


KEEPERS = {
    "a daemon pod": Keeper(want=False),
    "a mark": Keeper(want=True, annotations={DO_NOT_DISRUPT: "true"}),
    "a mark on a mirror pod": Keeper(want=True, annotations={DO_NOT_DISRUPT: "true", **MIRROR}, kind="Node"),
    "a mark that lasts": Keeper(want=True, annotations={DO_NOT_DISRUPT: "1h"}),
    "a mark on a pod that has ended": Keeper(want=False, annotations={DO_NOT_DISRUPT: "true"}, phase="Failed"),
    "a mark on a pod that goes": Keeper(
        want=False, annotations={DO_NOT_DISRUPT: "true"}, deleted="2026-11-21T12:00:00Z"
    ),
    "the cluster autoscaler passes daemons over": Keeper(want=False, annotations={SAFE_TO_EVICT: "false"}),
    "a budget": Keeper(want=True, budgets=(NO_DISRUPTION,)),
    "a budget that allows one": Keeper(
        want=False, budgets=(disruption_budget("agents", match_labels=AGENT, allowed=1),)
    ),
    "a budget of others": Keeper(
        want=False, budgets=(disruption_budget("others", match_labels={"app": "other"}, allowed=0),)
    ),
    "a budget of a pod that Karpenter does not evict": Keeper(
        want=False, budgets=(NO_DISRUPTION,), tolerations=EVERYTHING
    ),
    "a budget of a mirror pod": Keeper(want=False, budgets=(NO_DISRUPTION,), annotations=MIRROR, kind="Node"),
    "two budgets, under which no pod is evicted": Keeper(
        want=True,
        budgets=tuple(disruption_budget(name, match_labels=AGENT, allowed=1) for name in ("agents", "all")),
    ),
    "a budget on a node of Karpenter": Keeper(
        want=True,
        budgets=(NO_DISRUPTION,),
        labels={"karpenter.sh/nodepool": "a", KARPENTER_INITIALIZED: "true"},
    ),
    "a budget on a node that the cluster autoscaler scales": Keeper(
        want=False, budgets=(NO_DISRUPTION,), labels={"eks.amazonaws.com/nodegroup": "a"}
    ),
}


@pytest.mark.parametrize("keeper", KEEPERS.values(), ids=KEEPERS)
def test_a_node_that_is_kept_for_a_pod_of_its_own_is_no_gain(keeper: Keeper) -> None:
    agent = pod(
        "agent",
        node="low",
        labels=AGENT,
        cpu="100m",
        memory=None,
        annotations=keeper.annotations,
        tolerations=keeper.tolerations,
        phase=keeper.phase,
        deleted=keeper.deleted,
        controller=owner(keeper.kind, "agent"),
    )
    low = node("low", cpu="8", labels=keeper.labels)

    made = plan(two_nodes(low, None, agent, disruption_budgets=keeper.budgets), consolidating())

    assert made.freed_nodes == (() if keeper.want else ("low",))
    if keeper.want:
        (refused,) = (refused for refused in made.refused if refused.name == "low")
        assert (refused.reason, refused.blocking_pod) == (Reason.BRINGS_NOTHING, "default/agent")
