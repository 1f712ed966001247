"""Which pods that wait would lose their room to a plan's moves: those that have room now, and only those."""

from dataclasses import dataclass
from typing import Any

import pytest

from berth_core import Pod, Toleration
from berth_core.labels import RESERVATION_LABEL, ROOM_TAINT
from berth_core.migration_plans import PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.pending_pods import nodes_for_waiting_pods, pods_competing_for_room, pods_losing_room
from berth_descheduler.planner.rooms import RoomMade, WaitingPod
from builders import node, owner, pod

MOVE = PlannedMove(namespace="default", pod="web-1", source="source", target="target")


def placed(name: str, on: str, cpu: str) -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name))


def waits(name: str = "waits", cpu: str = "2", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, node="", phase="Pending", ready=False, cpu=cpu, memory=None, **rest)


def cluster(*waiting: Pod, spare: str = "0") -> Snapshot:
    """A move of two cores from a node with four free ones to one with three, and a third with `spare` free ones."""
    nodes = (node("other", cpu="8"), node("source", cpu="6"), node("target", cpu="8"))
    used = {"0": "8", "2": "6", "3": "5"}[spare]
    pods = (placed("web-1", "source", "2"), placed("fills", "target", "5"), placed("fills-too", "other", used))
    return Snapshot(nodes=nodes, pods=(*pods, *waiting))


@dataclass(frozen=True)
class Case:
    waiting: tuple[Pod, ...]
    want: tuple[str, ...] = ()
    spare: str = "0"


CASES = {
    "a pod whose last room the target is comes first": Case((waits(),), ("waits",)),
    "a pod whose last room is on the source, which is to be emptied, comes first": Case((waits(cpu="4"),), ("waits",)),
    "a pod that has room elsewhere does not mind": Case((waits(),), spare="2"),
    "a pod that fits beside the move does not mind": Case((waits(cpu="1"),)),
    "a pod that fits nowhere anyhow does not block": Case((waits(cpu="5"),)),
    "a pod that a gate holds back does not block": Case((waits(gates=("example.com/later",)),)),
    "a pod in a hand-over does not block": Case((waits(labels={RESERVATION_LABEL: "x"}),)),
    "a pod that is kept off by its own selector does not block": Case((waits(node_selector={"no": "such"}),)),
    "of two pods the one that is left over is named": Case(
        (waits("first", priority=10), waits("second")), ("second",), spare="2"
    ),
    "nobody waits": Case(()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_who_would_lose_its_room(case: Case) -> None:
    pods = pods_losing_room(cluster(*case.waiting, spare=case.spare), [MOVE])
    assert tuple(pod.metadata.name for pod in pods) == case.want


def test_a_plan_without_moves_takes_room_from_nobody() -> None:
    assert pods_losing_room(cluster(waits()), []) == ()


def test_nodes_that_are_closed_beside_the_sources_count_as_taken() -> None:
    snapshot = cluster(waits(cpu="3"), spare="3")
    assert pods_losing_room(snapshot, [MOVE]) == ()
    assert [pod.metadata.name for pod in pods_losing_room(snapshot, [MOVE], ["other"])] == ["waits"]


def test_a_marked_node_is_wanted_only_by_pods_without_room_elsewhere() -> None:
    snapshot = cluster(waits(cpu="2"), spare="2")
    assert nodes_for_waiting_pods(snapshot, ["source"]) == frozenset()
    crowded = cluster(*(waits(f"waits-{number}", cpu="3") for number in range(3)), spare="3")
    assert nodes_for_waiting_pods(crowded, ["source"]) == {"source"}
    assert nodes_for_waiting_pods(cluster(), ["source"]) == frozenset()


ANY = (Toleration(operator="Exists"),)
ROOM = RoomMade(
    name="default/big",
    wanted=1,
    fitted=1,
    fits_before=0,
    fits_after=1,
    nodes=("source",),
    unused_before=(),
    unused_after=(),
    pods=(WaitingPod("default", "big", "uid-default-big"),),
)
RIVALS = {
    "a pod that tolerates everything and fits": ((waits(cpu="6", tolerations=ANY),), ("waits",)),
    "a pod that tolerates everything of one effect": (
        (waits(tolerations=(Toleration(operator="Exists", effect="NoSchedule"),)),),
        ("waits",),
    ),
    "a pod that tolerates the taint of any plan": (
        (waits(tolerations=(Toleration(key=ROOM_TAINT, operator="Exists"),)),),
        ("waits",),
    ),
    "a pod that the taint keeps off": ((waits(),), ()),
    "a pod that is larger than the room": ((waits(cpu="7", tolerations=ANY),), ()),
    "a pod that its own selector keeps off": ((waits(tolerations=ANY, node_selector={"no": "such"}),), ()),
    "the pod for which the room is made": ((waits("big", cpu="6", tolerations=ANY),), ()),
}


@pytest.mark.parametrize(("waiting", "want"), RIVALS.values(), ids=RIVALS)
def test_who_may_take_the_room_that_is_made_for_others(waiting: tuple[Pod, ...], want: tuple[str, ...]) -> None:
    found = pods_competing_for_room(cluster(*waiting), [MOVE], [ROOM])
    assert tuple(one.metadata.name for one in found) == want


def test_no_room_has_no_rivals() -> None:
    assert pods_competing_for_room(cluster(waits(tolerations=ANY)), [MOVE], []) == ()
    assert pods_competing_for_room(cluster(waits(tolerations=ANY)), [], [ROOM]) == ()
