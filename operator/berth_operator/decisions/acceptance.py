"""Owns what a Reservation must be beyond what the API server's schema can say.

It does not own whether the API server would take its pods: `acting.validation` asks.
"""

from berth_core.pod_requests import effective_requests
from berth_core.reservations import Reservation, ReservationReason, ReservationTask
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


def refuse_requests(reservation: Reservation) -> Verdict | None:
    """Return which task requests nothing without saying so, or says so and requests something."""
    for number, task in enumerate(reservation.spec.tasks):
        text = _why_requests_are_odd(f"spec.tasks[{number}]", task)
        if text:
            return Verdict(ReservationReason.INVALID, text)
    return None


def _why_requests_are_odd(path: str, task: ReservationTask) -> str:
    asked = effective_requests(task.template.spec)
    named = ", ".join(f"{name} {amount}" for name, amount in asked.to_quantities().items())
    if named and task.requests_nothing:
        return f"{path}.requestsNothing is true, but the template of task {task.name} requests {named}: drop either"
    if named or task.requests_nothing:
        return ""
    return (
        f"{path}.template.spec.containers[].resources.requests of task {task.name} name no amount, so nothing would be "
        f"held: write what the pods request, as in cpu: 500m, or {path}.requestsNothing: true if that is nothing"
    )
