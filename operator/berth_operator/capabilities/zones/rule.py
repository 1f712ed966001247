"""The rule of lent nodes on Reservations."""

from collections.abc import Mapping

from berth_core import (
    PREEMPTABLE_LABEL,
    REVOCABLE_ZONE_LABEL,
    ObjectMeta,
    Reservation,
    ReservationTask,
    is_place_of_preemptable,
)
from berth_operator.reservation.rules import ReservationRule


class ZoneRule(ReservationRule):
    """Labels the places of preemptable pods that a plan moves, so that they pass the fences of open lent nodes."""

    def slot_labels(self, reservation: Reservation, task: ReservationTask) -> Mapping[str, str]:
        return {PREEMPTABLE_LABEL: "true"} if is_place_of_preemptable(reservation, task) else {}

    def may_hold(self, node: ObjectMeta) -> bool:
        # A place that is held for later would stay when the node closes.
        return REVOCABLE_ZONE_LABEL not in node.labels
