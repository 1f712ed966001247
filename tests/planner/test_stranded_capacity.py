"""How many pods of a shape fit, what is stranded, and for what reason; and which shapes are looked at."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from berth_core import Affinity, Node, Pod, Taint, Toleration
from berth_core.errors import InputError
from berth_core.labels import DRAINING_TAINT, HANDOVER_TAINT
from berth_core.resources import ResourceAmounts
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import plan
from berth_descheduler.planner.capacity_shapes import read_shape
from berth_descheduler.planner.pending_pods import is_pending
from berth_descheduler.planner.rooms import Shape
from berth_descheduler.planner.simulation import (
    Cluster,
    NodeIndex,
    NodeTies,
    PodClasses,
    PodPresence,
    node_part,
    node_refusal,
)
from berth_descheduler.planner.stranded_capacity import CapacityReport, ShapeFit, report_capacity
from berth_descheduler.planner.workload_mix import MOST_FRAGMENTED_NODES, WorkloadFit
from builders import bare_pod, node, owner, pod, reservation, task
from planner.clusters import expression, settings, tied
from planner.random_clusters import clusters
from properties import holds_for

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")
SOFT = Taint(key="freed", effect="PreferNoSchedule")
SHAPE = "cpu=4,memory=8Gi"

INSUFFICIENT = RefusalReason.INSUFFICIENT_RESOURCES


def full(name: str, on: str, cpu: str, memory: str, **rest: Any) -> Pod:
    return pod(name, node=on, cpu=cpu, memory=memory, **rest)


def room_for(shape: str, *objects: Node | Pod, **rest: Any) -> ShapeFit:
    nodes = tuple(one for one in objects if isinstance(one, Node))
    pods = tuple(one for one in objects if isinstance(one, Pod))
    (found,) = report_capacity(Snapshot(nodes=nodes, pods=pods, **rest), (read_shape(shape),)).shapes
    return found


@dataclass(frozen=True)
class Case:
    """One node of 16 cores and 64 GiB, what is on it, and what is said of it for the shape."""

    want_fits: int
    want_stranded: dict[str, str] = field(default_factory=dict)
    want_reason: RefusalReason | None = None
    want_resource: str = ""
    node: Node = field(default_factory=node)
    pods: tuple[Pod, ...] = ()


CASES = {
    "an empty node is filled up to its scarcer resource, and the rest of the other is stranded": Case(
        4, {"memory": "32Gi"}, INSUFFICIENT, "cpu"
    ),
    "a piece that is too small is stranded for its own sake": Case(
        0, {"cpu": "3", "memory": "4Gi"}, INSUFFICIENT, "memory", pods=(full("a", "node-a", "13", "60Gi"),)
    ),
    "cores beside too little memory are stranded by the memory": Case(
        0, {"cpu": "12", "memory": "1Gi"}, INSUFFICIENT, "memory", pods=(full("a", "node-a", "4", "63Gi"),)
    ),
    "a full node strands nothing": Case(0, pods=(full("a", "node-a", "16", "64Gi"),)),
    "an over-booked resource has nothing free, and strands the other": Case(
        0, {"memory": "32Gi"}, INSUFFICIENT, "cpu", pods=(full("a", "node-a", "20", "32Gi"),)
    ),
    "a node without pod slots strands all that it has": Case(
        0, {"cpu": "15", "memory": "63Gi"}, INSUFFICIENT, "pods", node(pods="1"), (full("a", "node-a", "1", "1Gi"),)
    ),
    "as many fit as there are pod slots": Case(2, {"cpu": "8", "memory": "48Gi"}, INSUFFICIENT, "pods", node(pods="2")),
    "a cordoned node strands all that it has": Case(
        0, {"cpu": "16", "memory": "64Gi"}, RefusalReason.NODE_UNSCHEDULABLE, node=node(unschedulable=True)
    ),
    "a node that is not ready strands all that it has": Case(
        0, {"cpu": "16", "memory": "64Gi"}, RefusalReason.NODE_NOT_READY, node=node(ready=False)
    ),
    "a node that a plan empties strands all that it has": Case(
        0,
        {"cpu": "16", "memory": "64Gi"},
        RefusalReason.NODE_DRAINING,
        node=node(taints=(Taint(key=DRAINING_TAINT, effect="NoSchedule"),)),
    ),
    "a taint keeps a shape off": Case(
        0, {"cpu": "16", "memory": "64Gi"}, RefusalReason.UNTOLERATED_TAINT, node=node(taints=(GPU,))
    ),
    "a soft taint does not": Case(4, {"memory": "32Gi"}, INSUFFICIENT, "cpu", node(taints=(SOFT,))),
    "nor does the guard of a hand-over, which comes and goes": Case(
        4, {"memory": "32Gi"}, INSUFFICIENT, "cpu", node(taints=(Taint(key=HANDOVER_TAINT, effect="NoSchedule"),))
    ),
    "a node that does not say how much it has takes nothing": Case(
        0, {"cpu": "16"}, RefusalReason.NODE_DATA_MISSING, "memory", node(memory=None)
    ),
    "a node with a pod that cannot be read takes nothing": Case(
        0,
        {"cpu": "16", "memory": "64Gi"},
        RefusalReason.NODE_DATA_ODD,
        pods=(full("a", "node-a", "many", "1Gi"),),
    ),
    "pods that have ended take nothing": Case(
        4, {"memory": "32Gi"}, INSUFFICIENT, "cpu", pods=(full("a", "node-a", "8", "1Gi", phase="Succeeded"),)
    ),
    "a pod that is nominated to the node has its place": Case(
        2, {"memory": "32Gi"}, INSUFFICIENT, "cpu", pods=(pod("a", nominated_node="node-a", cpu="8", memory="16Gi"),)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_one_node_has_for_a_shape(case: Case) -> None:
    found = room_for(SHAPE, case.node, *case.pods)

    assert found.fits == case.want_fits
    assert found.nodes == bool(case.want_fits)
    assert found.stranded == ResourceAmounts.from_quantities(case.want_stranded)
    reasons = [(part.reason, part.resource, part.nodes, part.example) for part in found.parts]
    assert reasons == ([(case.want_reason, case.want_resource, 1, "node-a")] if case.want_reason else [])


def test_a_promised_place_is_not_free() -> None:
    promised = reservation(tasks=(task(nodes=("node-a",), cpu="8", memory="16Gi"),))

    found = room_for(SHAPE, node("node-a"), reservations=(promised,))

    assert found.fits == 2


def test_the_reasons_stand_with_the_largest_first_and_add_up() -> None:
    nodes = (node("a"), node("b", unschedulable=True), node("c", unschedulable=True), node("d", taints=(GPU,)))

    found = room_for(SHAPE, *nodes, full("x", "a", "1", "60Gi"))

    assert [(part.reason, part.nodes, part.example) for part in found.parts] == [
        (RefusalReason.NODE_UNSCHEDULABLE, 2, "b"),
        (RefusalReason.UNTOLERATED_TAINT, 1, "d"),
        (INSUFFICIENT, 1, "a"),
    ]
    assert ResourceAmounts.total(part.amounts for part in found.parts) == found.stranded == found.free


def test_a_resource_that_no_node_has_is_named() -> None:
    found = room_for("cpu=1,example.com/gpu=1", node())

    assert (found.fits, found.absent) == (0, ("example.com/gpu",))
    assert [(part.resource, part.amounts.to_quantities()) for part in found.parts] == [
        ("example.com/gpu", {"cpu": "16"})
    ]


def test_shares_are_of_what_is_free() -> None:
    found = room_for(SHAPE, node("a"), node("b"), full("x", "b", "14", "60Gi"))

    assert found.share("cpu") == pytest.approx(2 / 18)
    assert found.share("memory") == pytest.approx(36 / 68)
    assert found.share("example.com/gpu") == 0


def without_neighbours(snapshot: Snapshot) -> Snapshot:
    """Return a cluster whose pods make no demands on one another: these are not counted with."""
    specs = [
        msgspec.structs.replace(
            one.spec,
            affinity=None if one.spec.affinity is None else Affinity(node_affinity=one.spec.affinity.node_affinity),
            topology_spread_constraints=(),
        )
        for one in snapshot.pods
    ]
    pods = (msgspec.structs.replace(one, spec=spec) for one, spec in zip(snapshot.pods, specs, strict=True))
    return replace(snapshot, pods=tuple(pods))


@holds_for(
    clusters().map(without_neighbours),
    st.sampled_from(("cpu=1", "cpu=2,memory=1Gi", "memory=4Gi", "cpu=500m,memory=8Gi")),
)
def test_what_fits_is_what_making_room_counts_and_nothing_is_counted_twice(snapshot: Snapshot, shape: str) -> None:
    (found,) = report_capacity(snapshot, (read_shape(shape),)).shapes
    wanted = settings(strategy="MakeRoom", room={"shapes": [shape]}, max_moves=0)

    assert found.fits == plan(snapshot, wanted).room[0].fits_before
    used = found.shape.amounts.times(found.fits)
    assert used.plus(found.stranded) == found.free
    assert ResourceAmounts.total(part.amounts for part in found.parts) == found.stranded
    assert all(part.nodes > 0 for part in found.parts)


# --- the cluster ------------------------------------------------------------------------------------------------------


def test_the_report_counts_nodes_pods_and_resources() -> None:
    daemon = pod("agent", node="b", cpu="100m", memory="64Mi", controller=owner("DaemonSet", "agent"))
    over = full("over", "c", "20", "1Gi")
    made = report_capacity(Snapshot(nodes=(node("a"), node("b"), node("c")), pods=(daemon, over)))

    assert (made.nodes, made.empty_nodes, made.pods) == (3, 2, 2)
    cpu = {one.name: one for one in made.resources}["cpu"]
    assert (cpu.allocatable, cpu.requested, cpu.free, cpu.largest_free) == (48_000, 20_100, 31_900, 16_000)
    assert cpu.utilisation == pytest.approx(20_100 / 48_000)


def test_a_cluster_without_anything_has_no_shapes() -> None:
    nothing = WorkloadFit(pods=0, all_pods=0, shapes=0, free=ResourceAmounts(), fragmented={}, nodes={})

    assert report_capacity(Snapshot.empty()) == CapacityReport(0, 0, 0, (), (), nothing)


# --- the workload -----------------------------------------------------------------------------------------------------


def workload_of(*objects: Node | Pod) -> WorkloadFit:
    nodes = tuple(one for one in objects if isinstance(one, Node))
    pods = tuple(one for one in objects if isinstance(one, Pod))
    return report_capacity(Snapshot(nodes=nodes, pods=pods)).workload


def test_what_is_free_where_a_pod_does_not_fit_is_fragmented_for_it() -> None:
    found = workload_of(
        *(node("a"), node("b"), node("closed", unschedulable=True)),
        full("small", "a", "10", "8Gi"),
        pod("waits", cpu="12", memory="60Gi"),
    )

    assert (found.pods, found.all_pods, found.shapes) == (2, 2, 2)
    assert found.free.to_quantities() == {"cpu": "38", "memory": "184Gi"}
    assert found.fragmented["cpu"] == 22_000  # Both fit on b alone: a has 6 left, and the third takes none.
    assert found.share("memory") == Fraction(120, 184)
    assert [(one.name, one.free, one.fragmented) for one in found.nodes["cpu"]] == [
        ("closed", 16_000, 16_000),
        ("a", 6_000, 6_000),
    ]


def test_a_pod_that_asks_for_no_gpu_cannot_use_any() -> None:
    found = workload_of(
        node("a", allocatable={"example.com/gpu": "4"}),
        pod("train", node="a", requests={"cpu": "1", "example.com/gpu": "2"}),
        *(full(f"web-{number}", "a", "1", "1Gi") for number in range(3)),
    )

    assert found.share("example.com/gpu") == Fraction(3, 4)
    assert found.share("cpu") == 0
    assert found.share("pods") is None


def test_rare_shapes_are_left_out_and_so_are_pods_that_nobody_makes_again() -> None:
    found = workload_of(
        node("a", pods="200"),
        *(full(f"web-{number}", "a", "10m", "1Mi") for number in range(95)),
        *(full(f"rare-{number}", "a", f"{number + 1}m", "1Mi", controller=owner(name="rare")) for number in range(5)),
        full("agent", "a", "100m", "1Mi", controller=owner("DaemonSet", "agent")),
        bare_pod("lonely", node="a", cpu="7", memory="1Gi"),
        pod("gone", node="a", cpu="7", memory="1Gi", phase="Succeeded"),
    )

    assert (found.pods, found.all_pods, found.shapes) == (95, 100, 1)


def test_what_no_node_has_is_of_no_use_to_the_pod_that_asks_for_it() -> None:
    found = workload_of(node("a"), pod("waits", requests={"cpu": "1", "example.com/gpu": "1"}))

    assert found.share("cpu") == 1
    assert found.share("example.com/gpu") is None


@holds_for(clusters().map(without_neighbours))
def test_the_workload_finds_what_the_definition_says(snapshot: Snapshot) -> None:
    cluster = Cluster.from_snapshot(snapshot)
    pod_classes = PodClasses()
    listed = [one.pod for one in cluster.pods if one.presence is not PodPresence.EXPECTED]
    listed += [one for one in cluster.elsewhere if is_pending(one)]
    mine = [pod_classes.class_of(one) for one in listed if one.controller and one.occupies_node]
    counted = [one for one in map(pod_classes.classes.__getitem__, mine) if one.amounts and not one.odd]

    found = report_capacity(snapshot).workload

    assert found.all_pods == len(counted)
    assume(found.pods == len(counted))  # Of more than twenty pods some may be left out.
    expected = dict.fromkeys(found.fragmented, Fraction(0))
    for index, node_object in enumerate(cluster.nodes):
        rows = zip(cluster.resources, cluster.capacity[index], cluster.taken[index], strict=True)
        free = {name: max(0, have - taken) for name, have, taken in rows}
        closed = node_refusal(cluster, NodeIndex(index)) is not None or not free["pods"]
        for one in counted:
            ties = NodeTies(node_part(one.example.spec), ())
            room = all(free.get(name, 0) >= amount for name, amount in one.amounts.items())
            fits = room and not closed and ties.refusal(node_object) is None
            for name in expected:
                usable = fits and one.amounts.get(name) > 0
                expected[name] += Fraction(0 if usable else free[name], len(counted))
    assert found.fragmented == expected
    of_nodes = {name: sum((one.fragmented for one in nodes), Fraction(0)) for name, nodes in found.nodes.items()}
    assert len(snapshot.nodes) > MOST_FRAGMENTED_NODES or of_nodes == expected


# --- which shapes -----------------------------------------------------------------------------------------------------


def names(*objects: Node | Pod, **how: Any) -> list[tuple[str, str]]:
    nodes = tuple(one for one in objects if isinstance(one, Node))
    pods = tuple(one for one in objects if isinstance(one, Pod))
    found = report_capacity(Snapshot(nodes=nodes, pods=pods), **how).shapes
    return [(room.shape.name, room.shape.asked_by) for room in found]


def test_what_most_pending_pods_ask_for_is_looked_at_first() -> None:
    waiting = [pod(f"w-{number}", cpu="2", memory="1Gi") for number in range(3)]
    others = [
        pod("large", cpu="8", memory="1Gi", controller=owner(name="large")),
        pod("gated", cpu="3", gates=("quota",)),
        pod("placed", cpu="5", nominated_node="node-a"),
        pod("nothing", cpu=None, memory=None),
        pod("odd", cpu="many"),
    ]

    assert names(node(), *others, *waiting) == [
        ("cpu=2,memory=1Gi", "3 pending pods such as default/w-0"),
        ("cpu=8,memory=1Gi", "1 pending pod such as default/large"),
    ]


def test_no_more_than_three_shapes_are_chosen_and_always_the_same() -> None:
    waiting = [pod(f"w-{cpu}", cpu=str(cpu), memory="1Gi") for cpu in (5, 4, 3, 2)]

    assert [name for name, _ in names(node(), *waiting)] == [f"cpu={cpu},memory=1Gi" for cpu in (2, 3, 4)]
    assert names(node(), *waiting) == names(node(), *reversed(waiting))


def test_where_nothing_waits_the_largest_pods_of_controllers_are_looked_at() -> None:
    running = [
        full("small", "node-a", "1", "1Gi"),
        full("wide", "node-a", "2", "24Gi", controller=owner(name="wide")),
        full("agent", "node-a", "4", "30Gi", controller=owner("DaemonSet", "agent")),
        bare_pod("lonely", node="node-a", cpu="4", memory="4Gi"),
    ]

    assert names(node(), *running) == [
        ("cpu=2,memory=24Gi", "1 running pod such as default/wide"),
        ("cpu=1,memory=1Gi", "1 running pod such as default/small"),
    ]


def test_an_idle_cluster_is_looked_at_by_parts_of_its_usual_node() -> None:
    nodes = (node("a"), node("b"), node("large", cpu="64", memory="256Gi"))
    want = [
        ("cpu=8,memory=32Gi", "half of a node"),
        ("cpu=4,memory=16Gi", "a quarter of a node"),
        ("cpu=2,memory=8Gi", "an eighth of a node"),
    ]

    assert names(*nodes) == want
    assert names(*nodes, full("a", "a", "1", "1Gi"), sizes_of_nodes=True) == want


def test_a_shape_that_pods_ask_for_has_their_ties_to_nodes() -> None:
    toleration = Toleration(key="gpu", operator="Exists")
    trainer = pod("t", cpu="8", memory="1Gi", tolerations=(toleration,), affinity=tied(expression("gpu", "Exists")))
    nodes = (node("plain"), node("special", taints=(GPU,), labels={"gpu": "yes"}))

    (found,) = report_capacity(Snapshot(nodes=nodes, pods=(trainer,))).shapes

    assert found.fits == 2
    assert [(part.reason, part.example) for part in found.parts] == [
        (RefusalReason.NODE_AFFINITY, "plain"),
        (INSUFFICIENT, "special"),
    ]


@pytest.mark.parametrize("amount", ["1.5", "500m", "0.1"])
def test_a_part_of_a_device_is_refused_as_no_pod_can_have_it(amount: str) -> None:
    for read in (read_shape, Shape.parse):
        with pytest.raises(InputError, match=f"nvidia.com/gpu is {amount}; expected a whole number"):
            read(f"cpu=1,nvidia.com/gpu={amount}")
    assert read_shape("cpu=1.5,nvidia.com/gpu=2k").amounts.get("nvidia.com/gpu") == 2000


@pytest.mark.parametrize("text", ["", "cpu", "cpu=", "cpu=x", "pods=3", "cpu=0", "cpu=-1", "cpu=1,count=2", "=1", 7])
def test_a_shape_that_says_nothing_clear_is_refused_with_what_was_typed(text: object) -> None:
    with pytest.raises(InputError, match="shape") as caught:
        read_shape(text)

    assert caught.value.field == "shape"
    assert "cpu=4,memory=8Gi" in str(caught.value)
