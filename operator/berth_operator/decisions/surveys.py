"""Owns what the pods on one node say about its room: what is free, what is about to be, and who came last.

It does not collect them (`acting.performer`) nor keep them (`picture.cache`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from berth_core.labels import INDEX_ANNOTATION, PLACEHOLDER_LABEL, RESERVATION_LABEL, TASK_ANNOTATION
from berth_core.objects import Pod, PodSpec, Quantities
from berth_core.pod_requests import effective_requests
from berth_core.resources import ResourceAmounts

SlotKey = tuple[str, str, str]
"""Uid of a Reservation, task and index of the slot that a placeholder holds."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on the node that has not ended."""

    uid: str
    key: str
    requests: ResourceAmounts
    is_going: bool
    since: str
    """When it was bound, as the API server writes it."""
    holds: SlotKey | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """What was on a node, some time ago."""

    allocatable: ResourceAmounts
    occupants: tuple[Occupant, ...]
    age_seconds: float = 0.0

    def will_have_room(self, spec: PodSpec) -> bool:
        """Tell whether a pod does not fit now, and will once those that are terminating are gone."""
        return not self._has_room(spec, self.occupants) and self._has_room(spec, self._staying())

    def takers(self, owner: Pod) -> tuple[Occupant, ...]:
        """Return who is in the way of an owner on its node, the latest first; empty where the owner has room."""
        others = tuple(one for one in self._staying() if one.uid != owner.metadata.uid)
        if self._has_room(owner.spec, others):
            return ()
        return tuple(sorted(others, key=lambda one: (one.since, one.key), reverse=True))

    def going(self) -> tuple[str, ...]:
        """Return the pods that are terminating, by namespace and name."""
        return tuple(one.key for one in self.occupants if one.is_going)

    def _staying(self) -> tuple[Occupant, ...]:
        return tuple(one for one in self.occupants if not one.is_going)

    def _has_room(self, spec: PodSpec, occupants: Iterable[Occupant]) -> bool:
        wanted = _requests(spec)
        used = ResourceAmounts.total(one.requests for one in occupants)
        return all(used.get(name) + amount <= self.allocatable.get(name) for name, amount in wanted.items() if amount)


def build_survey(allocatable: Quantities, pods: Iterable[Pod]) -> Survey:
    """Return what the pods of a node say; those that have ended hold nothing any more."""
    occupants = tuple(_occupant(pod) for pod in pods if not pod.is_terminal)
    return Survey(ResourceAmounts.from_quantities(allocatable), occupants)


def _occupant(pod: Pod) -> Occupant:
    bound = (c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "True")
    meta = pod.metadata
    holds = None
    if PLACEHOLDER_LABEL in meta.labels:
        notes = meta.annotations
        holds = (
            meta.labels.get(RESERVATION_LABEL, ""),
            notes.get(TASK_ANNOTATION, ""),
            notes.get(INDEX_ANNOTATION, ""),
        )
    since = next(bound, None) or meta.creation_timestamp or ""
    return Occupant(meta.uid, pod.key, _requests(pod.spec), pod.is_terminating, since, holds)


def _requests(spec: PodSpec) -> ResourceAmounts:
    """Return what a pod takes of a node, its slot among the node's pods included."""
    return effective_requests(spec).plus(ResourceAmounts({"pods": 1}))
