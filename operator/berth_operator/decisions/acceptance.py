"""Owns what a Reservation must be beyond what the API server's schema can say.

It does not own whether the API server would take its pods: `acting.validation` asks.
"""

from berth_core.reservations import Reservation, ReservationReason
from berth_operator.decisions.observation import Verdict


def refuse(reservation: Reservation) -> Verdict | None:
    """Return why a Reservation can never be carried out as it is written, None where it can."""
    if not reservation.spec.owners:
        text = "spec.owners is empty: without an owner nobody could ever take its place"
        return Verdict(ReservationReason.INVALID, text)
    own = reservation.metadata.namespace
    for number, owner in enumerate(reservation.spec.owners):
        foreign = owner.object.namespace if owner.object else ""
        if foreign not in {"", own}:
            text = f'spec.owners[{number}].object is in namespace "{foreign}", but its pods can only be in "{own}"'
            return Verdict(ReservationReason.INVALID, text)
    return None
