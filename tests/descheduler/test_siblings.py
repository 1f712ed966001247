"""A controller has to wait until as many of its pods are Ready again as earlier waves took away, and no longer."""

from dataclasses import dataclass
from typing import Any

import pytest

from berth_core import OwnerReference, Pod
from berth_core.migration_plans import MoveReason, MoveState, MoveStatus, PlannedMove
from berth_core.reservations import ObjectReference
from berth_descheduler.migration.moves.memory import Eviction, MoveMemory, PodOfMove, remember
from berth_descheduler.migration.moves.siblings import ReplicaTracker, find_unready
from berth_descheduler.migration.plans.watch import ObservedPlan
from builders import pod

SINCE = "2026-11-21T12:00:00Z"
LATER, EARLIER = "2026-11-21T12:00:05Z", "2026-11-21T11:59:00Z"
WEB = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True)
OWNER = ("default", "ReplicaSet", "web", "uid-web")


def progress(
    name: str = "web-1",
    state: MoveState = MoveState.LANDED,
    *,
    wave: int = 0,
    eviction: Eviction = Eviction.SENT,
    reason: MoveReason = MoveReason.NONE,
    was_ready: bool = True,
) -> MoveMemory:
    web = ObjectReference(kind="ReplicaSet", name="web", uid="uid-web")
    move = PlannedMove(namespace="default", pod=name, pod_uid=name, owner=web, source="a", target="b", wave=wave)
    memory = remember("plan", 0, move, MoveStatus(namespace="default", pod=name, state=state, reason=reason.value))
    memory.pod = PodOfMove(eviction, was_ready=was_ready)
    return memory


def newcomer(name: str = "web-9", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, uid=name, **{"node": "b", "created": LATER, "controller": WEB, **rest})


@dataclass(frozen=True)
class Case:
    earlier: tuple[MoveMemory, ...]
    pods: tuple[Pod, ...] = ()
    want: bool = False


NOT_SENT = Eviction.NOT_SENT
CASES = {
    "nothing was taken": Case(()),
    "one was taken and one is Ready": Case((progress(),), (newcomer(),)),
    "one was taken and none is there": Case((progress(),), want=True),
    "one was taken and the new one is not Ready": Case((progress(),), (newcomer(ready=False),), want=True),
    "one was taken and the new one is being deleted": Case((progress(),), (newcomer(deleted=LATER),), want=True),
    "a new one that has done its work counts": Case((progress(),), (newcomer(phase="Succeeded", ready=False),)),
    "one that was there before the plan does not count": Case((progress(),), (newcomer(created=EARLIER),), want=True),
    "one that was there before the run does not count": Case((progress(),), (newcomer("known"),), want=True),
    "one of another controller does not count": Case((progress(),), (newcomer(controller=None),), want=True),
    "two were taken and one is Ready": Case((progress(), progress("web-2")), (newcomer(),), want=True),
    "a move that failed after its eviction took its pod": Case((progress(state=MoveState.FAILED),), want=True),
    "one that its controller does not make again": Case((progress(reason=MoveReason.REPLACEMENT_GONE),)),
    "a run before this one took it, and nothing came": Case(
        (progress(state=MoveState.FAILED, eviction=NOT_SENT, reason=MoveReason.REPLACEMENT_TIMEOUT),), want=True
    ),
    "a move that failed before its eviction took nothing": Case(
        (progress(state=MoveState.FAILED, eviction=NOT_SENT, reason=MoveReason.RESERVATION_TIMEOUT),)
    ),
    "a move that was skipped took nothing": Case((progress(state=MoveState.SKIPPED, eviction=NOT_SENT),)),
    "what was not Ready before need not become so": Case((progress(was_ready=False),), (newcomer(ready=False),)),
    "a move that is not over is its own wave's matter": Case((progress(state=MoveState.EVICTED),)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_which_controller_has_to_wait(case: Case) -> None:
    observed = ObservedPlan(pods={one.metadata.uid: one for one in case.pods})
    found = find_unready(case.earlier, observed, since=SINCE, known={"known"})
    assert found == (frozenset({OWNER}) if case.want else frozenset())


def test_each_wave_is_counted_anew_and_a_wave_now_and_then() -> None:
    moves = [progress(), progress("web-2", MoveState.PENDING, wave=1, eviction=NOT_SENT)]
    siblings = ReplicaTracker(moves, since=SINCE, known=())
    nobody, ready = ObservedPlan(), ObservedPlan(pods={"web-9": newcomer()})
    assert siblings.unready(moves[:1], nobody, 1.0) == frozenset(), "nothing was taken before the first wave"
    assert siblings.unready(moves, nobody, 1.0) == {OWNER}
    assert siblings.unready(moves, ready, 1.1) == {OWNER}
    assert siblings.unready(moves, ready, 1.3) == frozenset()


def test_a_controller_with_nothing_left_to_move_is_not_counted() -> None:
    moves = [progress(), progress("web-2", MoveState.SKIPPED, wave=1)]
    siblings = ReplicaTracker(moves, since=SINCE, known=())
    assert siblings.unready(moves, ObservedPlan(), 1.0) == frozenset()
