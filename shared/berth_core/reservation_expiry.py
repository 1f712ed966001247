"""When a Reservation expires."""

from datetime import datetime, timedelta

from berth_core.clock import parse_timestamp
from berth_core.durations import parse_duration
from berth_core.errors import InputError
from berth_core.reservations import Reservation, ReservationSpec


def expires_at(reservation: Reservation) -> datetime | None:
    """Return when a Reservation expires, None for never; raises `InputError` that names the field."""
    return _expiry(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))


def is_expired(reservation: Reservation, now: datetime) -> bool:
    """Return whether a live Reservation is past its time.

    Before the API server has dated it, `expires` alone counts. Raises `InputError` that names the field.
    """
    if reservation.phase.terminal:
        return False
    created = reservation.metadata.creation_timestamp
    expires = _expiry(reservation.spec, parse_timestamp(created) if created else now)
    return expires is not None and expires <= now


def _expiry(spec: ReservationSpec, created: datetime) -> datetime | None:
    """Return `expires`, else the creation plus a `ttl` above 0."""
    if spec.expires is not None:
        return _time("spec.expires", spec.expires)
    if spec.ttl is None:
        return None
    lifetime = _lifetime(spec.ttl)
    try:
        # A ttl of 0 is never, as in Koordinator's Reservation, from which the field comes.
        return created + lifetime if lifetime else None
    except OverflowError:
        return None


def _time(field: str, text: str) -> datetime:
    try:
        return parse_timestamp(text)
    except InputError as error:
        raise InputError(field, text, error.expected) from error


def _lifetime(text: str) -> timedelta:
    """Return the length of `ttl`; raises `InputError` if it is negative."""
    try:
        length = parse_duration(text)
    except InputError as error:
        raise InputError("spec.ttl", text, error.expected) from error
    if length < timedelta(0):
        raise InputError("spec.ttl", text, "a duration that is not negative; 0s means never")
    return length
