from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from berth_core.errors import InputError
from berth_core.reservation_expiry import expires_at, is_expired
from berth_core.reservations import ReservationPhase
from builders import NOON, reservation

LIVE = [ReservationPhase.PENDING, ReservationPhase.WAITING, ReservationPhase.AVAILABLE]
TERMINAL = [ReservationPhase.SUCCEEDED, ReservationPhase.FAILED]


@dataclass(frozen=True)
class End:
    ttl: str | None = None
    expires: str | None = None
    want_end: datetime | None = None


ENDS = {
    "neither: never": End(),
    "a ttl counts from the creation": End(ttl="600s", want_end=NOON + timedelta(minutes=10)),
    "a ttl of zero is never": End(ttl="0s"),
    "a ttl of zero without a unit is never": End(ttl="0"),
    "an end is an end": End(expires="2026-11-21T12:00:30Z", want_end=NOON + timedelta(seconds=30)),
    "an end in another zone": End(expires="2026-11-21T14:00:30+02:00", want_end=NOON + timedelta(seconds=30)),
    "both: the end comes first": End(ttl="1s", expires="2026-11-21T13:00:00Z", want_end=NOON + timedelta(hours=1)),
    "both: the end counts though ttl says never": End(ttl="0s", expires="2026-11-21T12:00:00Z", want_end=NOON),
    "a ttl beyond the calendar is never": End(ttl="2562047h", want_end=NOON + timedelta(hours=2562047)),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_a_reservation_ends(case: End) -> None:
    assert expires_at(reservation(ttl=case.ttl, expires=case.expires)) == case.want_end


def test_a_ttl_that_the_calendar_cannot_hold_is_never() -> None:
    assert expires_at(reservation(ttl="2562047h", created="9990-11-21T12:00:00Z")) is None


@pytest.mark.parametrize("phase", [None, *LIVE])
def test_a_live_reservation_expires_at_its_end_and_not_before(phase: ReservationPhase | None) -> None:
    held = reservation(ttl="600s", phase=phase)
    assert not is_expired(held, NOON + timedelta(seconds=599.999))
    assert is_expired(held, NOON + timedelta(seconds=600))
    assert is_expired(held, NOON + timedelta(days=1))


@pytest.mark.parametrize("phase", TERMINAL)
def test_one_that_is_over_does_not_expire(phase: ReservationPhase) -> None:
    assert not is_expired(reservation(ttl="1s", phase=phase), NOON + timedelta(days=1))
    assert not is_expired(reservation(ttl=None, expires="2026-11-21T00:00:00Z", phase=phase), NOON)


@pytest.mark.parametrize("phase", TERMINAL)
def test_one_that_is_over_is_not_asked_for_its_time(phase: ReservationPhase) -> None:
    assert not is_expired(reservation(ttl="rubbish", phase=phase), NOON)


def test_one_without_a_date_of_its_own_is_judged_by_its_end_alone() -> None:
    assert not is_expired(reservation(ttl="1s", created=None), NOON + timedelta(days=1))
    assert is_expired(reservation(ttl=None, expires="2026-11-21T12:00:00Z", created=None), NOON)


@dataclass(frozen=True)
class Bad:
    want: str
    ttl: str | None = None
    expires: str | None = None


BAD = {
    "a ttl that is no duration": Bad("spec.ttl is 'soon'; expected a duration such as 600s, 1h30m or 0s", ttl="soon"),
    "a negative ttl": Bad("spec.ttl is '-5s'; expected a duration that is not negative; 0s means never", ttl="-5s"),
    "an end that is no time": Bad(
        "spec.expires is 'soon'; expected an RFC 3339 time such as 2026-11-21T07:15:00Z",
        expires="soon",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_time_is_refused_with_its_field(case: Bad) -> None:
    held = reservation(ttl=case.ttl, expires=case.expires)
    with pytest.raises(InputError) as caught:
        is_expired(held, NOON)
    assert str(caught.value) == case.want
