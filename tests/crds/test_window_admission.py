"""What the API server says to a ReservationWindow, before Berth sees it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from berth_core import WINDOW_API_VERSION, WINDOW_KIND, ReservationWindow
from berth_core.windows import Missed, ReservationWindowSpec
from plain_api import PlainApi

pytestmark = pytest.mark.cluster

WINDOWS: Final = "apis/berth.volcano.sh/v1alpha1/namespaces/default/reservationwindows"

Store = Callable[[str, dict[str, Any]], str]

SPEC: Final = ReservationWindowSpec(
    schedule="0 3 - 4 * * *",
    time_zone="Europe/Berlin",
    start_reserve_ago="2h",
    pod_num_to_reserve=10,
    resources={"cpu": "32", "memory": "64Gi", "example.com/gpu": 10},
    node_selector={"business_type": "ebook"},
    scheduler_name="volcano",
    missed=Missed.SKIP,
    suspend=True,
    history_limit=3,
)


def window(**changes: object) -> dict[str, Any]:
    """Return a window of five cron fields with parts of its spec replaced; None takes one out."""
    spec = {"schedule": "0 3 * * *", "duration": "1h", "podNumToReserve": 1, "resources": {"cpu": "1"}, **changes}
    kept = {name: value for name, value in spec.items() if value is not None}
    return {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "spec": kept}


def test_a_window_is_kept_as_it_was_given(api: PlainApi, stored: Store) -> None:
    body = {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "spec": msgspec.to_builtins(SPEC)}
    assert ReservationWindow.read(api.get(stored(WINDOWS, body)).body).spec == SPEC


def test_a_window_that_says_little_says_what_it_means(api: PlainApi, stored: Store) -> None:
    body = api.get(stored(WINDOWS, window())).body
    assert body["spec"] == {
        **window()["spec"],
        "startReserveAgo": "0s",
        "mayMove": "Never",
        "missed": "Rest",
        "suspend": False,
        "historyLimit": 5,
    }


GOOD: Final[dict[str, dict[str, Any]]] = {
    "the proposal's names and numbers": {
        "schedule": None,
        "duration": None,
        "cron": "0 3 - 4 * * *",
        "startReserveAgo": "2h",
        "podNumToReserve": 10,
        "resources": {"cpu": "32", "memory": "64Gi"},
        "nodeSelector": {"business_type": "ebook"},
    },
    "a template with fields that the schema does not know": {
        "resources": None,
        "template": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]}},
    },
    "a week": {"duration": "168h"},
    "moves instead of waiting": {"mayMove": "Consolidate"},
}


@pytest.mark.parametrize("spec", GOOD.values(), ids=GOOD)
def test_a_window_is_admitted(api: PlainApi, spec: dict[str, Any]) -> None:
    answer = api.create(WINDOWS, window(**spec) | {"metadata": {"name": "good"}}, dry_run=True, strict=True)
    assert not answer.refused, answer.message


BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no schedule": ({"schedule": None}, "give either schedule or cron"),
    "two schedules": ({"cron": "0 4 * * *"}, "give either schedule or cron"),
    "six fields": ({"schedule": "0 0 3 * * *"}, "must have exactly five cron fields"),
    "five fields without a duration": ({"duration": None}, "five cron fields need a duration"),
    "a duration beside an end": ({"schedule": "0 3 - 4 * * *"}, "five cron fields need a duration"),
    "a duration without a unit": ({"duration": "60"}, "must be a Go duration"),
    "no length": ({"duration": "0s"}, "duration must be at least 1s"),
    "longer than a week": ({"duration": "169h"}, "must not be longer than a week"),
    "longer than can be read": ({"startReserveAgo": "99999999h"}, "must not be longer than a week"),
    "nothing to hold": ({"resources": None}, "give either resources"),
    "an amount and a template": ({"template": {"spec": {}}}, "give either resources"),
    "an amount below zero": ({"resources": {"cpu": "-1"}}, "spec.resources.cpu"),
    "no pods": ({"podNumToReserve": 0}, "should be greater than or equal to 1"),
    "too many pods": ({"podNumToReserve": 1001}, "should be less than or equal to 1000"),
    "a value that there is not": ({"missed": "Never"}, 'supported values: "Rest", "Skip"'),
    "moves of a kind that there is not": ({"mayMove": "Fewest"}, 'supported values: "Never", "Consolidate"'),
}


@pytest.mark.parametrize(("spec", "want_message"), BAD.values(), ids=BAD)
def test_a_window_is_refused_in_clear_words(api: PlainApi, spec: dict[str, Any], want_message: str) -> None:
    answer = api.create(WINDOWS, window(**spec) | {"metadata": {"name": "bad"}}, dry_run=True)
    assert answer.code == 422
    assert want_message in answer.message


def test_a_name_that_is_no_label_is_refused(api: PlainApi) -> None:
    answer = api.create(WINDOWS, window() | {"metadata": {"name": "a" * 64}}, dry_run=True)
    assert answer.code == 422
    assert "at most 63 characters" in answer.message
