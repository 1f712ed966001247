"""A plan stops on request or after too many failures; a request outranks failures."""

import threading
from dataclasses import dataclass, field, replace

import pytest

from berth_core import ObjectMeta
from berth_core.migration_plans import MigrationPlan, MigrationPlanStatus, MoveReason, MoveState, MoveStatus
from berth_descheduler.migration.plans.stop import PlanStop
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.settings import ExecutionSettings
from builders import NOON, FakeClock

SEEN, ABORTED, DELETED = ObservedPlan(), ObservedPlan(plan_aborted=True), ObservedPlan(plan_exists=False)
SETTINGS = ExecutionSettings(max_failed_share=0.5, max_seconds=60.0)
PLAN = MigrationPlan(
    metadata=ObjectMeta(name="plan"), status=MigrationPlanStatus(start_time=NOON.isoformat().replace("+00:00", "Z"))
)


@dataclass
class Scene:
    """A plan of four moves at noon, when it begins."""

    clock: FakeClock = field(default_factory=FakeClock)
    asked: threading.Event = field(default_factory=threading.Event)
    settings: ExecutionSettings = SETTINGS
    states: tuple[MoveState, ...] = (MoveState.PENDING,) * 4

    def __post_init__(self) -> None:
        self.stop = PlanStop(PLAN, clock=self.clock, settings=self.settings, asked=self.asked)

    def note(self, *looks: ObservedPlan) -> tuple[MoveReason, str]:
        for observed in looks:
            statuses = [MoveStatus(namespace="default", pod="web", state=state) for state in self.states]
            self.stop.note(observed, statuses)
        return self.stop.reason, self.stop.message


def asked_to_stop() -> Scene:
    scene = Scene()
    scene.asked.set()
    return scene


def after(seconds: float, settings: ExecutionSettings = SETTINGS) -> Scene:
    scene = Scene(settings=settings)
    scene.clock.advance(seconds)
    return scene


FAILED, ELSEWHERE, SKIPPED = MoveState.FAILED, MoveState.ELSEWHERE, MoveState.SKIPPED
TOO_MANY = (FAILED, ELSEWHERE, FAILED, MoveState.PENDING)

CASES = {
    "nothing is the matter": (Scene(), (SEEN,), (MoveReason.NONE, "")),
    "the plan is deleted": (Scene(), (DELETED,), (MoveReason.INTERRUPTED, "the plan was deleted")),
    "a signal came": (asked_to_stop(), (SEEN,), (MoveReason.INTERRUPTED, "asked to stop")),
    "somebody aborts it": (Scene(), (ABORTED,), (MoveReason.ABORTED, "it was aborted on request")),
    "more fails than may": (Scene(states=TOO_MANY), (SEEN,), (MoveReason.PLAN_STOPPED, "3 of 4 moves failed")),
    "as much fails as may": (Scene(states=(FAILED, FAILED, SKIPPED, SKIPPED)), (SEEN,), (MoveReason.NONE, "")),
    "one failure of one move is no reason": (Scene(states=(FAILED,)), (SEEN,), (MoveReason.NONE, "")),
    "its time is over": (after(61), (SEEN,), (MoveReason.PLAN_STOPPED, "it took longer than 60 s")),
    "its time is nearly over": (after(60), (SEEN,), (MoveReason.NONE, "")),
    "its time has no end": (after(1e6, replace(SETTINGS, max_seconds=None)), (SEEN,), (MoveReason.NONE, "")),
    "an abort outranks failures": (
        Scene(states=TOO_MANY),
        (SEEN, ABORTED),
        (MoveReason.ABORTED, "it was aborted on request"),
    ),
    "a deletion outranks an abort": (Scene(), (ABORTED, DELETED), (MoveReason.INTERRUPTED, "the plan was deleted")),
    "an abort does not outrank a deletion": (
        Scene(),
        (DELETED, ABORTED),
        (MoveReason.INTERRUPTED, "the plan was deleted"),
    ),
    "failures do not outrank an abort": (
        Scene(states=TOO_MANY),
        (ABORTED, SEEN),
        (MoveReason.ABORTED, "it was aborted on request"),
    ),
}


@pytest.mark.parametrize(("scene", "looks", "want"), CASES.values(), ids=CASES.keys())
def test_a_plan_stops_for_these_reasons(
    scene: Scene, looks: tuple[ObservedPlan, ...], want: tuple[MoveReason, str]
) -> None:
    assert scene.note(*looks) == want
    assert scene.stop.has_begun is bool(want[0])
    assert scene.stop.plan_deleted is (DELETED in looks)


def test_the_time_counts_from_when_it_began_to_stop_for_this_reason() -> None:
    scene = Scene()
    scene.note(ABORTED)
    begun = scene.stop.since
    scene.clock.advance(5)
    scene.note(ABORTED)
    assert scene.stop.since == begun
    scene.note(DELETED)
    assert scene.stop.since == scene.clock.monotonic()


def test_what_the_plan_has_come_to_by_itself_does_not_take_the_place_of_another_reason() -> None:
    scene = Scene()
    scene.stop.begin(MoveReason.PODS_WAITING, "a pod waits")
    scene.stop.begin(MoveReason.PLAN_STOPPED, "a wave took too long")
    assert (scene.stop.reason, scene.stop.message) == (MoveReason.PODS_WAITING, "a pod waits")
