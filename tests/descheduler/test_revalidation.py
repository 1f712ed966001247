"""The second look: which moves of a plan still hold on a later snapshot."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core import Node, Pod
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import ClusterView, PodFilter
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refuser
from berth_descheduler.framework.rules import Rule
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner.settings import Thresholds
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from builders import bare_pod, disruption_budget, node, owner, pod
from planner_settings import planner_settings, with_plugins

WEB = {"app": "web"}


def move(name: str, source: str = "low", target: str = "high") -> PlannedMove:
    return PlannedMove(namespace="default", pod=name, pod_uid=f"uid-default-{name}", source=source, target=target)


def at(name: str, on: str = "low", cpu: str = "1", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on
    return pod(name, **{"node": on, "cpu": cpu, "memory": None, "labels": WEB, "controller": owner(name=name), **rest})


@dataclass(frozen=True)
class Case:
    """Moves a, b from `low` to `high` and what has changed since they were planned."""

    want: dict[int, MoveReason]
    pods: tuple[Pod, ...] = (at("a"), at("b"))
    nodes: tuple[Node, ...] = (node("low"), node("high"))
    more: dict[str, Any] = field(default_factory=dict)


BOTH_STAY = MoveReason.SOURCE_NOT_EMPTIABLE

TABLE = {
    "nothing has changed": Case({}),
    "a pod that is gone falls alone": Case({0: MoveReason.POD_GONE}, (at("b"),)),
    "a pod of the same name is another pod": Case(
        {0: MoveReason.POD_CHANGED, 1: BOTH_STAY}, (at("a", uid="uid-new"), at("b"))
    ),
    "a pod that is elsewhere now": Case(
        {0: MoveReason.POD_CHANGED, 1: BOTH_STAY},
        (at("a", "other"), at("b")),
        (
            node("low"),
            node("high"),
            node("other"),
        ),
    ),
    "a pod that may not move any more keeps the others": Case(
        {0: MoveReason.POD_CHANGED, 1: BOTH_STAY}, (at("a", phase="Pending"), at("b"))
    ),
    "a budget that allows nothing now": Case(
        {0: MoveReason.EVICTION_BLOCKED, 1: BOTH_STAY},
        more={"disruption_budgets": (disruption_budget(match_labels=WEB, allowed=0),)},
    ),
    "the target is gone": Case({0: MoveReason.TARGET_UNFIT, 1: BOTH_STAY}, nodes=(node("low"),)),
    "the target is cordoned": Case(
        {0: MoveReason.TARGET_UNFIT, 1: BOTH_STAY}, nodes=(node("low"), node("high", unschedulable=True))
    ),
    "the target has room for one only": Case(
        {0: BOTH_STAY, 1: MoveReason.TARGET_UNFIT}, nodes=(node("low"), node("high", cpu="1500m"))
    ),
    "a new pod on the source that cannot leave": Case(
        {0: BOTH_STAY, 1: BOTH_STAY}, (at("a"), at("b"), bare_pod("late", node="low"))
    ),
    "a new pod on the source that is not in the plan": Case(
        {0: BOTH_STAY, 1: BOTH_STAY}, (at("a"), at("b"), at("late"))
    ),
    "a new pod of a DaemonSet stays where it is": Case(
        {}, (at("a"), at("b"), at("agent", controller=owner("DaemonSet", "agent")))
    ),
    "a pod that leaves the source by itself is in nobody's way": Case(
        {}, (at("a"), at("b"), at("old", deleted="2026-11-21T12:00:00Z"))
    ),
    "a source that is tainted by the plan itself gives all the same": Case(
        {}, nodes=(node("low", unschedulable=True), node("high"))
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_move_that_does_not_hold_falls_with_those_of_its_source(case: Case) -> None:
    snapshot = Snapshot(nodes=case.nodes, pods=case.pods, **case.more)

    found = revalidate(snapshot, [move("a"), move("b")], planner_settings())

    assert {index: invalid.reason for index, invalid in found.items()} == case.want
    assert all(invalid.message for invalid in found.values())


def test_moves_of_other_sources_do_not_fall_and_room_that_falls_free_is_used() -> None:
    snapshot = Snapshot(
        nodes=(node("low"), node("low2"), node("high", cpu="2")),
        pods=(at("a", cpu="2"), bare_pod("late", node="low"), at("c", "low2", cpu="2")),
    )

    unprotected = planner_settings(args=DefragmentationArgs(protection=Thresholds.of(cpu=100)))
    found = revalidate(snapshot, [move("a"), move("c", "low2")], unprotected)

    assert set(found) == {0}


def test_a_source_that_is_not_to_be_emptied_may_keep_pods() -> None:
    snapshot = Snapshot(nodes=(node("low"), node("high")), pods=(at("a"), bare_pod("late", node="low")))

    assert set(revalidate(snapshot, [move("a")], planner_settings())) == {0}
    assert set(revalidate(snapshot, [move("a")], planner_settings(), emptied=("elsewhere",))) == set()


@dataclass(frozen=True)
class Keeps(Rule):
    """A rule that keeps one pod for a reason."""

    reason: RefusalReason

    def pod_refusal(self, pod: Pod) -> Refusal | None:
        return Refusal(self.reason, "it stays") if pod.metadata.name == "a" else None


@dataclass(frozen=True)
class Keeping:
    """A filter plugin that lets every pod go and hands a rule over."""

    rules: tuple[Rule, ...]

    def filter(self, view: ClusterView) -> PodFilter:
        del view
        return lambda _: ()


@pytest.mark.parametrize("reason", [reason for reason in RefusalReason if reason.refuser is Refuser.FILTER])
def test_a_pod_that_a_plugin_keeps_by_now_is_filtered_for_whatever_reason(reason: RefusalReason) -> None:
    snapshot = Snapshot(nodes=(node("low"), node("high")), pods=(at("a"), at("b")))
    settings = planner_settings()
    filters = (*settings.plugins.filters, Enabled("Keeping", Keeping((Keeps(reason),))))

    validation = revalidate(snapshot, [move("a"), move("b")], with_plugins(settings, filters=filters))

    assert {index: invalid.reason for index, invalid in validation.items()} == {0: MoveReason.FILTERED, 1: BOTH_STAY}


@dataclass(frozen=True)
class Noting:
    """A filter plugin that lets every pod go and notes which it is asked about."""

    asked: list[str]

    def filter(self, view: ClusterView) -> PodFilter:
        del view

        def objections(pod: Pod) -> tuple[()]:
            self.asked.append(pod.metadata.name)
            return ()

        return objections


def test_only_the_pods_of_the_moves_are_asked_about() -> None:
    """A look at what begins next must not cost more in a cluster of more pods that stay."""
    snapshot = Snapshot(nodes=(node("low"), node("high")), pods=(at("a"), at("b"), at("c", "high"), at("d", "high")))
    settings, asked = planner_settings(), list[str]()
    filters = (*settings.plugins.filters, Enabled("Noting", Noting(asked)))

    assert not revalidate(snapshot, [move("a"), move("b")], with_plugins(settings, filters=filters))

    assert asked == ["a", "b"]


def test_a_reason_says_what_refuses() -> None:
    assert {reason.refuser for reason in RefusalReason} == {*Refuser}
    assert RefusalReason.ENDS_SOON.refuser is Refuser.FILTER
    assert RefusalReason.GAVE_UP.outlasts_waiting
    with pytest.raises(TypeError, match="refuser"):
        RefusalReason.__new_member__(RefusalReason, "New")
