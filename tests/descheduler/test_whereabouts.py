"""Where the pods of a plan's moves are at its end: each is somewhere, pending, or no longer there."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from berth_core import OwnerReference, Pod
from berth_core.migration_plans import MoveReason, MoveState, MoveStatus, PlannedMove
from berth_core.reservations import ObjectReference
from berth_descheduler.migration.moves.memory import MoveMemory, Surge, remember
from berth_descheduler.migration.moves.whereabouts import find_unplaced
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.outcome import Whereabouts
from builders import NOON_TEXT, pod

WEB: Final = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True)
LATER: Final = "2026-11-21T12:00:05Z"
PENDING, GONE = Whereabouts.PENDING, Whereabouts.GONE


def move(state: MoveState, index: int = 0, *, replacement: str = "", **rest: Any) -> MoveMemory:  # noqa: ANN401
    name = f"web-{index}"
    planned = PlannedMove(
        namespace="default",
        pod=name,
        pod_uid=f"uid-default-{name}",
        owner=ObjectReference(kind="ReplicaSet", name="web", uid="uid-web"),
        source="source",
        target="target",
    )
    status = MoveStatus(namespace="default", pod=name, state=state, replacement=replacement, **rest)
    return remember("plan-1", index, planned, status)


def made(name: str = "web-9", *, node: str = "target", **rest: Any) -> Pod:  # noqa: ANN401 - of the builder
    return pod(name, node=node, controller=WEB, **{"created": LATER, **rest})


LANDED: Final = move(MoveState.LANDED, replacement="web-9")
FAILED: Final = move(MoveState.FAILED, reason=MoveReason.REPLACEMENT_TIMEOUT)


@dataclass(frozen=True)
class Case:
    moves: tuple[MoveMemory, ...]
    pods: tuple[Pod, ...] = ()
    want: dict[int, Whereabouts] = field(default_factory=dict)
    moved_again: frozenset[int] = frozenset()


def let_go(state: MoveState) -> MoveMemory:
    memory = move(state, reason=MoveReason.POD_GONE)
    memory.surge = replace(Surge(), wanted=True, asked=True, released=True)
    return memory


CASES: Final = {
    "it landed and is there": Case((LANDED,), (made(),)),
    "it landed and has ended well": Case((LANDED,), (made(phase="Succeeded"),)),
    "it landed and was removed": Case((LANDED,), want={0: GONE}),
    "it landed and is being deleted": Case((LANDED,), (made(deleted=LATER),), {0: GONE}),
    "it landed and has failed": Case((LANDED,), (made(phase="Failed"),), {0: GONE}),
    "it landed, was removed, and another is pending": Case((LANDED,), (made("web-10", node=""),), {0: PENDING}),
    "it landed, was removed, and another runs": Case((LANDED,), (made("web-10", node="elsewhere"),)),
    "it landed and a later move took it on": Case((LANDED,), moved_again=frozenset({0})),
    "no replacement has come": Case((FAILED,), want={0: GONE}),
    "its replacement has no node": Case((FAILED,), (made(node=""),), {0: PENDING}),
    "its replacement was scheduled as usual": Case((FAILED,), (made(node="elsewhere"),)),
    "an older pod is no replacement": Case((FAILED,), (made(created="2026-11-21T11:00:00Z"),), {0: GONE}),
    "a pod of another controller is none either": Case((FAILED,), (pod("api-1", created=LATER, node=""),), {0: GONE}),
    "it has not left": Case((FAILED,), (pod("web-0", node="source", controller=WEB),)),
    "it was skipped where it was": Case((move(MoveState.SKIPPED),), (pod("web-0", node="source", controller=WEB),)),
    "it had left before its turn": Case((move(MoveState.SKIPPED, reason=MoveReason.POD_GONE),)),
    "others deleted it while it was let go": Case((let_go(MoveState.SKIPPED),), want={0: GONE}),
    "each pod stands for one move, those with a node first": Case(
        (move(MoveState.FAILED, 0), move(MoveState.FAILED, 1), move(MoveState.FAILED, 2)),
        (made("web-10", node=""), made("web-11", node="elsewhere")),
        {1: PENDING, 2: GONE},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_a_pod_is_that_does_not_run_in_its_place(case: Case) -> None:
    observed = ObservedPlan(reservations={}, pods={one.metadata.uid: one for one in case.pods})
    assert find_unplaced(case.moves, observed, since=NOON_TEXT, moved_again=case.moved_again) == case.want
