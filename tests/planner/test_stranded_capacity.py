"""How many pods of a shape fit, what is stranded, and for what reason; and which shapes are looked at."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from berth_core.errors import InputError
from berth_core.labels import DRAINING_TAINT, HANDOVER_TAINT
from berth_core.objects import Affinity, Node, Pod, Taint, Toleration
from berth_core.resources import ResourceAmounts
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import plan
from berth_descheduler.planner.stranded_capacity import CapacityReport, ShapeFit, read_shape, report_capacity
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
    assert report_capacity(Snapshot.empty()) == CapacityReport(0, 0, 0, (), ())


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


@pytest.mark.parametrize("text", ["", "cpu", "cpu=", "cpu=x", "pods=3", "cpu=0", "cpu=-1", "cpu=1,count=2", "=1", 7])
def test_a_shape_that_says_nothing_clear_is_refused_with_what_was_typed(text: object) -> None:
    with pytest.raises(InputError, match="shape") as caught:
        read_shape(text)

    assert caught.value.field == "shape"
    assert "cpu=4,memory=8Gi" in str(caught.value)
