"""What the operator does next follows from what it sees, and from nothing else."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from berth_core import Pod
from berth_core.clock import format_timestamp
from berth_core.labels import RESERVATION_LABEL
from berth_core.reservations import Reservation, ReservationPhase, SlotState
from berth_operator.reservation.actions import (
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    ExtendHandover,
    Probe,
)
from berth_operator.reservation.decide import Decision, decide
from berth_operator.reservation.node_access import NodeAccess
from berth_operator.reservation.observation import Guard, Observation, ProbeResult
from berth_operator.reservation.surveys import Survey
from berth_operator.settings import OperatorSettings
from builders import NOON, NOON_TEXT, task
from handover_builders import (
    DEADLINE,
    GATED,
    HANDING_OVER,
    PLACE_UID,
    PREEMPTED,
    PROVEN,
    UNSCHEDULABLE,
    decide_now,
    guard,
    holder_on_node,
    note,
    observe,
    on_node,
    owner_pod,
    place,
    placeholder,
    resident,
    slot,
    told,
    with_condition,
    with_container_status,
)

SETTINGS = OperatorSettings()
HELD = place(slot(SlotState.HELD))


# --- the steps of one hand-over


@dataclass(frozen=True, kw_only=True)
class Step:
    owner: Pod
    placeholder: Pod | None = None
    guard: Guard | None = None
    seconds: float = 0.0
    missing: frozenset[str] = frozenset()
    survey: Survey | None = None
    stage_age: float = 0.0
    """Attended seconds that the owner is at its stage."""
    access: NodeAccess | None = None
    want_state: SlotState = SlotState.HANDING_OVER
    want: list[tuple[str, str]] = field(default_factory=list)


GIVEN = owner_pod(given=note())
NOMINATED = owner_pod(given=note(), nominated_node="node-a")
UNGATED = owner_pod(given=note(), gates=(), nominated_node="node-a")
BOUND = owner_pod(given=note(), gates=(), node="node-a")
RUNNING = owner_pod(given=note(), gates=(), node="node-a", started=True)
ELSEWHERE = owner_pod(given=note(), gates=(), node="node-b", started=True)
TURNED_AWAY = owner_pod(given=note(), gates=(), node="node-a", phase="Failed")
ADOPTED = owner_pod(given=note(), gates=())
JUST_GIVEN = int(NOON.timestamp()) + 59
JUST_UNGATED = owner_pod(given=note(deadline=JUST_GIVEN), gates=(), nominated_node="node-a")
ROOMY = on_node(resident("web-9", cpu="3"))
LATE = DEADLINE - NOON.timestamp() + 1
STEPS = {
    "a slot without its guard waits for it": Step(owner=GIVEN, placeholder=placeholder()),
    "a guard of an earlier hand-over does not count, for it may be taken off at any moment": Step(
        owner=GIVEN, placeholder=placeholder(), guard=guard(5.0, deadline=DEADLINE - 1)
    ),
    "a guard whose value is no number does not count": Step(
        owner=GIVEN, placeholder=placeholder(), guard=guard(5.0, deadline=0)
    ),
    "on a fenced node the placeholder goes at once": Step(
        owner=GIVEN, placeholder=placeholder(), guard=guard(0.0), want=[("DeletePlaceholder", "place-web-0")]
    ),
    "without a fence it stays until the guard has settled": Step(
        owner=GIVEN, placeholder=placeholder(), guard=guard(2.99, is_fenced=False)
    ),
    "then it goes": Step(
        owner=GIVEN,
        placeholder=placeholder(),
        guard=guard(3.0, is_fenced=False),
        want=[("DeletePlaceholder", "place-web-0")],
    ),
    "a pod that an older operator gave its slot is let past the fence first": Step(
        owner=owner_pod(given=note(), labels={"app": "web", RESERVATION_LABEL: PLACE_UID}),
        placeholder=placeholder(),
        guard=guard(),
        want=[("ExtendHandover", "web-0")],
    ),
    "a placeholder on its way out is waited for": Step(
        owner=NOMINATED, placeholder=placeholder(deleted="2026-11-21T12:00:01Z"), guard=guard()
    ),
    "with the placeholder gone the node is nominated and the gate comes off": Step(
        owner=GIVEN, guard=guard(0.0), want=[("Nominate", "web-0"), ("Ungate", "web-0")]
    ),
    "a nomination that was made before is made again": Step(
        owner=NOMINATED, guard=guard(), want=[("Nominate", "web-0"), ("Ungate", "web-0")]
    ),
    "without the guard the gate stays, though the placeholder is gone": Step(owner=NOMINATED),
    "an ungated pod is left to the scheduler": Step(owner=JUST_UNGATED, guard=guard(deadline=JUST_GIVEN)),
    "a nomination that a scheduler took off is made again": Step(
        owner=owner_pod(given=note(deadline=JUST_GIVEN), gates=()),
        guard=guard(deadline=JUST_GIVEN),
        want=[("Nominate", "web-0")],
    ),
    "with less than half of the time left it gets more before anything is done": Step(
        owner=GIVEN, placeholder=placeholder(), guard=guard(), seconds=0.1, want=[("ExtendHandover", "web-0")]
    ),
    "also before its gate comes off": Step(owner=GIVEN, guard=guard(), seconds=0.1, want=[("ExtendHandover", "web-0")]),
    "also where its guard is off": Step(owner=GIVEN, seconds=0.1, want=[("ExtendHandover", "web-0")]),
    "one that no scheduler has tried by half of its time gets more, for its place is free": Step(
        owner=with_condition(UNGATED, GATED), guard=guard(), seconds=1, survey=ROOMY, want=[("ExtendHandover", "web-0")]
    ),
    "so does one of which nobody has said anything": Step(
        owner=UNGATED, guard=guard(), seconds=1, survey=ROOMY, want=[("ExtendHandover", "web-0")]
    ),
    "so does one that a scheduler has tried, until it has had a full time with it": Step(
        owner=with_condition(UNGATED, UNSCHEDULABLE),
        guard=guard(),
        seconds=1,
        stage_age=59.9,
        survey=ROOMY,
        want=[("ExtendHandover", "web-0")],
    ),
    "then it goes its own way": Step(
        owner=with_condition(UNGATED, UNSCHEDULABLE),
        guard=guard(),
        stage_age=60,
        survey=ROOMY,
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "so does one that nobody has tried for very long": Step(
        owner=UNGATED,
        guard=guard(),
        stage_age=900,
        survey=ROOMY,
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "of an ungated pod that is not bound soon the node is looked at": Step(
        owner=UNGATED, guard=guard(), stage_age=5, want=[("SurveyNode", "node-a")]
    ),
    "not again while the last look is fresh": Step(
        owner=UNGATED, guard=guard(), stage_age=5, survey=on_node(resident("web-9", cpu="1"))
    ),
    "with room for it the pod is waited for": Step(
        owner=UNGATED, guard=guard(), stage_age=5, survey=on_node(resident("web-9", cpu="3"))
    ),
    "without room another pod has taken its place, and it goes its own way": Step(
        owner=UNGATED,
        guard=guard(),
        stage_age=5,
        survey=on_node(resident("web-9", cpu="4")),
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "what is terminating has not taken it": Step(
        owner=UNGATED, guard=guard(), stage_age=5, survey=on_node(resident("web-9", cpu="4", deleted=NOON_TEXT))
    ),
    "nor has its own placeholder, seen just before it went": Step(
        owner=UNGATED, guard=guard(), stage_age=5, survey=on_node(holder_on_node(cpu="4"))
    ),
    "nor the pod itself, seen just after it was bound": Step(
        owner=UNGATED, guard=guard(), stage_age=5, survey=on_node(resident("web-0", cpu="4"))
    ),
    "an old look tells nothing": Step(
        owner=UNGATED,
        guard=guard(),
        stage_age=5,
        survey=on_node(resident("web-9", cpu="4"), age_seconds=3.1),
        want=[("SurveyNode", "node-a")],
    ),
    "a pod that waited and was not gated waits for the guard, too": Step(owner=ADOPTED, placeholder=placeholder()),
    "then its placeholder goes": Step(
        owner=ADOPTED, placeholder=placeholder(), guard=guard(), want=[("DeletePlaceholder", "place-web-0")]
    ),
    "one that found a place by itself leaves the slot as it is": Step(
        owner=ELSEWHERE,
        placeholder=placeholder(),
        guard=guard(),
        want_state=SlotState.HELD,
        want=[("Release", "web-0")],
    ),
    "a bound pod is waited for": Step(owner=BOUND, guard=guard()),
    "a running pod has taken its slot, and note and label come off": Step(
        owner=RUNNING, guard=guard(), want_state=SlotState.TAKEN, want=[("CompleteHandover", "web-0")]
    ),
    "a pod that ran elsewhere has left its slot, but it runs": Step(
        owner=ELSEWHERE, guard=guard(), want_state=SlotState.TAKEN, want=[("CompleteHandover", "web-0")]
    ),
    "a pod that ran and has ended took its slot": Step(
        owner=owner_pod(given=note(), gates=(), node="node-a", phase="Succeeded"),
        want_state=SlotState.TAKEN,
        want=[("CompleteHandover", "web-0")],
    ),
    "a pod that ran and failed took its slot": Step(
        owner=with_container_status(TURNED_AWAY),
        want_state=SlotState.TAKEN,
        want=[("CompleteHandover", "web-0")],
    ),
    "a pod that the kubelet turned away took nothing": Step(
        owner=TURNED_AWAY, want_state=SlotState.PENDING, want=[("CreatePlaceholder", "0"), ("Release", "web-0")]
    ),
    "a bound pod needs no more time, however long its images take": Step(owner=BOUND, seconds=LATE, stage_age=86400),
    "past its deadline a pod that no operator attended to is not given up": Step(
        owner=UNGATED, seconds=300, want=[("ExtendHandover", "web-0")]
    ),
    "nor one that is gated still": Step(
        owner=NOMINATED, placeholder=placeholder(), guard=guard(), seconds=300, want=[("ExtendHandover", "web-0")]
    ),
    "one that can be kept back for nothing goes its own way after a quarter of an hour, and the placeholder goes": Step(
        owner=NOMINATED,
        placeholder=placeholder(),
        guard=guard(),
        stage_age=900,
        want_state=SlotState.LOST,
        want=[("Release", "web-0"), ("DeletePlaceholder", "place-web-0")],
    ),
    "after a minute already where its node is not ready, and its placeholder may never go": Step(
        owner=NOMINATED,
        placeholder=placeholder(deleted="2026-11-21T12:00:01Z"),
        guard=guard(),
        stage_age=60,
        access=NodeAccess(is_ready=False),
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "a deadline further ahead than a hand-over may take is put right: the clock was set back": Step(
        owner=NOMINATED, seconds=-3600, want=[("ExtendHandover", "web-0")]
    ),
    "a pod whose node is gone is let go at once": Step(
        owner=NOMINATED,
        missing=frozenset({"node-a"}),
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "one whose node is gone, but that a scheduler is about to place, is waited for": Step(
        owner=JUST_UNGATED, missing=frozenset({"node-a"})
    ),
    "until a scheduler has found no place for it": Step(
        owner=with_condition(JUST_UNGATED, UNSCHEDULABLE),
        missing=frozenset({"node-a"}),
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "or has not looked at it for a quarter of an hour": Step(
        owner=JUST_UNGATED,
        missing=frozenset({"node-a"}),
        stage_age=900,
        want_state=SlotState.LOST,
        want=[("Release", "web-0")],
    ),
    "an owner that is being deleted gives its slot back to the placeholder": Step(
        owner=owner_pod(given=note(), deleted="2026-11-21T12:00:01Z"),
        placeholder=placeholder(),
        want_state=SlotState.HELD,
    ),
    "an owner that goes after the placeholder went leaves the slot to be held again": Step(
        owner=owner_pod(given=note(), deleted="2026-11-21T12:00:01Z"),
        want_state=SlotState.PENDING,
        want=[("CreatePlaceholder", "0")],
    ),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("reservation", [HELD, HANDING_OVER], ids=["first seen", "seen before"])
def test_hand_over(step: Step, reservation: Reservation) -> None:
    seen = observe(
        reservation,
        *([step.placeholder] if step.placeholder else []),
        step.owner,
        guards={"node-a": step.guard} if step.guard else {},
        missing_nodes=step.missing,
        surveys={"node-a": step.survey} if step.survey else {},
        stage_ages={step.owner.metadata.uid: step.stage_age},
        accesses={"node-a": step.access} if step.access else {},
        probe=PROVEN,
    )

    decision = decide_now(seen, seconds=step.seconds)

    assert decision.status.slots[0].state is step.want_state
    assert [told(action) for action in decision.actions] == step.want


def test_the_status_says_that_the_node_of_an_owner_without_its_gate_is_gone() -> None:
    status = decide_now(observe(HANDING_OVER, JUST_UNGATED, missing_nodes=frozenset({"node-a"}))).status
    assert status.slots[0].message == "node node-a is gone"
    assert status.state is not None
    assert status.state.message.endswith("on node node-a, but node node-a is gone")


NODES_OF_A_HAND_OVER: dict[str, tuple[NodeAccess | None, bool]] = {
    "on an open node no kubelet is waited for": (None, True),
    "on one that is not ready it is": (NodeAccess(is_ready=False), False),
    "on one that is cordoned it is": (NodeAccess(is_cordoned=True), False),
}


@pytest.mark.parametrize(("access", "want_at_once"), NODES_OF_A_HAND_OVER.values(), ids=NODES_OF_A_HAND_OVER)
def test_a_placeholder_that_makes_way_for_an_owner_held_nothing_in_vain(
    access: NodeAccess | None, *, want_at_once: bool
) -> None:
    accesses = {"node-a": access} if access is not None else {}
    seen = observe(HANDING_OVER, placeholder(), GIVEN, guards={"node-a": guard(0.3)}, accesses=accesses, probe=PROVEN)
    assert decide_now(seen).actions == (DeletePlaceholder(placeholder(), at_once=want_at_once, for_owner=True),)


def test_a_hand_over_is_looked_at_again_when_the_guard_has_settled() -> None:
    guards = {"node-a": guard(0.1, is_fenced=False)}
    seen = observe(HANDING_OVER, placeholder(), NOMINATED, guards=guards, probe=PROVEN)
    assert decide_now(seen).wake_seconds == pytest.approx(2.9)


def test_a_hand_over_that_waits_for_the_scheduler_is_looked_at_every_second() -> None:
    seen = observe(HANDING_OVER, UNGATED, guards={"node-a": guard(5)}, probe=PROVEN)
    assert decide_now(seen).wake_seconds == 1.0


def test_more_time_is_as_much_as_a_hand_over_has() -> None:
    seen = observe(HANDING_OVER, UNGATED, guards={"node-a": guard(5)}, surveys={"node-a": ROOMY}, probe=PROVEN)
    (extend,) = decide_now(seen, seconds=1).actions
    want = note(deadline=int(NOON.timestamp()) + 1 + int(SETTINGS.handover.timeout_seconds))
    assert extend == ExtendHandover(UNGATED, want)


# --- holding


@dataclass(frozen=True, kw_only=True)
class Holding:
    seen: Observation
    want: list[tuple[str, str]]
    want_phase: ReservationPhase = ReservationPhase.PENDING
    want_reason: str


NEW = place()
HOLDINGS = {
    "a new Reservation is validated before anything is made": Holding(
        seen=observe(NEW, validated=False), want=[("Validate", "")], want_reason="CreatingPlaceholders"
    ),
    "one whose validation was cut short is validated again": Holding(
        seen=observe(place(slot(SlotState.PENDING, node=""), phase=ReservationPhase.PENDING), validated=False),
        want=[("Validate", "")],
        want_reason="CreatingPlaceholders",
    ),
    "one that holds something was validated by whoever made it": Holding(
        seen=observe(place(slot(SlotState.HELD)), placeholder(), validated=False, probe=PROVEN),
        want=[],
        want_phase=ReservationPhase.AVAILABLE,
        want_reason="SlotsHeld",
    ),
    "then its placeholders are made": Holding(
        seen=observe(NEW), want=[("CreatePlaceholder", "0")], want_reason="CreatingPlaceholders"
    ),
    "a placeholder that waits is left to the scheduler": Holding(
        seen=observe(NEW, placeholder(node="")), want=[], want_reason="AwaitingScheduler"
    ),
    "a placeholder that has ended is cleared away": Holding(
        seen=observe(NEW, placeholder(phase="Failed")),
        want=[("DeletePlaceholder", "place-web-0")],
        want_reason="AwaitingNode",
    ),
    "a placeholder that is going is waited for": Holding(
        seen=observe(NEW, placeholder(phase="Failed", deleted="2026-11-21T12:00:01Z")),
        want=[],
        want_reason="CreatingPlaceholders",
    ),
    "a held slot is proven": Holding(
        seen=observe(NEW, placeholder()),
        want=[("Probe", "")],
        want_phase=ReservationPhase.AVAILABLE,
        want_reason="SlotsHeld",
    ),
    "a proof that failed is tried again": Holding(
        seen=observe(NEW, placeholder(), probe=ProbeResult(gated=False, message="no gate")),
        want=[("Probe", "")],
        want_phase=ReservationPhase.AVAILABLE,
        want_reason="SlotsHeld",
    ),
    "a placeholder on a node that is not allowed holds nothing": Holding(
        seen=observe(place(tasks=[task(nodes=["node-b"])]), placeholder()),
        want=[],
        want_reason="AwaitingNode",
    ),
}


@pytest.mark.parametrize("case", HOLDINGS.values(), ids=HOLDINGS.keys())
def test_holding(case: Holding) -> None:
    decision = decide_now(case.seen)
    assert [told(action) for action in decision.actions] == case.want
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == (case.want_phase, case.want_reason)


PAUSES = {
    "after the first failure": (1, 0.2, 0.3),
    "after the third one": (3, 0.5, 1.5),
    "after very many": (50, 1.0, 14.0),
}


@pytest.mark.parametrize(("failures", "age", "want"), PAUSES.values(), ids=PAUSES.keys())
def test_a_proof_that_failed_is_made_again_later_each_time(failures: int, age: float, want: float) -> None:
    failed = ProbeResult(gated=False, message="no gate", failures=failures, age_seconds=age)
    decision = decide_now(observe(NEW, placeholder(), probe=failed))
    assert decision.actions == ()
    assert decision.wake_seconds == pytest.approx(want)


def test_a_proof_that_is_due_is_made_again() -> None:
    failed = ProbeResult(gated=False, message="no gate", failures=1, age_seconds=0.6)
    assert decide_now(observe(NEW, placeholder(), probe=failed)).actions == (Probe(),)


# --- ends


@dataclass(frozen=True, kw_only=True)
class End:
    seen: Observation
    seconds: float = 0.0
    want_reason: str
    want: list[tuple[str, str]]


TWO = place(slot(SlotState.HELD, 0), slot(SlotState.HANDING_OVER, 1), replicas=2, ttl="10s")
TIED = place(slot(SlotState.HELD), tasks=[task(nodes=["node-a"])])
UNREADY = {"node-a": NodeAccess(is_ready=False)}
ENDS = {
    "expired by its length: what is held goes, a pod that began to take its slot keeps it": End(
        seen=observe(
            TWO,
            placeholder(0),
            placeholder(1),
            owner_pod(given=note(1, deadline=DEADLINE + 10), nominated_node="node-a"),
            guards={"node-a": guard(deadline=DEADLINE + 10)},
        ),
        seconds=10,
        want_reason="Expired",
        want=[("DeletePlaceholder", "place-web-0"), ("DeletePlaceholder", "place-web-1")],
    ),
    "expired by its time: a pod without a slot goes its own way": End(
        seen=observe(place(slot(SlotState.HELD), ttl=None, expires="2026-11-21T12:00:10Z"), placeholder(), owner_pod()),
        seconds=10,
        want_reason="Expired",
        want=[("Release", "web-0"), ("DeletePlaceholder", "place-web-0")],
    ),
    "the placeholder was preempted": End(
        seen=observe(HELD, placeholder(conditions=[PREEMPTED])),
        want_reason="Preempted",
        want=[("DeletePlaceholder", "place-web-0")],
    ),
    "the placeholder's node is gone: nobody waits for its kubelet": End(
        seen=observe(TIED, placeholder(deleted="2026-11-21T12:00:01Z"), missing_nodes=frozenset({"node-a"})),
        want_reason="NodeLost",
        want=[("DeletePlaceholder", "place-web-0")],
    ),
    "placeholder and node are gone": End(
        seen=observe(TIED, missing_nodes=frozenset({"node-a"})), want_reason="NodeLost", want=[]
    ),
    "the placeholder's node has not been ready for too long": End(
        seen=observe(TIED, placeholder(), accesses=UNREADY, unready_seconds={"node-a": 300.0}),
        want_reason="NodeLost",
        want=[("DeletePlaceholder", "place-web-0")],
    ),
    "one lost slot ends all of them": End(
        seen=observe(
            place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2),
            placeholder(0),
            placeholder(1, conditions=[PREEMPTED]),
        ),
        want_reason="Preempted",
        want=[("DeletePlaceholder", "place-web-0"), ("DeletePlaceholder", "place-web-1")],
    ),
    "it is being deleted while someone's finalizer holds it": End(
        seen=observe(place(slot(SlotState.HELD), deleted="2026-11-21T12:00:01Z"), placeholder(), owner_pod()),
        want_reason="Deleted",
        want=[("Release", "web-0"), ("DeletePlaceholder", "place-web-0")],
    ),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_ends(case: End) -> None:
    decision = decide_now(case.seen, seconds=case.seconds)
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == (ReservationPhase.FAILED, case.want_reason)
    assert [told(action) for action in decision.actions] == case.want


def test_a_placeholder_of_a_lost_node_is_deleted_without_waiting_for_a_kubelet() -> None:
    seen = observe(HELD, placeholder(), missing_nodes=frozenset({"node-a"}))
    assert decide_now(seen).actions == (DeletePlaceholder(placeholder(), at_once=True),)


LOST_NODES: dict[str, dict[str, Any]] = {
    "gone": {"missing_nodes": frozenset({"node-a"})},
    "not ready for too long": {"accesses": UNREADY, "unready_seconds": {"node-a": 300.0}},
}


@pytest.mark.parametrize("lost", LOST_NODES.values(), ids=LOST_NODES)
@pytest.mark.parametrize("nodes", [[], ["node-a", "node-b"]])
def test_a_place_that_may_be_on_another_node_is_held_there(lost: dict[str, Any], nodes: list[str]) -> None:
    held = place(slot(SlotState.HELD), tasks=[task(nodes=nodes)])
    before = decide_now(observe(held, placeholder(), **lost))
    assert before.status.state is not None
    assert before.status.state.phase is ReservationPhase.PENDING
    assert before.actions == (DeletePlaceholder(placeholder(), at_once=True),)
    after = decide_now(observe(held, **lost))
    assert [type(action) for action in after.actions] == [CreatePlaceholder]


def test_a_node_that_is_not_ready_is_waited_for_until_it_counts_as_lost() -> None:
    decision = decide_now(observe(TIED, placeholder(), accesses=UNREADY, unready_seconds={"node-a": 100.0}))
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == (ReservationPhase.PENDING, "NodeClosed")
    assert decision.wake_seconds == pytest.approx(200.0)
    ever = replace(SETTINGS, node_lost_seconds=0.0)
    waiting = decide(observe(TIED, placeholder(), accesses=UNREADY, unready_seconds={"node-a": 1e6}), NOON, ever)
    assert waiting.status.state is not None
    assert waiting.status.state.phase is ReservationPhase.PENDING


def test_a_place_that_is_given_back_to_nobody_is_so_without_waiting_for_a_kubelet() -> None:
    seen = observe(place(slot(SlotState.HELD), ttl="10s"), placeholder())
    assert decide_now(seen, seconds=10).actions == (DeletePlaceholder(placeholder(), at_once=True),)


def test_nothing_is_released_before_the_lifetime_is_over() -> None:
    seen = observe(place(slot(SlotState.HELD), ttl="10s"), placeholder(), probe=PROVEN)
    decision = decide_now(seen, seconds=9.5)
    assert decision.actions == ()
    assert decision.wake_seconds == pytest.approx(0.5)


@pytest.mark.parametrize("ttl", ["0s", None])
def test_without_a_lifetime_nothing_is_ever_released(ttl: str | None) -> None:
    seen = observe(place(slot(SlotState.HELD), ttl=ttl), placeholder(), probe=PROVEN)
    decision = decide_now(seen, seconds=10**8)
    assert (decision.actions, decision.wake_seconds) == ((), None)


# --- after the end

OVER = place(slot(SlotState.TAKEN), phase=ReservationPhase.SUCCEEDED, reason="OwnersRunning")


@pytest.mark.parametrize("phase", [ReservationPhase.SUCCEEDED, ReservationPhase.FAILED])
@pytest.mark.parametrize("reason", ["OwnersRunning", "Expired", "AReasonOfSomebodyElse"])
def test_a_finished_phase_never_changes(phase: ReservationPhase, reason: str) -> None:
    over = place(slot(SlotState.RELEASED), phase=phase, reason=reason)
    for seen in (
        observe(over),
        observe(over, placeholder(conditions=[PREEMPTED])),
        observe(over, missing_nodes=frozenset({"node-a"})),
        observe(over, owner_pod()),
    ):
        state = decide_now(seen, seconds=10**6).status.state
        assert state is not None
        assert (state.phase, state.reason, state.last_transition_time) == (phase, reason, "2026-11-21T12:00:00Z")


def test_what_a_finished_reservation_still_has_is_released() -> None:
    decision = decide_now(observe(OVER, placeholder(), owner_pod("late")))
    assert [told(action) for action in decision.actions] == [("Release", "late"), ("DeletePlaceholder", "place-web-0")]


def test_a_hand_over_goes_on_after_the_end_and_is_counted() -> None:
    expired = place(slot(SlotState.HANDING_OVER), phase=ReservationPhase.FAILED, reason="Expired")
    waiting = decide_now(observe(expired, NOMINATED, guards={"node-a": guard()}))
    assert [told(action) for action in waiting.actions] == [("Nominate", "web-0"), ("Ungate", "web-0")]

    running = decide_now(observe(expired, RUNNING))
    assert running.status.slots[0].state is SlotState.TAKEN
    assert running.status.succeeded == 1


def test_a_finished_reservation_is_collected_after_its_retention() -> None:
    early = decide_now(observe(OVER), seconds=3599)
    assert early.actions == ()
    assert early.wake_seconds == pytest.approx(1)
    assert decide_now(observe(OVER), seconds=3600).actions == (DeleteReservation(),)


def test_a_finished_reservation_whose_deletion_waits_for_a_finalizer_is_not_deleted_again() -> None:
    going = msgspec.structs.replace(OVER.metadata, deletion_timestamp=NOON_TEXT)
    goes = msgspec.structs.replace(OVER, metadata=going)
    decision = decide_now(observe(goes), seconds=7200)
    assert (decision.actions, decision.wake_seconds) == ((), None)


NO_TIMES_OF_AN_END = {
    "none": "",
    "no time": "yesterday",
    "an offset that no clock has, which the CRD admits": "2026-06-15T12:00:00+99:00",
    "a year before the first": "0000-01-01T00:00:00Z",
    "the last second of the calendar, east of Greenwich": "9999-12-31T23:59:59-01:00",
    "tomorrow": format_timestamp(NOON + timedelta(days=1)),
}


@pytest.mark.parametrize("since", NO_TIMES_OF_AN_END.values(), ids=NO_TIMES_OF_AN_END)
def test_an_end_that_others_wrote_without_a_time_that_can_be_counts_from_now(since: str) -> None:
    over = place(slot(SlotState.RELEASED), phase=ReservationPhase.FAILED, reason="Expired", since=since)
    decision = decide_now(observe(over))
    assert decision.status.state is not None
    assert decision.status.state.last_transition_time == NOON_TEXT
    assert decision.status.state.phase is ReservationPhase.FAILED
    assert decision.actions == ()
    assert decision.wake_seconds == SETTINGS.retention_seconds


@pytest.mark.parametrize("since", NO_TIMES_OF_AN_END.values(), ids=NO_TIMES_OF_AN_END)
def test_a_wait_that_others_wrote_without_a_time_that_can_be_counts_from_now(since: str) -> None:
    waits = place(slot(SlotState.PENDING), phase=ReservationPhase.PENDING, reason="UnschedulableYet", since=since)
    refused = placeholder(node="", conditions=[UNSCHEDULABLE])
    decision = decide_now(observe(waits, refused))
    assert decision.status.state is not None
    assert decision.status.state.last_transition_time == NOON_TEXT
    assert decision.status.state.phase is ReservationPhase.PENDING


def test_an_end_that_a_clock_a_little_ahead_wrote_keeps_its_time() -> None:
    soon = format_timestamp(NOON + timedelta(seconds=20))
    over = place(slot(SlotState.RELEASED), phase=ReservationPhase.FAILED, reason="Expired", since=soon)
    assert decide_now(observe(over)).status.state == over.status.state


def test_without_a_retention_finished_reservations_stay() -> None:
    decision = decide(observe(OVER), NOON + timedelta(days=1000), OperatorSettings(retention_seconds=0))
    assert decision == Decision(decision.status)


def test_deciding_twice_on_the_same_is_the_same() -> None:
    """A status that was written leads to the same status: nothing is written for ever."""
    for step in STEPS.values():
        seen = observe(HELD, *([step.placeholder] if step.placeholder else []), step.owner, probe=PROVEN)
        first = decide_now(seen)
        again = observe(
            place(*first.status.slots, phase=first.status.state.phase if first.status.state else None),
            *([step.placeholder] if step.placeholder else []),
            step.owner,
            probe=PROVEN,
        )
        assert decide_now(again).status.slots == first.status.slots
