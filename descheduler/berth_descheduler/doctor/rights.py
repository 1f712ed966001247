"""A look by someone who may not read every kind, and which rights each finding needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from berth_descheduler.doctor.advice import ADVICE
from berth_descheduler.doctor.look import find_all_troubles
from berth_kube import MIGRATION_PLANS, NODES, PODS, RESERVATIONS, Access, ForbiddenError, KubeClient, Listing, Resource
from berth_sandbox.invariants import Invariant, Violation

NEEDED_RIGHTS: Final = tuple(Access("list", resource) for resource in (NODES, PODS, RESERVATIONS, MIGRATION_PLANS))
"""What every look needs: nearly all findings are about these kinds."""

_FURTHER_RESOURCES: Final = {access.resource for advice in ADVICE.values() for access in advice.rights}


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
    """Return the rights that a finding needs beside `NEEDED_RIGHTS`; an unreadable object needs its own kind."""
    if violation.invariant is not Invariant.OBJECT_UNREADABLE:
        return ADVICE[violation.invariant].rights
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
    of_all = (access for advice in ADVICE.values() for access in advice.rights)
    return frozenset(of_all).union(*map(rights_to, violations))
