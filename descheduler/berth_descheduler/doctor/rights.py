"""A look by someone who may not read every kind, and which rights each finding needs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from berth_core import DESCHEDULER_LEASE, OPERATOR_LEASE, REPLACEMENT_TRIAL
from berth_descheduler.doctor.look import find_all_troubles
from berth_kube import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    DAEMON_SETS,
    DESCHEDULER_POLICIES,
    EVENTS,
    JOBS,
    LEASES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    VALIDATING_WEBHOOKS,
    Access,
    ForbiddenError,
    KubeClient,
    Listing,
    Resource,
)
from berth_sandbox.invariants import Invariant, Violation

NEEDED_RIGHTS: Final = tuple(Access("list", resource) for resource in (NODES, PODS, RESERVATIONS, MIGRATION_PLANS))
"""What every look needs: nearly all findings are about these kinds."""

_OPERATOR: Final = Access("get", LEASES, OPERATOR_LEASE)
_DESCHEDULER: Final = Access("get", LEASES, DESCHEDULER_LEASE)
_NAMESPACES: Final = Access("list", NAMESPACES)
_POLICIES: Final = Access("list", DESCHEDULER_POLICIES)
_QUEUES: Final = Access("list", QUEUES)
_WINDOWS: Final = Access("list", RESERVATION_WINDOWS)
_ZONES: Final = Access("list", REVOCABLE_ZONES)

FURTHER_RIGHTS: Final[Mapping[Invariant, tuple[Access, ...]]] = {
    Invariant.QUEUE_GATE_LEFT: (_QUEUES, _NAMESPACES),
    Invariant.PRIORITY_CLASS_LEFT: (Access("list", PRIORITY_CLASSES), _OPERATOR),
    Invariant.WEBHOOK_LEFT: (Access("list", MUTATING_WEBHOOKS), _QUEUES),
    Invariant.WORKLOAD_SHORT: tuple(Access("list", resource) for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS)),
    Invariant.OPERATOR_ABSENT: (_OPERATOR,),
    Invariant.PLAN_ABANDONED: (_DESCHEDULER,),
    Invariant.STARVING_LIMIT: (_POLICIES, _OPERATOR),
    Invariant.STARVES_FOR_GOOD: (_POLICIES, Access("list", EVENTS)),
    Invariant.QUEUE_REFUSED: (_QUEUES,),
    Invariant.QUEUE_NOT_ENFORCED: (_QUEUES,),
    Invariant.QUEUE_NOT_COVERED: (_QUEUES,),
    Invariant.QUEUE_NOT_HELD: (_QUEUES,),
    Invariant.EVICTIONS_UNANSWERED: (_NAMESPACES, Access("list", VALIDATING_WEBHOOKS)),
    Invariant.WINDOW_INVALID: (_WINDOWS,),
    Invariant.WINDOW_OVERLAPS: (_WINDOWS,),
    Invariant.WINDOW_WITHOUT_MOVES: (_WINDOWS,),
    Invariant.WINDOW_SHORT: (_WINDOWS,),
    Invariant.ZONE_INVALID: (_ZONES,),
    Invariant.ZONE_UNKNOWN: (_ZONES,),
    Invariant.ZONE_WITHOUT_NODES: (_ZONES,),
    Invariant.ZONE_UNFENCED: (_ZONES,),
    Invariant.ZONE_NOT_EMPTIED: (_ZONES, _POLICIES),
    Invariant.ZONE_LATE: (_ZONES,),
    Invariant.DAEMON_KEPT_OFF: (_ZONES, Access("list", DAEMON_SETS)),
    Invariant.TRIAL_UNBOUNDED: tuple(
        Access("get", resource, REPLACEMENT_TRIAL)
        for resource in (SERVICE_ACCOUNTS, ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)
    ),
}
"""What further has to be readable for a finding to be true, and shown; an unreadable object needs its own kind."""

_FURTHER_RESOURCES: Final = {access.resource for accesses in FURTHER_RIGHTS.values() for access in accesses}


@dataclass(frozen=True, slots=True)
class Look:
    """What was found, without what could not be judged."""

    violations: tuple[Violation, ...]
    refused: frozenset[Access] = frozenset()
    """The rights that whoever looked lacks."""


class _AllowedReader:
    """Reads as a client does. A kind that may not be read is empty, unless every finding needs it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.refused: set[Access] = set()

    def list(self, resource: Resource, **options: Any) -> Listing[Any]:  # noqa: ANN401 - the client's own types
        try:
            return self._client.list(resource, **options)
        except ForbiddenError:
            if resource not in _FURTHER_RESOURCES:
                raise
            self.refused.add(Access("list", resource))
            return Listing((), "")

    def get(self, resource: Resource, name: str, **options: Any) -> Any:  # noqa: ANN401 - the client's own types
        try:
            return self._client.get(resource, name, **options)
        except ForbiddenError:
            self.refused.add(Access("get", resource, name))
            raise


def look_as_far_as_allowed(client: KubeClient, own_namespace: str, now: datetime) -> Look:
    """Look as `find_all_troubles` does, and leave out what needs a kind that may not be read.

    Raises `ForbiddenError` where one of `NEEDED_RIGHTS` is missing.
    """
    reader = _AllowedReader(client)
    violations = find_all_troubles(cast("KubeClient", reader), own_namespace, now)
    unread = {right.resource for right in reader.refused}
    judged = (
        violation for violation in violations if unread.isdisjoint(right.resource for right in rights_to(violation))
    )
    return Look(tuple(judged), frozenset(reader.refused))


def rights_to(violation: Violation) -> tuple[Access, ...]:
    """Return the rights that a finding needs beside `NEEDED_RIGHTS`."""
    if violation.invariant is not Invariant.OBJECT_UNREADABLE:
        return FURTHER_RIGHTS.get(violation.invariant, ())
    return (Access("list", _resource_of_kind(violation.kind)),)


def _resource_of_kind(kind: str) -> Resource:
    """Return the resource of a kind as kubectl names it, for reviews of rights.

    The plural is Kubernetes' own guess (UnsafeGuessKindToResource), which every kind that plans go by follows.
    """
    singular, _, group = kind.partition(".")
    if singular.endswith("s"):
        plural = f"{singular}es"
    elif singular.endswith("y"):
        plural = f"{singular.removesuffix('y')}ies"
    else:
        plural = f"{singular}s"
    return Resource(group, "", plural, singular)


def rights_asked_for(violations: Iterable[Violation]) -> frozenset[Access]:
    """Return the rights to everything that a look reads beside `NEEDED_RIGHTS`, and to what it found."""
    of_all = (access for accesses in FURTHER_RIGHTS.values() for access in accesses)
    return frozenset(of_all).union(*map(rights_to, violations))
