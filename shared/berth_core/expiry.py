"""Owns when a Reservation expires.

It does not own what follows from it: releasing what is held is the operator's.
"""

from datetime import datetime, timedelta

from berth_core.clock import parse_timestamp
from berth_core.durations import parse_duration
from berth_core.errors import InputError
from berth_core.reservations import Reservation, ReservationSpec


def expires_at(spec: ReservationSpec, created: datetime) -> datetime | None:
    """Return when a Reservation made at `created` expires, None for never: `expires` first, then `ttl` if it is not 0.

    Raises `InputError` that names the field.
    """
    if spec.expires is not None:
        return _time("spec.expires", spec.expires)
    if spec.ttl is None:
        return None
    lifetime = _lifetime(spec.ttl)
    try:
        return created + lifetime if lifetime else None
    except OverflowError:
        return None


def is_expired(reservation: Reservation, now: datetime) -> bool:
    """Tell whether a Reservation is over by its time; one that Failed or Succeeded never is.

    One that the API server has not dated yet is judged by `expires` alone. Raises `InputError` that names the field.
    """
    if reservation.phase.terminal:
        return False
    written = reservation.metadata.creation_timestamp
    end = expires_at(reservation.spec, parse_timestamp(written) if written else now)
    return end is not None and end <= now


def _time(field: str, text: str) -> datetime:
    """Return the time that a field holds."""
    try:
        return parse_timestamp(text)
    except InputError as error:
        raise InputError(field, text, error.expected) from error


def _lifetime(text: str) -> timedelta:
    """Return the length of `ttl`, which must not be negative."""
    try:
        length = parse_duration(text)
    except InputError as error:
        raise InputError("spec.ttl", text, error.expected) from error
    if length < timedelta(0):
        raise InputError("spec.ttl", text, "a duration that is not negative; 0s means never")
    return length
