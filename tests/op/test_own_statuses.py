"""Only what the leading replica wrote as a status is believed; what somebody else writes there is corrected."""

import msgspec
import pytest

from berth_core.reservations import Reservation, ReservationPhase, ReservationStatus, SlotState
from berth_operator.reservation.store.cache import Cache
from berth_operator.runtime.workqueue import SCOPE_KEY, Key
from handover_builders import PLACE_UID, place, slot

HELD = place(slot(SlotState.HELD))
OVER = place(slot(SlotState.RELEASED), phase=ReservationPhase.FAILED).status
FORGED = place(slot(SlotState.TAKEN), phase=ReservationPhase.SUCCEEDED).status
TAKEN = place(slot(SlotState.HANDING_OVER)).status


def version(number: int, status: ReservationStatus = HELD.status) -> Reservation:
    metadata = msgspec.structs.replace(HELD.metadata, resource_version=str(number))
    return msgspec.structs.replace(HELD, metadata=metadata, status=status)


@pytest.fixture
def cache() -> Cache:
    """Know a Reservation whose status this replica wrote, as version 10."""
    made = Cache(lambda _key: None)
    made.put_reservation(version(9, ReservationStatus()))
    made.put_written(PLACE_UID, HELD.status, made.epoch, version(10))
    return made


def believed(cache: Cache) -> tuple[ReservationStatus, bool]:
    """Return which status is believed, and whether the API server holds another."""
    known = cache.reservation(PLACE_UID)
    assert known is not None
    return known.status, cache.is_forged(PLACE_UID)


def test_what_somebody_else_wrote_is_not_believed(cache: Cache) -> None:
    cache.put_reservation(version(11, FORGED))
    assert believed(cache) == (HELD.status, True)
    assert cache.live_namespaces() == {"default"}


def test_what_somebody_else_put_right_again_is_no_forgery(cache: Cache) -> None:
    cache.put_reservation(version(11, FORGED))
    cache.put_reservation(version(12))
    assert believed(cache) == (HELD.status, False)


def test_the_correction_ends_it(cache: Cache) -> None:
    cache.put_reservation(version(11, FORGED))
    cache.put_written(PLACE_UID, HELD.status, cache.epoch, version(12))
    assert believed(cache) == (HELD.status, False)


def test_a_watch_that_is_quicker_than_the_answer_to_our_own_write_is_no_forgery(cache: Cache) -> None:
    cache.put_reservation(version(11, TAKEN))
    cache.put_written(PLACE_UID, TAKEN, cache.epoch, version(11, TAKEN))
    assert believed(cache) == (TAKEN, False)


def test_the_webhook_s_scope_follows_also_an_answer_that_the_watch_overtook() -> None:
    queued: list[Key] = []
    cache = Cache(queued.append)
    cache.put_reservation(version(9, ReservationStatus()))
    cache.put_written(PLACE_UID, HELD.status, cache.epoch, version(10))
    cache.put_reservation(version(11, OVER))
    queued.clear()
    cache.put_written(PLACE_UID, OVER, cache.epoch, version(11, OVER))
    assert SCOPE_KEY in queued
    assert cache.live_namespaces() == set()


def test_a_forgery_that_is_heard_of_before_the_answer_to_our_own_write_is_one_still(cache: Cache) -> None:
    cache.put_reservation(version(12, FORGED))
    cache.put_written(PLACE_UID, TAKEN, cache.epoch, version(11, TAKEN))
    assert believed(cache) == (TAKEN, True)


def test_a_new_reign_believes_what_the_api_server_holds(cache: Cache) -> None:
    """Another replica may have led in between."""
    epoch = cache.epoch
    cache.put_reservation(version(11, TAKEN))
    cache.start_epoch()
    assert believed(cache) == (TAKEN, False)
    cache.put_written(PLACE_UID, HELD.status, epoch)
    cache.put_reservation(version(12, TAKEN))
    assert believed(cache) == (TAKEN, False), "what was written before says nothing any more"


def test_a_status_that_was_found_to_be_true_is_as_good_as_one_that_was_written() -> None:
    cache = Cache(lambda _key: None)
    cache.put_reservation(version(10))
    cache.put_written(PLACE_UID, HELD.status, cache.epoch)
    cache.put_reservation(version(11, FORGED))
    assert believed(cache) == (HELD.status, True)


def test_nothing_is_remembered_of_a_reservation_that_is_gone(cache: Cache) -> None:
    cache.put_reservation(version(11, FORGED))
    cache.remove_reservation(PLACE_UID)
    cache.start_epoch()
    assert cache.reservation(PLACE_UID) is None
    cache.put_written(PLACE_UID, HELD.status, cache.epoch)
    assert not cache.is_forged(PLACE_UID)
