"""What room is made for, where, with which moves, and why not more: case by case."""

from dataclasses import dataclass, field

import pytest

from berth_core import Node, Pod, Taint, Toleration
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.planner import Plan, PlannerSettings, plan
from builders import NOON, bare_pod, namespace, node, owner, pod
from planner.clusters import HOSTNAME, ZONE, apart, company, expression, making_room, selector, spread, term, tied
from planner_settings import args_of, planner_settings

GANG = {"scheduling.k8s.io/group-name": "g"}
GPU = "nvidia.com/gpu"
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
DRAINED_AT = "berth.volcano.sh/last-defragmented"


def ten(*names: str, **rest: object) -> tuple[Node, ...]:
    return tuple(node(name, **{"cpu": "10", **rest}) for name in names)  # type: ignore[arg-type]


def of(name: str, on: str, cpu: str = "1", **rest: object) -> Pod:
    return pod(name, **{"node": on, "cpu": cpu, "memory": None, "controller": owner(name=name), **rest})  # type: ignore[arg-type]


def fixed(name: str, on: str, cpu: str) -> Pod:
    return bare_pod(name, node=on, cpu=cpu, memory=None)


def waits(name: str, cpu: str = "1", **rest: object) -> Pod:
    return pod(name, **{"cpu": cpu, "memory": None, "controller": owner(name=name), **rest})  # type: ignore[arg-type]


def gang(count: int, cpu: str, **rest: object) -> tuple[Pod, ...]:
    fields = {"annotations": GANG, "controller": owner(name="gang"), **rest}
    return tuple(waits(f"g{i}", cpu, **fields) for i in range(count))


@dataclass(frozen=True)
class Case:
    """A cluster, what is asked for, and what comes of it."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    how: PlannerSettings
    fitted: int
    """Of all that is asked for."""

    moves: int
    on: tuple[str, ...] | None = None
    """Where it fits; None: anywhere."""

    why: Reason | None = None
    """Why no more of the first thing that did not fit does."""

    nodes_say: dict[str, Reason] = field(default_factory=dict)


HALVES = (of("a0", "a", "4"), of("b0", "b", "4"), fixed("c0", "c", "5"))
SPLIT = (of("a0", "a", "4"), of("b0", "b", "4"))

TABLE = {
    "what fits as it is takes no move": Case(
        ten("a", "b"), SPLIT, making_room(shapes=["cpu=6,count=1"]), fitted=1, moves=0
    ),
    "a shape for which one pod has to move": Case(
        ten("a", "b"), SPLIT, making_room(shapes=["cpu=10,count=1"]), fitted=1, moves=1
    ),
    "a shape with a count fits as a whole": Case(
        ten("a", "b", "c"), HALVES, making_room(shapes=["cpu=9,count=1"]), fitted=1, moves=1
    ),
    "a shape with a count that cannot be reached moves nothing": Case(
        ten("a", "b", "c"),
        HALVES,
        making_room(shapes=["cpu=10,count=2"]),
        fitted=0,
        moves=0,
        why=Reason.BOUND_REACHED,
        nodes_say={"c": Reason.HOLDS_IMMOVABLE_PODS},
    ),
    "a shape that is larger than every node": Case(
        ten("a", "b"),
        SPLIT,
        making_room(shapes=["cpu=11,count=1"]),
        fitted=0,
        moves=0,
        why=Reason.BOUND_REACHED,
        nodes_say={"a": Reason.INSUFFICIENT_RESOURCES, "b": Reason.INSUFFICIENT_RESOURCES},
    ),
    "more than all nodes have together": Case(
        ten("a", "b"),
        SPLIT,
        making_room(shapes=["cpu=1,count=13"]),
        fitted=0,
        moves=0,
        why=Reason.BOUND_REACHED,
    ),
    "a shape without a count fits as often as it can": Case(
        ten("a", "b", "c"), HALVES, making_room(shapes=["cpu=5"]), fitted=3, moves=0, why=Reason.BOUND_REACHED
    ),
    "a shape without a count under a limit of moves": Case(
        ten("a", "b", "c", "d"),
        tuple(of(f"{on}0", on, "2") for on in "abcd"),
        making_room(shapes=["cpu=10"], max_moves=1),
        fitted=1,
        moves=1,
        why=Reason.MOVE_LIMIT,
    ),
    "the same with one move more": Case(
        ten("a", "b", "c", "d"),
        tuple(of(f"{on}0", on, "2") for on in "abcd"),
        making_room(shapes=["cpu=10"], max_moves=2),
        fitted=2,
        moves=2,
        why=Reason.MOVE_LIMIT,
    ),
    "a count for which the moves do not suffice moves nothing": Case(
        ten("a", "b", "c", "d"),
        tuple(of(f"{on}0", on, "2") for on in "abcd"),
        making_room(shapes=["cpu=10,count=2"], max_moves=1),
        fitted=0,
        moves=0,
        why=Reason.MOVE_LIMIT,
    ),
    "a limit of no moves": Case(
        ten("a", "b"),
        SPLIT,
        making_room(shapes=["cpu=10,count=1"], max_moves=0),
        fitted=0,
        moves=0,
        why=Reason.MOVE_LIMIT,
    ),
    "an extended resource": Case(
        tuple(node(name, allocatable={GPU: "4"}) for name in ("a", "b")),
        tuple(of(f"{on}0", on, requests={GPU: "2"}) for on in "ab"),
        making_room(shapes=[f"{GPU}=4,count=1"]),
        fitted=1,
        moves=1,
    ),
    "an extended resource that no node has": Case(
        ten("a"), (), making_room(shapes=["example.com/fpga=1,count=1"]), fitted=0, moves=0, why=Reason.BOUND_REACHED
    ),
    "memory beside cores": Case(
        ten("a", "b", memory="16Gi"),
        (of("a0", "a", "1", memory="8Gi"), of("b0", "b", "4", memory="1Gi")),
        making_room(shapes=["cpu=4,memory=16Gi,count=1"]),
        fitted=1,
        moves=1,
    ),
    "two shapes together or none": Case(
        ten("a", "b", "c"),
        (*SPLIT, of("c0", "c", "4")),
        making_room(shapes=["cpu=10,count=1", "cpu=6,count=1"]),
        fitted=2,
        moves=1,
    ),
    "two shapes of which one does not fit": Case(
        ten("a", "b"),
        SPLIT,
        making_room(shapes=["cpu=10,count=1", "cpu=6,count=1"]),
        fitted=0,
        moves=0,
        why=Reason.NO_ROOM_TOGETHER,
    ),
    "a named pod": Case(
        ten("a", "b"), (*SPLIT, waits("big", "9")), making_room(pods=["default/big"]), fitted=1, moves=1
    ),
    "a named pod and not the others that wait": Case(
        ten("a", "b"),
        (*SPLIT, waits("big", "9"), waits("other", "9")),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
    ),
    "a named pod that goes to one node only": Case(
        ten("a", "b", "c"),
        (*SPLIT, waits("big", "9", affinity=tied(fields=(expression("metadata.name", "In", "b"),)))),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
        on=("b",),
    ),
    "a named pod that tolerates no taint": Case(
        (*ten("a", "b"), *ten("c", taints=(TAINT,))),
        (*SPLIT, waits("big", "10")),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
        on=None,
    ),
    "a named pod that tolerates it goes there": Case(
        (*ten("a", "b"), *ten("c", taints=(TAINT,))),
        (*SPLIT, waits("big", "10", tolerations=(Toleration(key="dedicated", operator="Exists"),))),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=0,
        on=("c",),
    ),
    "a named pod that shuns what runs on the emptier node": Case(
        ten("a", "b"),
        (
            of("a0", "a", "4", labels={"app": "db"}),
            of("b0", "b", "5"),
            waits("big", "6", affinity=apart(term(select=selector(app="db")))),
        ),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
        on=("b",),
    ),
    "a named pod that wants company": Case(
        ten("a", "b"),
        (
            of("a0", "a", "2", labels={"app": "db"}),
            of("a1", "a", "4"),
            of("b0", "b", "4"),
            waits("big", "6", affinity=company(term(select=selector(app="db")))),
        ),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
        on=("a",),
    ),
    "a named pod that is to be spread": Case(
        tuple(node(name, cpu="10", labels={ZONE: zone}) for name, zone in (("a", "east"), ("b", "west"))),
        (
            of("a0", "a", "1", labels={"app": "web"}),
            of("b0", "b", "5"),
            waits("big", "6", labels={"app": "web"}, spread=(spread(ZONE),)),
        ),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
        on=("b",),
    ),
    "a named pod whose port is taken": Case(
        ten("a", "b"),
        (of("a0", "a", "1", host_ports=(80,)), of("b0", "b", "9"), waits("big", "6", host_ports=(80,))),
        making_room(pods=["default/big"]),
        fitted=1,
        moves=1,
        on=("b",),
    ),
    "a named pod that fits nowhere whatever moves": Case(
        ten("a", "b"),
        (*SPLIT, waits("big", "6", node_selector={"disk": "ssd"})),
        making_room(pods=["default/big"]),
        fitted=0,
        moves=0,
        why=Reason.BOUND_REACHED,
        nodes_say={"a": Reason.NODE_AFFINITY, "b": Reason.NODE_AFFINITY},
    ),
    "a gang by the name of one": Case(
        ten("a", "b", "c"),
        (of("a0", "a", "2"), of("b0", "b", "2"), of("c0", "c", "2"), *gang(2, "9")),
        making_room(pods=["default/g0"]),
        fitted=2,
        moves=2,
    ),
    "a gang of which not all fit": Case(
        ten("a", "b", "c"),
        (of("a0", "a", "2"), of("b0", "b", "2"), of("c0", "c", "2"), *gang(3, "9")),
        making_room(pods=["default/g0"]),
        fitted=0,
        moves=0,
        why=Reason.BOUND_REACHED,
    ),
    "a gang for which the moves do not suffice": Case(
        ten("a", "b", "c"),
        (of("a0", "a", "2"), of("b0", "b", "2"), of("c0", "c", "2"), *gang(2, "9")),
        making_room(pods=["default/g0"], max_moves=1),
        fitted=0,
        moves=0,
        why=Reason.MOVE_LIMIT,
    ),
    "a gang of which no two go to one node": Case(
        ten("a", "b"),
        (
            of("a0", "a", "4"),
            *gang(2, "3", labels={"app": "web"}, affinity=apart(term(HOSTNAME))),
        ),
        making_room(pods=["default/g0"]),
        fitted=2,
        moves=0,
        on=("a", "b"),
    ),
    "a gang of which no two go to one node, with too few nodes": Case(
        ten("a", "b"),
        (of("a0", "a", "4"), *gang(3, "1", labels={"app": "web"}, affinity=apart(term(HOSTNAME)))),
        making_room(pods=["default/g0"]),
        fitted=0,
        moves=0,
        why=Reason.NO_ROOM_TOGETHER,
    ),
    "all that waits, the higher priority first": Case(
        ten("a", "b"),
        (fixed("b0", "b", "5"), of("a0", "a", "4"), waits("low", "9"), waits("high", "9", priority=5)),
        making_room(),
        fitted=1,
        moves=1,
        on=("a",),
        why=Reason.NO_ROOM_TOGETHER,
    ),
    "of all that waits a gang of unlike pods fits as a whole or not at all": Case(
        ten("a", "b"),
        (
            fixed("b0", "b", "8"),
            waits("g0", "9", annotations=GANG),
            waits("g1", "5", annotations=GANG),
            waits("alone", "4"),
        ),
        making_room(),
        fitted=1,
        moves=0,
        on=("a",),
    ),
    "one of higher priority comes before two of lower": Case(
        ten("a"),
        (waits("high", "9", priority=5), waits("low", "4"), waits("lower", "5")),
        making_room(),
        fitted=1,
        moves=0,
        on=("a",),
        why=Reason.NO_ROOM_TOGETHER,
    ),
    "a pod that is nominated has its place": Case(
        ten("a", "b"),
        (of("a0", "a", "4"), of("b0", "b", "4"), waits("coming", "6", nominated_node="a")),
        making_room(shapes=["cpu=6"]),
        fitted=1,
        moves=0,
        on=("b",),
        why=Reason.BOUND_REACHED,
    ),
    "a pod that is nominated does not wait": Case(
        ten("a"), (waits("coming", "1", nominated_node="a"),), making_room(), fitted=0, moves=0
    ),
    "a gated pod does not wait": Case(
        ten("a"), (waits("held", "1", gates=("example.com/wait",)),), making_room(), fitted=0, moves=0
    ),
    "no pod is taken off a critical node": Case(
        (*ten("a", labels={"critical": "true"}), *ten("b")),
        (of("a0", "a", "4"), fixed("b0", "b", "5")),
        making_room(shapes=["cpu=10,count=1"]),
        fitted=0,
        moves=0,
        nodes_say={"a": Reason.CRITICAL_NODE, "b": Reason.HOLDS_IMMOVABLE_PODS},
    ),
    "a critical node is room all the same": Case(
        (*ten("a", labels={"critical": "true"}), *ten("b")),
        (of("a0", "a", "4"), fixed("b0", "b", "5")),
        making_room(shapes=["cpu=6,count=1"]),
        fitted=1,
        moves=0,
        on=("a",),
    ),
    "a cordoned node is no room": Case(
        (*ten("a", unschedulable=True), *ten("b")),
        (fixed("b0", "b", "5"),),
        making_room(shapes=["cpu=10,count=1"]),
        fitted=0,
        moves=0,
        why=Reason.BOUND_REACHED,
        nodes_say={"a": Reason.NODE_UNSCHEDULABLE, "b": Reason.HOLDS_IMMOVABLE_PODS},
    ),
}


def short(made: Plan) -> list[Reason]:
    return [one.reason for one in made.refused if one.kind is RefusedKind.POD and not one.node]


@pytest.mark.parametrize("exact", [False, True], ids=["search", "solver"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_room_is_made_with_the_fewest_moves_or_it_is_said_why_not(case: Case, exact: bool) -> None:  # noqa: FBT001
    how = planner_settings(args=args_of(case.how), max_moves=case.how.limits.max_moves, exact=exact)
    snapshot = Snapshot(nodes=case.nodes, pods=case.pods, namespaces=(namespace(),))

    made = plan(snapshot, how)

    assert (sum(room.fitted for room in made.room), len(made.moves)) == (case.fitted, case.moves)
    if case.on is not None:
        assert sorted(name for room in made.room for name in room.nodes) == sorted(case.on)
    if case.why is not None:
        proven = {case.why, Reason.BOUND_REACHED} if exact else {case.why}
        assert short(made)
        assert short(made)[0] in proven
    says = {one.node: one.reason for one in made.refused if one.kind is RefusedKind.NODE}
    assert {name: says.get(name) for name in case.nodes_say} == case.nodes_say


def test_it_is_said_how_many_moves_would_do() -> None:
    case = TABLE["a count for which the moves do not suffice moves nothing"]

    made = plan(Snapshot(nodes=case.nodes, pods=case.pods), case.how)

    (about,) = [one for one in made.refused if one.kind is RefusedKind.POD]
    assert about.message == "2 moves would make room and 1 are allowed"


def test_what_cools_down_gives_no_pod() -> None:
    nodes = (node("a", cpu="10", annotations={DRAINED_AT: "2026-11-21T11:59:00Z"}), *ten("b"))
    snapshot = Snapshot(nodes=nodes, pods=(of("a0", "a", "4"), fixed("b0", "b", "5")))
    asked = making_room(shapes=["cpu=10,count=1"], coolDownTime="1h")

    made = plan(snapshot, planner_settings(args=args_of(asked), now=NOON))

    assert made.moves == ()
    says = {one.node: one.reason for one in made.refused if one.kind is RefusedKind.NODE}
    assert says["a"] is Reason.COOLING_DOWN


@pytest.mark.parametrize("name", ["default/a0", "default/nobody", "default/held", "shop/big"])
def test_only_a_pod_that_waits_can_be_named(name: str) -> None:
    pods = (*SPLIT, waits("big", "9"), waits("held", "1", gates=("example.com/wait",)))
    snapshot = Snapshot(nodes=ten("a", "b"), pods=pods, namespaces=(namespace("shop"),))

    with pytest.raises(InputError, match=name):
        plan(snapshot, making_room(pods=[name], as_typed=True))


@pytest.mark.parametrize("name", ["default/a0", "shop/big", "default/nobody", "default/held"])
def test_a_policy_makes_room_for_those_of_its_pods_that_wait_and_none_for_others(name: str) -> None:
    pods = (*SPLIT, waits("big", "9"), waits("held", "1", gates=("example.com/wait",)))
    snapshot = Snapshot(nodes=ten("a", "b"), pods=pods, namespaces=(namespace("shop"),))
    assert plan(snapshot, making_room(pods=[name])).room == ()
    both = plan(snapshot, making_room(pods=[name, "default/big"]))
    assert [(room.name, room.fitted) for room in both.room] == [("default/big", 1)]
