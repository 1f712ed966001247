"""A plan of a small made-up cluster, before the service's first run.

What a process keeps of its first plan, such as modules and compiled types, is small. Allocated among the objects of a
large cluster, it would keep whole mebibytes from being returned, so it is allocated before one is in memory.
"""

from contextlib import suppress
from typing import Any, Final

import msgspec

from berth_core import BerthError, DeschedulerPolicy, Snapshot
from berth_core.decoding import convert
from berth_descheduler.controller.store import ServiceContext
from berth_descheduler.planner import plan
from berth_descheduler.policy import PolicyRun
from berth_service.memory import release_memory

_NODES: Final = 6
_NAME: Final = "warm-up"
_POLICY: Final = {
    "metadata": {"name": _NAME},
    "spec": {
        "profiles": [
            {
                "name": _NAME,
                "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "Consolidate"}}],
                "plugins": {"balance": {"enabled": ["Defragmentation"]}},
            }
        ]
    },
}


def warm_up(context: ServiceContext) -> None:
    """Plan a small cluster and forget the plan; what fails here fails again, and is reported, in a run."""
    with suppress(BerthError):
        parsed_policy = context.read(convert(_POLICY, DeschedulerPolicy))
        if isinstance(parsed_policy.run, PolicyRun):
            plan(small_cluster(), parsed_policy.run.planner_at(context.clock.now()))
    release_memory()


def small_cluster() -> Snapshot:
    """Return nodes with one pod each, of one ReplicaSet, most of which can be freed."""
    numbers = range(_NODES)
    items = [*map(_build_node, numbers), *map(_build_pod, numbers), _build_replica_set()]
    return Snapshot.from_json(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))


def _build_node(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "uid": f"node-{number}"},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _build_pod(number: int) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": _NAME, "uid": _NAME, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{_NAME}-{number}",
            "namespace": _NAME,
            "uid": f"pod-{number}",
            "labels": {"app": _NAME},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": f"node-{number}",
            "containers": [{"name": "app", "image": "app", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _build_replica_set() -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": _NAME, "namespace": _NAME, "uid": _NAME},
        "spec": {"replicas": _NODES, "selector": {"matchLabels": {"app": _NAME}}},
        "status": {"replicas": _NODES, "readyReplicas": _NODES, "availableReplicas": _NODES},
    }
