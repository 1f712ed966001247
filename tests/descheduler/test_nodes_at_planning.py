"""What a plan notes of the nodes as they lay when it was made: which, how full, and what of too many is left out."""

from dataclasses import replace

from berth_core.migration_plans import NodeBefore, NodesBefore, Objective
from berth_core.resources import ResourceAmounts
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import Fragmentation, NodeUsage, Plan, plan
from berth_descheduler.planner.recorded_nodes import (
    MOST_NODES,
    matches_record,
    read_record,
    record_nodes,
    resource_type_of,
)
from berth_descheduler.planner.stranded_capacity import measure_nodes
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from builders import bare_pod, node, owner, pod
from planner_settings import planner_settings

SNAPSHOT = Snapshot(
    nodes=(node("high", cpu="10", memory="8Gi"), node("low", cpu="10", memory="8Gi"), node("void", cpu="15890m")),
    pods=(
        bare_pod("base", node="high", cpu="8", memory="1Gi"),
        pod("web-1", node="low", cpu="500m", memory="1536Mi", controller=owner(name="web")),
        pod("agent", node="void", cpu="100m", memory=None, controller=owner("DaemonSet", "agent")),
    ),
)


def planned(snapshot: Snapshot = SNAPSHOT, **args: object) -> Plan:
    return plan(snapshot, planner_settings(args=DefragmentationArgs.parse(args)))


def recorded(made: Plan) -> NodesBefore | None:
    return record_nodes(made.before, resource_type_of(made.objective), freed=made.freed_nodes, moves=made.moves)


def of_many(count: int) -> Plan:
    """A plan of the small cluster, as if there were that many more nodes, all full."""
    made = planned()
    full = ResourceAmounts({"cpu": 1_000})
    more = tuple(NodeUsage(f"full-{index:04}", full, full, 1) for index in range(count))
    return replace(made, before=Fragmentation((*made.before.nodes, *more)))


def test_every_node_is_noted_with_the_resource_that_the_plan_goes_by() -> None:
    by_cores, by_memory = recorded(planned()), recorded(planned(resourceType="memory"))
    assert by_cores is not None
    assert by_memory is not None
    assert (by_cores.resource, by_cores.left_out) == ("cpu", 0)
    assert by_cores.nodes == (
        NodeBefore(name="high", allocatable="10", requested="8", pods=1),
        NodeBefore(name="low", allocatable="10", requested="500m", pods=1),
        NodeBefore(name="void", allocatable="15890m", requested="100m", pods=0),
    )
    assert (by_memory.resource, by_memory.nodes[1].requested) == ("memory", "1536Mi")


def test_of_too_many_those_of_the_moves_are_noted_first_and_the_rest_is_counted() -> None:
    made = of_many(MOST_NODES)
    noted = recorded(made)
    assert made.freed_nodes == ("low",)
    assert noted is not None
    names = {one.name for one in noted.nodes}
    assert (len(noted.nodes), noted.left_out) == (MOST_NODES, 3)
    assert {"low", "high"} < names
    assert "void" not in names, "it is empty and the plan has nothing to do with it"


def test_a_cluster_without_nodes_has_nothing_to_note() -> None:
    assert recorded(planned(Snapshot.empty())) is None


def test_what_was_noted_is_laid_out_as_it_was_measured() -> None:
    noted = recorded(planned())
    assert noted is not None
    laid, measured = read_record(noted), measure_nodes(SNAPSHOT)
    assert laid is not None
    assert [(one.name, one.pods) for one in laid.nodes] == [(one.name, one.pods) for one in measured.nodes]
    assert laid.utilisation("cpu") == measured.utilisation("cpu") != 0


def test_the_resource_is_that_of_the_objective_of_whatever_plugin() -> None:
    assert resource_type_of(Objective(plugin="Tidy", args={"resourceType": "memory"})) == "memory"
    assert (
        resource_type_of(Objective(plugin="Tidy", args={"resourceType": 3})) == resource_type_of(Objective()) == "cpu"
    )


def test_nonsense_that_somebody_noted_is_no_picture() -> None:
    assert (
        read_record(NodesBefore(resource="cpu", nodes=(NodeBefore(name="a", allocatable="x", requested="1", pods=0),)))
        is None
    )


def test_it_is_known_whether_the_nodes_matches_record() -> None:
    noted, now = recorded(planned()), measure_nodes(SNAPSHOT)
    assert noted is not None
    moved = measure_nodes(replace(SNAPSHOT, pods=SNAPSHOT.pods[:-2]))
    one_less, one_more = (
        Fragmentation(now.nodes[1:]),
        measure_nodes(replace(SNAPSHOT, nodes=(*SNAPSHOT.nodes, node("new")))),
    )
    assert matches_record(noted, now)
    assert not matches_record(noted, moved)
    assert not matches_record(noted, one_less)
    assert not matches_record(noted, one_more)

    part = recorded(of_many(MOST_NODES))
    assert part is not None
    assert matches_record(part, of_many(MOST_NODES + 1).before), "of the others nothing is known"
