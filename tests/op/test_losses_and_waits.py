"""A place that is lost, not found or not free yet: what is waited for, what is made again, what ends it all."""

from dataclasses import dataclass, field

import pytest

from berth_core import Pod
from berth_core.reservations import Reservation, ReservationPhase, ReservationState, SlotState
from berth_operator.reservation.decide import decide
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.surveys import Survey
from builders import NOON, NOON_TEXT, task
from handover_builders import (
    HANDING_OVER,
    PATIENT,
    PREEMPTED,
    PROVEN,
    UNSCHEDULABLE,
    decide_now,
    guard,
    note,
    observe,
    on_node,
    owner_pod,
    place,
    placeholder,
    resident,
    slot,
    told,
)

UNGATED = owner_pod(given=note(), gates=(), nominated_node="node-a")


# --- losses


def three(*losses: Pod) -> Observation:
    """What is seen of a Reservation of three slots that wants two, with something wrong with the last."""
    held = place(*(slot(SlotState.HELD, number) for number in range(3)), replicas=3, min_available=2)
    return observe(held, placeholder(0), placeholder(1), *losses, probe=PROVEN, missing_nodes=frozenset({"node-z"}))


LOSSES = {
    "its placeholder is waited for": (three(placeholder(2, conditions=[PREEMPTED], deleted=NOON_TEXT)), []),
    "then it is made again": (three(), [("CreatePlaceholder", "2")]),
    "on a node that is gone it is deleted at once": (
        three(placeholder(2, node="node-z")),
        [("DeletePlaceholder", "place-web-2")],
    ),
}


@pytest.mark.parametrize(("seen", "want"), LOSSES.values(), ids=LOSSES.keys())
def test_a_slot_more_than_is_wanted_is_held_again_when_it_is_lost(
    seen: Observation, want: list[tuple[str, str]]
) -> None:
    decision = decide_now(seen)
    assert decision.status.slots[2].state is SlotState.PENDING
    assert decision.status.state is not None
    assert decision.status.state.phase is ReservationPhase.AVAILABLE
    assert [told(action) for action in decision.actions] == want


def test_one_slot_less_than_is_wanted_ends_the_reservation() -> None:
    held = place(*(slot(SlotState.HELD, number) for number in range(3)), replicas=3, min_available=2)
    gone = [placeholder(number, conditions=[PREEMPTED]) for number in (1, 2)]
    decision = decide_now(observe(held, placeholder(0), *gone))
    assert [one.state for one in decision.status.slots] == [SlotState.RELEASED, SlotState.LOST, SlotState.LOST]
    assert decision.status.slots[1].reason == "Preempted"


def test_a_place_that_is_not_found_is_looked_at_again_when_patience_ends() -> None:
    waiting = place(
        slot(SlotState.PENDING, node=""), phase=ReservationPhase.PENDING, reason="UnschedulableYet", ttl=None
    )
    seen = observe(waiting, placeholder(node="", conditions=[UNSCHEDULABLE]))
    assert decide_now(seen, seconds=590).wake_seconds == pytest.approx(10)
    assert decide_now(seen, seconds=600).status.state == ReservationState(
        phase=ReservationPhase.FAILED,
        reason="Unschedulable",
        message=f"no place was found within 600 s: 0 of 1 slot is held; {UNSCHEDULABLE.message}",
        last_transition_time="2026-11-21T12:10:00Z",
    )


def test_a_place_for_which_a_rule_has_patience_is_waited_for() -> None:
    waiting = place(
        slot(SlotState.PENDING, node=""), phase=ReservationPhase.PENDING, reason="UnschedulableYet", ttl=None
    )
    seen = observe(waiting, placeholder(node="", conditions=[UNSCHEDULABLE]), is_patient=True)
    decision = decide_now(seen, seconds=100_000)
    assert decision.status.state is not None
    assert decision.status.state.phase is ReservationPhase.PENDING


# --- waiting for capacity


PINNED = place(tasks=[task(nodes=["node-a"], cpu="2")])
REFUSED = placeholder(node="", conditions=[UNSCHEDULABLE])


@dataclass(frozen=True, kw_only=True)
class Waiting:
    survey: Survey | None
    reservation: Reservation = PINNED
    want: tuple[ReservationPhase, str]
    want_looks: list[tuple[str, str]] = field(default_factory=list)
    want_wake: float | None


WAITINGS = {
    "a node that is not known yet is looked at": Waiting(
        survey=None,
        want=(ReservationPhase.PENDING, "UnschedulableYet"),
        want_looks=[("SurveyNode", "node-a")],
        want_wake=2.0,
    ),
    "pods that are terminating will make room": Waiting(
        survey=on_node(resident("old", cpu="3", deleted=NOON_TEXT)),
        want=(ReservationPhase.WAITING, "AwaitingCapacity"),
        want_wake=1.0,
    ),
    "after a while it is looked at again": Waiting(
        survey=on_node(resident("old", cpu="3", deleted=NOON_TEXT), age_seconds=2),
        want=(ReservationPhase.WAITING, "AwaitingCapacity"),
        want_looks=[("SurveyNode", "node-a")],
        want_wake=2.0,
    ),
    "pods that are terminating will not make room enough": Waiting(
        survey=on_node(resident("old", cpu="1", deleted=NOON_TEXT), resident("new", cpu="3")),
        want=(ReservationPhase.PENDING, "UnschedulableYet"),
        want_wake=1.0,
    ),
    "nothing is about to go": Waiting(
        survey=on_node(resident("old", cpu="3")), want=(ReservationPhase.PENDING, "UnschedulableYet"), want_wake=4.0
    ),
    "there is room, the scheduler has something else to say": Waiting(
        survey=on_node(resident("old", cpu="1", deleted=NOON_TEXT)),
        want=(ReservationPhase.PENDING, "UnschedulableYet"),
        want_wake=1.0,
    ),
    "where any node would do, none is chosen": Waiting(
        survey=on_node(resident("old", cpu="3", deleted=NOON_TEXT)),
        reservation=place(tasks=[task(cpu="2")]),
        want=(ReservationPhase.PENDING, "UnschedulableYet"),
        want_wake=None,
    ),
}


@pytest.mark.parametrize("case", WAITINGS.values(), ids=WAITINGS.keys())
def test_waiting_for_capacity(case: Waiting) -> None:
    surveys = {"node-a": case.survey} if case.survey else {}
    decision = decide(observe(case.reservation, REFUSED, surveys=surveys, probe=PROVEN), NOON, PATIENT)
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == case.want
    assert [told(action) for action in decision.actions] == case.want_looks
    expiry = 600.0
    assert decision.wake_seconds == pytest.approx(case.want_wake if case.want_wake is not None else expiry)


def test_a_reservation_that_waits_says_for_what() -> None:
    survey = on_node(*(resident(name, cpu="2", deleted=NOON_TEXT) for name in ("old", "older")))
    state = decide_now(observe(PINNED, REFUSED, surveys={"node-a": survey})).status.state
    assert state is not None
    assert state.message == (
        "0 of 1 slot is held; node node-a is chosen and gets room once pod default/old and 1 more have terminated"
    )


def test_a_place_that_another_pod_took_is_the_reason_of_the_end() -> None:
    seen = observe(
        HANDING_OVER,
        UNGATED,
        guards={"node-a": guard()},
        surveys={"node-a": on_node(resident("web-9", cpu="4"))},
        stage_ages={UNGATED.metadata.uid: 5.0},
    )
    state = decide_now(seen).status.state
    assert state is not None
    assert (state.phase, state.reason) == (ReservationPhase.FAILED, "PlaceTaken")
    assert state.message == "slot web/0: pod default/web-9 took the place of pod default/web-0 on node node-a"
