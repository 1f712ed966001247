"""Whether a pod of a Deployment can be released for a surge move, by the objects around it."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import msgspec

from berth_core import (
    RELEASED_HASH,
    TEMPLATE_HASH_LABEL,
    Clock,
    InputError,
    LabelSelector,
    ObjectReference,
    PodSpec,
    ResourceAmounts,
    effective_requests,
    matches_labels,
    with_metadata,
)
from berth_core.decoding import convert
from berth_core.object_lists import RawObject
from berth_kube.errors import Call, Failure, NotFoundError
from berth_kube.listing import Listing
from berth_kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PDBS,
    PVCS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)

_MISFITS: Final = (LookupError, TypeError, AttributeError, ValueError)
"""What Python raises if a value in a raw object has the wrong type."""
# ReadWriteOnce is for one node and ReadWriteOncePod for one pod: the replacement on another node would wait for a
# volume that the old pod has.
_SHARED: Final = {"ReadWriteMany", "ReadOnlyMany"}
_GANG_FIELDS: Final = ("workloadRef", "schedulingGroup")
_GANG_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


class ObjectReader(Protocol):
    """A source of objects, such as a `KubeClient`."""

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """Return an object; raises `BerthError`."""
        ...

    def list(self, resource: Resource, *, namespace: str | None = None) -> Listing[dict[str, Any]]:
        """Return all objects of a kind; raises `BerthError`."""
        ...


class ReadOnce:
    """A source of objects that lists each kind of a namespace once, for one namespace after the other."""

    def __init__(self, read: Callable[[Resource, str | None], Iterable[RawObject]]) -> None:
        """`read` returns the objects of a kind in a namespace."""
        self._read = read
        self._namespace: str | None = None
        self._known: dict[Resource, dict[str, dict[str, Any]]] = {}
        """By name."""

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """Return an object; raises `NotFoundError` and what reading raises."""
        if body := self._of_kind(resource, namespace).get(name):
            return body
        call = Call("get", resource.describe(name, namespace=namespace))
        raise NotFoundError(call, Failure(404, "NotFound", "it is not there"))

    def list(self, resource: Resource, *, namespace: str | None = None) -> Listing[dict[str, Any]]:
        """Return all objects of a kind; raises what reading raises."""
        return Listing(tuple(self._of_kind(resource, namespace).values()), "")

    def _of_kind(self, resource: Resource, namespace: str | None) -> dict[str, dict[str, Any]]:
        if namespace != self._namespace:
            self._namespace, self._known = namespace, {}
        if resource not in self._known:
            raw_objects = self._read(resource, namespace)
            bodies = (with_metadata(dict(raw_object)) for raw_object in raw_objects)
            self._known[resource] = {body["metadata"]["name"]: body for body in bodies}
        return self._known[resource]


@dataclass(frozen=True, slots=True)
class Around:
    """The objects around a pod that decide whether it can surge, as the API server has them."""

    replica_set: RawObject | None = None
    deployment: RawObject | None = None
    selecting: tuple[tuple[str, RawObject], ...] = ()
    """Services and budgets of the namespace, with their kinds."""
    controllers: tuple[tuple[str, RawObject], ...] = ()
    """The objects that could adopt a pod without a controller, with their kinds."""
    autoscalers: tuple[RawObject, ...] = ()
    quotas: tuple[RawObject, ...] = ()
    uncounted: int = 0
    """Pods of the namespace that were released just now: quotas may not count their replacements yet."""

    claims: tuple[RawObject, ...] = ()


_SELECTING: Final = (SERVICES, PDBS)
_CONTROLLERS: Final = (REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, REPLICATION_CONTROLLERS)
_OLDEST_SECONDS: Final = 3.0
"""Maximum age of what was read of a namespace; without it each move would read the whole namespace."""
_UNCOUNTED_SECONDS: Final = 5.0
"""How long a quota may not count the replacement of a released pod yet."""


def is_ready(raw_pod: RawObject) -> bool:
    conditions = (raw_pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def controller_reference(raw_pod: RawObject) -> ObjectReference | None:
    """Return the pod's controller as a Reservation's owner, None without one: nothing recreates the pod."""
    metadata = raw_pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return ObjectReference(
                api_version=owner["apiVersion"],
                kind=owner["kind"],
                namespace=metadata.get("namespace") or "",
                name=owner["name"],
                uid=owner["uid"],
            )
    return None


def look_around(
    client: ObjectReader, raw_pod: RawObject, read_namespace: Callable[[str], Around] | None = None
) -> Around:
    """Return the objects that decide about a pod; raises `BerthError`."""
    namespace, owner = raw_pod["metadata"]["namespace"], controller_reference(raw_pod)
    if owner is None or owner.kind != "ReplicaSet":
        return Around()
    replica_set = find_replica_set(client, namespace, owner.name)
    try:
        behind = controller_reference(replica_set) if replica_set else None
    except _MISFITS as error:
        title = f"ReplicaSet {namespace}/{owner.name}: metadata.ownerReferences"
        raise InputError(title, None, "what the Kubernetes API serves", said=f"unreadable ({error})") from error
    if behind is None or behind.kind != "Deployment":
        return Around(replica_set=replica_set)
    names = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in _volumes(raw_pod)
        if volume.get("persistentVolumeClaim")
    ]
    return replace(
        read_namespace(namespace) if read_namespace else _read_namespace(client, namespace),
        replica_set=replica_set,
        deployment=client.get(DEPLOYMENTS, behind.name, namespace=namespace),
        claims=tuple(client.get(PVCS, name, namespace=namespace) for name in names),
    )


def _read_namespace(client: ObjectReader, namespace: str) -> Around:
    def with_kind(*kinds: Resource) -> tuple[tuple[str, RawObject], ...]:
        return tuple((kind.kind, raw_object) for kind in kinds for raw_object in _all_of(client, kind, namespace))

    return Around(
        selecting=with_kind(*_SELECTING),
        controllers=with_kind(*_CONTROLLERS),
        autoscalers=_all_of(client, HORIZONTAL_POD_AUTOSCALERS, namespace),
        quotas=_all_of(client, RESOURCE_QUOTAS, namespace),
    )


def _all_of(client: ObjectReader, resource: Resource, namespace: str) -> tuple[RawObject, ...]:
    return tuple(client.list(resource, namespace=namespace).items)


class SurgeEligibility:
    """Reads the objects that decide whether pods can surge, once for the pods of a namespace; thread-safe."""

    def __init__(self, client: ObjectReader, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._locks: dict[str, threading.RLock] = {}
        self._known: dict[str, tuple[float, Around]] = {}
        self._let_go: defaultdict[str, list[float]] = defaultdict(list)
        """Monotonic times at which pods were released, by namespace."""

    def look(self, raw_pod: RawObject) -> Around:
        """Return the objects that decide about a pod; raises `BerthError`."""
        return look_around(self._client, raw_pod, self._look_at)

    def turn(self, namespace: str) -> threading.RLock:
        """Return the lock to hold from the look at a pod until it is released.

        Two moves must not both count on the last room of a quota.
        """
        return self._locks.setdefault(namespace, threading.RLock())

    def note_release(self, namespace: str) -> None:
        """Count one more pod that a ReplicaSet is about to make."""
        self._let_go[namespace].append(self._clock.monotonic())

    def _look_at(self, namespace: str) -> Around:
        """Return the objects of a namespace; quotas as they are now."""
        with self.turn(namespace):
            now = self._clock.monotonic()
            read_at, known_around = self._known.get(namespace, (now - 2 * _OLDEST_SECONDS, Around()))
            is_fresh = now - read_at < _OLDEST_SECONDS
            if not is_fresh:
                known_around = _read_namespace(self._client, namespace)
                self._known[namespace] = now, known_around
            elif known_around.quotas:
                known_around = replace(known_around, quotas=_all_of(self._client, RESOURCE_QUOTAS, namespace))
            # The quota's admission counts a pod when it is created, and the ReplicaSet controller creates it some
            # moments after the release.
            uncounted = sum(now - moment < _UNCOUNTED_SECONDS for moment in self._let_go[namespace])
            return replace(known_around, uncounted=uncounted)


def find_replica_set(client: ObjectReader, namespace: str, name: str) -> dict[str, Any] | None:
    """Return a ReplicaSet that exists and is not being deleted, None otherwise."""
    try:
        replica_set = client.get(REPLICA_SETS, name, namespace=namespace)
    except NotFoundError:
        return None
    # A ReplicaSet that is being deleted makes no pods any more (`syncReplicaSet`), and its release would lose the pod's
    # only owner.
    return None if replica_set["metadata"].get("deletionTimestamp") else replica_set


_IN_CHANGE: Final = "its Deployment is being rolled out or scaled"
_NO_ROOM: Final = " has no room for one pod more"


def may_surge_later(reason: str) -> bool:
    """Return whether a reason against a surge may pass soon, as just after another pod was released."""
    return reason == _IN_CHANGE or reason.endswith(_NO_ROOM)


def why_not_surge(raw_pod: RawObject, around: Around) -> str:
    """Return why a pod cannot surge, "" if it can."""
    checks = (_why_not_by_pod, _why_not_by_owner, _why_not_by_selectors, _why_not_by_room)
    try:
        return next(filter(None, (check(raw_pod, around) for check in checks)), "")
    except (InputError, msgspec.ValidationError, *_MISFITS) as error:
        return f"it cannot be determined whether it may: {error}"


def _why_not_by_pod(raw_pod: RawObject, around: Around) -> str:
    spec, metadata = raw_pod["spec"], raw_pod["metadata"]
    if not is_ready(raw_pod):
        return "the pod is not Ready, so there is no gap to avoid"
    containers = (*spec["containers"], *(spec.get("initContainers") or ()))
    # Both pods run at once, and may be on one node where the place is lost meanwhile.
    if any(port.get("hostPort") for container in containers for port in container.get("ports") or ()):
        return "it uses a port of its node"
    notes = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    if any(key in notes for key in _GANG_KEYS) or any(spec.get(field) for field in _GANG_FIELDS):
        return "it belongs to a gang, which counts its pods"
    unshared_claims = [
        claim["metadata"]["name"]
        for claim in around.claims
        if not _SHARED & set(claim["spec"].get("accessModes") or ())
    ]
    return f"its volume {unshared_claims[0]} is for one node at a time" if unshared_claims else ""


def _why_not_by_owner(raw_pod: RawObject, around: Around) -> str:
    owner = controller_reference(raw_pod)
    if owner is None or owner.kind != "ReplicaSet":
        return f"it belongs to a {owner.kind}, not to a Deployment" if owner else "it has no controller"
    if around.replica_set is None:
        return "its ReplicaSet is gone"
    behind = controller_reference(around.replica_set)
    if behind is None:
        return "its ReplicaSet belongs to no Deployment"
    if behind.kind != "Deployment" or not behind.api_version.startswith("apps/"):
        return f"its ReplicaSet belongs to a {behind.kind}, not to a Deployment"
    value = (raw_pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH_LABEL)
    if not value or hash_of(around.replica_set) != value:
        return f"its ReplicaSet does not select it by {TEMPLATE_HASH_LABEL}"
    return _why_not_by_deployment(around.replica_set, around.deployment or {})


def _why_not_by_deployment(replica_set: RawObject, deployment: RawObject) -> str:
    spec = deployment.get("spec") or {}
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return "its Deployment has the strategy Recreate: two of its pods never run at once"
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge")
    # Any other percentage is at least one pod, because maxSurge rounds up (`ResolveFenceposts` in
    # pkg/controller/deployment/util).
    if surge is not None and str(surge) in {"0", "0%"}:
        return "its Deployment allows no pod more: its maxSurge is 0"
    has_its_number = wanted_replicas(replica_set) == wanted_replicas(deployment)
    return "" if is_rolled_out(deployment) and has_its_number else _IN_CHANGE


def is_rolled_out(deployment: RawObject) -> bool:
    """Return whether a Deployment's status says that all pods that it wants are made from its template."""
    status = deployment.get("status") or {}
    # As `kubectl rollout status` asks it: until the controller has observed the generation, its numbers are those of
    # the template before.
    is_seen = bool((status.get("observedGeneration") or 0) >= (deployment["metadata"].get("generation") or 0))
    return is_seen and (status.get("updatedReplicas") or 0) == wanted_replicas(deployment)


def wanted_replicas(workload: RawObject) -> int:
    """Return how many pods a controller wants; the API's default is one."""
    replicas = (workload.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _why_not_by_selectors(raw_pod: RawObject, around: Around) -> str:
    """Return which object would no longer select the pod with its new label, or would adopt it."""
    labels: dict[str, str] = dict(raw_pod["metadata"].get("labels") or {})
    labels_after = labels | {TEMPLATE_HASH_LABEL: RELEASED_HASH}
    for kind, raw_object in around.selecting:
        if _selects(kind, raw_object, labels) != _selects(kind, raw_object, labels_after):
            return f"the {kind} {raw_object['metadata']['name']} selects pods by {TEMPLATE_HASH_LABEL}"
    # A controller adopts pods without a controller that its selector matches (`ClaimPods` in
    # pkg/controller/controller_ref_manager.go).
    for kind, raw_object in around.controllers:
        if _selects(kind, raw_object, labels_after):
            return f"the {kind} {raw_object['metadata']['name']} would take it for its own"
    deployment = around.deployment or {}
    for raw_object in around.autoscalers:
        scaled = raw_object["spec"].get("scaleTargetRef") or {}
        # The autoscaler averages over all pods that the Deployment's selector matches, which is without the hash: a
        # released pod is still among them (kubernetes/kubernetes#124307).
        if scaled.get("kind") == "Deployment" and scaled.get("name") == deployment["metadata"]["name"]:
            return f"the HorizontalPodAutoscaler {raw_object['metadata']['name']} would count one pod more"
    return ""


def _selects(kind: str, obj: RawObject, labels: Mapping[str, str]) -> bool:
    selector = obj["spec"].get("selector")
    # Of these two the selector is a plain map, and an empty one selects nothing; of the others it is a LabelSelector,
    # and an empty one selects everything.
    if kind in {SERVICES.kind, REPLICATION_CONTROLLERS.kind}:
        return bool(selector) and all(labels.get(key) == value for key, value in selector.items())
    return selector is not None and matches_labels(convert(selector, LabelSelector), labels)


def _why_not_by_room(raw_pod: RawObject, around: Around) -> str:
    """Return which quota has no room for one pod more; scopes of quotas are ignored, which errs on the safe side."""
    requests = effective_requests(convert(raw_pod["spec"], PodSpec))
    limits = ResourceAmounts.total(
        ResourceAmounts.from_quantities((container.get("resources") or {}).get("limits") or {})
        for container in raw_pod["spec"]["containers"]
    )
    for quota in around.quotas:
        status = quota.get("status") or {}
        for name, hard in (status.get("hard") or {}).items():
            resource = name.removeprefix("requests.").removeprefix("limits.")
            amount_needed = (limits if name.startswith("limits.") else requests).get(resource)
            if name in {"pods", "count/pods"}:
                amount_needed = 1
            amount_left = _amount(resource, hard) - _amount(resource, (status.get("used") or {}).get(name) or "0")
            # The replacement comes while the old pod is still there, so both count at once.
            if amount_needed and amount_needed * (1 + around.uncounted) > amount_left:
                return f"the ResourceQuota {quota['metadata']['name']}{_NO_ROOM}"
    return ""


def _amount(resource: str, quantity: str) -> int:
    return ResourceAmounts.from_quantities({resource: quantity}).get(resource)


def _volumes(raw_pod: RawObject) -> list[dict[str, Any]]:
    return raw_pod["spec"].get("volumes") or []


def hash_of(replica_set: RawObject) -> str:
    """Return the value of the label by which a ReplicaSet selects its pods, "" without it."""
    match_labels = (replica_set["spec"].get("selector") or {}).get("matchLabels") or {}
    return str(match_labels.get(TEMPLATE_HASH_LABEL) or "")
