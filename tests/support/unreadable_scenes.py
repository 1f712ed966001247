"""Objects of every kind that plans are made from, one of which cannot be read, beside a healthy cluster."""
# ruff: noqa: ANN401 - any JSON value

from typing import Any, Final

from berth_core import RESERVATION_API_VERSION

Raw = dict[str, Any]

VOLCANO_JOB: Final = ("batch.volcano.sh/v1alpha1", "Job")
SHOP, BANK = "shop", "bank"
"""The namespace of what cannot be read, and another tenant's."""


def api_object(api_version: str, kind: str, name: str, namespace: str = "", **rest: Any) -> Raw:
    metadata = {"name": name, "uid": f"uid-{kind}-{namespace}-{name}"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata | rest.pop("metadata", {}), **rest}


def node(name: str) -> Raw:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return api_object("v1", "Node", name, spec={}, status={"allocatable": amounts, "conditions": [ready]})


def running(name: str, namespace: str, on: str, *, cpu: str = "1", owner: Raw | None = None, **spec: Any) -> Raw:
    reference = owner or {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-rs", "controller": True}
    container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    meta = {"ownerReferences": [{"uid": f"uid-{reference['kind']}-{namespace}-{reference['name']}", **reference}]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    body = {"nodeName": on, "containers": [container], **spec}
    return api_object("v1", "Pod", name, namespace, metadata=meta, spec=body, status=status)


def replica_set(pod: str, namespace: str, **meta: Any) -> Raw:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": pod}}}
    return api_object("apps/v1", "ReplicaSet", f"{pod}-rs", namespace, metadata=meta, spec=spec)


def claim(name: str, volume: str, storage_class: str = "fast") -> Raw:
    spec = {"volumeName": volume, "storageClassName": storage_class, "accessModes": ["ReadWriteMany"]}
    return api_object("v1", "PersistentVolumeClaim", name, SHOP, spec=spec, status={"phase": "Bound"})


def with_claim(name: str) -> Raw:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


FILLED: Final = [
    node("big"),
    running(
        "filler", BANK, "big", cpu="3", owner={"apiVersion": "v1", "kind": "Thing", "name": "t", "controller": True}
    ),
]
"""The node that keeps a pod anyhow, and takes what is moved."""
HEALTHY: Final = [
    node("theirs"),
    running("ledger", BANK, "theirs"),
    replica_set("ledger", BANK),
]
"""Another tenant's pod alone on its node: it is moved, whatever is the matter in the shop."""
OURS: Final = [node("ours"), running("web", SHOP, "ours"), replica_set("web", SHOP)]
VOLUMES: Final = [
    api_object("v1", "PersistentVolume", "pv-1", spec={"csi": {"driver": "d", "volumeHandle": "h"}}),
    api_object("storage.k8s.io/v1", "StorageClass", "fast", provisioner="d"),
    claim("data", "pv-1"),
]
STORING: Final = [node("ours"), running("web", SHOP, "ours", **with_claim("data")), replica_set("web", SHOP), *VOLUMES]
EVERYTHING: Final = [*FILLED, *HEALTHY]

ODD: Final = {"spec": 7}
UNREADABLE: Final[dict[str, tuple[list[Raw], str, str]]] = {
    "Pod": (OURS, "v1 Pod shop web", "ours"),
    "Node": (OURS, "v1 Node  ours", "ours"),
    "PodDisruptionBudget": (
        [*OURS, api_object("policy/v1", "PodDisruptionBudget", "web", SHOP, spec={})],
        "policy/v1 PodDisruptionBudget shop web",
        "PodDisruptionBudget shop/web cannot be read: Expected `object`, got `int`",
    ),
    "ReplicaSet": (OURS, "apps/v1 ReplicaSet shop web-rs", "ReplicaSet shop/web-rs cannot be read"),
    "StatefulSet": (
        [
            node("ours"),
            running(
                "web",
                SHOP,
                "ours",
                owner={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True},
            ),
            api_object("apps/v1", "StatefulSet", "db", SHOP, spec={"replicas": 1}),
        ],
        "apps/v1 StatefulSet shop db",
        "StatefulSet shop/db cannot be read",
    ),
    "Job": (
        [
            node("ours"),
            running(
                "web", SHOP, "ours", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "sums", "controller": True}
            ),
            api_object("batch/v1", "Job", "sums", SHOP, spec={"backoffLimit": 9, "completions": 1}),
        ],
        "batch/v1 Job shop sums",
        "Job shop/sums cannot be read",
    ),
    "Volcano's Job": (
        [
            node("ours"),
            running(
                "web",
                SHOP,
                "ours",
                owner={"apiVersion": VOLCANO_JOB[0], "kind": VOLCANO_JOB[1], "name": "train", "controller": True},
            ),
            api_object(*VOLCANO_JOB, "train", SHOP, spec={"tasks": []}),
        ],
        "batch.volcano.sh/v1alpha1 Job shop train",
        "Job shop/train cannot be read",
    ),
    "PodGroup": (
        [
            node("ours"),
            running("web", SHOP, "ours", schedulingGroup={"podGroupName": "pg"}),
            replica_set("web", SHOP),
            api_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", SHOP, spec={}),
        ],
        "scheduling.k8s.io/v1alpha2 PodGroup shop pg",
        "PodGroup shop/pg cannot be read",
    ),
    "Volcano's PodGroup": (
        [
            node("ours"),
            {**OURS[1], "metadata": {**OURS[1]["metadata"], "annotations": {"scheduling.k8s.io/group-name": "pg"}}},
            replica_set("web", SHOP),
            api_object("scheduling.volcano.sh/v1beta1", "PodGroup", "pg", SHOP, spec={}),
        ],
        "scheduling.volcano.sh/v1beta1 PodGroup shop pg",
        "PodGroup shop/pg cannot be read",
    ),
    "Workload": (
        [
            node("ours"),
            running("web", SHOP, "ours", workloadRef={"name": "group", "podGroup": "workers"}),
            replica_set("web", SHOP),
            api_object("scheduling.k8s.io/v1alpha1", "Workload", "group", SHOP, spec={}),
        ],
        "scheduling.k8s.io/v1alpha1 Workload shop group",
        "Workload shop/group cannot be read",
    ),
    "PersistentVolumeClaim": (
        STORING,
        "v1 PersistentVolumeClaim shop data",
        "PersistentVolumeClaim shop/data cannot be read",
    ),
    "PersistentVolume": (STORING, "v1 PersistentVolume  pv-1", "PersistentVolume pv-1 cannot be read"),
    "StorageClass": (STORING, "storage.k8s.io/v1 StorageClass  fast", "StorageClass fast cannot be read"),
    "VolumeAttachment": (
        [*STORING, api_object("storage.k8s.io/v1", "VolumeAttachment", "va", spec={})],
        "storage.k8s.io/v1 VolumeAttachment  va",
        "VolumeAttachment va cannot be read",
    ),
    "PriorityClass": (
        [
            node("ours"),
            running("web", SHOP, "ours", priorityClassName="high"),
            replica_set("web", SHOP),
            api_object("scheduling.k8s.io/v1", "PriorityClass", "high", value=7),
        ],
        "scheduling.k8s.io/v1 PriorityClass  high",
        "PriorityClass high cannot be read",
    ),
    "Namespace": (
        [*OURS, api_object("v1", "Namespace", SHOP), api_object("v1", "Namespace", BANK)],
        "v1 Namespace  shop",
        "Namespace shop cannot be read",
    ),
}
HARMLESS: Final = {
    "Reservation": api_object(RESERVATION_API_VERSION, "Reservation", "r", SHOP),
    "Berth's Queue": api_object("berth.volcano.sh/v1alpha1", "Queue", "q"),
    "Volcano's Queue": api_object("scheduling.volcano.sh/v1beta1", "Queue", "q"),
    "LocalQueue": api_object("kueue.x-k8s.io/v1beta2", "LocalQueue", "q", SHOP),
    "DaemonSet": api_object("apps/v1", "DaemonSet", "agent", SHOP),
    "Deployment": api_object("apps/v1", "Deployment", "web", SHOP),
    "ControllerRevision": api_object("apps/v1", "ControllerRevision", "db-1", SHOP),
    "CSINode of no node": api_object("storage.k8s.io/v1", "CSINode", "gone"),
    "a budget of an empty namespace": api_object("policy/v1", "PodDisruptionBudget", "none", "empty"),
}


def spoiled(items: list[Raw], which: str) -> list[Raw]:
    """The objects, of which one (`apiVersion kind namespace name`) has fields of wrong types."""
    api_version, kind, namespace, name = which.split(" ")

    def is_it(one: Raw) -> bool:
        meta = one["metadata"]
        head = (one["apiVersion"], one["kind"], meta.get("namespace", ""), meta["name"])
        return head == (api_version, kind, namespace, name)

    assert sum(map(is_it, items)) == 1
    return [(broken(one) if is_it(one) else one) for one in items]


def broken(one: Raw) -> Raw:
    match one["kind"]:
        case "Pod":
            return {**one, "spec": {**one["spec"], "tolerations": 7}}
        case "ControllerRevision":
            return {**one, "data": 7}
        case "PriorityClass":
            return {**one, "value": "high"}
        case "StorageClass":
            return {**one, "provisioner": 7}
        case "Namespace" | "LocalQueue":
            return {**one, "metadata": {**one["metadata"], "labels": 7}}
        case _:
            return {**one, **ODD}
