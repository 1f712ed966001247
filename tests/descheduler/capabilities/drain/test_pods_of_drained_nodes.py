"""Which pods leave drained nodes, and where they go."""

import pytest

from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.drain.plugin import NodeDrain
from berth_descheduler.framework import ClusterView
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.plugins import default_settings, goal_of, on_demand_settings
from planner.test_marks_on_nodes import EVERY_MARK, SOFT, AutoscalerMark, marked, plan, targets, two_nodes
from planner.test_marks_on_nodes import test_a_node_with_a_soft_mark_takes_pods_last as takes_pods_last
from planner.test_platforms import AMD, ARM, moves, web
from planner_settings import planner_settings
from plugins.test_unknown_owners import OPERATED, pod_of


def draining(*names: str) -> PlannerSettings:
    return on_demand_settings(planner_settings(), NodeDrain(nodes=frozenset(names)))


@pytest.mark.parametrize("mark", EVERY_MARK.values(), ids=EVERY_MARK)
def test_a_drain_empties_a_node_with_any_mark(mark: AutoscalerMark) -> None:
    made = plan(two_nodes(low=marked("low", mark)), draining("low"))

    assert targets(made) == ["high"]
    assert made.freed_nodes == ("low",)


@pytest.mark.parametrize("mark", SOFT.values(), ids=SOFT)
def test_a_node_with_a_soft_mark_takes_pods_of_a_drain_last(mark: AutoscalerMark) -> None:
    takes_pods_last(mark, draining("low"))


def test_a_drain_moves_no_pod_to_another_platform() -> None:
    assert not moves(AMD, ARM, web(), how=draining("low"))


def test_a_drain_names_owners_that_do_no_harm() -> None:
    drain = NodeDrain(nodes=frozenset({"node-a"}), harmless_owners=frozenset({"PostgresCluster.example.com"}))
    asked = pod_of(OPERATED, "db-0")
    view = ClusterView.of(Snapshot(pods=(asked,), workloads=(OPERATED,)), None)

    assert not on_demand_settings(default_settings(), drain).plugins.refusing(view)(asked)
    assert NodeDrain.parse(drain.objective.args) == drain
    assert "harmlessOwners" not in NodeDrain(nodes=frozenset({"node-a"})).objective.args


def test_a_plan_of_a_drain_moves_named_pods_only() -> None:
    assert goal_of(NodeDrain(nodes=frozenset({"a"})).objective).name == "SinglePods"
