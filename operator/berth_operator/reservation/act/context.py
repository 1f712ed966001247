"""The client, cache, settings and rules that everything in `act` shares, and the calls that several modules make."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from berth_core import Clock, ObjectMeta, Pod, PodSpec, Reservation, RetryableError
from berth_kube import PODS, RESERVATIONS, AlreadyExistsError, KubeClient, NotFoundError, Resource
from berth_operator.reservation.act.slow_admission import SlowAdmission
from berth_operator.reservation.rules import JoinedRules
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.settings import OperatorSettings

# API servers keep an index of pods by this field (`Indexers` in `pkg/registry/core/pod/strategy.go`), so that a list by
# it does not read all pods.
WITHOUT_NODE: Final = "status.phase=Pending,spec.nodeName="
"""Field selector of pods that wait for a node."""
NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that may hold something of a node."""


class Annotated(msgspec.Struct, frozen=True):
    """The part of an object that its annotations are in, whatever its kind."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Context:
    """The client, the cache, the settings, the clock and the rules of one operator."""

    client: KubeClient
    cache: Cache
    settings: OperatorSettings
    clock: Clock
    rules: JoinedRules = field(default_factory=JoinedRules)
    """What capabilities say on Reservations."""
    admission: SlowAdmission = field(default_factory=SlowAdmission)
    """Asked before a placeholder, fence or dry run is created, and before the first and last patch of a hand-over."""

    def admits(self, node: GuardableNode, spec: PodSpec) -> bool:
        """Return whether a place that is chosen for later may be on a node, by rules, limits and the node itself."""
        return self.rules.may_hold(node.metadata) and node.admits(
            spec, on_control_plane=self.settings.limits.control_plane_nodes
        )


class NotLeadingError(RetryableError):
    """This replica may no longer act."""


def require_lease(leads: Callable[[], bool]) -> None:
    """Raise `NotLeadingError` if another replica may act by now."""
    if not leads():
        raise NotLeadingError("the lease was lost; another replica goes on")


def write_status(client: KubeClient, resource: Resource, meta: ObjectMeta, status: msgspec.Struct) -> dict[str, Any]:
    """Replace the status of this object, not of a later one of its name; return the object."""
    # A patch, not an update: with a resourceVersion each change of the spec by a user would make it fail.
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "add", "path": "/status", "value": msgspec.to_builtins(status)},
    ]
    return client.json_patch(resource, meta.name, operations, namespace=meta.namespace, subresource="status")


def find_pod(client: KubeClient, namespace: str, name: str, uid: str) -> Pod | None:
    """Fetch a pod; None if it is gone."""
    # The account may list pods, but not get one by name.
    pods = client.list(PODS, namespace=namespace, field_selector=f"metadata.name={name}", type=Pod)
    return next((pod for pod in pods.items if pod.metadata.uid == uid), None)


def create_reservation(client: KubeClient, cache: Cache, body: dict[str, Any]) -> bool:
    """Create a Reservation, or read the one that has its name; return whether it is new."""
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    try:
        stored, is_new = client.create(RESERVATIONS, body, namespace=namespace), True
    # Names follow from what Reservations are for: another replica has made it, or this one before it could record it.
    except AlreadyExistsError:
        stored, is_new = client.get(RESERVATIONS, name, namespace=namespace), False
    # Not left to the watch: what is decided next must already count this Reservation.
    cache.put_reservation(read_reservation(stored))
    return is_new


def set_expiry(client: KubeClient, cache: Cache, reservation: Reservation, expires: str) -> None:
    """Set the end of a Reservation in place of its `ttl`, unless it is gone."""
    meta = reservation.metadata
    # null removes a field in a merge patch (RFC 7386); the CRD allows only one of the two.
    patch = {"metadata": {"uid": meta.uid}, "spec": {"expires": expires, "ttl": None}}
    try:
        body = client.merge_patch(RESERVATIONS, meta.name, patch, namespace=meta.namespace)
    except NotFoundError:
        cache.remove_reservation(meta.uid)
    else:
        cache.put_reservation(read_reservation(body))


def delete_reservation(client: KubeClient, cache: Cache, reservation: Reservation) -> bool:
    """Delete a Reservation; return False for one that is gone already."""
    meta, was_there = reservation.metadata, True
    try:
        client.delete(RESERVATIONS, meta.name, namespace=meta.namespace, uid=meta.uid)
    except NotFoundError:
        was_there = False
    cache.remove_reservation(meta.uid)
    return was_there
