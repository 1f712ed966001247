"""Owns until when the kubelet lets a placeholder run, and what to do where that is not what its Reservation says.

It does not make the successor: `decisions.reconcile` decides on it, `acting.performer` creates it.
The API server lets nobody put `activeDeadlineSeconds` off: a placeholder whose Reservation was extended is succeeded by
another one in time. Where it was shortened the deadline is brought forward.
"""

from datetime import datetime, timedelta
from typing import Final

from berth_core.clock import parse_timestamp
from berth_core.expiry import expires_at
from berth_core.objects import Pod
from berth_core.reservations import Reservation

_LEAD_MARGINS: Final = 2
"""A placeholder is succeeded so many margins before its end, when the API server may still be away for a minute."""


def seconds_to_renewal(reservation: Reservation, placeholder: Pod, now: datetime, margin_seconds: int) -> float | None:
    """Return in how many seconds a placeholder is to be succeeded, None where it outlives its Reservation."""
    ends, wanted = _ends_at(placeholder), _wanted_end(reservation, margin_seconds)
    if ends is None or (wanted is not None and ends >= wanted - timedelta(seconds=margin_seconds / 2)):
        return None
    return (ends - now).total_seconds() - _LEAD_MARGINS * margin_seconds


def seconds_too_long(reservation: Reservation, placeholder: Pod, margin_seconds: int) -> int | None:
    """Return the earlier deadline for a placeholder that would outlive its Reservation by far, else None."""
    wanted, started = _wanted_end(reservation, margin_seconds), placeholder.status.start_time
    if wanted is None or started is None:
        return None
    ends = _ends_at(placeholder)
    if ends is not None and ends <= wanted + timedelta(seconds=margin_seconds):
        return None
    return max(1, int((wanted - parse_timestamp(started)).total_seconds()))


def _ends_at(placeholder: Pod) -> datetime | None:
    """Return when the kubelet ends a placeholder, None where it never does or does not run it yet."""
    length, started = placeholder.spec.active_deadline_seconds, placeholder.status.start_time
    return None if length is None or started is None else parse_timestamp(started) + timedelta(seconds=length)


def _wanted_end(reservation: Reservation, margin_seconds: int) -> datetime | None:
    """Return when a placeholder is to end by itself: a margin after its Reservation, None for never."""
    expiry = expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
    try:
        return None if expiry is None else expiry + timedelta(seconds=margin_seconds)
    except OverflowError:
        return None
