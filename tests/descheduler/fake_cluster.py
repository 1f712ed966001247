"""An API server in memory with a controller, a scheduler and an operator in it that answer at once, or as told.

It has `berth_kube.client.KubeClient`'s methods.
"""
# ruff: noqa: A002, ANN401 - the client's own names; what it keeps is raw

import copy
import itertools
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from berth_core.clock import format_timestamp
from berth_core.decoding import convert
from berth_core.labels import MOVE_ANNOTATION, PATH_ANNOTATION, PATH_PROVEN, PLAN_LABEL
from berth_core.names import LEADER_LEASE, OPERATOR_LEASE
from berth_kube.errors import (
    AlreadyExistsError,
    Call,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    Failure,
    InvalidObjectError,
    NotFoundError,
)
from berth_kube.listing import Listing
from berth_kube.resources import (
    LEASES,
    MIGRATION_PLANS,
    NODES,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    VOLCANO_JOBS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    Resource,
)
from berth_kube.watching import Changed, Listed, Removed
from builders import NOON
from fake_api import has_fields
from json_patches import apply

Raw = dict[str, Any]
Key = tuple[str, str]


_KEPT_AS = {
    VOLCANO_JOBS: "volcanojobs",
    VOLCANO_POD_GROUPS: "volcanopodgroups",
    VOLCANO_QUEUES: "volcanoqueues",
}


def kept_as(resource: Resource) -> str:
    """Return the plural of a kind, or another name where two kinds share one."""
    return _KEPT_AS.get(resource, resource.plural)


def failure(status: int, message: str = "") -> Failure:
    return Failure(status_code=status, reason="Fake", message=message)


class FakeCluster:
    """Keeps raw objects; `hold` answers a new Reservation and `land` an eviction, and both may be replaced.

    A caller that reads or writes in several steps beside other threads holds the `lock`; of evictions
    only one is answered at a time.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[str, dict[Key, Raw]] = defaultdict(dict)
        self.watchers: list[tuple[str, Callable[[Raw], bool], queue.Queue[tuple[float, Any]], type]] = []
        self.watch_delays: dict[str, float] = {}
        """By how many seconds a watch of a kind, by its plural, lags behind."""
        self.calls: list[tuple[str, str, str]] = []
        self.faults: dict[tuple[str, str], list[Exception]] = {}
        self.before: Callable[[str, str, str], None] = lambda *_: None
        self.hold: Callable[[Raw], None] = self.hold_at_once
        self.land: Callable[[Raw], None] = self.land_at_once
        self._versions = itertools.count(1)
        self._names = itertools.count(1)

    # --- what the world does ------------------------------------------------------------------------------------------

    def add(self, resource: Resource, body: Mapping[str, Any]) -> Raw:
        with self.lock:
            raw = copy.deepcopy(dict(body))
            metadata = raw.setdefault("metadata", {})
            metadata.setdefault("uid", f"uid-{kept_as(resource)}-{metadata['name']}")
            metadata.setdefault("creationTimestamp", format_timestamp(NOON))
            return self._store(kept_as(resource), raw, added=True)

    def start_operator(self) -> None:
        """Have an operator that holds its Lease for longer than any test takes."""
        spec = {"holderIdentity": "op", "leaseDurationSeconds": 7200, "renewTime": format_timestamp(datetime.now(UTC))}
        notes = {PATH_ANNOTATION: PATH_PROVEN}
        head = {"name": OPERATOR_LEASE, "namespace": "berth-system", "annotations": notes}
        self.add(LEASES, {"metadata": head, "spec": spec})

    def start_service(self, renewed: str = format_timestamp(NOON)) -> None:
        """Have a descheduler that serves policies, as far as its Lease says it."""
        spec = {"holderIdentity": "serving", "leaseDurationSeconds": 15, "renewTime": renewed}
        self.add(LEASES, {"metadata": {"name": LEADER_LEASE, "namespace": "berth-system"}, "spec": spec})

    def hold_at_once(self, reservation: Raw) -> None:
        task = reservation["spec"]["tasks"][0]
        slot = {"task": task["name"], "index": 0, "state": "Held", "node": task["reservationNodeNames"][0]}
        self.set_reservation(reservation, "Available", slot)

    def set_reservation(self, reservation: Raw, phase: str, slot: Raw | None = None, *, ready: bool = True) -> None:
        """Write a Reservation's status as the operator would."""
        conditions = [
            {"type": "Available", "status": "True" if phase == "Available" else "False"},
            {
                "type": "HandoverReady",
                "status": "True" if ready else "False",
                "reason": "Proven" if ready else "NoGate",
            },
        ]
        status = {"state": {"phase": phase, "reason": phase}, "conditions": conditions, "slots": [slot] if slot else []}
        self._store("reservations", {**reservation, "status": status})

    def land_at_once(self, pod: Raw) -> None:
        """Take an evicted pod away, make its replacement and give that a held place of its owner."""
        with self.lock:
            self.remove(PODS, pod)
            place = self.held_place(pod)
            new = self.new_pod(pod, node=place["status"]["slots"][0]["node"] if place else "")
            if place:
                self.take(place, new)

    def terminate(self, pod: Raw) -> None:
        """Begin a pod's deletion, which does not end."""
        with self.lock:
            metadata = {**pod["metadata"], "deletionTimestamp": format_timestamp(NOON)}
            self._store(kept_as(PODS), {**pod, "metadata": metadata})

    def held_place(self, pod: Raw) -> Raw | None:
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        for found in sorted(self.raw(RESERVATIONS), key=_order):
            slots = found.get("status", {}).get("slots") or []
            if slots and slots[0]["state"] == "Held" and found["spec"]["owners"][0]["object"]["uid"] == owner:
                return found
        return None

    def take(self, place: Raw, pod: Raw, *, state: str = "Taken") -> None:
        owner = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        slot = {**place["status"]["slots"][0], "state": state, "owner": owner}
        self.set_reservation(place, "Succeeded" if state == "Taken" else "Available", slot)

    def new_pod(self, like: Raw, *, node: str, ready: bool = True) -> Raw:
        name = f"{like['metadata']['name'].split('.')[0]}.{next(self._names)}"
        metadata = {**like["metadata"], "name": name, "uid": f"uid-{name}"}
        metadata["creationTimestamp"] = format_timestamp(datetime.now(UTC))
        spec = {key: value for key, value in like["spec"].items() if key != "nodeName"}
        conditions = [{"type": "Ready", "status": "True" if ready and node else "False"}]
        status = {"phase": "Running" if node else "Pending", "conditions": conditions}
        body = {"metadata": metadata, "spec": {**spec, **({"nodeName": node} if node else {})}, "status": status}
        return self.add(PODS, body)

    def remove(self, resource: Resource, raw: Raw) -> None:
        metadata = raw["metadata"]
        with self.lock:
            gone = self.objects[kept_as(resource)].pop((metadata.get("namespace", ""), metadata["name"]))
            self._tell(kept_as(resource), gone, Removed)

    def raw(self, resource: Resource) -> list[Raw]:
        """Return all objects of a kind, also while threads are changing them."""
        with self.lock:
            return list(self.objects[kept_as(resource)].values())

    def plan(self) -> Raw:
        (found,) = self.raw(MIGRATION_PLANS)
        return found

    def reservations(self, plan: str = "") -> list[Raw]:
        found = self.raw(RESERVATIONS)
        return [one for one in found if not plan or one["metadata"]["labels"][PLAN_LABEL] == plan]

    def taints(self) -> dict[str, list[str]]:
        """Return the taint keys by node, of the nodes that have any."""
        found = {n["metadata"]["name"]: [t["key"] for t in n["spec"].get("taints") or ()] for n in self.raw(NODES)}
        return {name: keys for name, keys in found.items() if keys}

    def pods_on(self, node: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.raw(PODS) if pod["spec"].get("nodeName") == node)

    # --- the client ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def within(self, _seconds: float) -> "FakeCluster":
        return self

    def get(self, resource: Resource, name: str, *, namespace: str | None = None, type: Any = dict) -> Any:
        self._called("get", resource, name)
        with self.lock:
            return decoded(self._find(resource, name, namespace), type)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: Any = dict,
    ) -> Listing[Any]:
        self._called("list", resource, "")
        chosen = selector(namespace, label_selector, field_selector)
        with self.lock:
            found = [raw for _, raw in sorted(self.objects[kept_as(resource)].items()) if chosen(raw)]
            return Listing(items=tuple(decoded(raw, type) for raw in found), resource_version="1")

    def create(self, resource: Resource, body: Mapping[str, Any], *, type: Any = dict, **_: Any) -> Any:
        name = body["metadata"]["name"]
        self._called("create", resource, name)
        with self.lock:
            key = (body["metadata"].get("namespace", ""), name)
            if key in self.objects[kept_as(resource)]:
                raise AlreadyExistsError(call("create", resource, name), failure(409, "exists"))
            metadata = {**body["metadata"], "creationTimestamp": format_timestamp(datetime.now(UTC))}
            raw = self.add(resource, {**body, "metadata": metadata})
        if resource is RESERVATIONS:
            self.hold(raw)
        return decoded(raw, type)

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str = "",
        type: Any = dict,
    ) -> Any:
        self._called("patch", resource, name)
        with self.lock:
            raw = self._find(resource, name, namespace)
            wanted = body.get("metadata", {}).get("resourceVersion")
            if wanted and wanted != raw["metadata"]["resourceVersion"]:
                raise ConflictError(call("patch", resource, name), failure(409, "changed"))
            if subresource:
                body = {"status": body["status"]}
            return decoded(self._store(kept_as(resource), merged(raw, body)), type)

    def json_patch(
        self, resource: Resource, name: str, operations: Any, *, namespace: str | None = None, type: Any = dict
    ) -> Any:
        self._called("patch", resource, name)
        with self.lock:
            try:
                raw = apply(operations, self._find(resource, name, namespace))
            except LookupError:
                raise InvalidObjectError(call("patch", resource, name), failure(422, "a test failed")) from None
            return decoded(self._store(kept_as(resource), raw), type)

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None, **_: Any) -> None:
        self._called("delete", resource, name)
        with self.lock:
            self.remove(resource, self._find(resource, name, namespace))

    def evict(self, namespace: str, name: str, *, uid: str, **_: Any) -> None:
        self._called("evict", PODS, name)
        with self.lock:
            pod = self._find(PODS, name, namespace)
            if pod["metadata"]["uid"] != uid:
                raise ConflictError(call("evict", PODS, name), failure(409, "another uid"))
            self.land(pod)

    def watch(
        self,
        resource: Resource,
        *,
        stop: threading.Event,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        type: Any = dict,
    ) -> Iterator[Any]:
        events: queue.Queue[tuple[float, Any]] = queue.Queue()
        chosen = selector(namespace, label_selector, field_selector)
        with self.lock:
            found = [raw for raw in self.objects[kept_as(resource)].values() if chosen(raw)]
            self.watchers.append((kept_as(resource), chosen, events, type))
            listed = tuple(decoded(raw, type) for raw in found)
        yield Listed(items=listed, resource_version="1")
        while not stop.is_set():
            try:
                at, event = events.get(timeout=0.02)
            except queue.Empty:
                continue
            stop.wait(max(0.0, at + self.watch_delays.get(kept_as(resource), 0.0) - time.monotonic()))
            yield event

    # --- inside -------------------------------------------------------------------------------------------------------

    def _called(self, verb: str, resource: Resource, name: str) -> None:
        self.before(verb, kept_as(resource), name)
        with self.lock:
            self.calls.append((verb, kept_as(resource), name))
            waiting = self.faults.get((verb, kept_as(resource)), [])
            if waiting:
                raise waiting.pop(0)

    def _find(self, resource: Resource, name: str, namespace: str | None) -> Raw:
        found = self.objects[kept_as(resource)].get((namespace or "", name))
        if found is None:
            raise NotFoundError(call("get", resource, name), failure(404, "not found"))
        return found

    def _store(self, plural: str, raw: Raw, *, added: bool = False) -> Raw:
        key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        with self.lock:
            if not added and key not in self.objects[plural]:
                return raw
            raw = copy.deepcopy(raw)
            raw["metadata"]["resourceVersion"] = str(next(self._versions))
            self.objects[plural][key] = raw
            self._tell(plural, raw, lambda item: Changed(item, added=added))
            return raw

    def _tell(self, plural: str, raw: Raw, event: Callable[[Any], Any]) -> None:
        for watched, chosen, events, type_ in self.watchers:
            if watched == plural and chosen(raw):
                events.put((time.monotonic(), event(decoded(raw, type_))))


def _order(reservation: Raw) -> int:
    """Return the position of a Reservation's move, in whose order places are handed over."""
    return int(reservation["metadata"].get("annotations", {}).get(MOVE_ANNOTATION, 0))


def call(verb: str, resource: Resource, name: str) -> Call:
    return Call(verb, resource.describe(name))


def blocked(name: str) -> EvictionBlockedError:
    return EvictionBlockedError(call("evict", PODS, name), failure(429, "the budget allows none"))


def intercepted(name: str) -> EvictionInterceptedError:
    return EvictionInterceptedError(call("evict", PODS, name), failure(429, 'admission webhook "x" denied the request'))


def decoded(raw: Raw, type_: Any) -> Any:
    return copy.deepcopy(raw) if type_ is dict else convert(raw, type_)


def merged(target: Any, patch: Any) -> Any:
    """Return a JSON merge patch applied."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def selector(namespace: str | None, labels: str, fields: str) -> Callable[[Raw], bool]:
    def chosen(raw: Raw) -> bool:
        metadata = raw["metadata"]
        if namespace is not None and metadata.get("namespace") != namespace:
            return False
        key, separator, value = labels.partition("=")
        found = metadata.get("labels", {})
        if labels and (key not in found or (separator and found[key] != value)):
            return False
        return has_fields(raw, fields)

    return chosen


# --- a small fragmented cluster ---------------------------------------------------------------------------------------


def node(name: str, *, cpu: str = "10") -> Raw:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}, "status": status}


def replica_set(name: str, replicas: int) -> Raw:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {}},
        "status": {"replicas": replicas},
    }


def pod(name: str, owner: str, node_name: str, *, cpu: str) -> Raw:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": owner,
        "uid": f"uid-{owner}",
        "controller": True,
    }
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": {"app": owner},
            "ownerReferences": [reference],
        },
        "spec": {
            "nodeName": node_name,
            "schedulerName": "default-scheduler",
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def fragmented_cluster() -> FakeCluster:
    """Two low nodes, `low-1` with two pods and `low-2` with one, and two high ones with room for all three."""
    cluster = FakeCluster()
    cluster.start_operator()
    for name in ("low-1", "low-2", "high-1", "high-2"):
        cluster.add(NODES, node(name))
    for name, count in (("big", 2), ("web", 2), ("api", 1)):
        cluster.add(REPLICA_SETS, replica_set(name, count))
    cluster.add(PODS, pod("big-1", "big", "high-1", cpu="7500m"))
    cluster.add(PODS, pod("big-2", "big", "high-2", cpu="7500m"))
    cluster.add(PODS, pod("web-1", "web", "low-1", cpu="1"))
    cluster.add(PODS, pod("api-1", "api", "low-1", cpu="1"))
    cluster.add(PODS, pod("web-2", "web", "low-2", cpu="1"))
    return cluster


def evicted(cluster: FakeCluster) -> list[str]:
    """Return the names of the pods that were evicted, in order."""
    return sorted(name for verb, _, name in cluster.calls if verb == "evict")
