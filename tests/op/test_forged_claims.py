"""What a status claims of the past is not believed where running placeholders deny it, and is where nothing does."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from berth_core import Pod
from berth_core.reservations import ObjectReference, Reservation, ReservationPhase, ReservationReason, SlotState
from berth_operator.reservation.forged_status import without_forged_claims
from berth_operator.reservation.node_access import NodeAccess
from berth_operator.reservation.observation import Observation, Verdict
from berth_operator.settings import HandoverSettings
from builders import NOON
from handover_builders import PREEMPTED, decide_now, observe, place, placeholder, slot

FAILED, SUCCEEDED, AVAILABLE = ReservationPhase.FAILED, ReservationPhase.SUCCEEDED, ReservationPhase.AVAILABLE
TAKER = ObjectReference(api_version="v1", kind="Pod", namespace="default", name="web-0", uid="uid-web-0")
TAKEN = slot(SlotState.TAKEN, owner=TAKER)
LOST = slot(SlotState.LOST, reason="PlaceTaken")
IS_OVER = place(slot(SlotState.RELEASED, node=""), phase=FAILED, reason="Forged")


def look_again(seen: Observation, *, gone: bool = False, seconds: float = 0) -> Observation:
    """Return what is left to believe where the API server says that every placeholder is there, or none."""
    return without_forged_claims(seen, NOON + timedelta(seconds=seconds), HandoverSettings(), lambda _pod: not gone)


@dataclass(frozen=True)
class Claim:
    status: Reservation
    pods: tuple[Pod, ...]
    want: tuple[SlotState, ...]


DENIED = {
    "that a slot was taken": Claim(place(TAKEN), (placeholder(),), (SlotState.HELD,)),
    "that a slot was lost": Claim(place(LOST), (placeholder(),), (SlotState.HELD,)),
    "that all was taken": Claim(place(TAKEN, phase=SUCCEEDED), (placeholder(),), (SlotState.HELD,)),
    "that all is over": Claim(IS_OVER, (placeholder(),), (SlotState.HELD,)),
    "that one of two was taken": Claim(
        place(TAKEN, slot(SlotState.HELD, 1), replicas=2), (placeholder(), placeholder(1)), (SlotState.HELD,) * 2
    ),
    "that two were taken where one was": Claim(
        place(TAKEN, slot(SlotState.TAKEN, 1, owner=TAKER), replicas=2, phase=SUCCEEDED),
        (placeholder(1),),
        (SlotState.TAKEN, SlotState.HELD),
    ),
}


@pytest.mark.parametrize("claim", DENIED.values(), ids=DENIED.keys())
def test_running_placeholders_deny(claim: Claim) -> None:
    believed = look_again(observe(claim.status, *claim.pods))
    status = decide_now(believed).status
    assert tuple(one.state for one in status.slots) == claim.want
    assert status.state is not None
    assert not status.state.phase.terminal


def test_they_deny_it_on_a_node_that_lets_nobody_in_as_well() -> None:
    seen = observe(place(TAKEN), placeholder(), accesses={"node-a": NodeAccess(is_cordoned=True)})
    assert decide_now(look_again(seen)).status.slots[0].reason == "NodeClosed"


BELIEVED = {
    "a slot was taken and has no placeholder": observe(place(TAKEN, phase=SUCCEEDED)),
    "the placeholder of a taken slot is going": observe(place(TAKEN), placeholder(deleted="2026-11-21T12:00:00Z")),
    "the placeholder of a lost slot was preempted": observe(place(LOST), placeholder(conditions=[PREEMPTED])),
    "an owner was not bound in time, and its placeholder is still to go": observe(
        place(slot(SlotState.LOST, reason="HandoverTimeout")), placeholder()
    ),
    "it ended so": observe(
        place(slot(SlotState.LOST, reason="HandoverTimeout"), phase=FAILED, reason="HandoverTimeout"), placeholder()
    ),
    "nothing is claimed": observe(place(slot(SlotState.HELD)), placeholder()),
    "it ended with nothing held": observe(IS_OVER),
    "it ended with a part of it held": observe(
        place(phase=FAILED, reason="Unschedulable", replicas=2), placeholder(), placeholder(1, node="", phase="Pending")
    ),
    "it ended by a verdict": observe(
        IS_OVER, placeholder(), verdict=Verdict(ReservationReason.FORBIDDEN, "exceeded quota")
    ),
    "it is being deleted": observe(
        place(phase=FAILED, reason="Deleted", deleted="2026-11-21T12:00:00Z"), placeholder()
    ),
}


@pytest.mark.parametrize("seen", BELIEVED.values(), ids=BELIEVED.keys())
def test_it_is_believed_where(seen: Observation) -> None:
    assert look_again(seen) is seen


def test_it_is_believed_where_the_time_is_up() -> None:
    seen = observe(place(phase=FAILED, reason="Expired"), placeholder())
    assert look_again(seen, seconds=600) is seen
    assert look_again(seen) is not seen


@pytest.mark.parametrize("status", [place(TAKEN), IS_OVER], ids=["that a slot was taken", "that all is over"])
def test_what_was_only_heard_of_late_denies_nothing(status: Reservation) -> None:
    seen = observe(status, placeholder())
    assert look_again(seen, gone=True) is seen
