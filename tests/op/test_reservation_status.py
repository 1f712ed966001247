"""The status is computed from what is seen: counts, conditions, times, sentences."""

from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import Pod, PodCondition
from berth_core.reservations import (
    Condition,
    ConditionType,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationState,
    ReservationStatus,
    SlotState,
)
from berth_operator.reservation.conditions import ConditionReason, warn_of_endless_hold
from berth_operator.reservation.observation import Observation, ProbeResult, Verdict
from berth_operator.reservation.slots import view_slots
from berth_operator.reservation.status import compute_status, describe_transition
from berth_operator.settings import OperatorSettings
from builders import NOON, NOON_TEXT, object_owner, task
from handover_builders import UNSCHEDULABLE, guard, note, observe, owner_pod, place, placeholder, reference, slot

LATER_TEXT = "2026-11-21T12:01:00Z"
LATER = NOON + timedelta(minutes=1)


def status_of(seen: Observation, *, later: bool = False) -> ReservationStatus:
    now = LATER if later else NOON
    return compute_status(seen, view_slots(seen, OperatorSettings().handover), now)


def condition(status: ReservationStatus, type_: ConditionType) -> Condition:
    return next(c for c in status.conditions if c.type == type_)


# --- counts


def test_slots_are_counted_by_state_and_by_task() -> None:
    tasks = [task("web", replicas=4, cpu="1", memory="1Gi"), task("db", cpu="2", memory="1Gi")]
    reservation = place(slot(SlotState.TAKEN, 0), slot(SlotState.HELD, 1), slot(SlotState.HELD, 2), tasks=tasks)
    owner = owner_pod(given=note(1), gates=(), cpu="1", memory="1Gi")
    seen = observe(
        reservation,
        placeholder(2, node="node-b"),
        placeholder(3, node=""),
        owner,
        guards={"node-a": guard()},
    )

    status = status_of(seen)

    assert {name: count.phase for name, count in status.task_status_count.items()} == {
        "web": {"HandingOver": 1, "Held": 1, "Pending": 1, "Taken": 1},
        "db": {"Pending": 1},
    }
    assert (status.pending, status.available, status.succeeded, status.failed) == (2, 2, 1, 0)
    assert (status.desired, status.min_available) == (5, 5)
    assert status.allocatable == {"cpu": "6", "memory": "5Gi"}
    assert status.held == {"cpu": "2", "memory": "2Gi"}
    assert status.allocated == {"cpu": "1", "memory": "1Gi"}
    assert status.current_owner == reference(owner)
    assert status.node == "2 nodes"
    assert status.expires_at == "2026-11-21T12:10:00Z"


def test_what_is_given_back_is_counted_nowhere() -> None:
    expired = place(slot(SlotState.TAKEN, 0), slot(SlotState.HELD, 1), replicas=3, ttl="30s")
    status = status_of(observe(expired, placeholder(1), placeholder(2, node="")), later=True)

    assert [one.state for one in status.slots] == [SlotState.TAKEN, SlotState.RELEASED, SlotState.RELEASED]
    assert (status.pending, status.available, status.succeeded, status.failed) == (0, 0, 1, 0)
    assert (status.allocatable, status.held) == ({"cpu": "300m", "memory": "192Mi"}, {})
    assert status.node == "node-a"


NODES = {
    "no node": ((), ""),
    "one node": (("node-a",), "node-a"),
    "one node twice": (("node-a", "node-a"), "node-a"),
    "three nodes": (("node-a", "node-b", "node-c"), "3 nodes"),
}


@pytest.mark.parametrize(("nodes", "want"), NODES.values(), ids=NODES.keys())
def test_the_node_is_told_in_one_word_or_two(nodes: tuple[str, ...], want: str) -> None:
    pods = [placeholder(number, node=node) for number, node in enumerate(nodes)]
    assert status_of(observe(place(replicas=3), *pods)).node == want


@given(states=st.lists(st.sampled_from([SlotState.TAKEN, SlotState.LOST, SlotState.HELD, SlotState.PENDING])))
def test_every_slot_is_counted_once(states: list[SlotState]) -> None:
    slots = [slot(state, number) for number, state in enumerate(states)]
    pods = [placeholder(number) for number, state in enumerate(states) if state is SlotState.HELD]
    seen = observe(place(*slots, replicas=len(states), phase=ReservationPhase.AVAILABLE), *pods)
    status = status_of(seen)

    assert len(status.slots) == len(states) == status.desired
    counted = sum(sum(count.phase.values()) for count in status.task_status_count.values())
    assert counted == len(states)
    live = not (status.state and status.state.phase.terminal)
    if live:
        assert (status.pending or 0) + (status.available or 0) + (status.succeeded or 0) + (status.failed or 0) == len(
            states
        )


# --- states and sentences


@dataclass(frozen=True, kw_only=True)
class Told:
    seen: Observation
    want: tuple[ReservationPhase, ReservationReason, str]


WAITING = placeholder(node="", conditions=[UNSCHEDULABLE])
RUNNER = owner_pod(given=note(), gates=(), node="node-a", started=True)
STRAYED = owner_pod(given=note(), gates=(), node="node-b", started=True)
ENDED = msgspec.structs.replace(RUNNER, status=msgspec.structs.replace(RUNNER.status, phase="Succeeded"))
P, R = ReservationPhase, ReservationReason

SENTENCES = {
    "nothing is made yet": Told(
        seen=observe(place(replicas=2)), want=(P.PENDING, R.CREATING_PLACEHOLDERS, "0 of 2 slots are held")
    ),
    "the default scheduler has not looked": Told(
        seen=observe(place(), placeholder(node="")),
        want=(
            P.PENDING,
            R.AWAITING_SCHEDULER,
            '0 of 1 slot is held; no scheduler named "default-scheduler" has looked at the placeholders yet',
        ),
    ),
    "the Reservation's scheduler has not looked": Told(
        seen=observe(place(scheduler_name="volcano"), placeholder(node="")),
        want=(
            P.PENDING,
            R.AWAITING_SCHEDULER,
            '0 of 1 slot is held; no scheduler named "volcano" has looked at the placeholders yet',
        ),
    ),
    "the template's own scheduler has not looked": Told(
        seen=observe(place(tasks=[task(scheduler_name="kueue")], scheduler_name="volcano"), placeholder(node="")),
        want=(
            P.PENDING,
            R.AWAITING_SCHEDULER,
            '0 of 1 slot is held; no scheduler named "kueue" has looked at the placeholders yet',
        ),
    ),
    "the scheduler found no place": Told(
        seen=observe(place(), WAITING),
        want=(P.PENDING, R.UNSCHEDULABLE_YET, f"0 of 1 slot is held; {UNSCHEDULABLE.message}"),
    ),
    "a placeholder starts": Told(
        seen=observe(place(), placeholder(phase="Pending")),
        want=(P.PENDING, R.AWAITING_NODE, "0 of 1 slot is held; 1 more has a node and has not started yet"),
    ),
    "some placeholders start, of others nobody has heard": Told(
        seen=observe(
            place(replicas=4),
            placeholder(0),
            placeholder(1, phase="Pending"),
            placeholder(2, phase="Pending"),
            placeholder(3, node=""),
        ),
        want=(P.PENDING, R.AWAITING_NODE, "1 of 4 slots are held; 2 more have a node and have not started yet"),
    ),
    "a placeholder is being deleted before it was scheduled": Told(
        seen=observe(place(), placeholder(node="", deleted=NOON_TEXT)),
        want=(P.PENDING, R.CREATING_PLACEHOLDERS, "0 of 1 slot is held"),
    ),
    "a place was lost with its node, and another one starts": Told(
        seen=observe(
            place(*(slot(SlotState.HELD, number) for number in range(3)), replicas=3, min_available=2),
            placeholder(0),
            placeholder(1, phase="Pending"),
            placeholder(2, node="node-z"),
            missing_nodes=frozenset({"node-z"}),
        ),
        want=(P.PENDING, R.AWAITING_NODE, "1 of 3 slots are held; 1 more has a node and has not started yet"),
    ),
    "places were lost with their nodes": Told(
        seen=observe(
            place(*(slot(SlotState.HELD, number) for number in range(3)), replicas=3, min_available=1),
            placeholder(0, phase="Failed", node="node-z"),
            placeholder(1, node="node-z"),
            placeholder(2, node=""),
            missing_nodes=frozenset({"node-z"}),
        ),
        want=(P.PENDING, R.CREATING_PLACEHOLDERS, "0 of 3 slots are held"),
    ),
    "all are held": Told(seen=observe(place(), placeholder()), want=(P.AVAILABLE, R.SLOTS_HELD, "1 of 1 slot is held")),
    "enough are held": Told(
        seen=observe(
            place(replicas=3, min_available=1), placeholder(0), placeholder(1, node=""), placeholder(2, node="")
        ),
        want=(P.AVAILABLE, R.SLOTS_HELD, "1 of 3 slots are held"),
    ),
    "one is held, the other was taken": Told(
        seen=observe(place(slot(SlotState.TAKEN, 0), slot(SlotState.HELD, 1), replicas=2), placeholder(1)),
        want=(P.AVAILABLE, R.SLOTS_HELD, "1 of 2 slots are held, 1 taken"),
    ),
    "one changes hands, one is lost, and one waits": Told(
        seen=observe(
            place(
                slot(SlotState.TAKEN, 0),
                slot(SlotState.HELD, 1),
                slot(SlotState.LOST, 2, message="late"),
                replicas=4,
                phase=P.AVAILABLE,
            ),
            owner_pod(given=note(1)),
            placeholder(3, node="", conditions=[UNSCHEDULABLE]),
        ),
        want=(
            P.PENDING,
            R.UNSCHEDULABLE_YET,
            f"0 of 4 slots are held, 1 being handed over, 1 taken, 1 lost; {UNSCHEDULABLE.message}",
        ),
    ),
    "two pods are on their way": Told(
        seen=observe(
            place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2),
            owner_pod(given=note(0)),
            owner_pod("web-1", given=note(1)),
        ),
        want=(
            P.AVAILABLE,
            R.HANDING_OVER,
            "default/web-0 is taking slot web/0 on node node-a; 1 more being handed over",
        ),
    ),
    "its time is up in the middle of a hand-over": Told(
        seen=observe(
            place(
                slot(SlotState.TAKEN, 0),
                slot(SlotState.HELD, 1),
                slot(SlotState.HELD, 2),
                replicas=3,
                ttl=None,
                expires=NOON_TEXT,
            ),
            owner_pod(given=note(1)),
            placeholder(2),
        ),
        want=(
            P.FAILED,
            R.EXPIRED,
            "expired: 1 of 3 slots were taken and 1 being handed over; what was held is given back",
        ),
    ),
    "a pod is on its way": Told(
        seen=observe(place(slot(SlotState.HELD)), owner_pod(given=note())),
        want=(P.AVAILABLE, R.HANDING_OVER, "default/web-0 is taking slot web/0 on node node-a"),
    ),
    "the owner runs": Told(
        seen=observe(place(slot(SlotState.HELD)), RUNNER),
        want=(P.SUCCEEDED, R.OWNERS_RUNNING, "default/web-0 runs on node node-a"),
    ),
    "the owner has run and ended": Told(
        seen=observe(place(slot(SlotState.HELD)), ENDED),
        want=(P.SUCCEEDED, R.OWNERS_ENDED, "default/web-0 ran and has ended on node node-a"),
    ),
    "one owner has ended": Told(
        seen=observe(place(slot(SlotState.HELD, 0), slot(SlotState.TAKEN, 1), replicas=2), ENDED),
        want=(P.SUCCEEDED, R.OWNERS_ENDED, "all 2 slots were taken by their owners"),
    ),
    "the owner runs elsewhere": Told(
        seen=observe(place(slot(SlotState.HELD)), STRAYED),
        want=(P.SUCCEEDED, R.OWNERS_RUNNING, "pod default/web-0 runs on node node-b, not on node node-a"),
    ),
    "all owners run": Told(
        seen=observe(place(slot(SlotState.TAKEN, 0), slot(SlotState.TAKEN, 1), replicas=2)),
        want=(P.SUCCEEDED, R.OWNERS_RUNNING, "all 2 slots were taken by their owners"),
    ),
    "one was taken, one was lost": Told(
        seen=observe(
            place(slot(SlotState.TAKEN, 0), slot(SlotState.LOST, 1, message="pod default/web-1 was late"), replicas=2)
        ),
        want=(P.FAILED, R.HANDOVER_TIMEOUT, "slot web/1: pod default/web-1 was late"),
    ),
    "a slot that was lost on the way says why": Told(
        seen=observe(place(slot(SlotState.LOST, message="node node-a is gone", reason=R.NODE_LOST.value))),
        want=(P.FAILED, R.NODE_LOST, "slot web/0: node node-a is gone"),
    ),
    "one of its owners is elsewhere": Told(
        seen=observe(place(owners=[object_owner(namespace="default"), object_owner(namespace="kube-system")])),
        want=(
            P.FAILED,
            R.INVALID,
            'spec.owners[1].object is in namespace "kube-system", but its pods can only be in "default"',
        ),
    ),
    "the API server refuses the template": Told(
        seen=observe(place(), verdict=Verdict(R.INVALID, "task web: spec.containers[0].image: Required value")),
        want=(P.FAILED, R.INVALID, "task web: spec.containers[0].image: Required value"),
    ),
    "a quota refuses the placeholders": Told(
        seen=observe(place(), verdict=Verdict(R.FORBIDDEN, "task web: exceeded quota")),
        want=(P.FAILED, R.FORBIDDEN, "task web: exceeded quota"),
    ),
}


@pytest.mark.parametrize("case", SENTENCES.values(), ids=SENTENCES.keys())
def test_phase_reason_and_message(case: Told) -> None:
    state = status_of(case.seen).state
    assert state is not None
    assert (state.phase, state.reason, state.message) == case.want


PATIENCE = 60.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    waited_seconds: float
    patience_seconds: float = PATIENCE
    first: Observation = field(default_factory=lambda: observe(place(ttl=None), WAITING))
    want: ReservationReason


PATIENCES = {
    "not long enough": Patience(waited_seconds=59, want=R.UNSCHEDULABLE_YET),
    "too long": Patience(waited_seconds=60, want=R.UNSCHEDULABLE),
    "for ever, if so set": Patience(waited_seconds=10**6, patience_seconds=0, want=R.UNSCHEDULABLE_YET),
    "it had a place in between": Patience(
        waited_seconds=60, first=observe(place(ttl=None), placeholder()), want=R.UNSCHEDULABLE_YET
    ),
    "the clock was set back": Patience(waited_seconds=-3600, want=R.UNSCHEDULABLE_YET),
}


@pytest.mark.parametrize("case", PATIENCES.values(), ids=PATIENCES.keys())
def test_without_a_place_a_reservation_fails_in_the_scheduler_s_own_words(case: Patience) -> None:
    earlier = written(place(ttl=None), status_of(case.first))
    seen, now = observe(earlier, WAITING), NOON + timedelta(seconds=case.waited_seconds)
    views = view_slots(seen, OperatorSettings().handover)
    state = compute_status(seen, views, now, patience_seconds=case.patience_seconds).state
    assert state is not None
    assert (state.reason, UNSCHEDULABLE.message in state.message) == (case.want, True)
    assert state.phase.terminal is (case.want is R.UNSCHEDULABLE)


def test_the_last_slot_that_is_on_its_way_does_not_end_a_reservation_with_a_lost_one() -> None:
    half = place(slot(SlotState.LOST, 0, message="late"), slot(SlotState.HANDING_OVER, 1), replicas=2)
    state = status_of(observe(half, owner_pod(given=note(1)))).state
    assert state is not None
    assert not state.phase.terminal


# --- conditions and times


@dataclass(frozen=True, kw_only=True)
class Conditions:
    seen: Observation
    want: dict[str, str]


CONDITIONS = {
    "new": Conditions(
        seen=observe(place()),
        want={
            "Available": "False",
            "HandoverReady": "False",
            "Succeeded": "False",
            "Failed": "False",
            "Bounded": "True",
        },
    ),
    "held and proven": Conditions(
        seen=observe(place(), placeholder(), probe=ProbeResult(gated=True, message="gated")),
        want={"Available": "True", "HandoverReady": "True", "Succeeded": "False", "Failed": "False", "Bounded": "True"},
    ),
    "held and not proven": Conditions(
        seen=observe(place(), placeholder(), probe=ProbeResult(gated=False, message="no gate")),
        want={
            "Available": "True",
            "HandoverReady": "False",
            "Succeeded": "False",
            "Failed": "False",
            "Bounded": "True",
        },
    ),
    "on its way": Conditions(
        seen=observe(place(slot(SlotState.HELD)), owner_pod(given=note())),
        want={
            "Available": "True",
            "HandoverReady": "False",
            "Succeeded": "False",
            "Failed": "False",
            "Bounded": "True",
        },
    ),
    "taken": Conditions(
        seen=observe(place(slot(SlotState.TAKEN))),
        want={"Available": "True", "HandoverReady": "False", "Succeeded": "True", "Failed": "False", "Bounded": "True"},
    ),
    "expired": Conditions(
        seen=observe(place(slot(SlotState.HELD), created="2026-11-21T11:00:00Z"), placeholder()),
        want={
            "Available": "False",
            "HandoverReady": "False",
            "Succeeded": "False",
            "Failed": "True",
            "Bounded": "True",
        },
    ),
}


@pytest.mark.parametrize("case", CONDITIONS.values(), ids=CONDITIONS.keys())
def test_conditions(case: Conditions) -> None:
    assert {c.type: c.status for c in status_of(case.seen).conditions} == case.want


def test_a_path_is_not_ready_any_more_once_all_is_over() -> None:
    proven = status_of(observe(place(), placeholder(), probe=ProbeResult(gated=True, message="gated")))
    taken = observe(written(place(), proven), RUNNER)
    found = condition(status_of(taken), ConditionType.HANDOVER_READY)
    assert (found.status, found.reason) == ("False", "Over")


def test_no_end_is_announced_once_all_is_over() -> None:
    taken = observe(place(slot(SlotState.TAKEN)), RUNNER)
    found = condition(status_of(taken), ConditionType.BOUNDED)
    assert (found.status, found.reason) == ("True", "Over")
    assert found.message == "the Reservation is over; no place is held any more"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    ttl: str | None = None
    expires: str | None = None
    want: tuple[str, str]
    want_warning: bool = False


BOUNDS = {
    "a length": Bounds(ttl="600s", want=("True", "Expires")),
    "a time": Bounds(expires=LATER_TEXT, want=("True", "Expires")),
    "for ever, as it was asked for": Bounds(ttl="0s", want=("False", "HeldForEver")),
    "for ever, perhaps by accident": Bounds(want=("False", ConditionReason.NEVER_EXPIRES), want_warning=True),
}


@pytest.mark.parametrize("case", BOUNDS.values(), ids=BOUNDS.keys())
def test_the_status_says_whether_a_reservation_ends_by_itself(case: Bounds) -> None:
    new = place(ttl=case.ttl, expires=case.expires)
    first = status_of(observe(new))
    found = condition(first, ConditionType.BOUNDED)
    assert (found.status, found.reason) == case.want
    assert bool(warn_of_endless_hold(new)) is case.want_warning
    assert not warn_of_endless_hold(written(new, first)), "it is told once"


def test_a_condition_says_why_and_of_which_generation() -> None:
    reservation = place()
    metadata = msgspec.structs.replace(reservation.metadata, generation=3)
    found = status_of(observe(msgspec.structs.replace(reservation, metadata=metadata), placeholder()))
    assert condition(found, ConditionType.AVAILABLE) == Condition(
        type="Available",
        status="True",
        reason="SlotsHeld",
        message="1 of 1 slot is held",
        last_transition_time=NOON_TEXT,
        observed_generation=3,
    )
    assert found.observed_generation == 3


def written(reservation: Reservation, status: ReservationStatus) -> Reservation:
    return msgspec.structs.replace(reservation, status=status)


def test_times_stay_where_nothing_changed() -> None:
    first = status_of(observe(place(), placeholder()))
    again = status_of(observe(written(place(), first), placeholder()), later=True)
    assert again == first


def test_a_time_changes_with_its_condition_and_with_the_state() -> None:
    first = status_of(observe(place(), placeholder(node="")))
    held = status_of(observe(written(place(), first), placeholder()), later=True)
    assert held.state is not None
    assert held.state.last_transition_time == LATER_TEXT
    assert condition(held, ConditionType.AVAILABLE).last_transition_time == LATER_TEXT
    assert condition(held, ConditionType.FAILED).last_transition_time == NOON_TEXT


def test_a_state_keeps_its_time_when_only_its_message_changes() -> None:
    def waiting(words: str) -> Pod:
        return placeholder(node="", conditions=[PodCondition(type="PodScheduled", status="False", message=words)])

    first = status_of(observe(place(), waiting("0/3 nodes")))
    again = status_of(observe(written(place(), first), waiting("0/4 nodes")), later=True)
    assert first.state is not None
    assert again.state == msgspec.structs.replace(first.state, message="0 of 1 slot is held; 0/4 nodes")


def test_a_proof_of_an_earlier_process_stands_until_this_one_has_probed() -> None:
    first = status_of(observe(place(), placeholder(), probe=ProbeResult(gated=True, message="gated")))
    again = status_of(observe(written(place(), first), placeholder()), later=True)
    assert condition(again, ConditionType.HANDOVER_READY) == condition(first, ConditionType.HANDOVER_READY)
    lost = observe(written(place(), first), placeholder(), probe=ProbeResult(gated=False, message="no gate"))
    assert condition(status_of(lost), ConditionType.HANDOVER_READY).status == "False"


# --- events


def state(phase: ReservationPhase, reason: str = "", message: str = "") -> ReservationState:
    return ReservationState(phase=phase, reason=reason, message=message)


TRANSITIONS = {
    "a first look": (None, state(P.PENDING, "CreatingPlaceholders", "0 of 1"), None),
    "refused at once": (None, state(P.FAILED, "Invalid", "no such class"), ("Warning", "Invalid", "no such class")),
    "no change": (state(P.PENDING), state(P.PENDING, "UnschedulableYet"), None),
    "a place is held": (state(P.PENDING), state(P.AVAILABLE, "SlotsHeld", "1 of 1"), ("Normal", "Available", "1 of 1")),
    "a place is lost again": (state(P.AVAILABLE), state(P.PENDING, "x", "0 of 1"), ("Normal", "Pending", "0 of 1")),
    "all is taken": (state(P.AVAILABLE), state(P.SUCCEEDED, "x", "runs"), ("Normal", "Succeeded", "runs")),
    "it failed": (state(P.AVAILABLE), state(P.FAILED, "Preempted", "gone"), ("Warning", "Preempted", "gone")),
}


@pytest.mark.parametrize(("prior", "now", "want"), TRANSITIONS.values(), ids=TRANSITIONS.keys())
def test_one_event_tells_a_change_of_phase(
    prior: ReservationState | None, now: ReservationState, want: tuple[str, str, str] | None
) -> None:
    assert describe_transition(prior, now) == want
