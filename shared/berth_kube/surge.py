"""Releases a pod of a Deployment before its eviction, and takes it back.

A pod whose label `pod-template-hash` has another value does not match its ReplicaSet's selector: the ReplicaSet
releases it (pkg/controller/controller_ref_manager.go) and makes another, while Services and budgets count both. With
its old value the ReplicaSet adopts it again, and deletes the one too many.

A released pod is also owned, not controlled, by the Deployment: the garbage collector deletes it with the Deployment
even if Berth never takes it back. Its annotation decides nothing: the ReplicaSet says what the label had been, the plan
whether the pod may be evicted.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

import msgspec

from berth_core import (
    RELEASED_ANNOTATION,
    RELEASED_HASH,
    TEMPLATE_HASH_LABEL,
    InputError,
    ObjectReference,
    parse_timestamp,
)
from berth_core.decoding import decode_json
from berth_core.object_lists import RawObject
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import PODS
from berth_kube.surge_eligibility import Around, controller_reference, find_replica_set, hash_of

_RELEASED: Final = f"{TEMPLATE_HASH_LABEL}={RELEASED_HASH}"


class Note(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The annotation of a released pod."""

    plan: str = ""
    source: str = ""
    replica_set: str = ""
    hash: str = ""
    min_ready_seconds: float = 0.0
    until: str = ""
    """Without a plan: the time by which the operator takes the pod back, whose eviction others have asked for."""
    requester: str = ""

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> "Note":
        """Return the annotation of a pod, an empty note if it cannot be read."""
        try:
            return decode_json(annotations.get(RELEASED_ANNOTATION, ""), cls)
        except msgspec.DecodeError:
            return cls()


def is_out(raw_pod: RawObject) -> bool:
    """Return whether a pod is labelled as released."""
    return (raw_pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH_LABEL) == RELEASED_HASH


def build_release(raw_pod: RawObject, around: Around, note: Note) -> dict[str, Any]:
    """Return the merge patch that makes the ReplicaSet release this very pod, and the note that records it."""
    metadata, owner = raw_pod["metadata"], around.replica_set or {}
    note = msgspec.structs.replace(
        note,
        replica_set=owner["metadata"]["name"],
        hash=hash_of(owner),
        min_ready_seconds=owner["spec"].get("minReadySeconds") or 0,
    )
    deployment = controller_reference(owner) or ObjectReference()
    # The garbage collector deletes an object once none of its owners exists: without the ReplicaSet's reference the
    # released pod would outlive its Deployment (`attemptToDeleteItem`).
    second_owner = {
        "apiVersion": deployment.api_version,
        "kind": deployment.kind,
        "name": deployment.name,
        "uid": deployment.uid,
        "controller": False,
        # True would need the right to update finalizers of the Deployment (admission plugin
        # OwnerReferencesPermissionEnforcement).
        "blockOwnerDeletion": False,
    }
    return {
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "labels": {TEMPLATE_HASH_LABEL: RELEASED_HASH},
            # One patch for both: the pod must not be without its label for a moment in which nothing says why.
            "annotations": {RELEASED_ANNOTATION: json.dumps(msgspec.to_builtins(note))},
            # The ReplicaSet's reference stays: the ReplicaSet takes it off itself when it releases the pod
            # (`ReleasePod` in `pkg/controller/controller_ref_manager.go`).
            "ownerReferences": [*metadata["ownerReferences"], second_owner],
        }
    }


def build_return(raw_pod: RawObject, value: str) -> dict[str, Any]:
    """Return the merge patch that undoes a release."""
    metadata = raw_pod["metadata"]
    kept_owners = [
        owner
        for owner in metadata.get("ownerReferences") or ()
        if owner.get("controller") or owner["kind"] != "Deployment"
    ]
    return {
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "labels": {TEMPLATE_HASH_LABEL: value},
            "annotations": {RELEASED_ANNOTATION: None},
            "ownerReferences": kept_owners,
        }
    }


def relabel(client: KubeClient, raw_pod: RawObject, body: dict[str, Any]) -> None:
    """Patch a pod as it was seen, whose resourceVersion is in the patch; raises `BerthError`."""
    metadata = raw_pod["metadata"]
    client.merge_patch(PODS, metadata["name"], body, namespace=metadata["namespace"])


class Returned(Enum):
    """The result of taking a pod back."""

    DONE = auto()
    """It has its label again, or is gone."""
    OWNERLESS = auto()
    """Its ReplicaSet is gone: nothing would take it."""


def take_back(client: KubeClient, namespace: str, name: str, *, uid: str, replica_set: str) -> Returned:
    """Give a released pod its label back; raises `BerthError`."""
    try:
        raw_pod = client.get(PODS, name, namespace=namespace)
    except NotFoundError:
        return Returned.DONE
    metadata = raw_pod["metadata"]
    # A pod that is being deleted ends in any case, and its ReplicaSet would not count it even with its label.
    if metadata["uid"] != uid or metadata.get("deletionTimestamp") or not is_out(raw_pod):
        return Returned.DONE
    owner = find_replica_set(client, namespace, replica_set)
    if owner is None or not hash_of(owner):
        return Returned.OWNERLESS
    try:
        relabel(client, raw_pod, build_return(raw_pod, hash_of(owner)))
    except NotFoundError:
        return Returned.DONE
    return Returned.DONE


_LATE: Final = timedelta(seconds=30)
_LONGEST: Final = timedelta(hours=1)


def released_pods(client: KubeClient, live: Collection[str], now: datetime) -> Iterator[dict[str, Any]]:
    """Yield the released pods that no live plan moves, and whose eviction by others is not under way."""
    for raw_pod in client.list(PODS, label_selector=_RELEASED).items:
        note = Note.read(raw_pod["metadata"].get("annotations") or {})
        if note.plan not in live and not is_awaited(note.until, now):
            yield raw_pod


def is_awaited(until: str, now: datetime) -> bool:
    """Return whether a pod that was released for an eviction may still be replaced, by the time in its note."""
    try:
        return bool(until) and now - _LATE < parse_timestamp(until) < now + _LONGEST
    except InputError:
        return False
