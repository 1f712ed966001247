"""Amounts that no machine has are odd data: named, left alone with their node, and the rest is planned."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import strategies as st

from berth_core import Node, Pod
from berth_core.errors import InputError
from berth_core.quantities import parse_quantity
from berth_core.resources import CPU, MOST_AMOUNT
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, explain_kept_pods, plan
from berth_descheduler.planner.capacity_shapes import read_shape
from berth_descheduler.planner.stranded_capacity import report_capacity
from berth_descheduler.report.documents import describe_plan
from builders import node, owner, pod
from planner.clusters import consolidating, making_room, settings
from properties import holds_for

GPU = "nvidia.com/gpu"
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", GPU)
WAYS = {
    "Threshold": settings(low=40, defragment=50, protection=100),
    "Consolidate": consolidating(),
    "Consolidate, solved": consolidating(exact=True),
    "MakeRoom": making_room(shapes=["cpu=10,count=1"]),
    "MakeRoom, solved": making_room(shapes=["cpu=10,count=1"], exact=True),
}
FIXED = 2_000_000_000


def of(name: str, on: str, cpu: str | None = "1", **rest: object) -> Pod:
    return pod(name, **{"node": on, "cpu": cpu, "memory": None, "controller": owner(name=name), **rest})


def asking(name: str, on: str, **requests: str) -> Pod:
    return of(name, on, None, requests={"cpu": "1", **requests})


def cluster(*more: Node | Pod) -> Snapshot:
    """A low node whose pod fits on a high one, and whatever is odd."""
    nodes = [node("low", cpu="10"), node("high", cpu="10"), *(one for one in more if isinstance(one, Node))]
    pods = [of("q", "low"), of("big", "high", "6", priority=FIXED), *(one for one in more if isinstance(one, Pod))]
    return Snapshot(nodes=tuple(nodes), pods=tuple(pods))


def offering(name: str, **allocatable: str) -> Node:
    return node(name, cpu="10", allocatable=allocatable)


@dataclass(frozen=True)
class Odd:
    """Odd objects on the node `odd`, and what is said of that."""

    more: tuple[Node | Pod, ...]
    want: str


TABLE = {
    "a pod with 1e30 bytes of memory": Odd(
        (node("odd", cpu="10"), asking("p", "odd", memory="1e30")),
        "it is not known what pod default/p takes of the node: its requests are odd: memory is about 1e30; "
        "expected at most 524288Gi",
    ),
    "a node with 1e30 bytes of memory": Odd(
        (offering("odd", memory="1e30"), of("p", "odd")),
        "status.allocatable.memory is about 1e30; expected at most 524288Gi",
    ),
    "a number of a thousand digits": Odd(
        (offering("odd", **{GPU: "1e1000"}), of("p", "odd")),
        f"status.allocatable.{GPU} is about 1e1000; expected at most {MOST_AMOUNT}",
    ),
    "cores just above what counts": Odd(
        (node("odd", cpu="10"), of("p", "odd", f"{MOST_AMOUNT + 1}m")),
        f"pod default/p takes of the node: its requests are odd: cpu is {MOST_AMOUNT + 1}m; expected at most",
    ),
    "slots for 9e18 pods": Odd((offering("odd", pods="9e18"), of("p", "odd")), "status.allocatable.pods is 9000000000"),
    "pods that are too much together": Odd(
        (node("odd", cpu="10"), *(asking(f"p-{n}", "odd", memory="400Ti") for n in range(2))),
        "what its pods ask for together is odd: memory is 819200Gi; expected at most 524288Gi",
    ),
    "a DaemonSet's pod": Odd(
        (node("odd", cpu="10"), asking("p", "odd", memory="8Ei"), of("d", "odd", controller=owner("DaemonSet"))),
        "it is not known what pod default/p takes of the node",
    ),
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_odd_amounts_are_named_and_the_rest_is_planned(case: Odd, how: PlannerSettings) -> None:
    snapshot = cluster(*case.more)

    made = plan(snapshot, how)

    assert [(move.pod, move.target) for move in made.moves] == [("q", "high")]
    refusals = {one.name: one for one in made.refused}
    if "odd" in refusals:  # making room names only the nodes that it would need
        assert refusals["odd"].reason is Reason.NODE_DATA_ODD
        assert case.want in refusals["odd"].message
    assert {one.reason for one in explain_kept_pods(snapshot, made) if one.name.startswith("p")} <= {
        Reason.NODE_DATA_ODD,
        Reason.POD_DATA_ODD,
        *([Reason.NOT_NEEDED] if made.room else []),
    }


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_consolidating_says_why_the_node_stays(case: Odd) -> None:
    made = plan(cluster(*case.more), consolidating())

    (said,) = [one.message for one in made.refused if one.name == "odd"]
    assert case.want in said


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_still_fits_is_counted_without_the_odd_node(case: Odd) -> None:
    found = report_capacity(cluster(*case.more), [read_shape("cpu=4")])

    assert [(one.fits, one.nodes) for one in found.shapes] == [(3, 2)]


def test_the_largest_amounts_that_count_are_planned_with() -> None:
    most = str(MOST_AMOUNT)
    large = (offering("large", memory=most), offering("also", memory=most), asking("p", "large", memory=most))

    made = plan(cluster(*large), consolidating())

    assert not [one for one in made.refused if one.reason is Reason.NODE_DATA_ODD]
    assert revalidate(cluster(*large), made.moves, consolidating()) == {}


@pytest.mark.parametrize("asked", ["cpu=1,memory=1e30", "cpu=1e1000", "cpu=1,memory=513Ti", "nvidia.com/gpu=9e18"])
def test_a_shape_that_no_node_can_have_is_an_error_of_the_input(asked: str) -> None:
    for read in (lambda: making_room(shapes=[f"{asked},count=1"]), lambda: read_shape(asked)):
        with pytest.raises(InputError) as caught:
            read()
        assert len(str(caught.value)) < 400


def test_a_shape_that_no_node_has_finds_no_room() -> None:
    made = plan(cluster(), making_room(shapes=["cpu=1,memory=400Ti,count=1000"]))

    assert [room.fitted for room in made.room] == [0]


# --- any quantity

NUMBERS = st.one_of(
    st.integers(-2, 70).map(lambda power: str(2**power) if power >= 0 else str(power)),
    st.integers(0, 70).map(lambda power: str(2**power - 1)),
    st.builds("{}e{}".format, st.integers(1, 9), st.integers(-10, 40)),
    st.builds("{}{}".format, st.integers(0, 9), st.sampled_from(["n", "m", "k", "Mi", "Gi", "Ti", "Pi", "Ei", "E"])),
    st.sampled_from(["-1Gi", "1e1000", "1e1001", "many", "", "0.5", "9223372036854775807", "9223372036854775808"]),
)
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), NUMBERS, max_size=3)
ODD_NODES = st.lists(AMOUNTS, max_size=3)
ODD_PODS = st.lists(st.tuples(st.sampled_from(["low", "high", "odd-0", "odd-1", ""]), AMOUNTS), max_size=5)


def is_sane(raw: str, name: str) -> bool:
    """Whether an amount can be read and is at most what a machine may have."""
    try:
        quantity = parse_quantity(raw)
    except InputError:
        return False
    return 0 <= (quantity.milli() if name == CPU else quantity.value()) <= MOST_AMOUNT


@holds_for(nodes=ODD_NODES, pods=ODD_PODS, how=st.sampled_from(list(WAYS.values())))
def test_no_quantity_ends_a_planning_nor_is_relied_on(
    nodes: list[dict[str, str]], pods: list[tuple[str, dict[str, str]]], how: PlannerSettings
) -> None:
    of_pods = [asking(f"p-{n}", on, **amounts) for n, (on, amounts) in enumerate(pods)]
    snapshot = cluster(*(offering(f"odd-{n}", **amounts) for n, amounts in enumerate(nodes)), *of_pods)

    made = plan(snapshot, how)

    assert msgspec.json.encode(describe_plan(made))
    assert report_capacity(snapshot).shapes is not None
    assert explain_kept_pods(snapshot, made) is not None
    assert revalidate(snapshot, made.moves, how) == {}
    odd = {f"odd-{n}" for n, one in enumerate(nodes) if not all(is_sane(raw, name) for name, raw in one.items())}
    odd |= {on for on, one in pods if on and not all(is_sane(raw, name) for name, raw in one.items())}
    touched = {name for move in made.moves for name in (move.source, move.target)}
    assert touched.isdisjoint(odd)
