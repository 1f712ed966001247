"""How often the operator's Lease is renewed, by what plans hold."""

import msgspec

from berth_core import OPERATOR_RENEWALS, PLAN_LABEL, Reservation, ReservationPhase
from berth_operator.runtime.lease_pace import LeasePace


def place(uid: str, phase: ReservationPhase | None = None, *, plan: str = "plan-a") -> Reservation:
    body = {
        "metadata": {"name": uid, "namespace": "shop", "uid": uid, "labels": {PLAN_LABEL: plan} if plan else {}},
        "spec": {"owners": [{"object": {"kind": "Pod", "name": "web"}}], "ttl": "10m", "tasks": []},
        "status": {"state": {"phase": phase.value}} if phase else {},
    }
    return msgspec.convert(body, Reservation)


def test_the_lease_is_renewed_often_from_the_first_place_of_a_plan_to_its_end() -> None:
    pace, hurried = LeasePace(), []
    pace.on_first(lambda: hurried.append(pace.renewals()))
    at_rest = pace.renewals()
    assert at_rest < OPERATOR_RENEWALS

    pace.note(place("first"))
    pace.note(place("second"))
    pace.note(place("first", ReservationPhase.AVAILABLE))
    assert (pace.renewals(), hurried) == (OPERATOR_RENEWALS, [OPERATOR_RENEWALS])

    pace.note(place("first", ReservationPhase.SUCCEEDED))
    assert pace.renewals() == OPERATOR_RENEWALS
    pace.forget("second")
    assert pace.renewals() == at_rest


def test_places_that_no_plan_asked_for_need_no_sign_of_life() -> None:
    pace = LeasePace()
    at_rest = pace.renewals()
    pace.note(place("of-a-window", ReservationPhase.AVAILABLE, plan=""))
    assert pace.renewals() == at_rest


def test_what_has_ended_as_it_is_first_seen_hurries_nothing() -> None:
    pace, hurried = LeasePace(), []
    pace.on_first(lambda: hurried.append(True))
    pace.note(place("ended", ReservationPhase.FAILED))
    assert not hurried
