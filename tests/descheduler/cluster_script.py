"""An API server on loopback that serves a snapshot, for the commands that read a live cluster."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from berth_core.snapshot import Snapshot
from scripted_server import Reply, ScriptedServer, page

_CORE: Final = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ControllerRevision": "/apis/apps/v1/controllerrevisions",
    "Job": "/apis/batch/v1/jobs",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "Service": "/api/v1/services",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "ResourceQuota": "/api/v1/resourcequotas",
}
_NOT_EVERYWHERE: Final = {
    "Reservation": "/apis/batch.volcano.sh/v1alpha1/reservations",
    "batch.volcano.sh/v1alpha1 Job": "/apis/batch.volcano.sh/v1alpha1/jobs",
    "scheduling.volcano.sh/v1beta1 PodGroup": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "scheduling.k8s.io/v1alpha2 PodGroup": "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    "scheduling.k8s.io/v1alpha1 Workload": "/apis/scheduling.k8s.io/v1alpha1/workloads",
    "scheduling.volcano.sh/v1beta1 Queue": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "berth.volcano.sh/v1alpha1 Queue": "/apis/berth.volcano.sh/v1alpha1/queues",
    "kueue.x-k8s.io/v1beta2 LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/localqueues",
}
PATHS: Final = {**_CORE, **_NOT_EVERYWHERE}
"""By kind, with its apiVersion where the kind alone says too little."""


def serve(server: ScriptedServer, snapshot: Snapshot, **instead: Reply) -> ScriptedServer:
    """Script a server so that it has what a snapshot has; `instead` gives other replies by kind.

    Items of a list carry no kind, as with the real server. What clusters may lack is missing unless there is one.
    """
    return serve_items(server, msgspec.json.decode(snapshot.to_json())["items"], **instead)


def serve_items(server: ScriptedServer, items: Iterable[Mapping[str, Any]], **instead: Reply) -> ScriptedServer:
    """Script a server so that it has some objects, each with its apiVersion and kind, as `serve` does."""
    items = tuple(items)
    for kind, path in PATHS.items():
        of_kind = [_listed(item) for item in items if _path_of(item) == path]
        if kind in _CORE or of_kind or kind in instead:
            server.on("GET", path, instead.get(kind, page(*of_kind)))
    return server


def _path_of(item: Mapping[str, Any]) -> str:
    return PATHS.get(f"{item['apiVersion']} {item['kind']}") or PATHS[item["kind"]]


def _listed(item: Mapping[str, Any]) -> dict[str, Any]:
    managed = {"managedFields": [{"manager": "test"}]}
    body = {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}
    return body | {"metadata": item["metadata"] | managed} if isinstance(item["metadata"], dict) else body
