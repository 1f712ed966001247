"""What the API shows of a Reservation and of pods, read as the facts of moves."""
# ruff: noqa: ANN401 - a builder passes on what the case says

import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from berth_core import Container, ContainerStatus, OwnerReference, Pod, Probe
from berth_core.labels import RESERVATION_LABEL
from berth_core.migration_plans import MoveReason, MoveState, MoveStatus, PlannedMove
from berth_core.objects.pods import ContainerState, WaitingContainer
from berth_core.reservations import (
    Condition,
    ObjectReference,
    ReservationPhase,
    ReservationState,
    ReservationStatus,
    Slot,
    SlotState,
)
from berth_descheduler.migration.moves.facts import MoveFacts, Presence, ReplicaCounts, ReservationProgress
from berth_descheduler.migration.moves.memory import (
    Eviction,
    MoveMemory,
    NodeProblems,
    PlaceOfMove,
    PodOfMove,
    Since,
    Surge,
    Turn,
    remember,
)
from berth_descheduler.migration.moves.next_step import next_step
from berth_descheduler.migration.moves.observation import ReplicaCounter, observe_others, observe_wave, read_place
from berth_descheduler.migration.moves.steps import Evict, Finish, Reserve, Step, TakeBack, Wait
from berth_descheduler.migration.moves.surge_observation import note_release
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_descheduler.settings import MoveTimeouts
from builders import NOON, pod, reservation

NOW, GAP = 1000.0, 5.0
HELD_SLOT = Slot(task="pod", index=0, state=SlotState.HELD, node="target")


def status(phase: ReservationPhase, slot: Slot | None = None, *true: str, **rest: Any) -> ReservationStatus:
    conditions = tuple(Condition(type=name, status="True") for name in true)
    state = ReservationState(phase=phase, reason="Because", message="it is so")
    return ReservationStatus(state=state, slots=(slot,) if slot else (), conditions=conditions, **rest)


def slot(state: SlotState, owner: str = "") -> Slot:
    return Slot(task="pod", index=0, state=state, node="target", owner=ObjectReference(uid=owner) if owner else None)


@dataclass(frozen=True)
class Case:
    status: ReservationStatus
    want: ReservationProgress
    want_detail: str = "Because: it is so"
    deleted: bool = False


AVAILABLE, READY = "Available", "HandoverReady"
CASES = {
    "nobody has looked at it": Case(
        ReservationStatus(), ReservationProgress.PENDING, "no operator has looked at it; is berth-operator running?"
    ),
    "pending": Case(status(ReservationPhase.PENDING), ReservationProgress.PENDING),
    "waiting for room": Case(status(ReservationPhase.WAITING, slot(SlotState.PENDING)), ReservationProgress.PENDING),
    "available, not proven": Case(
        status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE),
        ReservationProgress.UNVERIFIED,
        "the operator is silent; too old?",
    ),
    "available and proven": Case(
        status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE, READY), ReservationProgress.READY
    ),
    "proven but not available any more": Case(
        status(ReservationPhase.PENDING, None, READY), ReservationProgress.PENDING
    ),
    "being handed over": Case(
        status(ReservationPhase.AVAILABLE, slot(SlotState.HANDING_OVER), AVAILABLE, READY),
        ReservationProgress.HANDING_OVER,
    ),
    "taken, not all over": Case(status(ReservationPhase.AVAILABLE, slot(SlotState.TAKEN)), ReservationProgress.BOUND),
    "succeeded": Case(status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN)), ReservationProgress.BOUND),
    "failed": Case(status(ReservationPhase.FAILED), ReservationProgress.LOST),
    "being deleted": Case(
        status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE, READY),
        ReservationProgress.LOST,
        "the Reservation is being deleted",
        deleted=True,
    ),
    "succeeded and being deleted": Case(
        status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN)), ReservationProgress.BOUND, deleted=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_how_far_a_place_is_is_read_off_its_reservation(case: Case) -> None:
    seen = reservation(status=case.status, deleted="2026-11-21T12:00:00Z" if case.deleted else None)
    assert read_place(seen) == (case.want, case.want_detail)


def test_why_a_hand_over_is_not_proven_is_said() -> None:
    why = Condition(type=READY, status="False", reason="NotGated", message="the probe came back ungated")
    seen = status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE)
    seen = ReservationStatus(state=seen.state, slots=seen.slots, conditions=(*seen.conditions, why))
    assert read_place(reservation(status=seen)) == (
        ReservationProgress.UNVERIFIED,
        "NotGated: the probe came back ungated",
    )


# --- one move -------------------------------------------------------------------------------------------------------


def progress(name: str = "web-1", *, owner: str = "web", source: str = "source", wave: int = 1) -> MoveMemory:
    move = PlannedMove(
        namespace="default",
        pod=name,
        pod_uid=f"uid-default-{name}",
        owner=ObjectReference(kind="ReplicaSet", name=owner, uid=f"uid-{owner}"),
        source=source,
        target="target",
        wave=wave,
    )
    return remember("plan-1", zlib.crc32(name.encode()), move)


def observed(
    *moves: tuple[MoveMemory, ReservationStatus | None, Pod | None], more: tuple[Pod, ...] = ()
) -> ObservedPlan:
    reservations = {one.key: reservation(one.reservation, status=seen) for one, seen, _ in moves if seen is not None}
    pods = {found.metadata.uid: found for found in (*(p for _, _, p in moves if p), *more)}
    return ObservedPlan(reservations=reservations, pods=pods)


def facts_of(memory: MoveMemory, seen: ObservedPlan, *others: MoveMemory, now: float = NOW) -> MoveFacts:
    look = observe_wave([memory, *others], seen, now, GAP)
    others = observe_others(memory, look, stop=MoveReason.NONE, stopping_since=None, source_lost=False)
    return MoveFacts(memory, look.observations[memory.index], others)


def since(facts: MoveFacts, event: Since) -> float | None:
    return facts.memory.waits.since(event)


AVAILABLE_STATUS = status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE, READY)


@pytest.mark.parametrize(
    ("claim", "seen", "want"),
    [
        ("there", pod("web-1", node="source"), Presence.ON_SOURCE),
        ("being deleted", pod("web-1", node="source", deleted="2026-11-21T12:00:00Z"), Presence.LEAVING),
        ("not there", None, Presence.GONE),
        ("ended by itself", pod("web-1", node="source", phase="Succeeded"), Presence.GONE),
        ("another of the same name", pod("web-1", node="source", uid="other"), Presence.GONE),
    ],
)
def test_where_the_pod_is_is_told_by_its_uid(claim: str, seen: Pod | None, want: Presence) -> None:
    one = progress()
    assert facts_of(one, observed((one, None, seen))).seen.presence is want, claim


def test_a_reservation_just_made_may_be_unseen_for_a_while_however_long_its_making_took() -> None:
    one = progress()
    one.place = PlaceOfMove(asked=True)
    one.waits = one.waits.begin(Since.CREATED, NOW).begin(Since.RESERVING, NOW - 2 * GAP)
    here = observed((one, None, pod("web-1", node="source")))
    assert facts_of(one, here, now=NOW + GAP - 1).seen.place is ReservationProgress.PENDING
    assert facts_of(one, here, now=NOW + GAP).seen.place is ReservationProgress.LOST


def test_a_reservation_that_was_seen_and_is_not_there_was_deleted() -> None:
    one = progress()
    here = pod("web-1", node="source")
    one.place, one.waits = PlaceOfMove(asked=True), one.waits.begin(Since.CREATED, NOW)
    facts_of(one, observed((one, AVAILABLE_STATUS, here)))
    assert facts_of(one, observed((one, None, here))).seen.place is ReservationProgress.LOST


def test_who_took_the_place_and_where_it_really_runs() -> None:
    one = progress()
    newcomer = pod("web-9", uid="new", node="elsewhere")
    seen = observed((one, status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "new")), None), more=(newcomer,))
    replacement = facts_of(one, seen).seen.replacement
    assert replacement is not None
    assert (replacement.name, replacement.node, replacement.ready) == ("web-9", "elsewhere", True)


def test_a_job_pod_that_has_already_succeeded_counts_as_ready() -> None:
    one = progress()
    done = pod("web-9", uid="new", node="target", phase="Succeeded", ready=False)
    seen = observed((one, status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "new")), None), more=(done,))
    replacement = facts_of(one, seen).seen.replacement
    assert replacement is not None
    assert replacement.ready


def test_an_interrupted_runs_eviction_is_told_by_a_pod_that_is_gone_beside_a_live_reservation() -> None:
    one = progress()
    one.adopted = True
    facts = facts_of(one, observed((one, AVAILABLE_STATUS, None)))
    assert facts.evicted
    assert since(facts, Since.EVICTED) == NOW


def test_a_pod_gone_without_a_reservation_was_not_evicted_by_an_interrupted_run() -> None:
    one = progress()
    one.adopted = True
    assert not facts_of(one, observed((one, None, None))).evicted


ENDED = pod("web-1", node="source", phase="Succeeded")


def test_a_pod_that_ended_by_itself_was_evicted_by_no_run_as_nobody_deletes_it() -> None:
    adopted, unanswered = progress(), progress()
    adopted.adopted = True
    unanswered.pod = PodOfMove(Eviction.UNANSWERED)
    for one in (adopted, unanswered):
        assert not facts_of(one, observed((one, AVAILABLE_STATUS, ENDED))).evicted
        left = next_step(facts_of(one, observed((one, AVAILABLE_STATUS, ENDED))), MoveTimeouts(), NOW)
        assert isinstance(left, Finish)
        assert (left.state, left.reason) == (MoveState.SKIPPED, MoveReason.POD_GONE)


def test_a_new_run_takes_no_pod_that_is_gone_for_evicted() -> None:
    one = progress()
    assert not facts_of(one, observed((one, AVAILABLE_STATUS, None))).evicted


# --- places that expire ---------------------------------------------------------------------------------------------

HORIZON = NOON + timedelta(minutes=2)
EXPIRIES = {
    "one that expires before the pod could have moved is lost": (
        "2026-11-21T12:01:59Z",
        False,
        ReservationProgress.LOST,
    ),
    "one that expires later holds": ("2026-11-21T12:02:01Z", False, ReservationProgress.READY),
    "one that never expires holds": (None, False, ReservationProgress.READY),
    "one for which a pod was evicted is used to the last": ("2026-11-21T12:01:59Z", True, ReservationProgress.READY),
}


@pytest.mark.parametrize(("expires", "gone", "want"), EXPIRIES.values(), ids=EXPIRIES)
def test_a_place_counts_while_it_lasts(expires: str | None, gone: bool, want: ReservationProgress) -> None:  # noqa: FBT001 - a table
    one = evicted(progress()) if gone else progress()
    held = status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE, READY, expires_at=expires)
    seen = observed((one, held, None if gone else pod("web-1", node="source")))
    look = observe_wave([one], seen, NOW, GAP, horizon=HORIZON)
    assert look.observations[one.index].place is want


# --- several moves --------------------------------------------------------------------------------------------------


def evicted(memory: MoveMemory) -> MoveMemory:
    memory.pod = PodOfMove(Eviction.SENT)
    return memory


def test_held_places_evicted_pods_and_pods_that_stay_are_counted_by_controller() -> None:
    first, second, third = evicted(progress("web-1")), progress("web-2"), progress("api-1", owner="api")
    seen = observed(
        (first, AVAILABLE_STATUS, None),
        (second, AVAILABLE_STATUS, pod("web-2", node="source")),
        (third, AVAILABLE_STATUS, pod("api-1", node="source")),
    )
    assert facts_of(first, seen, second, third).others.replicas == ReplicaCounts(
        held=2, awaiting_replacement=1, not_evicted=1
    )
    assert facts_of(third, seen, first, second).others.replicas == ReplicaCounts(
        held=1, awaiting_replacement=0, not_evicted=1
    )


PLACES = {
    "none": (None, 1),
    "one that is not proven": (status(ReservationPhase.AVAILABLE, HELD_SLOT, AVAILABLE), 1),
    "one that is held": (AVAILABLE_STATUS, 0),
}


@pytest.mark.parametrize(("of_first", "want"), PLACES.values(), ids=PLACES)
def test_a_place_ahead_waits_for_the_place_of_the_sibling_in_its_turn(
    of_first: ReservationStatus | None, want: int
) -> None:
    first, second = progress("web-1"), progress("web-2")
    second.surge, second.turn = Surge(wanted=True, in_turn=False), Turn(1, number=2, ahead=True)
    seen = observed((first, of_first, pod("web-1", node="source")), (second, None, pod("web-2", node="source")))
    assert facts_of(second, seen, first).others.replicas.without_place == want
    assert isinstance(next_step(facts_of(second, seen, first), MoveTimeouts(), NOW), Wait if want else Reserve)
    assert isinstance(next_step(facts_of(first, seen, second), MoveTimeouts(), NOW), Wait if of_first else Reserve)


def test_a_replacement_in_a_siblings_place_is_at_home() -> None:
    first, second = evicted(progress("web-1")), progress("web-2")
    taken = status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "new"))
    seen = observed((first, AVAILABLE_STATUS, None), (second, taken, pod("web-2", node="source")))
    assert facts_of(second, seen, first).others.replicas == ReplicaCounts(held=1, awaiting_replacement=0, not_evicted=1)


def test_a_strangers_pod_in_a_place_makes_nobody_at_home() -> None:
    tally = ReplicaCounter(held=1, awaiting_replacement=-1)
    assert tally.counts() == ReplicaCounts(held=1, awaiting_replacement=0)


def test_a_sibling_that_ended_in_anothers_place_still_balances_it() -> None:
    first, second = evicted(progress("web-1")), progress("web-2")
    first.status = MoveStatus(namespace="default", pod="web-1", state=MoveState.ELSEWHERE)
    taken = status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "new"))
    seen = observed((first, None, None), (second, taken, pod("web-2", node="source")))
    assert facts_of(second, seen, first).others.replicas.awaiting_replacement == 0


def test_a_source_is_ready_when_every_pod_of_it_has_a_place() -> None:
    first, second, other = progress("web-1"), progress("web-2"), progress("web-3", source="other")
    pods = [pod(name, node="source") for name in ("web-1", "web-2", "web-3")]
    seen = observed((first, AVAILABLE_STATUS, pods[0]), (second, None, pods[1]), (other, AVAILABLE_STATUS, pods[2]))
    assert not facts_of(first, seen, second, other).others.source_ready
    assert facts_of(other, seen, first, second).others.source_ready


def test_a_drain_waits_for_the_places_of_all_its_moves() -> None:
    first, other = progress("web-1"), progress("web-3", source="other", owner="api")
    pods = [pod("web-1", node="source"), pod("web-3", node="other")]

    def is_ready(place: ReservationStatus | None) -> bool:
        seen = observed((first, AVAILABLE_STATUS, pods[0]), (other, place, pods[1]))
        look = observe_wave([first, other], seen, NOW, GAP)
        ready = observe_others(
            first, look, stop=MoveReason.NONE, stopping_since=None, source_lost=False, holds_all=True
        ).source_ready
        assert facts_of(first, seen, other).others.source_ready
        return ready

    assert not is_ready(None)
    assert is_ready(AVAILABLE_STATUS)
    other.status = MoveStatus(namespace="default", pod="web-3", state=MoveState.FAILED)
    assert is_ready(None), "a place that is given up is not waited for"


def test_a_finished_move_does_not_hold_its_source_up() -> None:
    first, second = progress("web-1"), progress("web-2")
    second.status = MoveStatus(namespace="default", pod="web-2", state=MoveState.SKIPPED)
    seen = observed((first, AVAILABLE_STATUS, pod("web-1", node="source")), (second, None, None))
    assert facts_of(first, seen, second).others.source_ready


def test_the_wait_for_a_landing_begins_with_the_last_siblings_end() -> None:
    first, second = evicted(progress("web-1")), evicted(progress("web-2"))
    first.waits = first.waits.begin(Since.GONE, NOW - 50)
    seen = observed((first, AVAILABLE_STATUS, None), (second, AVAILABLE_STATUS, None))
    assert facts_of(first, seen, second).gone_since == NOW


# --- replacements that the webhook missed ---------------------------------------------------------------------------

LATER = "2026-11-21T12:00:05Z"
WEB = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True)


def newcomer(name: str = "web-9", *, node: str = "elsewhere", created: str = LATER, **rest: Any) -> Pod:
    return pod(name, uid=f"uid-{name}", node=node, created=created, controller=WEB, **rest)


def counts_after(
    gap: float, more: tuple[Pod, ...], *, state: SlotState = SlotState.HELD, owner: str = ""
) -> ReplicaCounts:
    """Look twice, so far apart, at a pod that was evicted and is gone, beside more pods of its controller."""
    one = evicted(progress("web-1"))
    phase = ReservationPhase.AVAILABLE
    seen = observed((one, status(phase, slot(state, owner), AVAILABLE, READY), None), more=more)
    facts_of(one, seen)
    return facts_of(one, seen, now=NOW + gap).others.replicas


def test_a_replacement_that_was_handed_no_place_is_at_home_where_it_runs() -> None:
    assert counts_after(GAP, (newcomer(),)) == ReplicaCounts(held=1, awaiting_replacement=0, misplaced="elsewhere")


NOT_ASTRAY = {
    "one just seen": (GAP - 1, newcomer()),
    "one without a node": (GAP, newcomer(node="")),
    "one that is being deleted": (GAP, newcomer(deleted=LATER)),
    "one that has ended": (GAP, newcomer(phase="Failed")),
    "one that is older than the place": (GAP, newcomer(created="2026-11-21T11:59:59Z")),
    "one in a hand-over": (GAP, newcomer(labels={RESERVATION_LABEL: "x"})),
    "one of another controller": (GAP, pod("web-9", uid="other", node="elsewhere", created=LATER)),
}


@pytest.mark.parametrize(("gap", "found"), NOT_ASTRAY.values(), ids=NOT_ASTRAY)
def test_the_replacement_is_waited_for_beside(gap: float, found: Pod) -> None:
    assert counts_after(gap, (found,)) == ReplicaCounts(held=1, awaiting_replacement=1)


def test_a_pod_that_took_a_place_is_not_astray() -> None:
    taken = counts_after(GAP, (newcomer(),), state=SlotState.TAKEN, owner="uid-web-9")
    assert taken == ReplicaCounts(held=0, awaiting_replacement=0)


# --- other pods of the ReplicaSet that let the pod go ----------------------------------------------------------------

OWN_LABEL = {RESERVATION_LABEL: reservation(progress().reservation).metadata.uid}
COMES = status(ReservationPhase.AVAILABLE, slot(SlotState.HANDING_OVER, "uid-web-9"), AVAILABLE, READY)
IN_PLACE = status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "uid-web-9"))
GATED = newcomer(node="", labels=OWN_LABEL, phase="Pending")


def after_a_gap_beside(place: ReservationStatus, *others: Pod) -> Step:
    """Return the next step of a pod that was let go, once other pods of its ReplicaSet are there for `GAP` seconds."""
    memory = progress()
    memory.surge = Surge(wanted=True)
    memory.note_released(0.0, NOW)
    seen = observed((memory, place, pod("web-1", node="source")), more=others)
    for now in (NOW, NOW + GAP):
        look = observe_wave([memory], seen, now, GAP)
        note_release(memory, look.observations[memory.index], seen, now, look.placed_uids)
    facts = facts_of(memory, seen, now=NOW + GAP)
    return next_step(facts, MoveTimeouts(gap_seconds=GAP), NOW + GAP)


NOT_ITS_REPLACEMENT = (newcomer("web-10"), newcomer("web-11", node="third"))


@pytest.mark.parametrize(
    ("place", "replacement"),
    [
        (COMES, newcomer(node="", labels=OWN_LABEL, phase="Pending")),
        (COMES, newcomer(node="target", phase="Pending")),
        (IN_PLACE, newcomer(node="target", phase="Running", ready=False)),
        (AVAILABLE_STATUS, GATED),
    ],
    ids=["it waits for its node", "it starts", "it is not Ready", "it was gated just now"],
)
def test_pods_that_a_replica_set_makes_beside_the_replacement_do_not_take_a_surge_back(
    place: ReservationStatus, replacement: Pod
) -> None:
    """The ReplicaSet was scaled up, or a sibling was deleted."""
    assert isinstance(after_a_gap_beside(place, replacement, *NOT_ITS_REPLACEMENT), Wait)


def test_a_surge_goes_on_to_the_eviction_beside_pods_that_its_replica_set_makes() -> None:
    assert after_a_gap_beside(IN_PLACE, newcomer(node="target", ready=True), *NOT_ITS_REPLACEMENT) == Evict()


@pytest.mark.parametrize(
    "replacement",
    [
        None,
        newcomer(node="target", deleted=LATER),
        newcomer(node="target", phase="Failed"),
        newcomer(node="", labels={RESERVATION_LABEL: "uid of another"}, phase="Pending"),
    ],
    ids=["none", "being deleted", "failed", "on its way to another place"],
)
def test_a_surge_is_taken_back_where_its_only_replacement_was_handed_no_place(replacement: Pod | None) -> None:
    living = () if replacement is None else (replacement,)
    step = after_a_gap_beside(AVAILABLE_STATUS, *living, newcomer("web-10"))
    assert isinstance(step, TakeBack)
    assert step.end.message == "its replacement was not handed the place and runs on elsewhere"


# --- replacements on their way to being Ready -----------------------------------------------------------------------

PATH = status(ReservationPhase.AVAILABLE, slot(SlotState.HANDING_OVER, "uid-web-9"), AVAILABLE, READY)
TAKEN = status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "uid-web-9"))
FAILED = status(ReservationPhase.FAILED, slot(SlotState.LOST, "uid-web-9"))
STARTING = newcomer(node="target", phase="Pending")


def looked_at(memory: MoveMemory, place: ReservationStatus | None, replacement: Pod, *, now: float = NOW) -> MoveFacts:
    return facts_of(memory, observed((memory, place, None), more=(replacement,)), now=now)


@pytest.mark.parametrize(
    ("claim", "place", "want"),
    [
        ("on its way to it", PATH, ReservationProgress.HANDING_OVER),
        ("recorded", TAKEN, ReservationProgress.BOUND),
        ("recorded, and the Reservation has expired since", FAILED, ReservationProgress.BOUND),
    ],
)
def test_a_pod_that_its_reservation_names_has_the_place_once_it_has_a_node(
    claim: str, place: ReservationStatus, want: ReservationProgress
) -> None:
    facts = looked_at(evicted(progress()), place, STARTING)
    assert (facts.seen.place, facts.is_taken, since(facts, Since.TAKEN), since(facts, Since.STARTED)) == (
        want,
        True,
        NOW,
        None,
    ), claim
    waiting = looked_at(evicted(progress()), PATH, newcomer(node=""))
    assert (waiting.is_taken, since(waiting, Since.TAKEN)) == (False, None)


def test_a_pod_keeps_its_place_when_its_reservation_is_collected() -> None:
    one = evicted(progress())
    looked_at(one, TAKEN, STARTING)
    facts = looked_at(one, None, newcomer(node="target"), now=NOW + 60)
    assert facts.seen.place is ReservationProgress.BOUND
    assert facts.seen.replacement is not None
    assert (since(facts, Since.TAKEN), since(facts, Since.STARTED)) == (NOW, NOW + 60)

    restarted = evicted(progress())
    restarted.status = MoveStatus(namespace="default", pod="web-1", state=MoveState.EVICTED, replacement="web-9")
    restarted.place = PlaceOfMove(asked=True)
    assert looked_at(restarted, None, STARTING).seen.place is ReservationProgress.BOUND


def test_another_pod_in_the_place_has_its_own_time() -> None:
    one = evicted(progress())
    looked_at(one, TAKEN, newcomer(node="target"))
    other = status(ReservationPhase.SUCCEEDED, slot(SlotState.TAKEN, "uid-web-10"))
    facts = looked_at(one, other, newcomer("web-10", node="target", phase="Pending"), now=NOW + 60)
    assert (since(facts, Since.TAKEN), since(facts, Since.STARTED)) == (NOW + 60, None)


def test_a_pod_whose_label_the_operator_took_off_is_not_astray_while_its_place_is_not_recorded() -> None:
    """The label goes in one write and the status in another; the pod is known by its uid."""
    handed = counts_after(
        GAP, (newcomer(node="target", phase="Pending"),), state=SlotState.HANDING_OVER, owner="uid-web-9"
    )
    assert handed.misplaced == ""


def test_what_keeps_a_replacement_back_is_timed_from_its_first_sight_on() -> None:
    one = evicted(progress())
    back_off = ContainerStatus(
        name="app", state=ContainerState(waiting=WaitingContainer(reason="ErrImagePull", message="not found"))
    )
    stuck = msgspec.structs.replace(
        STARTING, status=msgspec.structs.replace(STARTING.status, container_statuses=(back_off,))
    )
    assert looked_at(one, TAKEN, STARTING).seen.trouble is None
    first = looked_at(one, TAKEN, stuck, now=NOW + 5)
    first_since = since(first, Since.TROUBLED)
    second_since = since(looked_at(one, TAKEN, stuck, now=NOW + 30), Since.TROUBLED)
    assert first.seen.trouble is not None
    assert (first.seen.trouble.reason, first_since) == (MoveReason.IMAGE_PULL_BACK_OFF, NOW + 5)
    assert second_since == NOW + 5
    assert since(looked_at(one, TAKEN, STARTING, now=NOW + 40), Since.TROUBLED) is None


def test_a_target_that_is_not_ready_explains_a_replacement_that_is_not() -> None:
    one = evicted(progress())
    one.nodes = NodeProblems(target="node target is not Ready: KubeletNotReady")
    stuck = looked_at(one, TAKEN, STARTING)
    assert stuck.seen.trouble is not None
    assert (stuck.seen.trouble.reason, stuck.seen.trouble.message) == (MoveReason.NODE_NOT_READY, one.nodes.target)
    assert looked_at(one, TAKEN, newcomer(node="target")).seen.trouble is None


def test_a_pod_asks_by_its_probes_for_the_time_of_its_replacement() -> None:
    one = progress()
    slow = Container(startup_probe=Probe(period_seconds=10, failure_threshold=30))
    here = pod("web-1", node="source", containers=(slow,))
    assert facts_of(one, observed((one, AVAILABLE_STATUS, here))).memory.pod.start_seconds == 300
    assert facts_of(one, observed((one, AVAILABLE_STATUS, None))).memory.pod.start_seconds == 300
