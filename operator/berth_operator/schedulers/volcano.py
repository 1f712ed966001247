"""Volcano: its PodGroups, whose pods are placed all together or not at all, and its queues, in which pods count."""

from typing import Any, Final

from berth_core import (
    GROUP_NAME_ANNOTATION,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    POD_GROUP_KIND,
    RESERVATION_LABEL,
    RESERVATION_NAME_ANNOTATION,
    VOLCANO_POD_GROUP_API_VERSION,
    VOLCANO_SCHEDULER,
    Capacity,
    PodSpec,
    Reservation,
    priority_class_name,
)
from berth_kube import VOLCANO_POD_GROUPS, VOLCANO_QUEUES

Body = dict[str, Any]

NAME: Final = VOLCANO_SCHEDULER
POD_GROUPS: Final = VOLCANO_POD_GROUPS
QUEUES: Final = VOLCANO_QUEUES
LOOSENED: Final = {"spec": {"minMember": 1}}
"""The patch of a PodGroup that makes Volcano place each of its pods by itself."""


def scheduler_of(reservation: Reservation, spec: PodSpec) -> str:
    """Return the name of the template's scheduler, else of the Reservation's, else of the default one."""
    return spec.scheduler_name or reservation.spec.scheduler_name or "default-scheduler"


def is_gang(reservation: Reservation) -> bool:
    """Return whether Volcano has to place several slots together."""
    # With `WhenFree` each slot waits for a chosen node, so there is nothing to place together.
    spec = reservation.spec
    names = {scheduler_of(reservation, task.template.spec) for task in spec.tasks}
    return spec.wanted > 1 and spec.capacity is Capacity.FREE and names == {VOLCANO_SCHEDULER}


def pod_group_name(uid: str) -> str:
    """Return the name of the PodGroup of a Reservation's placeholders."""
    return f"berth-{uid}"


def join_pod_group(body: Body, name: str) -> Body:
    """Return the body of a placeholder that belongs to a PodGroup; with no name, the body as it is."""
    if not name:
        return body
    metadata = body["metadata"]
    return body | {"metadata": metadata | {"annotations": metadata["annotations"] | {GROUP_NAME_ANNOTATION: name}}}


def build_pod_group(reservation: Reservation, *, priority: int, namespace: str) -> Body:
    """Return the PodGroup by which Volcano places all wanted placeholders or none."""
    meta = reservation.metadata
    # Of all slots only the wanted ones: with the sum of the replicas Volcano would place none where one of them finds
    # no node. The PodGroup's own priority orders it in its queue, as that of the pods orders them within it.
    spec = {"minMember": reservation.spec.wanted, "priorityClassName": priority_class_name(priority)}
    return {
        "apiVersion": VOLCANO_POD_GROUP_API_VERSION,
        "kind": POD_GROUP_KIND,
        "metadata": {
            "name": pod_group_name(meta.uid),
            "namespace": namespace,
            "labels": {RESERVATION_LABEL: meta.uid, MANAGED_LABEL: MANAGED_BY_OPERATOR},
            "annotations": {RESERVATION_NAME_ANNOTATION: reservation.key},
        },
        "spec": spec | ({"queue": reservation.spec.queue} if reservation.spec.queue else {}),
    }
