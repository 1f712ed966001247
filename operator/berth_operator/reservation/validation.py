"""Rules for a Reservation beyond the API server's schema.

`act.validator` asks the API server whether it accepts the pods.
"""

from collections.abc import Callable
from typing import Final

from berth_core import (
    Reservation,
    ReservationReason,
    ReservationTask,
    effective_requests,
    is_dns_subdomain,
    readable_quantities,
)
from berth_operator.reservation.manifests import constraint_bytes, required_terms
from berth_operator.reservation.observation import Verdict

MAX_TERMS: Final = 1_000
"""Node terms of one placeholder; a Reservation may name as many nodes."""
_MAX_BYTES: Final = 512 * 1024
"""Constraints of one placeholder; the API server accepts some 1.5 MiB."""
_MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
"""Constraints of all placeholders of a task, which operator and API server keep in memory."""


def refuse(reservation: Reservation) -> Verdict | None:
    """Return why a Reservation can never be carried out as written."""
    home = reservation.metadata.namespace
    for number, owner in enumerate(reservation.spec.owners):
        foreign = owner.object.namespace if owner.object else ""
        if foreign not in {"", home}:
            text = f'spec.owners[{number}].object is in namespace "{foreign}", but its pods can only be in "{home}"'
            return Verdict(ReservationReason.INVALID, text)
    return _refuse_first(reservation, _why_no_node_name) or refuse_size(reservation)


def _why_no_node_name(path: str, task: ReservationTask) -> str:
    for number, name in enumerate(task.node_names):
        if not is_dns_subdomain(name):
            return (
                f'{path}.reservationNodeNames[{number}] is "{name}", which no node can be named; expected a DNS-1123 '
                "subdomain: up to 253 of a-z, 0-9, - and . between"
            )
    return ""


def refuse_size(reservation: Reservation) -> Verdict | None:
    """Return which task's placeholders would be too large: each node term is tied to each node's name."""
    return _refuse_first(reservation, _why_too_large)


def _why_too_large(path: str, task: ReservationTask) -> str:
    terms, names = required_terms(task.template.spec), task.node_names
    if len(terms) * len(names) > MAX_TERMS:
        return (
            f"{path}.reservationNodeNames has {len(names)} names and the template {len(terms)} nodeSelectorTerms, "
            f"{len(terms) * len(names)} terms for each placeholder; expected at most {MAX_TERMS}: write fewer"
        )
    size = constraint_bytes(task)
    if size > _MAX_BYTES:
        return (
            f"{path}: nodeSelector, tolerations, nodeSelectorTerms and reservationNodeNames make {size} bytes of each "
            f"placeholder; expected at most {_MAX_BYTES}: write fewer of them"
        )
    if size * task.replicas > _MAX_TOTAL_BYTES:
        return (
            f"{path}.replicas is {task.replicas}, with {size} bytes of nodeSelector, tolerations, nodeSelectorTerms "
            f"and reservationNodeNames each; expected at most {_MAX_TOTAL_BYTES} bytes together: write fewer"
        )
    return ""


def refuse_requests(reservation: Reservation) -> Verdict | None:
    """Return which task's requests contradict its `requestsNothing`."""
    return _refuse_first(reservation, _why_requests_are_odd)


def _refuse_first(reservation: Reservation, why: Callable[[str, ReservationTask], str]) -> Verdict | None:
    """Return the refusal of the first task for which `why`, given its path, returns a text."""
    texts = (why(f"spec.tasks[{number}]", task) for number, task in enumerate(reservation.spec.tasks))
    text = next(filter(None, texts), "")
    return Verdict(ReservationReason.INVALID, text) if text else None


def _why_requests_are_odd(path: str, task: ReservationTask) -> str:
    requests = effective_requests(task.template.spec)
    requested = ", ".join(f"{resource} {amount}" for resource, amount in readable_quantities(requests).items())
    if requested and task.requests_nothing:
        return f"{path}.requestsNothing is true, but the template of task {task.name} requests {requested}: drop either"
    if requested or task.requests_nothing:
        return ""
    return (
        f"{path}.template.spec.containers[].resources.requests of task {task.name} name no amount, so nothing would be "
        f"held: write what the pods request, as in cpu: 500m, or {path}.requestsNothing: true if that is nothing"
    )
