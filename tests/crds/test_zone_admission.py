"""What the API server says to a RevocableZone, before Berth sees it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from berth_core import RevocableZone
from berth_core.revocable_zones import RevocableZoneSpec, Weekday
from plain_api import PlainApi

pytestmark = pytest.mark.cluster

ZONES: Final = "apis/berth.volcano.sh/v1alpha1/revocablezones"

Store = Callable[[str, dict[str, Any]], str]

SPEC: Final = RevocableZoneSpec(
    windows=("1:00-4:00", "22:00 - 6:00"),
    days=(Weekday.SATURDAY, Weekday.SUNDAY),
    time_zone="Europe/Berlin",
    evict_period="90s",
    evict_before="10m",
    suspend=True,
)


def zone(**spec: object) -> dict[str, Any]:
    given = {"windows": ["1:00-4:00"], **spec}
    return {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "spec": given}


def test_a_zone_is_kept_as_it_was_given(api: PlainApi, stored: Store) -> None:
    body = zone(**msgspec.to_builtins(SPEC))
    assert RevocableZone.read(api.get(stored(ZONES, body)).body).spec == SPEC


def test_a_zone_that_says_little_says_what_it_means(api: PlainApi, stored: Store) -> None:
    body = api.get(stored(ZONES, zone())).body
    assert body["spec"] == {"windows": ["1:00-4:00"], "evictPeriod": "1m", "suspend": False}


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no window": ({"windows": []}, "should have at least 1 items"),
    "an hour that there is not": ({"windows": ["1:00-25:00"]}, "a window must be two times of the day"),
    "a window in words": ({"windows": ["at night"]}, "a window must be two times of the day"),
    "a day that there is not": ({"days": ["Funday"]}, "Unsupported value"),
    "a day twice": ({"days": ["Mon", "Mon"]}, "Duplicate value"),
    "no period": ({"evictPeriod": "0s"}, "evictPeriod must be from 1s to 168h"),
    "a period without a unit": ({"evictPeriod": "60"}, "must be a Go duration"),
    "longer than a week": ({"evictBefore": "169h"}, "must not be longer than a week"),
}


@pytest.mark.parametrize(("spec", "want_message"), REFUSED.values(), ids=REFUSED)
def test_a_zone_is_refused_in_clear_words(api: PlainApi, spec: dict[str, Any], want_message: str) -> None:
    answer = api.create(ZONES, zone(**spec) | {"metadata": {"name": "bad"}}, dry_run=True)
    assert answer.code == 422
    assert want_message in answer.message


def test_a_name_that_is_no_value_of_a_label_is_refused(api: PlainApi) -> None:
    answer = api.create(ZONES, zone() | {"metadata": {"name": "a" * 64}}, dry_run=True)
    assert answer.code == 422
    assert "at most 63 characters" in answer.message
