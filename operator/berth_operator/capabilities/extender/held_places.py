"""Jobs without pods that are let in for places that Reservations hold.

Their pods come some seconds after they are let in, and take slots only then. Until that, a place counts as used by the
job that was let in for it, so that others are not let in for the same one.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from berth_core import (
    Clock,
    InputError,
    Quantities,
    Reservation,
    ReservationOwner,
    ResourceAmounts,
    SlotState,
    effective_requests,
)
from berth_operator.capabilities.extender.verbs import JobWithoutPods

LET_IN_SECONDS: Final = 30.0
"""How long a place counts as used by a job that was let in for it: longer than its pods need to come and take it."""
_LIMITS: Final = "limits."
_REQUESTS: Final = "requests."
_COUNTS: Final = "count/"
_PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class _UntakenPlaces:
    """What a job uses of a Reservation until its pods take slots."""

    reservation: str
    """Uid."""
    pods: int
    requests: ResourceAmounts
    ends: float
    """In seconds of the monotonic clock."""


class HeldPlaces:
    """The places that this replica has promised to jobs without pods; not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, str], _UntakenPlaces] = {}
        """By namespace and name of the job."""

    def hold_for(self, job: JobWithoutPods, reservations: Iterable[Reservation]) -> bool:
        """Return whether one of these Reservations holds as many places as a job needs to start, and give it these.

        Its owners must name what controls the job's PodGroup, or annotations that the group has. A group that does not
        say what its pods request gets none. The same job has the same answer for `LET_IN_SECONDS`.
        """
        now = self._clock.monotonic()
        self._uses = {key: use for key, use in self._uses.items() if use.ends > now}
        requests = requests_of(job.requests)
        if requests is None or not job.name:
            return False
        key = job.namespace, job.name
        own = self._uses.get(key)
        for reservation in reservations:
            if not _may_use(reservation, job):
                continue
            uid = reservation.metadata.uid
            others = [use for other, use in self._uses.items() if other != key and use.reservation == uid]
            if _holds_enough(reservation, job.pods, requests, others):
                ends = own.ends if own is not None and own.reservation == uid else now + LET_IN_SECONDS
                self._uses[key] = _UntakenPlaces(uid, job.pods, requests, ends)
                return True
        return False


def requests_of(min_resources: Quantities) -> ResourceAmounts | None:
    """Return what pods request together, as a PodGroup says in the names of a quota; None if it does not say."""
    plain = {name: text for name, text in min_resources.items() if not _is_of_quota(name)}
    prefixed = {
        name.removeprefix(_REQUESTS): text for name, text in min_resources.items() if name.startswith(_REQUESTS)
    }
    try:
        # Volcano writes `minResources` in both forms, so that it can be compared with a ResourceQuota: the sums are the
        # same, and must not be added.
        requests = ResourceAmounts.from_quantities(plain).largest(ResourceAmounts.from_quantities(prefixed))
    except InputError:
        return None
    return requests if any(amount > 0 for amount in requests.amounts.values()) else None


def _is_of_quota(name: str) -> bool:
    return name == _PODS or name.startswith((_COUNTS, _LIMITS, _REQUESTS))


def _may_use(reservation: Reservation, job: JobWithoutPods) -> bool:
    return (
        reservation.is_live
        and reservation.metadata.namespace == job.namespace
        and any(_is_for(owner, job) for owner in reservation.spec.owners)
    )


def _is_for(owner: ReservationOwner, job: JobWithoutPods) -> bool:
    if owner.annotations and owner.annotations.items() <= job.annotations.items():
        return True
    wanted = owner.object
    if wanted is None or wanted.namespace not in {"", job.namespace}:
        return False
    return any(
        reference.controller
        and (
            wanted.uid == reference.uid
            if wanted.uid
            else (wanted.kind, wanted.name) == (reference.kind, reference.name)
        )
        for reference in job.owners
    )


def _holds_enough(
    reservation: Reservation, pods: int, requests: ResourceAmounts, others: Iterable[_UntakenPlaces]
) -> bool:
    """Return whether the held slots suffice for so many pods with these requests together, and for the others."""
    uses = tuple(others)
    by_task = Counter(slot.task for slot in reservation.status.slots if slot.state is SlotState.HELD)
    if by_task.total() < pods + sum(use.pods for use in uses):
        return False
    specs = {task.name: task.template.spec for task in reservation.spec.tasks}
    try:
        held = ResourceAmounts.total(effective_requests(specs[task]).times(count) for task, count in by_task.items())
    except (InputError, KeyError):
        return False
    return ResourceAmounts.total((requests, *(use.requests for use in uses))).fits_within(held)
