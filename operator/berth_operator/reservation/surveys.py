"""The room on one node: what is free, what terminating pods will free, and which pods came last."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from berth_core import (
    INDEX_ANNOTATION,
    ONE_POD,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    TASK_ANNOTATION,
    Pod,
    PodSpec,
    Quantities,
    ResourceAmounts,
    effective_requests,
    readable_requests,
)
from berth_operator.reservation.node_choice import EndingPod, expected_room
from berth_operator.schedulers.kube_scheduler import SCHEDULER

SlotKey = tuple[str, str, str]
"""Uid of a Reservation, task and index of the slot that a placeholder holds."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on the node that has not ended."""

    uid: str
    key: str
    requests: ResourceAmounts
    is_terminating: bool
    bound_since: str
    """RFC 3339, as the API server writes it."""
    holds: SlotKey | None = None
    ends_at: datetime | None = None
    """When it is expected to have ended; None if nothing says so."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The pods on a node at a recent time."""

    allocatable: ResourceAmounts
    occupants: tuple[Occupant, ...]
    age_seconds: float = 0.0

    def will_have_room(self, spec: PodSpec) -> bool:
        """Return whether a pod fits only once the terminating pods are gone."""
        return not self._has_room(spec, self.occupants) and self._has_room(spec, self._staying())

    def takers(self, owner: Pod) -> tuple[Occupant, ...]:
        """Return the pods that are in an owner's way, latest first."""
        # Latest first, because the last one to come is the likeliest to have taken its place.
        other_occupants = tuple(occupant for occupant in self._staying() if occupant.uid != owner.metadata.uid)
        if self._has_room(owner.spec, other_occupants):
            return ()
        return tuple(sorted(other_occupants, key=lambda occupant: (occupant.bound_since, occupant.key), reverse=True))

    def terminating_pods(self) -> tuple[str, ...]:
        """Return the terminating pods as namespace/name."""
        return tuple(occupant.key for occupant in self.occupants if occupant.is_terminating)

    def expected_room(self, requests: ResourceAmounts) -> datetime | None:
        """Return when the known ends of pods leave room; None if it is there, or no end is known."""
        free_amounts = self.allocatable.minus(ResourceAmounts.total(occupant.requests for occupant in self.occupants))
        if requests.fits_within(free_amounts):
            return None
        return expected_room(
            free_amounts, requests, (EndingPod(occupant.requests, occupant.ends_at) for occupant in self.occupants)
        )

    def _staying(self) -> tuple[Occupant, ...]:
        return tuple(occupant for occupant in self.occupants if not occupant.is_terminating)

    def _has_room(self, spec: PodSpec, occupants: Iterable[Occupant]) -> bool:
        requests = slot_requests(spec)
        used_amounts = ResourceAmounts.total(occupant.requests for occupant in occupants)
        return all(
            used_amounts.get(resource) + amount <= self.allocatable.get(resource)
            for resource, amount in requests.items()
            # Scheduler and kubelet let a node lack what a pod requests none of (kubernetes/kubernetes#116408).
            if amount
        )


def build_survey(allocatable: Quantities, pods: Iterable[Pod], ends: Mapping[str, datetime] | None = None) -> Survey:
    """Return a survey of a node's pods; ended pods hold nothing, and `ends` has expected ends by uid."""
    known_ends = ends or {}
    occupants = tuple(_occupant(pod, known_ends.get(pod.metadata.uid)) for pod in pods if not pod.is_terminal)
    return Survey(ResourceAmounts.from_quantities(allocatable), occupants)


def _occupant(pod: Pod, ends_at: datetime | None) -> Occupant:
    meta = pod.metadata
    holds = None
    if PLACEHOLDER_LABEL in meta.labels:
        notes = meta.annotations
        holds = (
            meta.labels.get(RESERVATION_LABEL, ""),
            notes.get(TASK_ANNOTATION, ""),
            notes.get(INDEX_ANNOTATION, ""),
        )
    # A pod that was created with a node has no time of scheduling until its kubelet writes the condition.
    bound_since = SCHEDULER.bound_at(pod) or meta.creation_timestamp or ""
    return Occupant(meta.uid, pod.key, taken_by(pod), pod.is_terminating, bound_since, holds, ends_at)


def taken_by(pod: Pod) -> ResourceAmounts:
    """Return what a pod on a node takes of it now, including its pod slot, and only that if its requests are odd."""
    return readable_requests(pod).plus(ONE_POD)


def slot_requests(spec: PodSpec) -> ResourceAmounts:
    """Return what a pod will take of a node, including its pod slot; raises `InputError` for odd requests."""
    return effective_requests(spec).plus(ONE_POD)
