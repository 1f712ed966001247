"""Reads Reservations as the API server sends them.

The API server's schema admits templates with fields of the wrong type. Such a Reservation notes that itself.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from berth_core import (
    InputError,
    ObjectMeta,
    Reservation,
    ReservationSpec,
    effective_requests,
    expires_at,
    mark,
)

TEMPLATES_ANNOTATION: Final = "berth.volcano.sh/templates-digest"
"""A digest of the templates as written, with undecoded fields; it is kept in memory only."""
_WRITTEN_ANNOTATION: Final = "berth.volcano.sh/templates"
"""In memory only: the templates as written, until the Reservation has a status; who writes it is overruled."""


def read_reservation(body: Mapping[str, Any]) -> Reservation:
    """Decode a Reservation; one with an unreadable spec has no tasks and notes why."""
    reservation = Reservation.read(body)
    if why_unreadable(reservation):
        return reservation
    try:
        # Computed here for their errors only: a value that the schema lets through must not first fail in a worker.
        expires_at(reservation)
        for task in reservation.spec.tasks:
            effective_requests(task.template.spec)
    except InputError as error:
        return Reservation.read(mark(dict(body), str(error)))
    templates = msgspec.json.encode(
        [task.get("template") for task in body["spec"]["tasks"] or ()], order="deterministic"
    )
    meta = reservation.metadata
    notes = meta.annotations | {
        TEMPLATES_ANNOTATION: hashlib.sha256(templates).hexdigest()[:32],
        _WRITTEN_ANNOTATION: "" if body.get("status") else templates.decode(),
    }
    return msgspec.structs.replace(reservation, metadata=msgspec.structs.replace(meta, annotations=notes))


def templates_as_written(reservation: Reservation) -> str:
    """Return the templates as a JSON list, with undecoded fields; "" where they are no longer kept."""
    return reservation.metadata.annotations.get(_WRITTEN_ANNOTATION, "")


def templates_digest(reservation: Reservation) -> str:
    """Return a digest that Reservations of equal templates share."""
    return reservation.metadata.annotations.get(TEMPLATES_ANNOTATION, "")


def reuse_computed(reservation: Reservation, known: Reservation) -> None:
    """Copy cached results from an earlier version with the same templates."""
    digest = templates_digest(reservation)
    if not digest or digest != templates_digest(known):
        return
    for task, known_task in zip(reservation.spec.tasks, known.spec.tasks, strict=False):
        vars(task.template.spec).update(vars(known_task.template.spec))


def differs_by_status_only(reservation: Reservation, known: Reservation) -> bool:
    """Return whether nothing but the status and the resourceVersion differs between two versions."""
    return _without_status(reservation) == _without_status(known)


def _without_status(reservation: Reservation) -> tuple[ReservationSpec, ObjectMeta]:
    meta = reservation.metadata
    annotations = {name: text for name, text in meta.annotations.items() if name != _WRITTEN_ANNOTATION}
    return reservation.spec, msgspec.structs.replace(meta, annotations=annotations, resource_version="")


def why_unreadable(reservation: Reservation) -> str:
    """Return why the spec could not be decoded, "" if it could."""
    return reservation.metadata.unreadable
