"""An API server in memory with a controller, a scheduler and an operator beside it that answer at once, or as told."""

import copy
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from api_server_in_memory import ApiServerInMemory, kept_as
from berth_core.clock import format_timestamp
from berth_core.labels import MOVE_ANNOTATION, PATH_ANNOTATION, PATH_PROVEN, PLAN_LABEL
from berth_core.names import LEADER_LEASE, OPERATOR_LEASE
from berth_kube.errors import Call, EvictionBlockedError, EvictionInterceptedError, Failure
from berth_kube.resources import LEASES, MIGRATION_PLANS, NODES, PODS, REPLICA_SETS, RESERVATIONS, Resource
from builders import NOON

Raw = dict[str, Any]


def failure(status: int, message: str = "") -> Failure:
    return Failure(status_code=status, reason="Fake", message=message)


class FakeCluster(ApiServerInMemory):
    """The world around an API server: `hold` answers a new Reservation and `land` an eviction; both may be replaced.

    Of evictions only one is answered at a time.
    """

    def __init__(self) -> None:
        super().__init__(now=lambda: format_timestamp(datetime.now(UTC)))
        self.hold: Callable[[Raw], None] = self.hold_at_once
        self.land: Callable[[Raw], None] = self.land_at_once
        self._names = itertools.count(1)

    # What the API server does not do alone

    def react_to_creation(self, resource: Resource, raw: Raw) -> None:
        if resource is RESERVATIONS:
            self.hold(raw)

    def end_evicted(self, pod: Raw) -> None:
        self.land(pod)

    # What the world does

    def add(self, resource: Resource, body: Mapping[str, Any]) -> Raw:
        raw = copy.deepcopy(dict(body))
        metadata = raw.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{kept_as(resource)}-{metadata['name']}")
        metadata.setdefault("creationTimestamp", format_timestamp(NOON))
        return self.put(resource, raw)

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


def _order(reservation: Raw) -> int:
    """Return the position of a Reservation's move, in whose order places are handed over."""
    return int(reservation["metadata"].get("annotations", {}).get(MOVE_ANNOTATION, 0))


def call(verb: str, resource: Resource, name: str) -> Call:
    return Call(verb, resource.describe(name))


def blocked(name: str) -> EvictionBlockedError:
    return EvictionBlockedError(call("evict", PODS, name), failure(429, "the budget allows none"))


def intercepted(name: str) -> EvictionInterceptedError:
    return EvictionInterceptedError(call("evict", PODS, name), failure(429, 'admission webhook "x" denied the request'))


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


def waiting_pod(name: str, owner: str, *, cpu: str) -> Raw:
    """Return a pod that waits for room."""
    body = pod(name, owner, "", cpu=cpu)
    del body["spec"]["nodeName"]
    return {**body, "status": {"phase": "Pending"}}


def fragmented_cluster(made: FakeCluster | None = None) -> FakeCluster:
    """Two low nodes, `low-1` with two pods and `low-2` with one, and two high ones with room for all three."""
    cluster = made or FakeCluster()
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
    return sorted(call.name for call in cluster.calls if call.verb == "evict")
