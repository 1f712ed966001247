"""Every state of a move with what is seen of it leads to one next step."""

from dataclasses import dataclass, replace
from itertools import product

import pytest

from berth_core.migration_plans import MoveReason, MoveState
from berth_descheduler.migration.moves.execution import keeps_its_node
from berth_descheduler.migration.moves.facts import Presence, Replacement, ReplicaCounts, ReservationProgress
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.moves.next_step import next_step
from berth_descheduler.migration.moves.replacement_readiness import Trouble
from berth_descheduler.migration.moves.steps import Evict, Finish, Reserve, Step, Wait
from berth_descheduler.settings import MoveTimeouts
from move_scenes import MoveScene, Since

NOW = 1000.0
RELEASED, KEPT = True, False
TIMEOUTS = MoveTimeouts(
    reserve_seconds=60,
    evict_seconds=120,
    land_seconds=90,
    ready_seconds=30,
    end_seconds=40,
    gap_seconds=5,
    shutdown_seconds=15,
)
ONE_PLACE = ReplicaCounts(held=1, not_evicted=1)
EVICTED = MoveScene(
    target="target",
    presence=Presence.GONE,
    place=ReservationProgress.READY,
    eviction=Eviction.SENT,
    replicas=ReplicaCounts(held=1, awaiting_replacement=1),
    since=Since(reserving=900, evicted=980, gone=985),
)
RESERVED = MoveScene(target="target", place=ReservationProgress.READY, replicas=ONE_PLACE, since=Since(reserving=990))
RUNNING_ON_TARGET = Replacement(name="web-1", node="target", ready=True)
UNREADY = replace(RUNNING_ON_TARGET, ready=False, detail="container app waits: ContainerCreating")
STARTING = replace(EVICTED, place=ReservationProgress.BOUND, replacement=UNREADY)
PULLING = replace(STARTING, place=ReservationProgress.HANDING_OVER)
NO_IMAGE = Trouble(MoveReason.IMAGE_PULL_BACK_OFF, "container app: ErrImagePull: not found", 45)
NEVER = Trouble(MoveReason.ERR_IMAGE_NEVER_PULL, "container app: ErrImageNeverPull", is_final=True)
REFUSED = Trouble(MoveReason.REFUSED_BY_KUBELET, "OutOfpods", is_final=True, has_ended=True)


@dataclass(frozen=True)
class Case:
    scene: MoveScene
    want: type[Step] = Wait
    want_state: MoveState | None = None
    want_reason: MoveReason = MoveReason.NONE
    want_release: bool = False
    want_words: str = ""


def test_a_move_whose_controller_makes_no_more_ends_also_where_its_place_is_not_held() -> None:
    unmade = replace(EVICTED, place=ReservationProgress.PENDING, replicas=replace(EVICTED.replicas, is_full=True))
    step = next_step(unmade.facts(), TIMEOUTS, NOW)
    assert isinstance(step, Finish)
    assert (step.state, step.reason, step.release) == (MoveState.FAILED, MoveReason.REPLACEMENT_GONE, True)
    assert isinstance(next_step(replace(EVICTED, place=ReservationProgress.PENDING).facts(), TIMEOUTS, NOW), Wait)


def test_a_replacement_of_an_evicted_pod_is_given_what_its_deployment_gives_it() -> None:
    starting = replace(STARTING, progress_seconds=600, since=replace(STARTING.since, taken=NOW - 599))
    assert isinstance(next_step(starting.facts(), TIMEOUTS, NOW), Wait)
    step = next_step(starting.facts(), TIMEOUTS, NOW + 1)
    assert isinstance(step, Finish)
    assert "is not Ready after 600 s" in step.message
    short = replace(TIMEOUTS, heeds_progress_deadlines=False)
    assert isinstance(next_step(starting.facts(), short, NOW - 500), Finish)


def test_a_pod_waits_for_its_sibling_for_as_long_as_their_deployment_gives_that() -> None:
    waiting = replace(RESERVED, progress_seconds=600, since=replace(RESERVED.since, siblings=NOW - 599))
    assert isinstance(next_step(waiting.facts(), TIMEOUTS, NOW), Wait)
    assert isinstance(next_step(waiting.facts(), TIMEOUTS, NOW + 1), Finish)


def begun(place: ReservationProgress, seconds_ago: float = 1, **facts: object) -> MoveScene:
    return MoveScene(
        target="target", place=place, replicas=ONE_PLACE, since=Since(reserving=NOW - seconds_ago), **facts
    )


CASES = {
    "a replacement that is being deleted has not landed, however Ready it is": Case(
        replace(STARTING, replacement=replace(RUNNING_ON_TARGET, ending="is being deleted")), Wait, MoveState.EVICTED
    ),
    "one that is not gone for long fails the move, with what ends it": Case(
        replace(
            STARTING,
            replacement=replace(RUNNING_ON_TARGET, ending="is being deleted"),
            since=Since(reserving=800, evicted=850, gone=855, taken=860),
        ),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_TIMEOUT,
        want_words="the replacement is being deleted after 30 s",
    ),
    "a replacement that was handed no place ends the move at once, with where it runs": Case(
        replace(EVICTED, replicas=ReplicaCounts(held=1, misplaced="elsewhere")),
        Finish,
        MoveState.ELSEWHERE,
        want_release=RELEASED,
        want_words="was not handed the place and runs on elsewhere, not on target",
    ),
    "a place whose pod went astray waits for a sibling that is still to move": Case(
        replace(EVICTED, replicas=ReplicaCounts(held=1, not_evicted=1, misplaced="elsewhere")), Wait, MoveState.EVICTED
    ),
    "a pod on its source without a Reservation is reserved for": Case(MoveScene(target="target"), Reserve),
    "a Reservation that could not be made yet is tried again": Case(begun(ReservationProgress.NOT_CREATED), Reserve),
    "one that could not be made in time fails the move": Case(
        begun(ReservationProgress.NOT_CREATED, 60), Finish, MoveState.FAILED, MoveReason.RESERVATION_TIMEOUT, RELEASED
    ),
    "a pending Reservation is waited for": Case(
        begun(ReservationProgress.PENDING, 59, place_detail="Unschedulable"),
        Wait,
        MoveState.RESERVING,
        want_words="Unschedulable",
    ),
    "a Reservation that stays pending fails the move with what was seen": Case(
        begun(ReservationProgress.PENDING, 60, place_detail="AwaitingScheduler: no such scheduler"),
        Finish,
        MoveState.FAILED,
        MoveReason.RESERVATION_TIMEOUT,
        RELEASED,
        "not held within 60 s: AwaitingScheduler: no such scheduler",
    ),
    "an unproven hand-over is waited for": Case(begun(ReservationProgress.UNVERIFIED, 59), Wait, MoveState.RESERVING),
    "an unproven hand-over never leads to an eviction": Case(
        begun(ReservationProgress.UNVERIFIED, 60), Finish, MoveState.FAILED, MoveReason.HANDOVER_NOT_READY, RELEASED
    ),
    "a failed Reservation fails the move and is deleted": Case(
        begun(ReservationProgress.LOST, place_detail="Preempted: by a higher priority"),
        Finish,
        MoveState.FAILED,
        MoveReason.RESERVATION_FAILED,
        RELEASED,
        "Preempted",
    ),
    "a refused Reservation fails the move": Case(
        begun(ReservationProgress.NOT_CREATED, refusal=MoveReason.RESERVATION_FAILED, refusal_detail="forbidden"),
        Finish,
        MoveState.FAILED,
        MoveReason.RESERVATION_FAILED,
        RELEASED,
        "forbidden",
    ),
    "a pod that is another by now is left alone": Case(
        begun(ReservationProgress.NOT_CREATED, refusal=MoveReason.POD_CHANGED),
        Finish,
        MoveState.SKIPPED,
        MoveReason.POD_CHANGED,
        RELEASED,
    ),
    "nothing is reserved for a pod whose next one would be refused": Case(
        begun(ReservationProgress.NOT_CREATED, refusal=MoveReason.REPLACEMENT_REFUSED),
        Finish,
        MoveState.SKIPPED,
        MoveReason.REPLACEMENT_REFUSED,
        RELEASED,
    ),
    "a pod whose next one could not take the held place stays": Case(
        begun(ReservationProgress.READY, refusal=MoveReason.REPLACEMENT_DIFFERS),
        Finish,
        MoveState.SKIPPED,
        MoveReason.REPLACEMENT_DIFFERS,
        RELEASED,
    ),
    "nothing is reserved while a sibling's replacement is not Ready": Case(
        MoveScene(target="target", since=Since(siblings=980)),
        Wait,
        MoveState.PENDING,
        want_words="are Ready",
    ),
    "a sibling's replacement has as long as its probes ask for": Case(
        MoveScene(target="target", start_seconds=60, since=Since(siblings=970)),
        Wait,
        MoveState.PENDING,
    ),
    "nothing is evicted while a sibling's replacement is not Ready": Case(
        replace(RESERVED, since=replace(RESERVED.since, siblings=980)), Wait, MoveState.RESERVED
    ),
    "a sibling's replacement that does not become Ready keeps the others where they are": Case(
        MoveScene(target="target", since=Since(siblings=970)),
        Finish,
        MoveState.SKIPPED,
        MoveReason.SIBLING_NOT_READY,
        RELEASED,
        "not Ready for 30 s",
    ),
    "a held and proven place leads to the eviction": Case(RESERVED, Evict),
    "no pod of a source is evicted before all of them have places": Case(
        replace(RESERVED, source_ready=False), Wait, MoveState.RESERVED
    ),
    "as many pods are evicted as places are held": Case(
        replace(RESERVED, replicas=ReplicaCounts(held=1, awaiting_replacement=1, not_evicted=1)),
        Wait,
        MoveState.RESERVED,
    ),
    "a second place allows a second eviction": Case(
        replace(RESERVED, replicas=ReplicaCounts(held=2, awaiting_replacement=1, not_evicted=1)), Evict
    ),
    "a place that a sibling took is paid back by the sibling's": Case(
        replace(RESERVED, place=ReservationProgress.BOUND, replicas=ReplicaCounts(held=1, not_evicted=1)), Evict
    ),
    "a place on its way to a sibling as well": Case(
        replace(RESERVED, place=ReservationProgress.HANDING_OVER, replicas=ReplicaCounts(held=1, not_evicted=1)), Evict
    ),
    "a place that went to a stranger leaves the pod where it is": Case(
        replace(RESERVED, place=ReservationProgress.BOUND, replicas=ReplicaCounts(not_evicted=1)),
        Finish,
        MoveState.SKIPPED,
        MoveReason.RESERVATION_FAILED,
        RELEASED,
    ),
    "an eviction that a webhook answers is asked for again, for a while": Case(
        replace(RESERVED, eviction=Eviction.INTERCEPTED, retry_eviction_at=NOW, since=Since(blocked=NOW - 119)), Evict
    ),
    "one that it answers to the end is no budget's": Case(
        replace(
            RESERVED, eviction=Eviction.INTERCEPTED, eviction_detail="evacuation of VMI", since=Since(blocked=NOW - 120)
        ),
        Finish,
        MoveState.FAILED,
        MoveReason.EVICTION_INTERCEPTED,
        RELEASED,
        want_words="evacuation of VMI",
    ),
    "a pod that whoever is behind the webhook took away is gone": Case(
        replace(RESERVED, presence=Presence.GONE, eviction=Eviction.INTERCEPTED, eviction_detail="evacuation of VMI"),
        Finish,
        MoveState.SKIPPED,
        MoveReason.POD_GONE,
        RELEASED,
        want_words="by another client after its eviction was requested: evacuation of VMI",
    ),
    "a refused eviction waits for its back-off": Case(
        replace(RESERVED, eviction=Eviction.BLOCKED, retry_eviction_at=NOW + 1, since=Since(blocked=NOW - 1)),
        Wait,
        MoveState.RESERVED,
    ),
    "a refused eviction is tried again after it": Case(
        replace(RESERVED, eviction=Eviction.BLOCKED, retry_eviction_at=NOW, since=Since(blocked=NOW - 119)), Evict
    ),
    "a refused eviction is given up in the end and the place released": Case(
        replace(
            RESERVED,
            eviction=Eviction.BLOCKED,
            eviction_detail="budget web allows none",
            since=Since(blocked=NOW - 120),
        ),
        Finish,
        MoveState.FAILED,
        MoveReason.EVICTION_BLOCKED,
        RELEASED,
        "refused for 120 s: budget web allows none",
    ),
    "a forbidden eviction fails at once": Case(
        replace(RESERVED, eviction=Eviction.REFUSED, eviction_detail="403"),
        Finish,
        MoveState.FAILED,
        MoveReason.EVICTION_FORBIDDEN,
        RELEASED,
    ),
    "an unanswered eviction of a pod that stays is asked again": Case(
        replace(RESERVED, eviction=Eviction.UNANSWERED, retry_eviction_at=NOW - 1), Evict
    ),
    "an unanswered eviction of a pod that leaves is an eviction": Case(
        replace(EVICTED, eviction=Eviction.UNANSWERED, presence=Presence.LEAVING), Wait, MoveState.EVICTED
    ),
    "a pod that somebody deleted is skipped and its place released": Case(
        replace(RESERVED, presence=Presence.LEAVING), Finish, MoveState.SKIPPED, MoveReason.POD_GONE, RELEASED
    ),
    "a pod that is gone before it was reserved for is skipped": Case(
        MoveScene(target="target", presence=Presence.GONE), Finish, MoveState.SKIPPED, MoveReason.POD_GONE, RELEASED
    ),
    "a deleted pod whose replacement takes the place lands": Case(
        replace(RESERVED, presence=Presence.GONE, place=ReservationProgress.BOUND, replacement=RUNNING_ON_TARGET),
        Finish,
        MoveState.LANDED,
    ),
    "nothing begins once the plan is stopped": Case(
        MoveScene(target="target", stop=MoveReason.PLAN_STOPPED),
        Finish,
        MoveState.SKIPPED,
        MoveReason.PLAN_STOPPED,
        RELEASED,
    ),
    "what is reserved is released once the run is interrupted": Case(
        replace(RESERVED, stop=MoveReason.INTERRUPTED), Finish, MoveState.SKIPPED, MoveReason.INTERRUPTED, RELEASED
    ),
    "a source that cannot be emptied keeps its pods": Case(
        replace(RESERVED, source_lost=True), Finish, MoveState.SKIPPED, MoveReason.SOURCE_NOT_EMPTIABLE, RELEASED
    ),
    "an evicted pod is waited for although its source cannot be emptied": Case(
        replace(EVICTED, source_lost=True), Wait, MoveState.EVICTED
    ),
    "an evicted pod is waited for although the plan was stopped": Case(
        replace(EVICTED, stop=MoveReason.PLAN_STOPPED, since=Since(gone=985, stopping=900)), Wait, MoveState.EVICTED
    ),
    "an evicted pod's replacement is waited for": Case(EVICTED, Wait, MoveState.EVICTED),
    "the pod's grace period comes before the deadline": Case(
        replace(EVICTED, presence=Presence.LEAVING, grace_seconds=60, since=Since(evicted=NOW - 99)),
        Wait,
        MoveState.EVICTED,
    ),
    "a pod that does not end is given up so long after its grace period, with what keeps it": Case(
        replace(
            EVICTED,
            presence=Presence.LEAVING,
            grace_seconds=60,
            stay_detail="the finalizer example.com/hold holds it",
            since=Since(evicted=NOW - 100),
        ),
        Finish,
        MoveState.FAILED,
        MoveReason.POD_STAYS,
        RELEASED,
        "had not ended 40 s after its grace period: the finalizer example.com/hold holds it",
    ),
    "a pod that does not end is not waited for once its replacement is on its way": Case(
        replace(
            EVICTED,
            presence=Presence.LEAVING,
            place=ReservationProgress.HANDING_OVER,
            since=Since(evicted=NOW - 89),
        ),
        Wait,
        MoveState.EVICTED,
    ),
    "a pod that does not end has landed with its replacement": Case(
        replace(
            EVICTED,
            presence=Presence.LEAVING,
            place=ReservationProgress.BOUND,
            replacement=RUNNING_ON_TARGET,
            since=Since(evicted=NOW - 1000),
        ),
        Finish,
        MoveState.LANDED,
    ),
    "a replacement that does not come fails the move and frees the place": Case(
        replace(EVICTED, since=Since(evicted=900, gone=NOW - 90), place_detail="SlotsHeld"),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_TIMEOUT,
        RELEASED,
        "within 90 s: SlotsHeld",
    ),
    "a place lost after the eviction fails the move and says what happens": Case(
        replace(EVICTED, place=ReservationProgress.LOST, place_detail="NodeLost: node target is gone"),
        Finish,
        MoveState.FAILED,
        MoveReason.RESERVATION_FAILED,
        RELEASED,
        "scheduled as usual",
    ),
    "a hand-over under way is waited for": Case(
        replace(EVICTED, place=ReservationProgress.HANDING_OVER, replicas=ReplicaCounts()), Wait, MoveState.EVICTED
    ),
    "a replacement that is not Ready yet is waited for": Case(
        replace(EVICTED, place=ReservationProgress.BOUND, replacement=replace(RUNNING_ON_TARGET, ready=False)),
        Wait,
        MoveState.EVICTED,
    ),
    "a replacement that does not become Ready fails the move but keeps its place": Case(
        replace(
            EVICTED,
            place=ReservationProgress.BOUND,
            replacement=replace(RUNNING_ON_TARGET, ready=False),
            since=Since(taken=NOW - 30),
        ),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_TIMEOUT,
        KEPT,
        "runs on target but is not Ready",
    ),
    "a replacement that asks for more time by its probes is given that": Case(
        replace(STARTING, start_seconds=60, since=Since(taken=NOW - 89)), Wait, MoveState.EVICTED
    ),
    "its time begins anew when its containers run": Case(
        replace(STARTING, since=Since(taken=NOW - 59, started=NOW - 29)), Wait, MoveState.EVICTED
    ),
    "one that is on its target is on its way however long its image takes, and what it waits for is said": Case(
        replace(PULLING, since=Since(evicted=700, gone=705, taken=NOW - 29)),
        Wait,
        MoveState.EVICTED,
        want_words="Ready: container app waits: ContainerCreating",
    ),
    "one that has pulled its image for too long is given up, and so is its place": Case(
        replace(PULLING, since=Since(taken=NOW - 30)),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_TIMEOUT,
        RELEASED,
        "after 30 s: container app waits: ContainerCreating",
    ),
    "a Ready one whose place is not recorded yet is waited for": Case(
        replace(PULLING, replacement=RUNNING_ON_TARGET, since=Since(taken=NOW - 4)), Wait, MoveState.EVICTED
    ),
    "a Ready one has landed although no operator records it": Case(
        replace(PULLING, replacement=RUNNING_ON_TARGET, since=Since(taken=NOW - 5)), Finish, MoveState.LANDED
    ),
    "a replacement without its image is watched to the end, for another pull may do": Case(
        replace(STARTING, trouble=NO_IMAGE, since=Since(taken=NOW - 29, troubled=NOW - 29)),
        Wait,
        MoveState.EVICTED,
        want_words="ErrImagePull: not found",
    ),
    "and then that is the reason": Case(
        replace(STARTING, trouble=NO_IMAGE, since=Since(taken=NOW - 30, troubled=NOW - 29)),
        Finish,
        MoveState.FAILED,
        MoveReason.IMAGE_PULL_BACK_OFF,
        KEPT,
        "is not Ready after 30 s: container app: ErrImagePull: not found",
    ),
    "a replacement that no pull can help is given up at once": Case(
        replace(STARTING, trouble=NEVER, since=Since(taken=NOW)),
        Finish,
        MoveState.FAILED,
        MoveReason.ERR_IMAGE_NEVER_PULL,
        KEPT,
        "the replacement web-1 on target does not become Ready",
    ),
    "unless the pod before it was no better": Case(
        replace(STARTING, trouble=NEVER, must_be_ready=False, since=Since(taken=NOW)), Finish, MoveState.LANDED
    ),
    "a replacement that the kubelet refused has not landed, whatever the pod before it was": Case(
        replace(STARTING, trouble=REFUSED, must_be_ready=False, since=Since(taken=NOW)),
        Finish,
        MoveState.FAILED,
        MoveReason.REFUSED_BY_KUBELET,
        KEPT,
        "OutOfpods",
    ),
    "a replacement that others remove is not waited for": Case(
        replace(EVICTED, place=ReservationProgress.BOUND, since=Since(taken=NOW - 15)),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_GONE,
        KEPT,
        "the replacement was removed from target by others",
    ),
    "one that its controller will not make is not waited for, and the place is given back": Case(
        replace(EVICTED, presence=Presence.GONE, replicas=ReplicaCounts(held=1, awaiting_replacement=1, is_full=True)),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_GONE,
        RELEASED,
        "its controller was deleted or wants fewer pods by now",
    ),
    "a controller without any pod to make keeps a place for the sibling whose place was taken": Case(
        replace(EVICTED, presence=Presence.GONE, replicas=ReplicaCounts(held=1, not_evicted=1, is_full=True)),
        Wait,
        MoveState.EVICTED,
    ),
    "while a pod is ending, nobody is asked what its controller wants": Case(
        replace(EVICTED, presence=Presence.LEAVING, replicas=ReplicaCounts(awaiting_replacement=1, is_full=True)),
        Wait,
        MoveState.EVICTED,
    ),
    "a replacement that the watches may not show yet is waited for": Case(
        replace(EVICTED, place=ReservationProgress.BOUND, since=Since(taken=NOW - 14.9)),
        Wait,
        MoveState.EVICTED,
    ),
    "a replacement that finds no node is said to have none": Case(
        replace(
            EVICTED,
            place=ReservationProgress.BOUND,
            replacement=replace(RUNNING_ON_TARGET, node="", ready=False),
            since=Since(taken=NOW - 30),
        ),
        Finish,
        MoveState.FAILED,
        MoveReason.REPLACEMENT_TIMEOUT,
        KEPT,
        "the replacement has no node yet after",
    ),
    "a replacement of a pod that was not Ready need not be Ready": Case(
        replace(
            EVICTED,
            place=ReservationProgress.BOUND,
            must_be_ready=False,
            replacement=replace(RUNNING_ON_TARGET, ready=False),
        ),
        Finish,
        MoveState.LANDED,
    ),
    "a Ready replacement on the target has landed": Case(
        replace(EVICTED, place=ReservationProgress.BOUND, replacement=RUNNING_ON_TARGET), Finish, MoveState.LANDED
    ),
    "a Ready replacement on another node is elsewhere": Case(
        replace(EVICTED, place=ReservationProgress.BOUND, replacement=replace(RUNNING_ON_TARGET, node="other")),
        Finish,
        MoveState.ELSEWHERE,
        want_words="runs on other, not on target",
    ),
    "an evicted pod whose replacement took a sibling's place waits for the sibling": Case(
        replace(EVICTED, replicas=ReplicaCounts(held=1, awaiting_replacement=0, not_evicted=1), since=Since(gone=1)),
        Wait,
        MoveState.EVICTED,
    ),
    "if that sibling stays the left-over place is released": Case(
        replace(EVICTED, replicas=ReplicaCounts(held=1, awaiting_replacement=0, not_evicted=0)),
        Finish,
        MoveState.ELSEWHERE,
        want_release=RELEASED,
        want_words="sibling",
    ),
    "an interrupted run waits a little for evicted pods": Case(
        replace(EVICTED, stop=MoveReason.INTERRUPTED, since=Since(gone=985, stopping=NOW - 14)),
        Wait,
        MoveState.EVICTED,
    ),
    "then it leaves their Reservations to the operator": Case(
        replace(EVICTED, stop=MoveReason.INTERRUPTED, since=Since(gone=985, stopping=NOW - 15)),
        Finish,
        MoveState.FAILED,
        MoveReason.INTERRUPTED,
        KEPT,
    ),
}

NOWHERE = MoveScene(target="")
REMOVED = replace(NOWHERE, presence=Presence.GONE, eviction=Eviction.SENT, since=Since(evicted=980, gone=996))
EVICTIONS = {
    "a pod that no node takes is evicted without a Reservation": Case(NOWHERE, Evict),
    "one that a budget keeps is asked for again later": Case(
        replace(NOWHERE, eviction=Eviction.BLOCKED, eviction_detail="none", retry_eviction_at=NOW + 1),
        Wait,
        MoveState.PENDING,
        want_words="none",
    ),
    "and fails when the budget keeps it for long": Case(
        replace(NOWHERE, eviction=Eviction.BLOCKED, since=Since(blocked=NOW - 120)),
        Finish,
        MoveState.FAILED,
        MoveReason.EVICTION_BLOCKED,
        RELEASED,
    ),
    "one that a rule keeps is left alone": Case(
        replace(NOWHERE, refusal=MoveReason.FILTERED, refusal_detail="its job spares no pod now"),
        Finish,
        MoveState.SKIPPED,
        MoveReason.FILTERED,
        RELEASED,
        "spares no pod",
    ),
    "it is not begun in a plan that stops": Case(
        replace(NOWHERE, stop=MoveReason.ABORTED), Finish, MoveState.SKIPPED, MoveReason.ABORTED, RELEASED
    ),
    "one that left by itself was not evicted": Case(
        replace(NOWHERE, presence=Presence.GONE), Finish, MoveState.SKIPPED, MoveReason.POD_GONE, RELEASED
    ),
    "an evicted pod has to end": Case(replace(REMOVED, presence=Presence.LEAVING), Wait, MoveState.EVICTED),
    "one that does not end in time fails": Case(
        replace(REMOVED, presence=Presence.LEAVING, grace_seconds=10, since=Since(evicted=NOW - 50)),
        Finish,
        MoveState.FAILED,
        MoveReason.POD_STAYS,
        KEPT,
    ),
    "a process that ends waits a moment for it": Case(
        replace(REMOVED, presence=Presence.LEAVING, stop=MoveReason.INTERRUPTED, since=Since(stopping=NOW - 15)),
        Finish,
        MoveState.FAILED,
        MoveReason.INTERRUPTED,
        KEPT,
    ),
    "its controller has a moment to make it again": Case(REMOVED, Wait, MoveState.EVICTED),
    "it is over when its replacement waits": Case(
        replace(REMOVED, replacement=Replacement("web-1", "", ready=False)),
        Finish,
        MoveState.REMOVED,
        want_words="web-1 waits for a node",
    ),
    "or runs": Case(replace(REMOVED, replacement=RUNNING_ON_TARGET), Finish, MoveState.REMOVED, want_words="on target"),
    "or when there is none after a moment": Case(
        replace(REMOVED, since=Since(evicted=980, gone=995)), Finish, MoveState.REMOVED, want_words="no other pod yet"
    ),
}


@pytest.mark.parametrize("case", (CASES | EVICTIONS).values(), ids=CASES | EVICTIONS)
def test_what_is_seen_decides_the_next_step(case: Case) -> None:
    step = next_step(case.scene.facts(), TIMEOUTS, NOW)

    assert type(step) is case.want
    if isinstance(step, Wait):
        assert step.state is case.want_state
        assert case.want_words in step.message
    if isinstance(step, Finish):
        assert (step.state, step.reason, step.release) == (case.want_state, case.want_reason, case.want_release)
        assert case.want_words in step.message


def test_every_move_ends_when_all_its_deadlines_are_over() -> None:
    long_ago = Since(reserving=0, blocked=0, evicted=0, gone=0, taken=0, stopping=0)
    stops = (MoveReason.NONE, MoveReason.PLAN_STOPPED, MoveReason.INTERRUPTED)
    unending = []
    targets = ("target", "")
    for target, presence, place, eviction, stop in product(targets, Presence, ReservationProgress, Eviction, stops):
        scene = MoveScene(
            target=target,
            presence=presence,
            place=place,
            eviction=eviction,
            stop=stop,
            replicas=ReplicaCounts(held=1),
            since=long_ago,
        )
        step = next_step(scene.facts(), TIMEOUTS, now=10_000)
        if not (isinstance(step, Finish) and step.state.terminal and (step.reason or step.message)):
            unending.append((presence, place, eviction, stop, step))
    assert not unending


def test_no_pod_is_evicted_without_a_held_place_for_it() -> None:
    evicting = []
    for place, presence in product(ReservationProgress, Presence):
        scene = MoveScene(
            target="target", presence=presence, place=place, replicas=ReplicaCounts(held=0, not_evicted=1)
        )
        if isinstance(next_step(scene.facts(), TIMEOUTS, NOW), Evict):
            evicting.append((place, presence))
    assert not evicting


@pytest.mark.parametrize(
    ("claim", "state", "reason", "evicted", "want"),
    [
        ("a failed move whose pod was evicted has left its node", MoveState.FAILED, "ReplacementTimeout", True, False),
        ("a failed move whose pod was not evicted stays", MoveState.FAILED, "ReservationFailed", False, True),
        ("a pod that is gone by itself does not stay", MoveState.SKIPPED, "PodGone", False, False),
        ("a changed pod stays", MoveState.SKIPPED, "PodChanged", False, True),
        ("a landed pod does not stay", MoveState.LANDED, "", True, False),
    ],
)
def test_only_pods_that_stay_keep_their_node_from_being_emptied(
    claim: str, state: MoveState, reason: str, *, evicted: bool, want: bool
) -> None:
    assert keeps_its_node(state, MoveReason(reason), evicted=evicted) is want, claim
