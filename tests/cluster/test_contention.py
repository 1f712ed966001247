"""Slots go to their owners although hungry pods of the same priority wait at every node."""

import pytest

from background_runs import LONGEST_SECONDS, BackgroundRun
from berth_core.reservations import ReservationPhase
from contention import SLOTS, Contention

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(LONGEST_SECONDS + 60)]


def test_every_slot_goes_to_its_owner_under_contention(contention: BackgroundRun[Contention]) -> None:
    found = contention.result()
    assert list(found.phases) == [ReservationPhase.SUCCEEDED] * SLOTS
    assert len(found.nodes_of_owners) == SLOTS
    assert found.placed_hungry == ()
    assert found.overbooked == ()
