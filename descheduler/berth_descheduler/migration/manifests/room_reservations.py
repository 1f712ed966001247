"""The Reservations that wait for a plan's rooms: their bodies and names."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from berth_core import (
    MANAGED_BY_DESCHEDULER,
    MANAGED_LABEL,
    PLAN_API_VERSION,
    PLAN_KIND,
    PLAN_LABEL,
    POLICY_LABEL,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    ROOM_ANNOTATION,
    STARVING_JOB_LABEL,
    Capacity,
    Fence,
    ObjectReference,
    Reservation,
    Room,
    format_duration,
    job_uid,
    parse_selector,
    parse_timestamp,
    reservation_name,
)
from berth_core.object_lists import RawObject
from berth_descheduler.migration.manifests.plans import PlanIdentity, controlled_by
from berth_descheduler.migration.manifests.reservation_templates import build_task, build_template
from berth_kube import controller_reference

RawPods = Mapping[str, RawObject]
"""The waiting pods of a room by uid."""


def room_reservation_name(plan: str, index: int) -> str:
    """Return the name of the Reservation for a plan's room."""
    return reservation_name(plan, f"room-{index}")


def build_room_reservation(
    plan: PlanIdentity, index: int, room: Room, raw_pods: RawPods, ttl: timedelta
) -> dict[str, Any]:
    """Return the Reservation of one room, built from its live pods: one pod or a gang."""
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": room_reservation_name(plan.name, index),
            "namespace": room.namespace,
            "labels": {PLAN_LABEL: plan.name, MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
            "annotations": {ROOM_ANNOTATION: str(index)},
            # The garbage collector deletes the Reservation with its plan: deleting a plan gives all of its places back.
            "ownerReferences": [controlled_by(plan)],
        },
        "spec": {
            "schedulerName": _scheduler(raw_pods),
            "owners": _room_owners(plan, room),
            **({"queue": room.queue} if room.queue else {}),
            "ttl": format_duration(ttl),
            "tasks": _tasks(room, raw_pods),
        },
    }


def job_reservation_name(job: ObjectReference) -> str:
    """Return the name of the Reservation for a starving job, the same for every plan."""
    return reservation_name(f"starving-{job.name}", job_uid(job))


def build_job_reservation(room: Room, job: ObjectReference, raw_pods: RawPods, policy: str) -> dict[str, Any]:
    """Return the Reservation that waits for a starving job, built from its live pods.

    No plan controls it: it outlives the plan, and ends with the job, which owns it if it is an object.
    """
    # With the job as its owner the garbage collector ends the wait when the job is deleted, also while Berth is away.
    owner_reference = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}
    annotations = {"annotations": {POLICY_LABEL: policy}} if policy else {}
    references = {"ownerReferences": [{**owner_reference, "blockOwnerDeletion": False}]} if job.uid else {}
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": job_reservation_name(job),
            "namespace": room.namespace,
            "labels": {STARVING_JOB_LABEL: job_uid(job), MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
            **annotations,
            **references,
        },
        "spec": {
            "schedulerName": _scheduler(raw_pods),
            "owners": [{"object": owner} for owner in _owners_of(raw_pods)],
            "ttl": room.ttl,
            "tasks": _tasks(room, raw_pods),
            "capacity": Capacity.WHEN_FREE.value,
            "fence": Fence.NODE.value,
            # A part of a gang's nodes would be kept from others without helping the gang.
            **({"allOrNothing": True} if len(room.slots) > 1 else {}),
        },
    }


def _owners_of(raw_pods: RawPods) -> list[dict[str, Any]]:
    """Return the controllers of pods, and the pods that have none, each once."""
    controllers: dict[str, dict[str, Any]] = {}
    for uid, raw_pod in raw_pods.items():
        controller = controller_reference(raw_pod)
        pod = ObjectReference(api_version="v1", kind="Pod", name=raw_pod["metadata"]["name"], uid=uid)
        owner = msgspec.structs.replace(controller, namespace="") if controller is not None else pod
        controllers.setdefault(owner.uid, msgspec.to_builtins(owner))
    return list(controllers.values())


def _scheduler(raw_pods: RawPods) -> str:
    return next((raw_pod["spec"].get("schedulerName") for raw_pod in raw_pods.values()), "") or "default-scheduler"


def _room_owners(plan: PlanIdentity, room: Room) -> list[dict[str, Any]]:
    """Return the owners that may take the room: its pods, or those that its selector selects.

    A shape without a selector is owned by its plan, which stands for no pod at all.
    """
    if not room.is_shape:
        return [
            {"object": {"apiVersion": "v1", "kind": "Pod", "name": slot.pod, "uid": slot.pod_uid}}
            for slot in room.slots
        ]
    if room.selector:
        return [{"labelSelector": msgspec.to_builtins(parse_selector(room.selector))}]
    no_pod = {"apiVersion": PLAN_API_VERSION, "kind": PLAN_KIND, "name": plan.name}
    return [{"object": {**no_pod, "uid": plan.uid}}]


def _tasks(room: Room, raw_pods: RawPods) -> list[dict[str, Any]]:
    """Return one task per node and sort of pod, so that no pod takes the room of another sort."""
    tasks: list[tuple[str, dict[str, Any], int]] = []
    for slot in room.slots:
        template = build_template(raw_pods[slot.pod_uid]) if slot.pod_uid else _template_of_shape(room)
        # Pods of one sort may differ in a label, such as their index, and would each get a task of their own.
        template.pop("metadata", None)
        for task_index, (node, known_template, count) in enumerate(tasks):
            if node == slot.node and known_template == template:
                tasks[task_index] = (node, known_template, count + 1)
                break
        else:
            tasks.append((slot.node, template, 1))
    return [
        build_task(f"room-{task_number}", template, replicas=count, node=node)
        for task_number, (node, template, count) in enumerate(tasks)
    ]


def _template_of_shape(room: Room) -> dict[str, Any]:
    # The API requires a name and an image. No pod is made from this template: placeholders take only its requests.
    container = {"name": "shape", "image": "shape", "resources": {"requests": dict(room.requests)}}
    return {"spec": {"containers": [container]}}


def ttl_from(now: datetime, reservation: Reservation, ttl: timedelta) -> str:
    """Return the TTL with which a Reservation expires `ttl` from now."""
    # A TTL counts from the creation, so extending it by an hour means writing the present age plus an hour.
    age = now - parse_timestamp(reservation.metadata.creation_timestamp or "")
    return format_duration(timedelta(seconds=max(0, round(age.total_seconds()))) + ttl)
