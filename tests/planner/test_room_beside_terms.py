"""Room is made beside required terms of pods: each closes its own domain, and pods that it repels may go elsewhere."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

from berth_core import Affinity, Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.goals.make_room.request import RoomRequest
from berth_descheduler.goals.make_room.strategy import MakeRoom
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.simulation.state import State
from builders import bare_pod, node, owner, pod
from planner.clusters import HOSTNAME, ZONE, apart, api_items, company, making_room, moves_of, selector, spread, term
from planner.replay import replay_steps
from properties import holds_for

WEB = {"app": "web"}
EVERYTHING = apart(term(select=selector(), namespace_selector=selector()))
ORDINARY = "default/ordinary"


def mover(name: str, on: str, cpu: str = "2", **rest: Any) -> Pod:  # noqa: ANN401 - as the case says
    return pod(name, **{"node": on, "cpu": cpu, "memory": None, "controller": owner(name=name), **rest})


def fence(on: str, affinity: Affinity = EVERYTHING) -> Pod:
    """A pod that stays and lets nothing else come to its domain."""
    return bare_pod(f"fence-{on}", node=on, cpu="0", memory=None, affinity=affinity)


def waiting(name: str = "ordinary", cpu: str = "4", **rest: Any) -> Pod:  # noqa: ANN401 - the same
    return pod(name, **{"cpu": cpu, "memory": None, "controller": owner(name=name), **rest})


def four(*names: str, **zones: str) -> tuple[Node, ...]:
    return tuple(node(name, cpu="4", labels={ZONE: zones[name]} if name in zones else {}) for name in names)


BOTH = {"labels": WEB, "affinity": apart(term(select=selector(app="web")))}
IN_ZONES = {"labels": WEB, "affinity": apart(term(ZONE, select=selector(app="web")))}


@dataclass(frozen=True)
class Case:
    """A cluster in which node `a` is to become free, and the node to which what is there may go."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    targets: tuple[str, ...]
    pending: Pod = waiting()  # noqa: RUF009 - it is frozen


TABLE = {
    "a term of a pod that stays closes its own node": Case(
        four("a", "b", "c"), (mover("m", "a"), fence("b")), targets=("c",)
    ),
    "a term of a pod that stays closes its zone": Case(
        four("a", "b", "c", "d", a="x", b="y", c="y", d="z"),
        (mover("m", "a"), fence("b", apart(term(ZONE, select=selector())))),
        targets=("d",),
    ),
    "a pod keeps away from one that stays": Case(
        four("a", "b", "c"),
        (mover("m", "a", affinity=apart(term(select=selector(app="web")))), bare_pod("w", node="b", labels=WEB)),
        targets=("c",),
    ),
    "a pod goes with one that stays": Case(
        four("a", "b", "c"),
        (
            mover("m", "a", affinity=company(term(select=selector(app="web")))),
            bare_pod("w", node="c", cpu="0", labels=WEB),
        ),
        targets=("c",),
    ),
    "pods of a controller keep apart": Case(
        four("a", "b", "c"),
        (mover("m", "a", **BOTH), mover("other", "b", **BOTH)),
        targets=("c",),
    ),
    "pods of a controller keep apart by zones": Case(
        four("a", "b", "c", "d", a="x", b="y", c="y", d="z"),
        (mover("m", "a", **IN_ZONES), mover("other", "b", cpu="1", **IN_ZONES)),
        targets=("d",),
    ),
    "two of them go to two nodes": Case(
        (*four("a", "b", "c"), node("big", cpu="8")),
        (
            mover("m", "a", **BOTH),
            mover("m2", "a", labels={"app": "db"}, affinity=apart(term(select=selector(app="db")))),
            mover("other", "big", cpu="1", **BOTH),
            mover("full", "c", cpu="2", labels={"app": "db"}),
        ),
        targets=("b", "c"),
    ),
    "pods are spread": Case(
        four("a", "b", "c"),
        (
            mover("m", "a", labels=WEB, spread=[spread(HOSTNAME, select=selector(app="web"))]),
            mover("other", "b", labels=WEB, cpu="1", spread=[spread(HOSTNAME, select=selector(app="web"))]),
        ),
        targets=("c",),
    ),
    "a host port is taken": Case(
        four("a", "b", "c"),
        (mover("m", "a", host_ports=[80]), mover("other", "b", cpu="1", host_ports=[80])),
        targets=("c",),
    ),
}


def planned(case: Case, how: PlannerSettings) -> Plan:
    return plan(Snapshot(nodes=case.nodes, pods=(*case.pods, case.pending)), how)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_a_term_repels_goes_where_the_term_does_not_reach(case: Case, *, exact: bool) -> None:
    blockers = tuple(
        bare_pod(f"full-{one.metadata.name}", node=one.metadata.name, cpu="1500m", memory=None)
        for one in case.nodes
        if one.metadata.name not in {"a", *case.targets}
    )
    case = Case(case.nodes, (*case.pods, *blockers), case.targets, case.pending)
    made = planned(case, making_room(pods=[ORDINARY], exact=exact))

    assert [room.fitted for room in made.room] == [1]
    assert {move.target for move in made.moves} <= set(case.targets)


def test_a_shape_finds_room_as_a_pod_does() -> None:
    case = TABLE["a term of a pod that stays closes its own node"]
    snapshot = Snapshot(nodes=case.nodes, pods=(*case.pods, mover("n", "c", cpu="2")))

    made = plan(snapshot, making_room(shapes=["cpu=4,count=1"]))

    assert ([room.fitted for room in made.room], len(made.moves)) == ([1], 1)


def test_pods_of_a_gang_that_keep_apart_find_room_together() -> None:
    gang = {"annotations": {"scheduling.k8s.io/group-name": "g"}, "controller": owner(name="g")}
    pods = (
        mover("m", "a", **BOTH),
        mover("n", "b", labels={"app": "db"}, affinity=apart(term(select=selector(app="db")))),
    )
    snapshot = Snapshot(nodes=four("a", "b", "c"), pods=(*pods, waiting("g0", **gang), waiting("g1", **gang)))

    made = plan(snapshot, making_room())

    assert ([room.fitted for room in made.room], len(made.moves)) == ([2], 1)


def test_a_node_that_is_over_booked_takes_a_pod_that_requests_nothing_of_that() -> None:
    gang = {"annotations": {"scheduling.k8s.io/group-name": "g"}, "controller": owner(name="g")}
    pods = (
        mover("m", "a", **BOTH),
        mover("n", "c", cpu="1", **BOTH),
        bare_pod("static", node="b", cpu="2", memory="1Ti"),
    )
    nodes = (*four("a", "b", "d"), node("c", cpu="2"))
    snapshot = Snapshot(nodes=nodes, pods=(*pods, waiting("g0", **gang), waiting("g1", **gang)))

    made = plan(snapshot, making_room())

    assert [room.fitted for room in made.room] == [2]
    assert [(move.pod, move.target) for move in made.moves] == [("m", "b")]


def test_no_more_moves_are_made_than_are_allowed() -> None:
    pods = (
        mover("m", "a", **BOTH),
        mover("n", "a", labels={"app": "db"}, affinity=apart(term(select=selector(app="db")))),
    )
    snapshot = Snapshot(
        nodes=four("a", "b", "c"), pods=(*pods, *(bare_pod(f"x{on}", node=on, cpu="2") for on in "bc"), waiting())
    )

    assert plan(snapshot, making_room(pods=[ORDINARY], max_moves=1)).moves == ()
    assert len(plan(snapshot, making_room(pods=[ORDINARY], max_moves=2)).moves) == 2


def test_where_a_term_forbids_the_move_the_refusal_names_it() -> None:
    pods = (mover("m", "a"), fence("b"), fence("c"))
    made = plan(Snapshot(nodes=four("a", "b", "c"), pods=(*pods, waiting())), making_room(pods=[ORDINARY]))

    (of_a,) = [refused for refused in made.refused if refused.node == "a"]
    assert (of_a.reason, of_a.constraint) == (Reason.HOLDS_IMMOVABLE_PODS, Reason.OTHERS_ANTI_AFFINITY)
    assert of_a.message == (
        "not enough cpu beside default/m, which no node with room for it takes: "
        "2 x a pod there has an anti-affinity against the pod, such as default/fence-b"
    )
    assert of_a.blocking_pod == "default/m"


ALONE = apart(term(HOSTNAME, select=selector(app="a")))
COMPANY = company(term(ZONE, select=selector(app="a")))


def of_app(name: str, node_name: str, app: str = "a", affinity: Affinity | None = None) -> Pod:
    return pod(
        name, node=node_name, cpu="1", memory=None, labels={"app": app}, affinity=affinity, controller=owner(name=name)
    )


BLOCKED: dict[str, tuple[str, tuple[Pod, ...], Affinity, int | None]] = {
    "one pod that it shuns on each node": ("xxx", (of_app("p0", "a"), of_app("p1", "b"), of_app("p2", "c")), ALONE, 1),
    "two on each": ("xxx", tuple(of_app(f"p{index}", "aabbcc"[index]) for index in range(6)), ALONE, 2),
    "one of three on each": (
        "xxx",
        tuple(of_app(f"p{index}", "aabbcc"[index], "ab"[index % 2]) for index in range(6)),
        ALONE,
        1,
    ),
    "company that lets nobody near": ("xyx", (of_app("p0", "b", affinity=ALONE), of_app("p1", "a", "b")), COMPANY, 1),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("zones", "pods", "affinity", "want"), BLOCKED.values(), ids=BLOCKED)
def test_pods_leave_that_keep_a_pod_off_by_a_term_alone(
    *, zones: str, pods: tuple[Pod, ...], affinity: Affinity, want: int, exact: bool
) -> None:
    nodes = tuple(node(name, cpu="4", labels={ZONE: zone}) for name, zone in zip("abc", zones, strict=True))
    waits = waiting(cpu="1" if len(pods) > 3 else "3", labels={"app": "a"}, affinity=affinity)
    snapshot = Snapshot(nodes=nodes, pods=(*pods, waits))

    made = plan(snapshot, making_room(pods=[ORDINARY], exact=exact))

    assert made.quality is not None
    assert (made.quality.reached, len(made.moves)) == (1, want)
    assert replay_steps(api_items(snapshot), moves_of(made)) == []


# --- against all that there is ----------------------------------------------------------------------------------------

LABELS = ({"app": "a"}, {"app": "b"}, {})
TERMS = (
    None,
    *(apart(term(key, select=selector(app=app))) for key in (HOSTNAME, ZONE) for app in "ab"),
    EVERYTHING,
    company(term(ZONE, select=selector(app="a"))),
)


@st.composite
def tiny_clusters(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(node(name, cpu="4", labels={ZONE: draw(st.sampled_from("xy"))}) for name in "abc")
    pods = []
    for index in range(draw(st.integers(1, 4))):
        make = bare_pod if draw(st.booleans()) and index % 2 else pod
        one = make(
            f"p{index}",
            node=draw(st.sampled_from("abc")),
            cpu=draw(st.sampled_from(("1", "2"))),
            memory=None,
            labels=draw(st.sampled_from(LABELS)),
            affinity=draw(st.sampled_from(TERMS)),
            controller=owner(name=f"p{index}"),
        )
        pods.append(one)
    labels, affinity = draw(st.sampled_from(LABELS)), draw(st.sampled_from(TERMS))
    return Snapshot(nodes=nodes, pods=(*pods, waiting(cpu="3", labels=labels, affinity=affinity)))


def fewest_moves(problem: Problem) -> int | None:
    """Return with how many moves the waiting pod has room at least, whatever the order; None: with none."""
    waiting_node = problem.cluster.waiting_node
    assert waiting_node is not None
    (arriving,) = problem.cluster.pods_on[waiting_node]
    movable = [
        PodIndex(index)
        for index, placed in enumerate(problem.cluster.pods)
        if PodIndex(index) not in problem.pod_refusals and placed.node != waiting_node
    ]
    nodes = [NodeIndex(index) for index in range(len(problem.cluster.nodes)) if index != waiting_node]
    first = State(problem.cluster)
    seen = {tuple(first.node_of)}
    todo: deque[tuple[tuple[tuple[PodIndex, NodeIndex], ...], int]] = deque([((), 0)])
    while todo:
        steps, number = todo.popleft()
        state = State(problem.cluster)
        for index, target in steps:
            state.move(index, target)
        if any(state.refusal(arriving, target) is None for target in nodes):
            return number
        for index in movable:
            for target in nodes:
                if state.refusal(index, target) is not None:
                    continue
                placement = list(state.node_of)
                placement[index] = target
                if tuple(placement) not in seen:
                    seen.add(tuple(placement))
                    todo.append(((*steps, (index, target)), number + 1))
    return None


@holds_for(tiny_clusters(), st.booleans())
def test_what_is_proven_is_true_of_every_plan(snapshot: Snapshot, exact: bool) -> None:  # noqa: FBT001 - hypothesis
    how = making_room(pods=[ORDINARY], exact=exact)
    made = plan(snapshot, how)
    waiting_pods = MakeRoom(RoomRequest(pods=(("default", "ordinary"),))).waiting_pods(snapshot)
    fewest = fewest_moves(Problem.from_snapshot(snapshot, how, waiting_pods))

    assert made.quality is not None
    assert made.quality.reached <= (fewest is not None)
    if fewest is not None:
        assert made.quality.upper_bound == 1
    if made.quality.reached:
        assert fewest is not None
        assert made.quality.fewest_moves <= fewest <= made.quality.moves
    if fewest in {0, 1}:
        assert made.quality.reached == 1, "one move suffices"
