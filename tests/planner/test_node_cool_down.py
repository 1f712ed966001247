"""Nodes off or onto which pods were moved lately give and take no pods, whatever moves them."""

from datetime import timedelta

import pytest

from berth_core import Node
from berth_core.labels import LAST_MOVED_ANNOTATION
from berth_core.migration_plans import MoveReason
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.planner.cool_downs import NodeCoolDown
from builders import NOON, bare_pod, node, owner, pod
from planner.clusters import consolidating, making_room, settings
from planner_settings import planner_settings, plugin_set, with_settings

HALF_AN_HOUR_AGO = {LAST_MOVED_ANNOTATION: "2026-11-21T11:30:00Z"}


class WantsAway:
    """Names the one small pod."""

    def deschedule(self, view: ClusterView) -> list[Candidate]:
        del view
        return [Candidate("default", "small", "it should be elsewhere")]


WAYS = {
    "threshold": settings(low=60, defragment=60, protection=100, wholeNodes=True),
    "single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(),
    "make room": making_room(shapes=("cpu=8",)),
    "a plugin": planner_settings(plugins=plugin_set(deschedule=(Enabled("WantsAway", WantsAway()),))),
}


def resting(how: PlannerSettings, *, hours: float = 1) -> PlannerSettings:
    return with_settings(how, now=NOON).with_rule(NodeCoolDown(timedelta(hours=hours)))


def cluster(**notes: dict[str, str]) -> Snapshot:
    """One small pod on `low`, and room for it on `high`, which is well used."""
    nodes: tuple[Node, ...] = tuple(node(name, cpu="8", annotations=notes.get(name, {})) for name in ("low", "high"))
    small = pod("small", node="low", cpu="1", memory=None, controller=owner(name="small"))
    return Snapshot(nodes=nodes, pods=(small, bare_pod("base", node="high", cpu="6", memory=None)))


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_the_pod_moves_where_nothing_rests(how: PlannerSettings) -> None:
    assert [move.target for move in plan(cluster(), resting(how)).moves] == ["high"]


@pytest.mark.parametrize("name", ["low", "high"])
@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_node_that_rests_is_neither_source_nor_target(how: PlannerSettings, name: str) -> None:
    assert plan(cluster(**{name: HALF_AN_HOUR_AGO}), resting(how)).moves == ()


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_rest_that_is_over_or_not_asked_for_keeps_nothing(how: PlannerSettings) -> None:
    notes = {"low": HALF_AN_HOUR_AGO, "high": HALF_AN_HOUR_AGO}
    for own in (resting(how, hours=0.5), resting(how, hours=0)):
        assert len(plan(cluster(**notes), own).moves) == 1


def test_a_node_that_rests_says_so() -> None:
    found = plan(cluster(low=HALF_AN_HOUR_AGO), resting(WAYS["consolidate"]))
    (refused,) = [one for one in found.refused if one.name == "low"]
    assert refused.reason is RefusalReason.COOLING_DOWN
    assert refused.message == "pods were moved off the node or onto it at 2026-11-21T11:30:00Z"


def test_a_note_that_is_no_time_keeps_the_node() -> None:
    assert plan(cluster(high={LAST_MOVED_ANNOTATION: "lately"}), resting(WAYS["threshold"])).moves == ()


@pytest.mark.parametrize("name", ["low", "high"])
def test_a_plan_that_was_made_before_is_judged_by_it(name: str) -> None:
    how = resting(WAYS["threshold"])
    moves = plan(cluster(), how).moves
    found = revalidate(cluster(**{name: HALF_AN_HOUR_AGO}), moves, how)
    assert {index: why.reason for index, why in found.items()} == {0: MoveReason.NODE_COOLING_DOWN}
