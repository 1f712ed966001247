"""A window goes by its schedule whatever others do to its Reservations, and the next one opens."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from api_server_in_memory import error
from berth_core import Reservation
from berth_core.windows import WindowState
from berth_kube.errors import ForbiddenError
from berth_kube.resources import RESERVATION_WINDOWS, RESERVATIONS
from berth_operator.capabilities.windows.store import WINDOW
from berth_operator.runtime.workqueue import Key
from window_simulation import NAMESPACE, WindowSimulation, window_body

END: Final = "2026-01-01T04:00:00Z"
KEY: Final = Key(WINDOW, "uid-nightly")


def at(hour: int, minute: int = 0, *, day: int = 1) -> datetime:
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)


def opened() -> tuple[WindowSimulation, Reservation]:
    one = WindowSimulation()
    one.apply(window_body())
    one.advance(at(2))
    (held,) = one.reservations()
    return one, held


def edit(one: WindowSimulation, held: Reservation, **fields: Any) -> None:  # noqa: ANN401 - parts of the object
    """Change the Reservation as another writer does, and have the operator hear of it."""
    key = NAMESPACE, held.metadata.name
    body = one.api.objects[RESERVATIONS.plural][key]
    one.api.put(RESERVATIONS, {**body, **{name: {**body[name], **part} for name, part in fields.items()}})
    one.cache.put_reservation(Reservation.read(one.api.objects[RESERVATIONS.plural][key]))
    one.settle()


@pytest.mark.parametrize(
    "spec",
    [
        {"expires": "2099-01-01T00:00:00Z"},
        {"expires": "2026-01-01T02:30:00Z"},
        {"expires": None, "ttl": "9999h"},
        {"expires": None},
    ],
    ids=["a later end", "an earlier end", "a duration", "no end"],
)
def test_another_end_of_its_reservation_is_put_right(spec: dict[str, Any]) -> None:
    one, held = opened()
    edit(one, held, spec=spec)
    (mended,) = one.reservations()
    assert (mended.metadata.uid, mended.spec.expires, mended.spec.ttl) == (held.metadata.uid, END, None)


def test_an_end_that_cannot_be_put_right_keeps_no_later_occurrence_from_opening() -> None:
    one, held = opened()
    one.api.faults[f"merge reservations {held.metadata.name}"] = error(ForbiddenError)
    with pytest.raises(ForbiddenError):
        edit(one, held, spec={"expires": "2099-01-01T00:00:00Z"})
    one.clock.advance((at(2, day=2) - one.clock.now()).total_seconds())
    with pytest.raises(ForbiddenError):
        one.controller.reconcile(KEY)
    starts = [found.metadata.annotations["berth.volcano.sh/window-start"] for found in one.reservations()]
    assert starts == ["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]
    assert [active.start for active in one.window().status.active] == starts


def test_a_reservation_that_cannot_be_deleted_keeps_the_status_from_nothing() -> None:
    one, held = opened()
    one.api.faults[f"delete reservations {held.metadata.name}"] = error(ForbiddenError)
    with pytest.raises(ForbiddenError):
        one.apply(window_body(suspend=True))
    assert one.window().status.state == WindowState.SUSPENDED


ODD: Final = {
    "another start": {"metadata": {"annotations": {"berth.volcano.sh/window-start": "2026-01-01T07:00:00Z"}}},
    "a start that is no time": {"metadata": {"annotations": {"berth.volcano.sh/window-start": "soon"}}},
    "no annotation": {"metadata": {"annotations": {}}},
    "another window's label": {"metadata": {"labels": {"berth.volcano.sh/window": "another"}}},
    "no owner": {"metadata": {"ownerReferences": []}},
    "fewer slots that suffice": {"spec": {"minAvailable": 1}},
}


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD.keys())
def test_the_next_night_opens_as_ever_after_its_reservation_got(fields: dict[str, Any]) -> None:
    one, held = opened()
    edit(one, held, **fields)
    one.advance(at(3, 30, day=2))
    starts = [found.metadata.annotations.get("berth.volcano.sh/window-start") for found in one.reservations()]
    assert starts.count("2026-01-02T03:00:00Z") == 1
    assert one.window().status.state == WindowState.OPEN


def test_a_window_that_is_changed_and_deleted_in_the_middle_leaves_nothing_to_open() -> None:
    one, _ = opened()
    one.apply(window_body(schedule="0 5 - 6 * * *", podNumToReserve=3))
    assert [found.spec.replicas for found in one.reservations()] == []
    one.advance(at(3, 30))
    assert [found.spec.replicas for found in one.reservations()] == [3]
    del one.api.objects[RESERVATION_WINDOWS.plural][NAMESPACE, "nightly"]
    one.controller.store.remove("uid-nightly")
    created = len(one.lives)
    one.advance(at(6, day=3))
    assert len(one.lives) == created
