"""Groups as a tenant may write them: a strange one gets what it can use or nothing, and takes nothing from others."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from berth_core import STARVING_JOBS, Pod, PodCondition, PodGroup, Snapshot
from berth_core.pod_groups import PodGroupSpec
from berth_descheduler.capabilities.starving_jobs.plugin import StarvingJobs
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins import default_plugins, settings_with
from builders import NOON, bare_pod, node, volcano_pod_group

LONG_AGO: Final = "2026-11-21T10:00:00Z"
UNPLACED: Final = (PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
GROUP: Final = "scheduling.k8s.io/group-name"


def waits(name: str, group: str = "", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    notes = {GROUP: group} if group else {}
    made = bare_pod(name, cpu="3", memory=None, created=LONG_AGO, phase="Pending", annotations=notes, **rest)
    return replace(made, status=replace(made.status, conditions=UNPLACED))


def planned(*pods: Pod, groups: tuple[PodGroup, ...] = (), nodes: int = 4) -> Plan:
    """Plan on nodes whose pods end, each with room for one of the waiting."""
    names = [f"n{number}" for number in range(nodes)]
    small = [bare_pod(f"small-{one}", node=one, cpu="1", memory=None, restart_policy="Never") for one in names]
    snapshot = Snapshot(nodes=tuple(node(one, cpu="3") for one in names), pods=(*small, *pods), pod_groups=groups)
    asked = StarvingJobs.parse(
        {"starvingJobTimeThreshold": "30m", "reservedNodePercent": 100, "namespaceNodePercent": 100, "moves": "Never"}
    )
    plugins = default_plugins()
    mine = type(plugins)(
        balance=Enabled(STARVING_JOBS, asked),
        filters=plugins.filters,
        pre_eviction_filters=plugins.pre_eviction_filters,
    )
    return plan(snapshot, settings_with(PlannerSettings(plugins=mine).at(NOON), mine))


def group(name: str = "odd", **spec: Any) -> PodGroup:  # noqa: ANN401 - a field of the spec
    made = volcano_pod_group(name)
    return replace(made, metadata=replace(made.metadata, creation_timestamp=LONG_AGO), spec=PodGroupSpec(**spec))


ODD: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "no minimum": ({}, 1),
    "a minimum of 0": ({"min_member": 0}, 1),
    "a minimum below 0": ({"min_member": -7}, 1),
    "a minimum beyond all pods": ({"min_member": 2**31 - 1}, 0),
    "tasks that no pod is of": ({"min_member": 2, "min_task_member": {"ghost": 2}}, 2),
    "tasks that need more than the group": ({"min_member": 2, "min_task_member": {"ghost": 2**31 - 1}}, 2),
    "tasks that need less than nothing": ({"min_member": 2, "min_task_member": {"ghost": -9}}, 2),
    "a scheduling policy of nothing": ({"min_member": 2, "scheduling_policy": None}, 2),
}


@pytest.mark.parametrize(("spec", "slots"), ODD.values(), ids=ODD.keys())
def test_a_group_gets_what_it_needs_and_another_job_its_own_with(spec: dict[str, Any], slots: int) -> None:
    found = planned(waits("odd-0", "odd"), waits("odd-1", "odd"), waits("plain"), groups=(group(**spec),))
    assert {room.name: len(room.slots) for room in found.rooms} == {
        "default/plain": 1,
        **({"default/odd": slots} if slots else {}),
    }


@pytest.mark.parametrize("name", ["x" * 253, "../../secrets", "a/b?c#d", " ", "\n", "ünïcödé"], ids=repr)
def test_a_group_that_no_object_has_is_named_by_its_pods_alone(name: str) -> None:
    found = planned(waits("odd-0", name), waits("odd-1", name), waits("plain"))
    assert sorted(len(room.slots) for room in found.rooms) == [1, 2]


def test_a_group_of_the_same_name_in_another_namespace_has_no_part_in_it() -> None:
    other = replace(group(min_member=1), metadata=replace(group().metadata, namespace="mallory", uid="uid-mallory"))
    found = planned(waits("odd-0", "odd"), waits("odd-1", "odd"), groups=(other,))
    (room,) = found.rooms
    assert (room.namespace, len(room.slots)) == ("default", 2)
    assert room.job is not None
    assert room.job.uid == ""
