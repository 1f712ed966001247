"""When reservation windows reserve, begin and end: by the wall clock, over its changes, and in both forms."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Final

import pytest
from hypothesis import strategies as st

from berth_core import InputError, Occurrence, ResourceAmounts, requests_of_slot
from berth_core.window_schedules import WindowSchedule
from berth_core.windows import ReservationWindowSpec
from properties import holds_for

ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def spec(**changes: Any) -> ReservationWindowSpec:  # noqa: ANN401 - a field of the spec
    return ReservationWindowSpec(**{"schedule": "0 3 - 4 * * *", "pod_num_to_reserve": 10, **changes})


def after(instant: str, **changes: Any) -> tuple[str, str, str]:  # noqa: ANN401 - a field of the spec
    """Return when the next window reserves, begins and ends, without seconds."""
    found = WindowSchedule.parse(spec(**changes)).next_after(utc(instant))
    reserves, starts, ends = (moment.strftime("%m-%dT%H:%M") for moment in (found.reserve_at, found.start, found.end))
    return reserves, starts, ends


BERLIN: Final = {"time_zone": "Europe/Berlin"}
OCCURRENCES: Final = {
    "the proposal's own: from 3 to 4 o'clock, reserved two hours before": (
        "2026-11-21T12:00",
        {"start_reserve_ago": "2h"},
        ("11-22T01:00", "11-22T03:00", "11-22T04:00"),
    ),
    "the proposal's name of the schedule": (
        "2026-11-21T12:00",
        {"schedule": "", "cron": "0 3 - 4 * * *"},
        ("11-22T03:00", "11-22T03:00", "11-22T04:00"),
    ),
    "five fields and a duration": (
        "2026-11-21T12:00",
        {"schedule": "30 22 * * *", "duration": "90m"},
        ("11-21T22:30", "11-21T22:30", "11-22T00:00"),
    ),
    "from an hour to one of the next day": (
        "2026-11-21T12:00",
        {"schedule": "15 22 - 2 * * *"},
        ("11-21T22:15", "11-21T22:15", "11-22T02:15"),
    ),
    "until midnight": (
        "2026-11-21T12:00",
        {"schedule": "0 22 - 24 * * *"},
        ("11-21T22:00", "11-21T22:00", "11-22T00:00"),
    ),
    "on Mondays only": (
        "2026-11-21T12:00",
        {"schedule": "0 3 - 4 * * MON"},
        ("11-23T03:00", "11-23T03:00", "11-23T04:00"),
    ),
    "reserved on the day before": (
        "2026-11-21T12:00",
        {"schedule": "0 1 - 2 * * *", "start_reserve_ago": "3h"},
        ("11-21T22:00", "11-22T01:00", "11-22T02:00"),
    ),
    "what reserves already is not the next one": (
        "2026-11-22T02:00",
        {"start_reserve_ago": "2h"},
        ("11-23T01:00", "11-23T03:00", "11-23T04:00"),
    ),
    "a start that the clock leaves out is when it is put forward, and the wall clock says the end": (
        "2026-03-28T12:00",
        {"schedule": "0 2 - 4 * * *", **BERLIN},
        ("03-29T01:00", "03-29T01:00", "03-29T02:00"),
    ),
    "an end that the clock leaves out, too: the window keeps its length": (
        "2026-03-28T12:00",
        {"schedule": "30 2 - 3 * * *", **BERLIN},
        ("03-29T01:00", "03-29T01:00", "03-29T01:30"),
    ),
    "a window that falls into the hour that is left out keeps its length": (
        "2026-03-28T12:00",
        {"schedule": "0 2 - 3 * * *", **BERLIN},
        ("03-29T01:00", "03-29T01:00", "03-29T02:00"),
    ),
    "an hour that comes twice counts at its first coming, and the window lasts longer": (
        "2026-10-24T12:00",
        {"schedule": "0 2 - 4 * * *", **BERLIN},
        ("10-25T00:00", "10-25T00:00", "10-25T03:00"),
    ),
    "a duration is real time, also while the clock is put back": (
        "2026-10-24T12:00",
        {"schedule": "0 2 * * *", "duration": "2h", **BERLIN},
        ("10-25T00:00", "10-25T00:00", "10-25T02:00"),
    ),
}


@pytest.mark.parametrize(("instant", "changes", "want"), OCCURRENCES.values(), ids=OCCURRENCES)
def test_a_window_comes(instant: str, changes: dict[str, Any], want: tuple[str, str, str]) -> None:
    assert after(instant, **changes) == want


WRONG: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "four fields": ({"schedule": "0 3 * *", "duration": "1h"}, "schedule"),
    "a day that never comes": ({"schedule": "0 3 30 2 *", "duration": "1h"}, "schedule"),
    "no duration beside five fields": ({"schedule": "0 3 * * *"}, "duration"),
    "a duration beside an end": ({"duration": "1h"}, "duration"),
    "no length": ({"schedule": "0 3 * * *", "duration": "0s"}, "duration"),
    "longer than a week": ({"schedule": "0 3 * * *", "duration": "169h"}, "duration"),
    "an hour that is none": ({"schedule": "0 3 - 25 * * *"}, "schedule"),
    "from an hour to itself": ({"schedule": "0 3 - 3 * * *"}, "schedule"),
    "a zone that is none": ({"time_zone": "Europe/Nowhere"}, "timeZone"),
    "reserved after the start": ({"start_reserve_ago": "-1h"}, "startReserveAgo"),
}


@pytest.mark.parametrize(("changes", "field"), WRONG.values(), ids=WRONG)
def test_a_schedule_is_refused_with_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        WindowSchedule.parse(spec(**changes))
    assert caught.value.field == field


instants = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda one: one.replace(tzinfo=UTC))  # noqa: DTZ001
schedules = st.one_of(
    st.tuples(st.integers(0, 59), st.integers(0, 23), st.integers(1, 24))
    .filter(lambda one: one[1] != one[2])
    .map(lambda one: {"schedule": f"{one[0]} {one[1]} - {one[2]} * * *"}),
    st.tuples(
        st.sampled_from(("*/20 * * * *", "0 2 * * *", "30 23 * * SUN", "59 0-4 * 3,10 *")), st.integers(1, 300)
    ).map(lambda one: {"schedule": one[0], "duration": f"{one[1]}m"}),
)


@holds_for(schedules, st.sampled_from(ZONES), st.integers(0, 600), instants, quick=30, deep=600)
def test_windows_begin_in_order_end_after_they_begin_and_are_found_from_both_sides(
    changes: dict[str, Any], zone: str, ago: int, instant: datetime
) -> None:
    schedule = WindowSchedule.parse(spec(**changes, time_zone=zone, start_reserve_ago=f"{ago}m"))
    found = [schedule.next_after(instant)]
    for _ in range(5):
        found.append(schedule.next_after(found[-1].reserve_at))

    assert all(one.start < two.start and one.end <= two.end for one, two in pairwise(found))
    assert all(one.end > one.start and one.start - one.reserve_at == timedelta(minutes=ago) for one in found)
    assert list(islice(schedule.back_from(found[-1].reserve_at), 6)) == found[::-1]
    assert all(schedule.has(one.start) and schedule.starting(one.start) == one for one in found)
    assert not schedule.has(found[0].start + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("resources", "pods"), [({"cpu": "32", "memory": "64Gi"}, 10), ({"cpu": "1", "memory": "1000000"}, 7)]
)
def test_the_places_together_request_no_more_than_the_resources(resources: dict[str, str], pods: int) -> None:
    together = requests_of_slot(spec(resources=resources, pod_num_to_reserve=pods)).times(pods)
    assert together.fits_within(ResourceAmounts.from_quantities(resources))


def test_the_resources_are_divided_evenly_and_rounded_down() -> None:
    asked = spec(resources={"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": 20})
    assert requests_of_slot(asked).to_quantities() == {"cpu": "3200m", "memory": "6553Mi", "nvidia.com/gpu": "2"}


def test_devices_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(InputError, match="a multiple of podNumToReserve"):
        requests_of_slot(spec(resources={"nvidia.com/gpu": 4}))


def test_an_occurrence_is_known_by_its_start() -> None:
    noon = utc("2026-11-21T12:00")
    assert Occurrence(noon, noon, noon) < Occurrence(noon + timedelta(seconds=1), noon, noon)
