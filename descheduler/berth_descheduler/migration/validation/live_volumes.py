"""Reads who uses a pod's claims, right before the pod is evicted: a user may have come since the plan was made.

Nothing is read for a pod without claims. What the account may not read is not known, as in a snapshot without it.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

from berth_core import PersistentVolume, PersistentVolumeClaim, Pod, Snapshot
from berth_descheduler.framework import Refusal
from berth_descheduler.planner.claimed_volumes import ClaimedVolumes
from berth_kube import PODS, PVCS, PVS, ForbiddenError, KubeClient, NotFoundError, Resource

T = TypeVar("T")


def volume_refusals(client: KubeClient, pod: Pod) -> tuple[Refusal, ...]:
    """Return why the volumes of a pod keep it where it is now; raises `KubeError`."""
    names = tuple(pod.claim_names)
    if not names:
        return ()
    namespace = pod.metadata.namespace
    claims = tuple(
        claim for name in names for claim in _read(client, PVCS, name, namespace, type_=PersistentVolumeClaim)
    )
    volume_names = sorted({claim.spec.volume_name for claim in claims} - {""})
    snapshot = Snapshot(
        pods=client.list(PODS, namespace=namespace, type=Pod).items,
        persistent_volume_claims=claims,
        persistent_volumes=tuple(
            volume for name in volume_names for volume in _read(client, PVS, name, None, type_=PersistentVolume)
        ),
    )
    return ClaimedVolumes(snapshot).refusals(pod)


def _read(client: KubeClient, resource: Resource, name: str, namespace: str | None, *, type_: type[T]) -> Iterator[T]:
    """Yield an object, none if it is not there or may not be read."""
    with suppress(NotFoundError, ForbiddenError):
        yield client.get(resource, name, namespace=namespace, type=type_)
