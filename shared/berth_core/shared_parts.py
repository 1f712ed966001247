"""Pods as many are kept: each part that pods of one template have alike is there once.

The tens of thousands of pods of a cluster come from few templates. Decoded as they are, each takes 6 KB, of which its
name, node and times are a fifth.
"""

import sys
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from berth_core.objects.metadata import ObjectMeta
from berth_core.objects.pods import Pod, PodSpec, PodStatus

_MOST_PARTS: Final = 1 << 12
"""Of one field. Lists are sorted by namespace and name, which keeps pods of one template together.

Many more would be annotations that a network plugin gives each pod (its address), also of pods that are gone.
"""

_METADATA: Final = ("labels", "annotations", "owner_references", "finalizers")
_SPEC: Final = (
    "node_selector",
    "affinity",
    "tolerations",
    "containers",
    "init_containers",
    "overhead",
    "topology_spread_constraints",
    "scheduling_gates",
)
_STATUS: Final = ("container_statuses", "init_container_statuses", "allocated_resources")
_TEXTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("metadata", ("namespace", "generate_name")),
    ("spec", ("node_name", "scheduler_name", "priority_class_name", "service_account_name", "restart_policy")),
    ("status", ("phase", "host_ip")),
)
_REACHED: Final = frozenset({"PodReadyToStartContainers", "Initialized", "ContainersReady"})
"""The conditions of a pod's way to being Ready of which nothing is read once they are True.

Of PodScheduled the time is: it says since when the pod has taken room on its node.
"""

_encode = msgspec.json.Encoder().encode
_parts: Final[dict[str, dict[bytes, Any]]] = {name: {} for name in (*_METADATA, *_SPEC, *_STATUS)}


def share_parts(pod: Pod) -> None:
    """Replace parts of a pod by equal ones of earlier pods; only what has just decoded it may do so.

    Steps on the way to being Ready that it has reached are dropped.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    _share(metadata, _METADATA)
    _share(spec, _SPEC)
    _share(status, _STATUS)
    for part_name, fields in _TEXTS:
        part: ObjectMeta | PodSpec | PodStatus = getattr(pod, part_name)
        for field in fields:
            force_setattr(part, field, sys.intern(getattr(part, field)))
    kept = tuple(step for step in status.conditions if step.status != "True" or step.type not in _REACHED)
    force_setattr(status, "conditions", kept)


def _share(part: ObjectMeta | PodSpec | PodStatus, fields: tuple[str, ...]) -> None:
    for field in fields:
        value = getattr(part, field)
        if value is None or value == ():
            continue
        known = _parts[field]
        if len(known) > _MOST_PARTS:
            known.clear()
        force_setattr(part, field, known.setdefault(_encode(value), value))


def forget_parts() -> None:
    """Forget the parts that pods had, which stay with those that have them."""
    for known in _parts.values():
        known.clear()
