"""Reads who uses a pod's claims, right before the pod is evicted: a user may have come since the plan was made.

Nothing is read for a pod without claims. What the account may not read counts as unknown, as in a snapshot without it.
"""

from berth_core import PersistentVolume, PersistentVolumeClaim, Pod, Snapshot
from berth_descheduler.framework import Refusal
from berth_descheduler.migration.validation.live_reads import read_if_allowed
from berth_descheduler.planner.claimed_volumes import ClaimedVolumes, is_for_one_node
from berth_kube import PODS, PVCS, PVS, ListSource


def volume_refusals(source: ListSource, pod: Pod) -> tuple[Refusal, ...]:
    """Return why the volumes of a pod keep it where it is now; raises `KubeError`."""
    names = tuple(pod.claim_names)
    if not names:
        return ()
    namespace = pod.metadata.namespace
    claims = tuple(
        claim
        for name in names
        for claim in read_if_allowed(source, PVCS, name, namespace=namespace, type_=PersistentVolumeClaim)
    )
    volume_names = sorted({claim.spec.volume_name for claim in claims} - {""})
    volumes = {
        name: volume for name in volume_names for volume in read_if_allowed(source, PVS, name, type_=PersistentVolume)
    }
    may_be_shared = any(is_for_one_node(claim, volumes.get(claim.spec.volume_name)) for claim in claims)
    snapshot = Snapshot(
        # There is no field selector for a pod's claims, so their users are found only by listing the namespace.
        pods=source.list(PODS, namespace=namespace, type=Pod).items if may_be_shared else (pod,),
        persistent_volume_claims=claims,
        persistent_volumes=tuple(volumes.values()),
    )
    return ClaimedVolumes(snapshot).refusals(pod)
