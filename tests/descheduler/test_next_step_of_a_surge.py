"""A pod that its ReplicaSet has let go is evicted once another serves; else it is taken back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import pytest

from berth_core.migration_plans import MoveReason, MoveState
from berth_descheduler.migration.moves.facts import Presence, Replacement, ReplicaCounts, ReservationProgress
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.moves.next_step import next_step
from berth_descheduler.migration.moves.replacement_readiness import Trouble
from berth_descheduler.migration.moves.steps import (
    Evict,
    Finish,
    LookAgain,
    Postpone,
    ReleaseFromOwner,
    Reserve,
    Step,
    TakeBack,
    Wait,
)
from berth_descheduler.settings import MoveTimeouts
from move_scenes import MoveScene, Since, Surge

NOW = 1000.0
TIMEOUTS = MoveTimeouts(
    reserve_seconds=60, evict_seconds=120, land_seconds=90, ready_seconds=30, gap_seconds=5, shutdown_seconds=15
)
WANTED = Surge(wanted=True)
RESERVED = MoveScene(
    target="target",
    place=ReservationProgress.READY,
    replicas=ReplicaCounts(held=1, not_evicted=1),
    since=Since(reserving=990),
    surge=WANTED,
)
LET_GO = replace(RESERVED, surge=Surge(wanted=True, asked=True, released=True, released_since=990))
TAKEN = replace(
    LET_GO,
    place=ReservationProgress.BOUND,
    replacement=Replacement("web-2", "target", ready=True),
    since=Since(reserving=980, taken=995),
)
AVAILABLE = replace(TAKEN, surge=replace(LET_GO.surge, available=True))
END = Finish(MoveState.FAILED, MoveReason.TAKEN_BACK, "because", release=True)
RETURNING = replace(LET_GO, surge=replace(LET_GO.surge, end=END))
AHEAD = replace(RESERVED, ahead=True, surge=replace(WANTED, in_turn=False))
OWNERLESS = replace(RETURNING, surge=replace(RETURNING.surge, ownerless=True))


COMING = replace(
    LET_GO,
    place=ReservationProgress.HANDING_OVER,
    replacement=Replacement("web-2", "target", ready=False, detail="container app waits: ContainerCreating"),
    since=Since(reserving=900, taken=985),
)
"""On its target, and its image is being pulled."""
CRASHING = Trouble(MoveReason.CRASH_LOOP_BACK_OFF, "container app: CrashLoopBackOff", 60)
REFUSED = Trouble(MoveReason.REFUSED_BY_KUBELET, "OutOfcpu", is_final=True, has_ended=True)


def let_go(scene: MoveScene = LET_GO, **surge: object) -> MoveScene:
    return replace(scene, surge=replace(scene.surge, **surge))


LOST_ANSWER = replace(let_go(RESERVED, asked=True), replicas=ReplicaCounts(), place=ReservationProgress.BOUND)


@dataclass(frozen=True)
class Case:
    scene: MoveScene
    want: type[Step]
    want_reason: str = ""
    want_words: str = ""


CASES = {
    "a pod with a proven place is let go": Case(RESERVED, ReleaseFromOwner),
    "a pod whose sibling surges waits": Case(let_go(RESERVED, in_turn=False), Wait, want_words="a sibling"),
    "a sibling's place is not even asked for": Case(
        replace(let_go(RESERVED, in_turn=False), place=ReservationProgress.NOT_CREATED), Wait, want_words="a sibling"
    ),
    "a pod that cannot surge is evicted": Case(let_go(RESERVED, wanted=False), Evict),
    "a pod without a place is never let go": Case(replace(RESERVED, place=ReservationProgress.PENDING), Wait),
    "a request without an answer is taken back when the plan stops": Case(
        replace(let_go(RESERVED, asked=True), stop=MoveReason.ABORTED), TakeBack, "Aborted"
    ),
    "a request without an answer is taken back when the place is lost": Case(
        replace(let_go(RESERVED, asked=True), place=ReservationProgress.LOST), TakeBack, "ReservationFailed"
    ),
    "a request without an answer whose place is taken is looked at, not at once": Case(
        replace(LOST_ANSWER, retry_eviction_at=NOW + 1, eviction_detail="reset"), Wait, want_words="reset"
    ),
    "a request without an answer whose place is taken": Case(LOST_ANSWER, LookAgain),
    "an eviction without an answer whose place is taken": Case(
        replace(let_go(LOST_ANSWER, wanted=False, asked=False), eviction=Eviction.UNANSWERED), LookAgain
    ),
    "an eviction that came to nothing, and its place went to another pod": Case(
        replace(let_go(LOST_ANSWER, wanted=False, asked=False), eviction=Eviction.UNANSWERED, is_untouched=True),
        Finish,
        "ReservationFailed",
    ),
    "a request that came to nothing is taken back when its place went to another pod": Case(
        replace(LOST_ANSWER, is_untouched=True),
        TakeBack,
        "ReservationFailed",
    ),
    "a pod that was let go runs on until its replacement has come": Case(LET_GO, Wait, want_words="runs on"),
    "a replacement that is not available is waited for": Case(TAKEN, Wait, want_words="is available"),
    "an available replacement lets the pod be evicted": Case(AVAILABLE, Evict),
    "a refused eviction is tried again, not at once": Case(
        replace(AVAILABLE, retry_eviction_at=NOW + 1, eviction=Eviction.BLOCKED, eviction_detail="the budget"),
        Wait,
        want_words="the budget",
    ),
    "an eviction that is refused until its deadline": Case(
        replace(AVAILABLE, eviction=Eviction.BLOCKED, since=Since(blocked=880)), TakeBack, "EvictionBlocked"
    ),
    "an eviction that is refused for good": Case(
        replace(AVAILABLE, eviction=Eviction.REFUSED), TakeBack, "EvictionForbidden"
    ),
    "a filter that refuses": Case(replace(AVAILABLE, refusal=MoveReason.FILTERED), TakeBack, "Filtered"),
    "a place that is lost": Case(
        replace(LET_GO, place=ReservationProgress.LOST), TakeBack, "TakenBack", "its place was lost"
    ),
    "a replacement that takes too long to come": Case(
        let_go(released_since=910), TakeBack, "TakenBack", "took the place within 90 s"
    ),
    "a replacement that is not available in time": Case(
        replace(TAKEN, since=Since(taken=970)), TakeBack, "TakenBack", "was not available 30 s after"
    ),
    "a replacement that has minReadySeconds is given them": Case(
        replace(let_go(TAKEN, min_ready_seconds=20), since=Since(taken=970)), Wait
    ),
    "a replacement that asks for more time by its probes is given that": Case(
        replace(TAKEN, start_seconds=300, since=Since(taken=NOW - 329)), Wait
    ),
    "a replacement is given what its Deployment gives it": Case(
        replace(TAKEN, progress_seconds=600, since=Since(taken=NOW - 599)), Wait
    ),
    "a deadline of the Deployment that is over": Case(
        replace(TAKEN, progress_seconds=600, since=Since(taken=NOW - 600)),
        TakeBack,
        "TakenBack",
        "available 600 s after",
    ),
    "the deadline of a Deployment takes nothing off what probes ask for": Case(
        replace(TAKEN, progress_seconds=60, start_seconds=300, since=Since(taken=NOW - 329)), Wait
    ),
    "but no more than that": Case(
        replace(TAKEN, start_seconds=300, since=Since(taken=NOW - 330)), TakeBack, "TakenBack", "available 330 s after"
    ),
    "the time until it is Ready begins when its containers run": Case(
        replace(TAKEN, since=Since(taken=NOW - 59, started=NOW - 29)), Wait
    ),
    "a replacement whose image is being pulled is waited for, however long it takes to take the place": Case(
        replace(let_go(COMING, released_since=800), since=Since(taken=NOW - 29)), Wait, want_words="ContainerCreating"
    ),
    "but no longer than until it has to be Ready": Case(
        replace(COMING, since=Since(taken=NOW - 30)), TakeBack, "TakenBack", "after it began: container app waits"
    ),
    "one that runs is evicted for only once its place is recorded as taken": Case(
        replace(let_go(COMING, available=True), since=Since(taken=NOW - 1)), Wait
    ),
    "a container that has crashed is given a while": Case(
        replace(TAKEN, trouble=CRASHING, since=Since(taken=995, troubled=NOW - 19)), Wait, want_words="CrashLoopBackOff"
    ),
    "and then no more": Case(
        replace(TAKEN, start_seconds=300, trouble=CRASHING, since=Since(taken=900, troubled=NOW - 60)),
        TakeBack,
        "CrashLoopBackOff",
        "the replacement web-2 on target does not become Ready: container app",
    ),
    "a replacement that the kubelet refuses is given up at once": Case(
        replace(TAKEN, trouble=REFUSED, since=Since(taken=NOW, troubled=NOW)), TakeBack, "RefusedByKubelet", "OutOfcpu"
    ),
    "also if the next one runs elsewhere": Case(
        let_go(
            replace(TAKEN, trouble=REFUSED, since=Since(taken=NOW, troubled=NOW)), misplaced="x", misplaced_since=900
        ),
        TakeBack,
        "RefusedByKubelet",
    ),
    "what is in its way when its time is over is the reason": Case(
        replace(TAKEN, trouble=CRASHING, since=Since(taken=970, troubled=NOW - 1)),
        TakeBack,
        "CrashLoopBackOff",
        "was not available 30 s after",
    ),
    "a replacement that runs elsewhere": Case(
        let_go(misplaced="other", misplaced_since=995), TakeBack, "TakenBack", "runs on other"
    ),
    "a replacement that was handed a place elsewhere": Case(
        replace(TAKEN, replacement=Replacement("web-2", "other", ready=True)), TakeBack, "TakenBack", "runs on other"
    ),
    "a ReplicaSet that makes no other pod": Case(let_go(alone_since=995), TakeBack, "TakenBack", "no pod in its stead"),
    "a plan that stops": Case(replace(LET_GO, stop=MoveReason.INTERRUPTED), TakeBack, "Interrupted"),
    "a plan that stops by its own rules while the replacement has its place": Case(
        replace(TAKEN, stop=MoveReason.PLAN_STOPPED), Wait, want_words="is available"
    ),
    "a plan that stops by its own rules while the replacement is on its way to its place": Case(
        replace(COMING, stop=MoveReason.OUTDATED), Wait, want_words="ContainerCreating"
    ),
    "a plan that stops by its own rules while a budget refuses": Case(
        replace(AVAILABLE, stop=MoveReason.PLAN_STOPPED, eviction=Eviction.BLOCKED), Evict
    ),
    "a plan that stops by its own rules before the replacement has come": Case(
        replace(LET_GO, stop=MoveReason.PLAN_STOPPED), TakeBack, "PlanStopped"
    ),
    "a plan that is aborted while the replacement has its place": Case(
        replace(TAKEN, stop=MoveReason.ABORTED), TakeBack, "Aborted"
    ),
    "a plan that stops when the replacement is available": Case(replace(AVAILABLE, stop=MoveReason.INTERRUPTED), Evict),
    "a plan that stops while a budget refuses": Case(
        replace(AVAILABLE, stop=MoveReason.ABORTED, eviction=Eviction.BLOCKED), TakeBack, "Aborted"
    ),
    "one that is taken back stays so, whatever happens": Case(
        let_go(replace(AVAILABLE, surge=RETURNING.surge), available=True), TakeBack, "TakenBack"
    ),
    "one that is back is over": Case(let_go(RETURNING, returned=True), Finish, "TakenBack"),
    "one that has left meanwhile is over": Case(replace(RETURNING, presence=Presence.GONE), Finish, "TakenBack"),
    "one that no ReplicaSet would take has to go": Case(OWNERLESS, Evict),
    "one that no ReplicaSet would take is waited for": Case(replace(OWNERLESS, eviction=Eviction.SENT), Wait),
    "one that no ReplicaSet would take and that is refused": Case(
        replace(OWNERLESS, eviction=Eviction.BLOCKED, since=Since(blocked=880)), Finish, "EvictionBlocked"
    ),
    "an interrupted run that cannot give a pod back leaves that to the next": Case(
        replace(RETURNING, stop=MoveReason.INTERRUPTED, since=Since(stopping=985)),
        Finish,
        "Interrupted",
        "the next run gives it back",
    ),
    "an evicted pod that is gone has landed": Case(
        replace(AVAILABLE, presence=Presence.GONE, eviction=Eviction.SENT), Finish
    ),
    "siblings that wait for their turn do not keep a move whose replacement ran elsewhere": Case(
        replace(LET_GO, presence=Presence.GONE, replicas=ReplicaCounts(held=1, not_evicted=1, misplaced="other")),
        Finish,
        want_words="runs on other",
    ),
    "a place that is held ahead is asked for before its turn": Case(
        replace(AHEAD, place=ReservationProgress.NOT_CREATED), Reserve
    ),
    "a place is not asked for ahead while the sibling in its turn has none": Case(
        replace(AHEAD, place=ReservationProgress.NOT_CREATED, replicas=ReplicaCounts(not_evicted=1, without_place=1)),
        Wait,
        MoveState.PENDING,
        want_words="waits until the sibling before it has a place",
    ),
    "a place that is asked for already is waited for beside a sibling without one": Case(
        replace(AHEAD, place=ReservationProgress.PENDING, replicas=ReplicaCounts(not_evicted=1, without_place=1)),
        Wait,
        MoveState.RESERVING,
    ),
    "a pod whose place is held ahead waits for its turn": Case(AHEAD, Wait, want_words="waits for the move of a sib"),
    "so does one that is evicted first": Case(replace(AHEAD, surge=Surge(in_turn=False)), Wait),
    "a place that cannot be held ahead is asked for again": Case(
        replace(AHEAD, place=ReservationProgress.PENDING, since=Since(reserving=900)), Postpone
    ),
    "also if its Reservation failed": Case(replace(AHEAD, place=ReservationProgress.LOST), Postpone),
    "also if it was refused": Case(
        replace(AHEAD, place=ReservationProgress.NOT_CREATED, refusal=MoveReason.RESERVATION_FAILED), Postpone
    ),
    "a Reservation that was given up ahead is deleted until it is gone": Case(
        replace(AHEAD, ahead=False, postponed=True, place=ReservationProgress.NOT_CREATED), Postpone
    ),
    "in its turn a place that cannot be held is the end": Case(
        replace(AHEAD, place=ReservationProgress.LOST, surge=WANTED),
        Finish,
        want_reason=MoveReason.RESERVATION_FAILED,
    ),
    "a pod that is gone has no turn": Case(
        replace(AHEAD, presence=Presence.GONE), Finish, want_reason=MoveReason.POD_GONE
    ),
    "a pod that another client deleted has landed as well": Case(replace(AVAILABLE, presence=Presence.GONE), Finish),
}


@pytest.mark.parametrize("claim", CASES)
def test_what_is_seen_decides_what_becomes_of_a_pod_that_surges(claim: str) -> None:
    case = CASES[claim]
    step = next_step(case.scene.facts(), TIMEOUTS, NOW)

    assert type(step) is case.want, step
    end = step.end if isinstance(step, TakeBack) else step
    if isinstance(end, Finish):
        assert end.reason == case.want_reason
    assert case.want_words in (end.message if isinstance(end, Finish | Wait) else "")


BY_OTHERS: Mapping[str, tuple[MoveScene, str]] = {
    "the ReplicaSet was scaled down": (let_go(alone_since=995), "no pod in its stead"),
    "the Reservation was deleted": (
        replace(LET_GO, place=ReservationProgress.LOST, is_lost_to_others=True),
        "its place was lost",
    ),
    "the replacement was removed, and the next one runs elsewhere": (
        replace(let_go(misplaced="other", misplaced_since=995), successor="uid-web-2"),
        "removed by others, and the next one runs on other",
    ),
}


@pytest.mark.parametrize("change", BY_OTHERS)
def test_what_is_taken_back_for_what_others_changed_is_no_failure(change: str) -> None:
    scene, want_words = BY_OTHERS[change]
    step = next_step(scene.facts(), TIMEOUTS, NOW)

    assert isinstance(step, TakeBack)
    assert (step.end.state, step.end.reason) == (MoveState.SKIPPED, MoveReason.TAKEN_BACK)
    assert want_words in step.end.message


OWN_FAULTS: Mapping[str, MoveScene] = {
    "the place was lost for a reason of its own": replace(LET_GO, place=ReservationProgress.LOST),
    "the replacement was handed no place": let_go(misplaced="other", misplaced_since=995),
    "the replacement came to another node": replace(TAKEN, replacement=Replacement("web-2", "other", ready=True)),
    "the replacement did not come": let_go(released_since=900),
}


@pytest.mark.parametrize("fault", OWN_FAULTS)
def test_what_is_taken_back_for_another_reason_has_failed(fault: str) -> None:
    step = next_step(OWN_FAULTS[fault].facts(), TIMEOUTS, NOW)

    assert isinstance(step, TakeBack)
    assert (step.end.state, step.end.reason) == (MoveState.FAILED, MoveReason.TAKEN_BACK)


DELETED = replace(LET_GO, presence=Presence.GONE, replicas=ReplicaCounts(held=1, awaiting_replacement=1))
UNREADY = replace(TAKEN, presence=Presence.GONE, replacement=Replacement("web-2", "target", ready=False))
ENDS_OF_DELETED: Mapping[str, MoveScene] = {
    "its Deployment is gone": replace(DELETED, replicas=replace(DELETED.replicas, is_full=True)),
    "its Deployment is gone, and its place is not held": replace(
        DELETED, place=ReservationProgress.PENDING, replicas=replace(DELETED.replicas, is_full=True)
    ),
    "its Reservation is gone": replace(DELETED, place=ReservationProgress.LOST),
    "no replacement comes": replace(DELETED, since=Since(gone=0)),
    "its replacement was removed": replace(UNREADY, replacement=None, since=Since(taken=0)),
}


@pytest.mark.parametrize("end", ENDS_OF_DELETED)
def test_a_pod_that_others_deleted_while_it_was_let_go_was_not_evicted(end: str) -> None:
    step = next_step(ENDS_OF_DELETED[end].facts(), TIMEOUTS, NOW)

    assert isinstance(step, Finish)
    assert (step.state, step.reason) == (MoveState.SKIPPED, MoveReason.POD_GONE)
    assert step.message.startswith("the pod was deleted by others before its eviction, then ")


@pytest.mark.parametrize("scene", [DELETED, UNREADY], ids=["no replacement yet", "a replacement that starts"])
def test_a_pod_that_others_deleted_is_waited_for_and_not_called_evicted(scene: MoveScene) -> None:
    step = next_step(scene.facts(), TIMEOUTS, NOW)
    assert isinstance(step, Wait)
    assert step.state is MoveState.RESERVED


def test_no_pod_that_was_let_go_is_evicted_before_another_serves() -> None:
    for place, eviction, stop, available in product(ReservationProgress, Eviction, MoveReason, (True, False)):
        scene = replace(let_go(LET_GO, available=available), place=place, stop=stop, eviction=eviction)
        if isinstance(next_step(scene.facts(), TIMEOUTS, NOW), Evict):
            assert available
            assert place is ReservationProgress.BOUND


def test_no_pod_that_may_have_been_let_go_is_left_so() -> None:
    """A move whose pod is on its source ends by taking it back, never otherwise."""
    asked = let_go(RESERVED, asked=True)
    for before, place, eviction, stop in product((asked, LET_GO, AVAILABLE), ReservationProgress, Eviction, MoveReason):
        scene = replace(before, place=place, stop=stop, eviction=eviction)
        if not scene.facts().evicted:
            assert not isinstance(next_step(scene.facts(), TIMEOUTS, NOW + 10_000), Finish), scene


def test_every_surge_ends_when_all_its_deadlines_are_over() -> None:
    long_ago = Since(reserving=0, blocked=0, evicted=0, gone=0, taken=0, stopping=0)
    stops = (MoveReason.NONE, MoveReason.PLAN_STOPPED, MoveReason.INTERRUPTED)
    late = replace(LET_GO.surge, released_since=0, alone_since=0)
    for presence, place, eviction, stop in product(Presence, ReservationProgress, Eviction, stops):
        scene = replace(
            LET_GO, presence=presence, place=place, eviction=eviction, stop=stop, since=long_ago, surge=late
        )
        assert isinstance(next_step(scene.facts(), TIMEOUTS, 10_000), TakeBack | Finish), scene
