"""Which pods ask for a replacement, and whether enough others serve for a pod to go; pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from berth_core import EVICTIONS_LABEL, EVICTIONS_SURGE, InputError, parse_timestamp
from berth_kube import Note, controller_reference, is_out, is_ready, wanted_replicas


def asks_for_replacement(raw_pod: Mapping[str, Any], *, by_namespace: bool) -> bool:
    """Return whether a running pod asks for a replacement before its eviction, by its own label or its namespace's."""
    metadata = raw_pod["metadata"]
    label = (metadata.get("labels") or {}).get(EVICTIONS_LABEL)
    is_asking = label == EVICTIONS_SURGE if label else by_namespace
    has_ended = (raw_pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return is_asking and not (metadata.get("deletionTimestamp") or has_ended) and bool(raw_pod["spec"].get("nodeName"))


def may_go(
    raw_pod: Mapping[str, Any],
    replica_set: Mapping[str, Any],
    raw_pods: Iterable[dict[str, Any]],
    now: datetime,
) -> bool:
    """Return whether a pod that was let go may be evicted.

    `raw_pods` are the pods of its ReplicaSet, and those that the ReplicaSet has let go. Where only some of several may
    go, the first by name do, so that all replicas of the operator choose the same.
    """
    # It serves no request, so nothing is lost; API servers skip the budget of such pods, too (`canIgnorePDB` and the
    # check of `IsPodReady` in pkg/registry/core/pod/storage/eviction.go).
    if not is_ready(raw_pod):
        return True
    meta, spec = replica_set["metadata"], replica_set["spec"]
    ready_pods = [pod for pod in raw_pods if not pod["metadata"].get("deletionTimestamp") and is_ready(pod)]
    min_ready_seconds = float(spec.get("minReadySeconds") or 0)
    available_count = sum(
        _is_of(pod, meta["uid"]) and _is_available(pod, min_ready_seconds, now) for pod in ready_pods if not is_out(pod)
    )
    names_out = sorted(
        pod["metadata"]["name"]
        for pod in ready_pods
        if is_out(pod) and Note.read(pod["metadata"].get("annotations") or {}).replica_set == meta["name"]
    )
    # Of each replica that is available beyond what is wanted, one of the pods that were let go may leave.
    spare_count = available_count + len(names_out) - wanted_replicas(replica_set)
    return raw_pod["metadata"]["name"] in names_out[: max(0, spare_count)]


def _is_of(raw_pod: dict[str, Any], uid: str) -> bool:
    owner = controller_reference(raw_pod)
    return owner is not None and owner.uid == uid


def _is_available(raw_pod: Mapping[str, Any], min_ready_seconds: float, now: datetime) -> bool:
    """Return whether a Ready pod has been so for `minReadySeconds`, as the ReplicaSet controller counts it."""
    if not min_ready_seconds:
        return True
    conditions = raw_pod["status"]["conditions"]
    ready_since = next(
        (condition.get("lastTransitionTime") or "" for condition in conditions if condition["type"] == "Ready"), ""
    )
    try:
        return (now - parse_timestamp(ready_since)).total_seconds() >= min_ready_seconds
    except InputError:
        return False
