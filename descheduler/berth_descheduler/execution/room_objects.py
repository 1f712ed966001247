"""Owns the Reservations that wait for the room which a plan makes: their bodies and names; every function is pure.

It does not send them (`room_keeper`), and it does not own a slot's template (`reservation_templates`).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from berth_core import migration_plans, reservations
from berth_core.clock import parse_timestamp
from berth_core.durations import format_duration
from berth_core.labels import MANAGED_BY_DESCHEDULER, MANAGED_LABEL, PLAN_LABEL, ROOM_ANNOTATION
from berth_core.names import reservation_name
from berth_core.plan_rooms import Room
from berth_core.reservations import Reservation
from berth_core.selector_texts import parse_selector
from berth_descheduler.execution.plan_objects import PlanIdentity, controlled_by
from berth_descheduler.execution.reservation_templates import RawObject, build_task, build_template

RawPods = Mapping[str, RawObject]
"""The waiting pods of a room by uid."""


def room_reservation_name(plan: str, index: int) -> str:
    """Return the name of the Reservation for the room with an index in a plan."""
    return reservation_name(plan, f"room-{index}")


def build_room_reservation(
    plan: PlanIdentity, index: int, room: Room, raw_pods: RawPods, ttl: timedelta
) -> dict[str, Any]:
    """Return the Reservation of one room, of a pod or gang made from the live pods."""
    return {
        "apiVersion": reservations.API_VERSION,
        "kind": reservations.KIND,
        "metadata": {
            "name": room_reservation_name(plan.name, index),
            "namespace": room.namespace,
            "labels": {PLAN_LABEL: plan.name, MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
            "annotations": {ROOM_ANNOTATION: str(index)},
            "ownerReferences": [controlled_by(plan)],
        },
        "spec": {
            "schedulerName": _scheduler(raw_pods),
            "owners": _owners(plan, room),
            "ttl": format_duration(ttl),
            "tasks": _tasks(room, raw_pods),
        },
    }


def _scheduler(raw_pods: RawPods) -> str:
    return next((raw["spec"].get("schedulerName", "") for raw in raw_pods.values()), "") or "default-scheduler"


def _owners(plan: PlanIdentity, room: Room) -> list[dict[str, Any]]:
    """Return who may take the room: the very pods, who is selected, or nobody, which only the plan stands for."""
    if not room.is_shape:
        return [{"object": {"apiVersion": "v1", "kind": "Pod", "name": s.pod, "uid": s.pod_uid}} for s in room.slots]
    if room.selector:
        return [{"labelSelector": msgspec.to_builtins(parse_selector(room.selector))}]
    nobody = {"apiVersion": migration_plans.API_VERSION, "kind": migration_plans.KIND, "name": plan.name}
    return [{"object": {**nobody, "uid": plan.uid}}]


def _tasks(room: Room, raw_pods: RawPods) -> list[dict[str, Any]]:
    """Return a task for each node and sort of pod: with several nodes to choose from, one might take another's room."""
    found: list[tuple[str, dict[str, Any], int]] = []
    for slot in room.slots:
        template = build_template(raw_pods[slot.pod_uid]) if slot.pod_uid else _template_of_shape(room)
        template.pop("metadata", None)
        for number, (node, known, count) in enumerate(found):
            if node == slot.node and known == template:
                found[number] = (node, known, count + 1)
                break
        else:
            found.append((slot.node, template, 1))
    return [
        build_task(f"room-{number}", template, replicas=count, node=node)
        for number, (node, template, count) in enumerate(found)
    ]


def _template_of_shape(room: Room) -> dict[str, Any]:
    container = {"name": "shape", "image": "shape", "resources": {"requests": dict(room.requests)}}
    return {"spec": {"containers": [container]}}


def ttl_from(now: datetime, reservation: Reservation, ttl: timedelta) -> str:
    """Return the TTL with which a Reservation lives so much longer from now on."""
    age = now - parse_timestamp(reservation.metadata.creation_timestamp or "")
    return format_duration(timedelta(seconds=max(0, round(age.total_seconds()))) + ttl)
