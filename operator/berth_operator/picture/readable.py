"""Owns reading a Reservation from the API when it may be odd: what cannot be read becomes one that says so.

The API server's schema lets templates through whose fields have the wrong type.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from berth_core.clock import parse_timestamp
from berth_core.errors import InputError
from berth_core.expiry import expires_at
from berth_core.pod_requests import effective_requests
from berth_core.reservations import Reservation
from berth_core.unreadable import mark

TEMPLATES_ANNOTATION: Final = "berth.volcano.sh/templates-digest"
"""Only in memory: a digest of the templates as they were written, also of fields that are not decoded."""


def read_reservation(body: Mapping[str, Any]) -> Reservation:
    """Decode a Reservation; where its spec cannot be read, return it without tasks and with the reason noted."""
    reservation = Reservation.read(body)
    if why_unreadable(reservation):
        return reservation
    try:
        expires_at(reservation.spec, parse_timestamp(reservation.metadata.creation_timestamp or ""))
        for task in reservation.spec.tasks:
            effective_requests(task.template.spec)
    except InputError as error:
        return Reservation.read(mark(dict(body), str(error)))
    return _annotated(reservation, TEMPLATES_ANNOTATION, _digest(body))


def templates_digest(reservation: Reservation) -> str:
    """Return what is the same for Reservations of the same templates."""
    return reservation.metadata.annotations.get(TEMPLATES_ANNOTATION, "")


def keep_what_was_computed(reservation: Reservation, known: Reservation) -> None:
    """Have the templates of a version remember what was computed of the same templates of an earlier one."""
    digest = templates_digest(reservation)
    if not digest or digest != templates_digest(known):
        return
    for task, before in zip(reservation.spec.tasks, known.spec.tasks, strict=False):
        vars(task.template.spec).update(vars(before.template.spec))


def _digest(body: Mapping[str, Any]) -> str:
    templates = [task.get("template") for task in body["spec"]["tasks"]]
    return hashlib.sha256(msgspec.json.encode(templates, order="deterministic")).hexdigest()[:32]


def _annotated(reservation: Reservation, key: str, value: str) -> Reservation:
    meta = reservation.metadata
    meta = msgspec.structs.replace(meta, annotations=meta.annotations | {key: value})
    return msgspec.structs.replace(reservation, metadata=meta)


def why_unreadable(reservation: Reservation) -> str:
    """Return why the spec could not be read, "" where it could."""
    return reservation.metadata.unreadable
